"""What a start asks of a machine before it begins: secrets, assets, interpreter, free port."""

from __future__ import annotations

import errno
import os
import posixpath
import re
import shutil
import stat
import zlib
from typing import TYPE_CHECKING, NamedTuple

from safelaunch import environ
from safelaunch.errors import ConfigError, StartError
from safelaunch.model import NodePlan, Slot, bind_word
from safelaunch.runtime import FOLDER, commands
from safelaunch.runtime.start import run_dir

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from safelaunch.model import Placed
    from safelaunch.runtime.commands import CommandResult

_PROBED = {"version", "cores", "gpus", "port", "executable"}  # what the probe prints
OLDEST_PYTHON = (3, 8)  # what runtime/ is written for


def check_secrets(node: NodePlan, environ_: Mapping[str, str]) -> None:
    """Refuse a start for which a name of `env_from` is not set. Raises StartError."""
    missing = [name for name in node.secrets if not environ_.get(name)]
    if missing:
        raise StartError(
            f"`env_from` names {', '.join(missing)}, not set in your environment",
            hint=f"export {missing[0]}=... and start again",
        )


def check_assets(assets: Iterable[Placed]) -> None:
    """Refuse a start for which an asset is not on this machine. Raises ConfigError."""
    for asset in assets:
        if not os.path.exists(asset.path):
            raise ConfigError(
                f"the asset `{asset.name}` is not there: {asset.path}",
                where=asset.origin,
                hint="nothing expands `$` here" if "$" in asset.path else None,
            )


def find_interpreter(node: NodePlan, environ_: Mapping[str, str]) -> str:
    """Return the absolute path of the job's interpreter: the job's, the active one, or python3."""
    path, where = str(node.interpreter.path or ""), str(node.interpreter.origin)
    if not path:
        path, where = _active(environ_)
    try:
        mode = os.stat(path).st_mode
    except OSError as e:
        what = "does not exist" if e.errno == errno.ENOENT else f"cannot be used: {e.strerror}"
        hint = "name another one: `python:`, `venv:` or `conda:`"
        raise StartError(f"the interpreter {path} {what}", where=where, hint=hint) from e
    if stat.S_ISDIR(mode):
        raise StartError(f"the interpreter {path} is a directory", where=where)
    if not os.access(path, os.X_OK):
        raise StartError(f"the interpreter {path} is not executable", where=where)
    return path


def _active(environ_: Mapping[str, str]) -> tuple[str, str]:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environ_.get(name)
        if prefix and os.path.isabs(prefix):
            return os.path.join(prefix, "bin", "python"), f"{name} of your environment"
    found = shutil.which("python3", path=environ_.get("PATH"))
    if found is None:
        raise StartError("no `python3` on PATH", hint="give the job `python:`, `venv:` or `conda:`")
    return os.path.abspath(found), "python3 on your PATH"


class MachineReport(NamedTuple):
    """What a machine says before a start: of itself, and through the job's interpreter."""

    home: str  # the user's home folder
    base: str  # safelaunch's folder
    environ: Mapping[str, str]
    python: str  # for a job that names no interpreter
    bash: str | None
    probe: CommandResult  # of `probe_command`
    version: str  # what `python -V` prints, to name one that is too old even for the probe


def probe_command(run_id: str) -> list[str]:
    """Return the words behind an interpreter that make it print what `facts` reads."""
    with open(os.path.join(FOLDER, "start", "start_probe.py"), encoding="utf-8") as file:
        source = file.read()
    return ["-I", "-S", "-c", source, str(zlib.crc32(run_id.encode()))]


def facts(node: NodePlan, report: MachineReport, run_id: str) -> dict[Slot, str]:
    """Return what a node's slots are filled with on its machine. Raises StartError."""
    if not report.bash:
        raise StartError("no `bash` on PATH: it runs the job's launch.sh", where=_place(node))
    path, probe = node.interpreter.path, report.probe
    python = report.python if path is None else str(bind_word(path, {Slot.HOME: report.home}))
    values = dict(line.split(" ", 1) for line in probe.out.splitlines() if " " in line)
    if probe.code != 0 or not set(values) >= _PROBED:
        if re.fullmatch(r"Python (2|3\.[0-7])\..*", report.version):
            raise _too_old(node, python, report.version)
        what = f"the interpreter {python} does not work: {probe.last_line or probe.code}"
        if probe.code == commands.NOT_RUN:
            what = probe.err
        raise StartError(what, where=node.interpreter.origin)
    if tuple(int(n) for n in values["version"].split(".")) < OLDEST_PYTHON:
        raise _too_old(node, python, f"Python {values['version']}")
    if values["port"] == "None":
        raise StartError("no free port between 20000 and 65535", where=_place(node))
    if node.interpreter.path is None and posixpath.isabs(values["executable"]):
        python = values["executable"]  # python3 on PATH may be a shim that asks which one anew
    gpus = _visible_gpus(node, report.environ, int(values["gpus"]))
    return {
        Slot.HOME: report.home,
        Slot.RUN_ID: run_id,
        Slot.RUN_DIR: run_dir.node_dir(run_id, node.node_rank, report.base),
        Slot.PYTHON: python,
        Slot.PREFIX: posixpath.dirname(posixpath.dirname(python)),
        Slot.PORT: values["port"],
        **_counted(node, int(values["cores"]), gpus),
    }


def _place(node: NodePlan) -> str | None:
    return None if node.host == "localhost" else node.host


def _too_old(node: NodePlan, python: str, version: str) -> StartError:
    oldest = ".".join(str(n) for n in OLDEST_PYTHON)
    return StartError(
        f"{python} is {version}; {oldest} or newer is needed", where=node.interpreter.origin
    )


def _visible_gpus(node: NodePlan, environ_: Mapping[str, str], installed: int) -> int:
    """Return how many GPUs the job will see: CUDA_VISIBLE_DEVICES as the plan leaves it."""
    visible = visible_devices(node, environ_)
    return installed if visible is None else len([v for v in visible.split(",") if v.strip()])


def visible_devices(node: NodePlan, environ_: Mapping[str, str]) -> str | None:
    """Return CUDA_VISIBLE_DEVICES as the job will have it; None where it is not set."""
    name = "CUDA_VISIBLE_DEVICES"
    if name in node.env:
        value = node.env[name].value
        return None if value is None else str(value)
    seen = node.keep is None or environ.matches(name, node.keep)
    return environ_.get(name) if seen else None


def _counted(node: NodePlan, cores: int, gpus: int) -> dict[Slot, str]:
    if node.processes is None and gpus == 0:
        raise StartError(
            "`gpus: auto`, but this machine shows no NVIDIA GPU", hint="give `processes: N`"
        )
    processes = node.processes or gpus
    return {Slot.GPUS: str(gpus), Slot.THREADS: str(max(1, cores // processes))}


def inherited(node: NodePlan, environ_: Mapping[str, str]) -> list[str]:
    """Name inherited variables that change jobs without a trace in their files."""
    if node.keep is not None:
        return []
    names = environ.inherited(environ_, environ.NOTEWORTHY)
    beaten = [n for n in names if n in node.env and not node.env[n].soft]
    kept = [n for n in names if n not in beaten and n not in node.secrets]
    parts = []
    if kept:
        parts.append("kept " + ", ".join(f"{n}={environ_[n]}" for n in kept))
    if beaten:
        parts.append("beaten by the plan: " + ", ".join(beaten))
    return ["inherited from your environment: " + "; ".join(parts)] if parts else []
