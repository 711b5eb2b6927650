"""What a start asks of this machine before it begins: secrets, folders, interpreter, free port."""

from __future__ import annotations

import errno
import os
import posixpath
import re
import shutil
import stat
import zlib
from typing import TYPE_CHECKING

from safelaunch import environ
from safelaunch.errors import ConfigError, StartError
from safelaunch.model import NodePlan, Slot
from safelaunch.runtime import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from safelaunch.model import Placed
    from safelaunch.start.process import Result, Transport

_SAID = {"version", "cores", "gpus", "port", "executable"}  # what the probe prints
OLDEST_PYTHON = (3, 8)  # what runtime/ is written for


def check_secrets(node: NodePlan, environ_: Mapping[str, str]) -> None:
    """Refuse a start for which a name of `env_from` is not set. Raises StartError."""
    missing = [name for name in node.secrets if not environ_.get(name)]
    if missing:
        raise StartError(
            f"`env_from` names {', '.join(missing)}, not set in your environment",
            hint=f"export {missing[0]}=... and start again",
        )


def check_machine(node: NodePlan, environ_: Mapping[str, str]) -> None:
    """Refuse a start without the working directory or bash. Raises StartError."""
    if not os.path.isdir(node.cwd):
        raise StartError(f"the working directory {node.cwd} does not exist")
    if shutil.which("bash", path=environ_.get("PATH")) is None:
        raise StartError("`bash` is not on your PATH; it runs the job's launch.sh")


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
    path = node.interpreter.path
    where: object = node.interpreter.origin
    if path is None:
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


def ask(
    machine: Transport, node: NodePlan, python: str, run_id: str, environ_: Mapping[str, str]
) -> dict[Slot, str]:
    """Ask the job's interpreter what only this machine knows."""
    result = machine.run([python, *question(run_id)], timeout=60)
    version = machine.run([python, "-V"], timeout=10).last_line if result.code != 0 else ""
    return understand(node, python, result, version, environ_)


def question(run_id: str) -> list[str]:
    """Return the words behind an interpreter that ask it; `understand` reads what it says."""
    with open(os.path.join(FOLDER, "start_probe.py"), encoding="utf-8") as file:
        source = file.read()
    return ["-I", "-S", "-c", source, str(zlib.crc32(run_id.encode()))]


def understand(
    node: NodePlan, python: str, result: Result, version: str, environ_: Mapping[str, str]
) -> dict[Slot, str]:
    """Return the facts in an interpreter's answer. Raises StartError.

    `version` is what its `-V` says, to tell one that is too old even for the question.
    """
    found = dict(line.split(" ", 1) for line in result.out.splitlines() if " " in line)
    if result.code != 0 or not set(found) >= _SAID:
        if re.fullmatch(r"Python (2|3\.[0-7])\..*", version):
            raise _too_old(node, python, version)
        raise StartError(
            f"the interpreter {python} does not work: {result.last_line or result.code}",
            where=node.interpreter.origin,
        )
    if tuple(int(n) for n in found["version"].split(".")) < OLDEST_PYTHON:
        raise _too_old(node, python, f"Python {found['version']}")
    if found["port"] == "None":
        raise StartError("no free port between 20000 and 65535")
    if node.interpreter.path is None and posixpath.isabs(found["executable"]):
        python = found["executable"]  # python3 on PATH may be a shim that asks which one anew
    return {
        Slot.PYTHON: python,
        Slot.PREFIX: posixpath.dirname(posixpath.dirname(python)),
        Slot.PORT: found["port"],
        **_counted(node, int(found["cores"]), _visible_gpus(node, environ_, int(found["gpus"]))),
    }


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
