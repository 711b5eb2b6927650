"""Checks: the interpreter that runs the job, and whether it has what starts the job."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from safelaunch import launchers
from safelaunch.checks import job_needs
from safelaunch.checks.answers import Answer, NotKnown, Question, fail, ok, warn
from safelaunch.checks.environment import pip_commands
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.checks.context import CheckContext, HostContext

# why the probe (runtime/facts.py) got no answer from an interpreter; others may be a slow disk
_NO_START = (
    r"No such file|Not a directory|[Pp]ermission denied|Exec format|is older than|ended with exit"
)
_TOO_OLD = r"(Python [\d.]+) is older than ([\d.]+)"
_KINDS = {"venv": "virtual environment", "conda": "conda environment"}
_FOLDER = "a namespace"  # a folder of that name without __init__.py (facts/questions.py)
_ACCELERATE = "huggingface/accelerate: commands/launch.py"


# -- the interpreter -------------------------------------------------------------------------------


@check("interpreter", "environment", job=False)
def interpreter(host: HostContext) -> Answer:
    """Whether the interpreter runs, and is the one that was meant."""
    found = host.get("python")
    if found is None:
        return _refused(host)
    said = f"{found['executable']}: Python {found['version']}, {found['kind']}"
    return _another(host, found) or _our_own(host, found) or ok(said + _beside(host, found))


def _refused(host: HostContext) -> Answer:
    why = str((host.get("skipped") or {}).get("python") or "")
    path, _, reason = why.partition(": ")
    if not reason or not path.startswith(("/", "~")):  # the question about it came to nothing
        raise NotKnown(why or "`python` of the host is not known")
    other = pip_commands.elsewhere(host, ["torch"])
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


def _another(host: HostContext, found: dict[str, Any]) -> Answer | None:
    """Return what is wrong where the path leads to another installation than it says."""
    of = host.entry.interpreter if host.node is None else host.node.interpreter
    wanted = host.interpreter
    if of is None or wanted is None or wanted.startswith("~"):
        return None
    if of.kind in _KINDS and found["kind"] == "system":
        return warn(
            f"{of.prefix} is no {_KINDS[of.kind]}: its python uses what is in {found['prefix']}",
            f"`{of.kind}:` wants one; make it anew, or say `python: {found['executable']}`",
        )
    if wanted != found["executable"] and wanted.rpartition("/bin/")[0] != found["prefix"]:
        return warn(
            f"{wanted} runs {found['executable']}, and may choose another one elsewhere",
            f"`python: {found['executable']}`",
        )
    return None


def _our_own(host: HostContext, found: dict[str, Any]) -> Answer | None:
    """Return a warning where safelaunch's own environment was taken, for want of a better word."""
    is_ours = host.is_local and found["prefix"] == sys.prefix
    if not is_ours or host.node is None or host.interpreter is not None:
        return None
    if "torch" in (found.get("packages") or {}):
        return None
    other = pip_commands.elsewhere(host, ["torch"])
    if other is None or not job_needs.runs_python(host):
        return None
    return warn(f"the job runs in safelaunch's own environment, {sys.prefix}, without torch", other)


def _beside(host: HostContext, found: dict[str, Any]) -> str:
    """Return that the active environment is another one than the job's."""
    environ = host.context.environ
    active = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX")
    if not host.is_local or host.interpreter is None or active in (None, found["prefix"]):
        return ""
    return f"; the active {active} is not used"


# -- what is taken from whoever starts it ----------------------------------------------------------


@check("secrets", "environment", once=True)
def secrets(context: CheckContext) -> Answer | None:
    """Whether the names of `env_from` are set here: a start refuses without."""
    names = context.hosts[0].plan.secrets if context.hosts else ()
    missing = [name for name in names if not context.environ.get(name)]
    if missing:
        what = f"`env_from` names {', '.join(missing)}, not set in your environment"
        return fail(what, " and ".join(f"`export {name}=...`" for name in missing))
    return ok(f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} set") if names else None


# -- the launcher ----------------------------------------------------------------------------------


def _modules(host: HostContext) -> dict[str, str]:
    """Return {module: its package}, without which the launcher itself does not start."""
    job = host.job
    return launchers.load(job.launcher).imports(job) if job_needs.runs_python(host) else {}


def _asks(host: HostContext) -> Iterator[Question]:
    return (("module", name) for name in _modules(host))


@check("launcher", "environment", asks=_asks, quick=True)
def launcher(host: HostContext) -> Answer | None:
    """Whether the interpreter finds the launcher."""
    packages = _modules(host)
    if not packages:
        return None
    answers = {name: host.answer("module", name) for name in packages}
    missing = [n for n, a in answers.items() if not a["found"] or a["where"] == _FOLDER]
    if missing:
        return _missing(host, packages, missing)
    hidden = [n for n, a in answers.items() if str(a["where"]).endswith(f"/{n}.py")]
    if hidden:
        where = answers[hidden[0]]["where"]
        return warn(
            f"`import {hidden[0]}` takes {where}, not the library", f"give {where} another name"
        )
    installed = host.get("python", "packages") or {}
    listed = [f"{name} {installed.get(package, '')}".strip() for name, package in packages.items()]
    return ok(f"{pip_commands.python(host)} has {', '.join(listed)}")


def _missing(host: HostContext, packages: dict[str, str], missing: list[str]) -> Answer:
    path, job = pip_commands.python(host), host.job
    ours = host.is_local and host.get("python", "prefix") == sys.prefix
    own = ", safelaunch's own environment," if ours else ""
    without = " and no ".join(f"`{name}`" for name in missing)
    other = pip_commands.elsewhere(host, packages.values())
    rest = [packages[name] for name in missing if name != "torch"]
    commands = [pip_commands.torch(host)] if "torch" in missing else []
    commands += [pip_commands.install(host, rest)] if rest else []
    source = _ACCELERATE if "accelerate" in packages and "deepspeed" in missing else ""
    hint = "; or ".join([other, " and ".join(commands)]) if other else " and ".join(commands)
    return fail(
        f"{path}{own} has no {without}: the launcher `{job.launcher}` does not start", hint, source
    )
