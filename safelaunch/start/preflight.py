"""What a start needs of a machine: secrets, assets, interpreter, free port; and its facts."""

# ruff: noqa: PLC0415 - the readers of versions, 20 ms, and of prefixes: only where a job has them

from __future__ import annotations

import errno
import os
import posixpath
import re
import shutil
import stat
import zlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch import environ
from safelaunch.errors import ConfigError, StartError
from safelaunch.model import NodePlan, Slot, Template, bind_word
from safelaunch.plan import direct, gates
from safelaunch.runtime import FOLDER, commands
from safelaunch.runtime.start import accelerators, run_dir

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from safelaunch.model import Placed, Word
    from safelaunch.runtime.commands import CommandResult
    from safelaunch.runtime.containers.image_probe import ContainerReport

_PROBED = {"version", "cores", "gpus", "port", "executable"}  # what the probe prints
OLDEST_PYTHON = (3, 8)  # what runtime/ is written for


def check_secrets(node: NodePlan, environ_: Mapping[str, str]) -> None:
    """Raise StartError where a variable of `env_from` is not set."""
    missing = [name for name in node.secrets if not environ_.get(name)]
    if missing:
        raise StartError(
            f"`env_from` names {', '.join(missing)}, not set in your environment",
            hint=f"export {missing[0]}=... and start again",
        )


def check_assets(assets: Iterable[Placed]) -> None:
    """Raise ConfigError where an asset is not on this machine."""
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
    python3 = shutil.which("python3", path=environ_.get("PATH"))
    if python3 is None:
        raise StartError("no `python3` on PATH", hint="give the job `python:`, `venv:` or `conda:`")
    return os.path.abspath(python3), "python3 on your PATH"


class MachineReport(NamedTuple):
    """What a machine reports before a start: of itself, and by the job's interpreter."""

    home: str  # the user's home folder
    base: str  # safelaunch's folder
    environ: Mapping[str, str]
    python: str  # for a job that names no interpreter
    bash: str | None
    probe: CommandResult  # of `probe_command`
    version: str  # what `python -V` prints, to name one that is too old even for the probe
    container: ContainerReport | None = None  # what the job runs in; `environ` is then the image's


def binding(node: NodePlan) -> list[str]:
    """Return the prefix of a node where it decides which cores the job may use: `numactl -N 0`."""
    prefix = [str(word) for word in node.argv[: node.prefix]]
    if prefix:
        from safelaunch.plan.launch_line.wrappers import keeps_process

        return prefix if keeps_process(prefix) else []
    return prefix


def probe_command(run_id: str, node: NodePlan) -> list[str]:
    """Return the arguments of an interpreter that make it print what `facts` reads."""
    with open(os.path.join(FOLDER, "start", "start_probe.py"), encoding="utf-8") as file:
        source = file.read()
    return ["-I", "-S", "-c", source, *probe_arguments(run_id, node)]


def probe_arguments(run_id: str, node: NodePlan) -> list[str]:
    """Return the arguments of the probe: a seed for the port, and where which packages are."""
    names = direct.packages(node)
    where = [_with_tilde(node.cwd), ":".join(_search_path(node)), *names] if names else []
    return [str(zlib.crc32(run_id.encode())), *where]


def _search_path(node: NodePlan) -> list[str]:
    """Return the parts of PYTHONPATH in launch.sh; `$PYTHONPATH` is the caller's."""
    own = node.env.get("PYTHONPATH")
    parts = [] if own is None or own.value is None else [_with_tilde(own.value)]
    is_kept = node.keep is None or environ.matches("PYTHONPATH", node.keep)
    is_extended = own is None or own.prepend or bool(own.computed)
    return [*parts, "$PYTHONPATH"] if is_kept and is_extended else parts


def _with_tilde(word: Word) -> str:
    return str(bind_word(word, {Slot.HOME: "~"}))


def package_versions(node: NodePlan, probe: CommandResult) -> dict[str, str]:
    """Return the versions of packages by which a direct start is decided, from a probe."""
    names = (*direct.packages(node), direct.OLD_RTX40)
    pairs = (line.split(" ", 1) for line in probe.out.splitlines() if " " in line)
    return {name: value for name, value in pairs if name in names}


def facts(node: NodePlan, report: MachineReport, run_id: str) -> dict[Slot, str]:
    """Return the values of a node's slots on its machine. Raises StartError."""
    host = None if node.host == "localhost" else node.host
    if not report.bash:
        raise StartError("no `bash` on PATH: it runs the job's launch.sh", where=host)
    path, probe = node.interpreter.path, report.probe
    python = report.python if path is None else str(bind_word(path, {Slot.HOME: report.home}))
    values = dict(line.split(" ", 1) for line in probe.out.splitlines() if " " in line)
    works, origin = probe.code == 0 and set(values) >= _PROBED, node.interpreter.origin
    version = f"Python {values['version']}" if works else report.version
    numbers = re.match(r"Python (\d+)\.(\d+)", version)
    if numbers and tuple(map(int, numbers.groups())) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise StartError(f"{python} is {version}; {oldest} or newer is needed", where=origin)
    if not works:
        prefix = " ".join(binding(node))
        where = "prefix" if prefix else str(origin)
        subject = f"`{prefix}` with {python}" if prefix else f"the interpreter {python}"
        what = f"{subject} does not work: {probe.last_line or probe.code}"
        raise StartError(probe.err if probe.code == commands.NOT_RUN else what, where=where)
    if values["port"] == "None":
        raise StartError("no free port between 20000 and 65535", where=host)
    if node.interpreter.path is None and posixpath.isabs(values["executable"]):
        python = values["executable"]  # python3 on PATH may be a shim that asks which one anew
    visible = visible_gpus(node, report.environ)
    gpus = int(values["gpus"]) if visible is None else len(visible)
    if node.processes is None and gpus == 0 and _counts_gpus(node):
        raise StartError(
            "`gpus: auto`, but this machine shows no GPU or NPU", hint="give `processes: N`"
        )
    package = "" if node.ranks is None else node.ranks.package
    folder = {Slot.PACKAGE: values[f"{package}_folder"]} if f"{package}_folder" in values else {}
    # without a GPU and a count, a framework that counts by itself starts one process
    threads = max(1, int(values["cores"]) // (node.processes or gpus or 1))
    return {
        Slot.HOME: report.home,
        Slot.STORE: report.base,
        Slot.RUN_ID: run_id,
        Slot.RUN_DIR: run_dir.node_dir(run_id, node.node_rank, report.base),
        Slot.PYTHON: python,
        Slot.PREFIX: posixpath.dirname(posixpath.dirname(python)),
        Slot.PORT: values["port"],
        Slot.GPUS: str(gpus),
        Slot.THREADS: str(threads),
        **folder,
    }


def _counts_gpus(node: NodePlan) -> bool:
    """Whether the command has the number of GPUs in it; a framework may count them itself."""
    words = (
        *node.argv,
        *(var.value for var in node.env.values()),
        *(body for _, body in node.files),
    )
    return any(isinstance(word, Template) and Slot.GPUS in word.parts for word in words)


def version_request(node: NodePlan, python: str | None) -> dict[str, Any] | None:
    """Return the request of a probe for the versions that open gates need; None without any."""
    return {"python": python, "versions": True} if node.open_gates else None


def versions(answer: Mapping[str, Any], saved: Mapping[str, str]) -> dict[str, str]:
    """Return the versions in the answer of a probe, and saved ones where it has none."""
    from safelaunch.hostfacts import assemble, profile_detection

    return {**saved, **profile_detection.gate_facts(assemble.from_probe("", answer))}


def peer_request(node: NodePlan, versions: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the request for the peer access of the GPUs; None where no variable hangs on it.

    nvidia-smi takes up to seconds, so it runs only once the versions leave the question open.
    """
    return {"peers": True} if gates.needs_peer_access(node, versions) else None


def saved_versions(home: str) -> Mapping[str, str]:
    """Return what `check --save` has written for this machine into the hosts file of a folder."""
    from safelaunch.config.hosts_file import reader

    try:
        entry = reader.load_default(home).machines.get(reader.LOCAL)
    except ConfigError:  # its own commands report that; a start here does not need it
        return {}
    return {} if entry is None else entry.facts


def visible_gpus(node: NodePlan, environ_: Mapping[str, str]) -> list[str] | None:
    """Return the GPUs that CUDA_VISIBLE_DEVICES, or that of another kind, leaves; None for all."""
    planned = {n: node.env[n].value for n in accelerators.DEVICE_VARIABLES if n in node.env}
    values = {
        n: environ_.get(n)
        for n in accelerators.DEVICE_VARIABLES
        if n not in planned and (node.keep is None or environ.matches(n, node.keep))
    }
    texts = {n: None if value is None else str(value) for n, value in planned.items()}
    is_planned = any(value is not None for value in texts.values())
    kind = accelerators.ACCELERATORS[accelerators.kind_of(texts if is_planned else values)]
    selected = accelerators.select(kind, {**values, **texts})
    return None if selected is None else list(selected.words)


def inherited(
    node: NodePlan,
    environ_: Mapping[str, str],
    rank_values: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return notes on inherited variables that change the job without a trace in its files.

    `rank_values` are variables that the launcher sets for each rank: the same value is no change.
    """
    changed = {n: value for n, value in environ_.items() if rank_values.get(n) != value}
    removed = removed_names(node, changed)
    notes = []
    if removed:
        text = f"removed from your environment: {', '.join(removed)}"
        notes = [f"{text}; `env_from: [NAME]` keeps what the job needs"]
    if node.keep is not None:
        return notes
    names = environ.inherited(environ_, environ.NOTEWORTHY)
    replaced = [n for n in names if n in node.env and not node.env[n].soft]
    effective = [n for n in names if n not in replaced and n not in node.secrets]
    parts = []
    if effective:
        parts.append("kept " + ", ".join(f"{n}={environ_[n]}" for n in effective))
    if replaced:
        parts.append("replaced by the plan: " + ", ".join(replaced))
    return ["inherited from your environment: " + "; ".join(parts)] * bool(parts) + notes


def removed_names(node: NodePlan, environ_: Mapping[str, str]) -> list[str]:
    """Return which variables of the caller the job does not get; `SLURM_* (12)` for several."""
    shown = []
    for pattern in node.unset:
        names = [
            name
            for name in environ.inherited(environ_, [pattern])
            if name not in node.env and environ.is_removed(name, [pattern], node.requested)
        ]
        if pattern != "SAFELAUNCH_*":  # of safelaunch's own
            shown += [f"{pattern} ({len(names)})"] if len(names) > 1 else names
    return shown
