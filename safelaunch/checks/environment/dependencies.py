"""Checks what the packages that a job uses require of others, as their own metadata says.

Judged are the packages that the program, its launcher and its options import, and the training
libraries that these require in turn (runtime/packages.py). What another package of the environment
requires, or a library deep below, is no concern of the job. Specifications: PEP 440, PEP 508, core
metadata.
"""

# ruff: noqa: PLC0415 - packaging (20 ms): only where all checks run

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from safelaunch import launchers
from safelaunch.checks.answers import Answer, NotKnown, fail, ok, warn
from safelaunch.checks.environment import packages, pip_commands
from safelaunch.checks.environment.requirements import normalize
from safelaunch.checks.registry import check
from safelaunch.runtime.packages import RECORDED
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    from safelaunch.checks.answers import Question
    from safelaunch.checks.context import HostContext

_SHOWN = 8
_MAX_ROOTS = 200
_SPECIFIED = "https://packaging.python.org/en/latest/specifications/core-metadata/#requires-dist"
# transformers 4.38.2 to 5.23.0, dependency_versions_check.py: raises an ImportError for these
_REFUSES = "transformers: dependency_versions_check.py, pkgs_to_check_at_runtime"
_REFUSED = frozenset({
    "tqdm", "regex", "requests", "packaging", "filelock", "numpy", "tokenizers", "huggingface-hub",
    "safetensors", "pyyaml",
})  # fmt: skip
# torch names one version of each; another one is often installed on purpose, NCCL's most of all
_REPLACED = "nvidia-"
# Libraries that others work through, as TRL through vLLM: the version that an extra names counts.
# A program has other uses for the rest, such as timm (transformers 4.57.6: timm<=1.0.19, for models
# of its own), and torch says which Triton (deepspeed 0.17.6: triton==2.1.0, for its own kernels).
_INTEGRATIONS = frozenset(RECORDED) - {"triton"}
# These only hand data over to the libraries of their extras: safetensors 0.8.0, torch>=2.4, loads
# and saves with torch 2.1.2 (2026-11-28).
_DATA = frozenset(("safetensors", "datasets", "huggingface-hub"))


class Wish(NamedTuple):
    """What a distribution requires of another one."""

    by: str
    specifier: SpecifierSet
    is_optional: bool  # it names a version, where the other one is used

    def accepts(self, version: str) -> bool:
        """Whether a version meets it; one that is no version does."""
        from packaging.version import InvalidVersion, Version

        try:
            number = Version(version)
        except InvalidVersion:
            return True
        # builds of NVIDIA's containers, such as 2.9.0a0+git, are later than their number says
        numbers = (number, Version(number.base_version))
        return any(self.specifier.contains(each, prereleases=True) for each in numbers)


def used_modules(host: HostContext) -> list[str]:
    """Return the modules that the program always imports, and those of its launcher and options."""
    names = dict.fromkeys(launchers.load(host.job.launcher).imports(host.job).values())
    names |= dict.fromkeys(packages.needed_modules(host))
    try:
        imports = host.context.project_files.imports
    except NotKnown:
        imports = None
    if imports is not None and imports.path_changed is None:
        names |= dict.fromkeys(m.name for m in imports.third_party if m.is_required)
    if host.job.module is not None and host.context.project_files.script is None:
        names |= dict.fromkeys([host.job.module.partition(".")[0]])
    # of `transformer-engine[pytorch]` the metadata has the name alone
    projects = (pip_commands.PROJECTS.get(name, name).partition("[")[0] for name in names)
    return list(projects)[:_MAX_ROOTS]


def module_questions(name: str, host: HostContext) -> list[Question]:
    """Return the question of a name about the modules that a job uses; none if it uses none."""
    modules = used_modules(host) if host.runs_python else []
    return [(name, *modules)] if modules else []


_questions = partial(module_questions, "requirements")


@check("dependencies", asks=_questions, needs=("python",), source=_SPECIFIED)
def dependencies(host: HostContext) -> Iterator[Answer]:
    """Whether the packages that the job uses have what they require, in a version they accept."""
    questions, installed = _questions(host), packages.installed_packages(host)
    if not questions or installed is None:
        return
    answer = host.answer(*questions[0])
    roots = set(answer["roots"].values())
    judged, wishes = _wishes(host, answer["requires"], roots)
    unmet = _unsettled(host, wishes, installed, answer["modules"])
    order = {name: index for index, name in enumerate(RECORDED)}
    names = sorted(unmet, key=lambda name: order.get(name, len(order)))
    for name in names[:_SHOWN]:
        yield _conflict(host, name, unmet[name], installed, answer["modules"])
    if len(names) > _SHOWN:
        others = names[_SHOWN:]
        what = f"{quantity(len(others), 'more requirement')} not met: {', '.join(others)}"
        yield warn(what, f"`{pip_commands.python(host)} -m pip check` lists them")
    if not names and judged:
        yield ok(f"what {quantity(len(judged), 'package')} of the job require is met")


def _unsettled(
    host: HostContext,
    wishes: Mapping[str, Sequence[Wish]],
    installed: Mapping[str, str],
    modules: Sequence[str],
) -> dict[str, Sequence[Wish]]:
    """Return {name: all wishes} of the distributions that are not as they are required.

    What a version requires that is to be replaced itself is settled with it, and left out.
    """
    bad = {
        name: [wish for wish in group if _is_unmet(wish, name, installed, modules)]
        for name, group in wishes.items()
    }
    replaced = {name for name, group in bad.items() if group and name in installed}
    conflicts: dict[str, Sequence[Wish]] = {}
    settled: set[str] = set()
    for is_first in (True, False):  # at first what has another reason than a replaced version
        for name, group in bad.items():
            others = replaced if is_first else conflicts.keys() | settled
            if any(w.by not in others or _is_certain(host, name, w) for w in group):
                conflicts.setdefault(name, wishes[name])
            elif group and not is_first:
                settled.add(name)
    return conflicts


def _wishes(
    host: HostContext, requires: Mapping[str, Sequence[str]], roots: set[str]
) -> tuple[list[str], dict[str, list[Wish]]]:
    """Return the judged distributions, and what they require: {name: wishes}."""
    environment = packages.marker_environment(host)
    extras: dict[str, set[str]] = {name: set() for name in roots}
    for pin in packages.applied_requirements(host):
        if pin.name in extras:
            extras[pin.name] |= pin.extras
    waiting, judged = sorted(roots), list[str]()
    wishes: dict[str, list[Wish]] = {}
    while waiting:
        by = waiting.pop(0)
        if by in judged:
            continue
        judged.append(by)
        for requirement in filter(None, map(_parse, requires.get(by, ()))):
            name = normalize(requirement.name)
            is_active = _applies(requirement, environment, {"", *extras[by]})
            is_optional = not is_active and name in roots and name in _INTEGRATIONS
            is_optional = is_optional and by not in _DATA
            if not is_active and not (is_optional and _applies(requirement, environment, {name})):
                continue
            wishes.setdefault(name, []).append(Wish(by, requirement.specifier, is_optional))
            if is_active and name in requires and name in RECORDED:
                extras.setdefault(name, set()).update(map(normalize, requirement.extras))
                waiting.append(name)
    return judged, wishes


def _parse(line: str) -> Requirement | None:
    """Return a line of metadata as a requirement; None where it is none."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(line)
    except (InvalidRequirement, RecursionError):
        return None


def _applies(requirement: Requirement, environment: Mapping[str, str], extras: set[str]) -> bool:
    """Whether a requirement is for this interpreter, with one of these extras; "" is none."""
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName

    marker = requirement.marker
    try:
        return marker is None or any(marker.evaluate({**environment, "extra": e}) for e in extras)
    except (UndefinedComparison, UndefinedEnvironmentName):
        return False


def _is_unmet(wish: Wish, name: str, installed: Mapping[str, str], modules: Sequence[str]) -> bool:
    if name not in installed:
        return not wish.is_optional and name not in modules
    return not name.startswith(_REPLACED) and not wish.accepts(installed[name])


def _conflict(
    host: HostContext,
    name: str,
    wishes: Sequence[Wish],
    installed: Mapping[str, str],
    modules: Sequence[str],
) -> Answer:
    """Return who requires another version of a distribution, and the command that cures it."""
    bad = [wish for wish in wishes if _is_unmet(wish, name, installed, modules)]
    listed = ", ".join(
        f"{wish.by} {installed.get(wish.by, '')}".strip()
        + f" requires {name}{wish.specifier}"
        + (f" for its extra `{name}`" if wish.is_optional else "")
        for wish in bad
    )
    what = f"{name} {installed[name]}" if name in installed else f"{name} is missing"
    if any(_is_certain(host, name, wish) for wish in bad):
        answer = warn if host.plan.setup else fail
        return answer(
            f"{what}: {listed}, and refuses to be imported", _cure(host, name, wishes), _REFUSES
        )
    return warn(f"{what}: {listed}", _cure(host, name, wishes))


def _is_certain(host: HostContext, name: str, wish: Wish) -> bool:
    """Whether a distribution refuses to be imported, and the program itself always imports it."""
    return name in _REFUSED and wish.by == "transformers" and wish.by in used_modules(host)


def _cure(host: HostContext, name: str, wishes: Sequence[Wish]) -> str:
    """Return the command that installs a version for all who require one."""
    specifier = _joined(wishes)
    if specifier is None:
        names = sorted({wish.by for wish in wishes})
        return f"no version is for all of them: {pip_commands.install(host, names, '--upgrade')}"
    if name == "torch":
        return pip_commands.torch(host, f"torch{specifier}")
    return pip_commands.install(host, [f"{name}{specifier}"])


def _joined(wishes: Sequence[Wish]) -> str | None:
    """Return the specifiers of all wishes as one; None where no version can meet them all."""
    specifiers = sorted({str(each) for wish in wishes for each in wish.specifier})
    bounds = [text.lstrip("=<>!~").removesuffix(".*") for text in specifiers]
    # beside each bound lies what a specifier next to it allows
    candidates = ["0", *(near for bound in bounds for near in (bound, f"{bound}.1"))]
    if any(all(wish.accepts(version) for wish in wishes) for version in candidates):
        return ",".join(specifiers)
    return None
