"""Checks the interpreter that runs the job, and whether it has what starts the job."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from safelaunch import launchers
from safelaunch.checks.answers import Answer, NotKnown, fail, ok, warn
from safelaunch.checks.environment import pip_commands
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from safelaunch.checks.context import CheckContext, HostContext

# why the probe (runtime/facts.py) got no answer from an interpreter; other reasons may be a slow
# disk
_NO_START = (
    r"No such file|Not a directory|[Pp]ermission denied|Exec format|is older than|ended with exit"
)
_TOO_OLD = r"(Python [\d.]+) is older than ([\d.]+)"
_KINDS = {"venv": "virtual environment", "conda": "conda environment"}
_FOLDER = "a namespace"  # a folder of that name without __init__.py (facts/questions.py)
_ACCELERATE = "huggingface/accelerate: commands/launch.py"


@check("interpreter", job=False)
def interpreter(host: HostContext) -> Answer:
    """Whether the interpreter runs and is the intended one."""
    python = host.get("python")
    if python is None:
        return _no_answer(host)
    return (
        _other_installation(host, python)
        or _own_environment(host, python)
        or ok(
            f"{python['executable']}: Python {python['version']}, {python['kind']}"
            + _unused_environment(host, python)
        )
    )


def _no_answer(host: HostContext) -> Answer:
    """Return why an interpreter did not answer. Raises NotKnown."""
    why = str((host.get("skipped") or {}).get("python") or "")
    path, _, reason = why.partition(": ")
    if not reason or not path.startswith(("/", "~")):  # not a reason of the interpreter itself
        raise NotKnown(why or "`python` of the host is not known")
    other = pip_commands.other_environment(host, ["torch"])
    hint = other or "name one that exists with `python:`, `venv:` or `conda:`"
    old = re.search(_TOO_OLD, reason)
    if old is not None:
        hint = other or f"name a Python {old[2]} or newer with `python:`, `venv:` or `conda:`"
        return fail(f"{path} is {old[1]}; safelaunch needs {old[2]} or newer there", hint)
    if re.search(_NO_START, reason):
        return fail(f"the interpreter {path} does not run: {reason}", hint)
    return warn(
        f"the interpreter {path} did not answer: {reason}",
        f"`{path} -c 1` there shows how long it takes; {hint}",
    )


def _other_installation(host: HostContext, python: dict[str, Any]) -> Answer | None:
    """Return a warning where the path leads to another installation than its name says."""
    declared = host.entry.interpreter if host.node is None else host.node.interpreter
    path = host.interpreter
    if declared is None or path is None or path.startswith("~"):
        return None
    actual = f"`python: {python['executable']}`"
    if declared.kind in _KINDS and python["kind"] == "system":
        return warn(
            f"{declared.prefix} is no {_KINDS[declared.kind]}: its python uses the packages of "
            f"{python['prefix']}",
            f"create it again for `{declared.kind}:`, or write {actual}",
        )
    if path != python["executable"] and path.rpartition("/bin/")[0] != python["prefix"]:
        return warn(
            f"{path} runs {python['executable']}, and may choose another one elsewhere", actual
        )
    return None


def _own_environment(host: HostContext, python: dict[str, Any]) -> Answer | None:
    """Return a warning where the job falls back to safelaunch's own environment."""
    is_own = host.is_local and python["prefix"] == sys.prefix
    if not is_own or host.node is None or host.interpreter is not None:
        return None
    if "torch" in (python.get("packages") or {}):
        return None
    other = pip_commands.other_environment(host, ["torch"])
    if other is None or not host.runs_python:
        return None
    return warn(f"the job runs in safelaunch's own environment, {sys.prefix}, without torch", other)


def _unused_environment(host: HostContext, python: dict[str, Any]) -> str:
    """Return a note where the active environment is another one than the job's."""
    environ = host.context.environ
    active = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX")
    if not host.is_local or host.interpreter is None or active in (None, python["prefix"]):
        return ""
    return f"; the active {active} is not used"


@check("secrets", once=True)
def secrets(context: CheckContext) -> Answer | None:
    """Whether the variables of `env_from` are set on this machine: a start refuses without them."""
    names = context.hosts[0].plan.secrets if context.hosts else ()
    missing = [name for name in names if not context.environ.get(name)]
    if missing:
        what = f"`env_from` names {', '.join(missing)}, not set in your environment"
        return fail(what, " and ".join(f"`export {name}=...`" for name in missing))
    return ok(f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} set") if names else None


def _modules(host: HostContext) -> dict[str, str]:
    """Return {module: its package}, without which the launcher itself does not start."""
    own = launchers.load(host.job.launcher).imports(host.job) if host.runs_python else {}
    return {**own, "ray": "ray"} if host.job.ray_cluster else own


@check("launcher", asks=lambda host: [("module", name) for name in _modules(host)], quick=True)
def launcher(host: HostContext) -> Answer | None:
    """Whether the interpreter finds the launcher."""
    packages = _modules(host)
    if not packages:
        return None
    answers = {name: host.answer("module", name) for name in packages}
    missing = [n for n, a in answers.items() if not a["found"] or a["where"] == _FOLDER]
    if missing:
        return _missing(host, packages, missing)
    for name, answer in answers.items():
        if str(answer["where"]).endswith(f"/{name}.py"):
            where = answer["where"]
            what = f"`import {name}` imports {where} instead of the library"
            return warn(what, f"rename {where}")
    installed = host.get("python", "packages") or {}
    listed = [f"{name} {installed.get(package, '')}".strip() for name, package in packages.items()]
    return ok(f"{pip_commands.python(host)} has {', '.join(listed)}")


def _missing(host: HostContext, packages: dict[str, str], missing: list[str]) -> Answer:
    is_own = host.is_local and host.get("python", "prefix") == sys.prefix
    own = ", safelaunch's own environment," if is_own else ""
    names = " and no ".join(f"`{name}`" for name in missing)
    others = [packages[name] for name in missing if name != "torch"]
    commands = [pip_commands.torch(host)] if "torch" in missing else []
    commands += [pip_commands.install(host, others)] if others else []
    hints = [pip_commands.other_environment(host, packages.values()), " and ".join(commands)]
    return fail(
        f"{pip_commands.python(host)}{own} has no {names}: the launcher `{host.job.launcher}` does "
        "not start",
        "; or ".join(filter(None, hints)),
        _ACCELERATE if "accelerate" in packages and "deepspeed" in missing else "",
    )
