"""What a failed job had around it: its ports, its disks, CUDA or none. Read once it is over.

From plan.json, as the client wrote it, and the file systems as they are now. Never raises.
"""

from __future__ import annotations

import os

from safelaunch.runtime.records import PlannedNode, PlanRecord, Provenance
from safelaunch.runtime.signatures import match

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from safelaunch.runtime.failure.log_tails import RaisedException
    from safelaunch.runtime.records import RunRecord

ROOM = 1 << 20  # bytes: a disk with less is full, whatever its reserve for root
TEMPORARY = ("/tmp", "/dev/shm")  # noqa: S108 - only asked how full they are
DRIVER = "/proc/driver/nvidia/version"
# TCPStore of torch: `port: 29500, ...`, older `[::]:29500 ... (errno: 98 ...)`, uvicorn, vLLM
_PORTS = (r"\bport(?::| is| number)? ?(\d{2,5})\b", r"(?:\]|\d|localhost|\*):(\d{4,5})\b")
_FULL_PATH = r"(?:No space left on device|[Qq]uota exceeded): '([^']+)'(?: -> '([^']+)')?"
# what writes to the rank's own log
_PRINTS = r"\bprint\(|\bsys\.(?:stdout|stderr)\b|\blogg(?:er|ing)\.\w+\("
_PRINTERS = ("/logging/__init__.py", "/tqdm/std.py", "/tqdm/utils.py")


class Surroundings:
    """The surroundings of the run in a node directory; `run` is its run.json."""

    def __init__(self, node_dir: str, run: RunRecord) -> None:
        self.node_dir = node_dir
        self.cwd = run.cwd or "/"
        plan = PlanRecord.read(node_dir) or PlanRecord()
        # slots are not text yet there: what is text, the job sets itself
        self.unbound_argv = _unbound_argv(plan.unbound)
        node = plan.nodes[0] if plan.nodes else PlannedNode()
        self.argv, self.env = node.argv, node.env

    def has_cuda(self) -> bool:
        """Whether the ranks may have used CUDA."""
        visible = self.env.get("CUDA_VISIBLE_DEVICES")
        if visible is not None and visible.value in ("", "-1"):
            return False
        return os.path.exists(DRIVER) or os.path.exists("/dev/nvidiactl")

    def recorded_version(self, library: str) -> str:
        """Return the version of a library that record.json has, "" if it has none."""
        record = Provenance.read(self.node_dir)
        packages = (record.packages if record else None) or {}
        return packages.get(library.replace("_", "-").lower(), "")

    def port(self, text: str) -> tuple[int, bool]:
        """Return the port in an error's text (0: it has none), and whether the job fixes it."""
        hits = [match.compiled(pattern).search(text) for pattern in _PORTS]
        number = next((hit.group(1) for hit in hits if hit), "")
        if not number:
            return 0, False
        word = match.compiled(rf"(?<![\w.]){number}(?![\w.])")
        return int(number), any(word.search(argument) for argument in self.unbound_argv)

    # -- disks -------------------------------------------------------------------------------------

    def full_disk(self, error: RaisedException | None, what: str) -> str | None:
        """Return a path on the full disk: from the error's text, else from the free space now."""
        text = f"{what}\n{error.message if error else ''}"
        hit = match.compiled(_FULL_PATH).search(text)
        if hit is not None:
            return _folder(os.path.join(self.cwd, hit.group(2) or hit.group(1)))
        if error is not None and _prints(error):
            return self.node_dir
        return next((path for path in self._candidates() if _is_full(path)), None)

    def _candidates(self) -> Iterator[str]:
        """Yield where the job may have written: what its arguments name, and the usual places."""
        for argument in self.argv:
            path = os.path.join(self.cwd, argument.rpartition("=")[2])
            if os.path.isdir(path):
                yield path
        yield from (self.cwd, self.node_dir, *TEMPORARY)


def _unbound_argv(plan: Any) -> list[str]:
    """Return the words of the first node of a plan as plan/serialize.py freezes it."""
    try:
        words = plan["nodes"]["tuple"][0]["argv"]["tuple"]
        return [word for word in words if isinstance(word, str)]
    except (KeyError, IndexError, TypeError):
        return []


def _prints(error: RaisedException) -> bool:
    last = next(reversed(error.frames), None)
    if last is None:
        return False
    return last.file.endswith(_PRINTERS) or bool(match.compiled(_PRINTS).search(last.code))


def _folder(path: str) -> str:
    """Return the folder of a file, or the nearest one above that exists."""
    while not os.path.isdir(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _is_full(path: str) -> bool:
    try:
        disk = os.statvfs(path)
    except OSError:
        return False
    no_files = disk.f_files > 0 and disk.f_favail == 0
    return disk.f_blocks > 0 and (disk.f_bavail * disk.f_frsize < ROOM or no_files)
