"""A DataLoader worker that was killed, in what its rank then raises.

torch says so in one of several places: in the exception itself, in one that only is printed, or
not at all: the rank loses the connection over which it takes a tensor out of the worker.
"""

from __future__ import annotations

from safelaunch.runtime.failure import log_tails
from safelaunch.runtime.signatures import match

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.runtime.failure.log_tails import RaisedException

# torch/utils/data/dataloader.py: "DataLoader worker (pid 7) is killed", "(pid(s) 7, 8) exited"
_KILLED = r"DataLoader worker \(pid(?:\(s\))? (\d[\d, ]*)\) (?:is killed by signal|exited unexp)"
_WORDS = r"(DataLoader worker \(pid.*)"
# where a rank waits for batches, and what stands below it while one is taken over
_LOADERS = ("torch/utils/data/dataloader.py", "torch/utils/data/_utils/pin_memory.py")
_TRANSFER = ("/multiprocessing/", "/queue.py", "/socket.py", "/threading.py")
_LOST = (
    *("ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError", "EOFError"),
    *("BrokenPipeError", "FileNotFoundError", "UnpicklingError", "AuthenticationError"),
)


def worker_pids(text: str) -> list[int]:
    """Return the workers that have died, which a message of torch names."""
    hit = match.compiled(_KILLED).search(text)
    return [int(pid) for pid in hit.group(1).replace(",", " ").split()] if hit else []


def lost_worker(error: RaisedException) -> bool:
    """Whether an exception shows that a worker ended while a batch was taken over from it."""
    if error.short_type not in _LOST:
        return False
    files = [frame.file.replace("\\", "/") for frame in log_tails.frames_of(error)]
    loaders = [index for index, file in enumerate(files) if file.endswith(_LOADERS)]
    below = files[loaders[-1] + 1 :] if loaders else []
    return bool(below) and all(any(part in file for part in _TRANSFER) for file in below)


def message(lines: Iterable[str]) -> str:
    """Return what torch has printed about the worker, the last time; else the bare fact."""
    messages = [hit.group(1).strip() for hit in map(match.compiled(_WORDS).search, lines) if hit]
    named = (f"RuntimeError: {text}" for text in reversed(messages) if worker_pids(text))
    return next(named, "a DataLoader worker exited unexpectedly, while a batch was read from it")
