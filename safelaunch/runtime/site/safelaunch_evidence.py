"""Lets a hang or timeout of this rank leave evidence: torch's flight recorder, NCCL's own log.

`sitecustomize` imports it in ranks only, before the user's code, and calls `arm` where the plan has
groups of such variables (plan/evidence.py). Here and not in the script of the launcher, since
the names depend on the version of torch, and since only the rank's environment shows what the user
has set by any way. A variable that is there is left alone, and so is what belongs to it.

The files are in `NODE_DIR/nccl/attempt-<n>/`: `flight-<rank>`, a pickle that torch writes at a
timeout, or when something is written into `flight-<rank>.pipe`; `rank-<rank>.<pid>`, lines of NCCL.

Syntax of Python 3.5, and no module beyond those that the interpreter has built in.
"""

import os
import sys

ENTRIES = "2000"  # what the tutorial recommends, and the default of torch 2.11
# since which torch each is read (headers and strings of the wheels of 2.6 to 2.13); before 2.2 no
# file is written
FIRST, PIPES, NEW_FILE, NEW_SIZE = (2, 2), (2, 4), (2, 8), (2, 11)
# 2.8 to 2.10 record by both names, but write a dump by the older one only (ProcessGroupNCCL.hpp)
SIZES = ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE")
FILES = ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE")
# from 2.11 on the default is to dump; 2.15 has a new name
DUMPS = ("TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_DUMP_ON_TIMEOUT")
PIPE_FILE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
VERSION_BYTES = 400  # of torch/version.py, whose first assignment is the version


def arm(node: str, rank: str, attempt: str, groups: "list[str]") -> None:
    """Set the variables of some groups for this process and what it starts. Raises OSError."""
    above = os.path.join(node, "nccl")
    folder = os.path.join(above, "attempt-" + attempt)
    for path in (above, folder):  # makedirs has its mode for the last one only
        if not os.path.isdir(path):
            _make_private(path)
    if "nccl" in groups and not any(name.startswith("NCCL_DEBUG") for name in os.environ):
        _arm_nccl(folder, rank)
    if "flight" in groups:
        _arm_recorder(folder, rank, torch_version(sys.path))


def _make_private(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass  # another rank was faster; of a file in its place the next step complains


def _arm_nccl(folder: str, rank: str) -> None:
    # NCCL replaces %p by the pid: an engine that the rank starts has a file of its own
    os.environ["NCCL_DEBUG_FILE"] = os.path.join(folder.replace("%", "%%"), "rank-" + rank + ".%p")
    # of INIT and ENV nothing is written in a collective, so the file ends with the last start of a
    # communicator; warnings are written whatever the subsystems
    os.environ["NCCL_DEBUG_SUBSYS"] = "INIT,ENV"
    os.environ["NCCL_DEBUG"] = "INFO"


def _arm_recorder(folder: str, rank: str, version: "tuple[int, int] | None") -> None:
    if version is None or version < FIRST:
        return
    if any(name in os.environ for name in SIZES + FILES + DUMPS + (PIPE_FILE,)):
        return
    stem = os.path.join(folder, "flight-")
    if os.path.exists(stem + rank):  # of an earlier start of this rank, by torchrun
        os.rename(stem + rank, stem + rank + ".previous")
    os.environ[SIZES[version >= NEW_SIZE]] = ENTRIES
    os.environ[FILES[version >= NEW_FILE]] = stem
    if version < NEW_SIZE:
        os.environ[DUMPS[0]] = "1"
    if version >= PIPES and _has_fifos(stem + rank + ".pipe"):
        os.environ[PIPE_FILE] = stem


def _has_fifos(path: str) -> bool:
    """Whether a FIFO can be made; torch, which makes it anew, ends the process where not."""
    try:
        os.mkfifo(path, 0o600)
    except FileExistsError:
        return True  # of an earlier start of this rank
    except OSError:
        return False
    return True


def torch_version(path: "list[str]") -> "tuple[int, int] | None":
    """Return major and minor version of the torch that will be imported; None without one."""
    for folder in path:
        try:
            fd = os.open(os.path.join(folder, "torch", "version.py"), os.O_RDONLY)
        except OSError:
            continue
        try:
            text = os.read(fd, VERSION_BYTES).decode("ascii", "replace")
        finally:
            os.close(fd)
        for line in text.split("\n"):
            name, _, value = line.partition("=")
            if name.split(":")[0].strip() == "__version__":
                numbers = value.strip().strip("'\"").split(".")
                if len(numbers) > 1 and numbers[0].isdigit() and numbers[1].isdigit():
                    return int(numbers[0]), int(numbers[1])
        return None
    return None
