"""What a failed job had around it: its ports, its disks, CUDA or none. Looked up once it is over.

From plan.json, as the client wrote it, and the file systems as they are now. Never raises.
"""

from __future__ import annotations

import os

from safelaunch.runtime import json_files
from safelaunch.runtime.signatures import match

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

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


class Setting(object):
    """The surroundings of the run in a node directory; `run` is its run.json."""

    def __init__(self, node_dir: str, run: RunRecord) -> None:
        self.node_dir = node_dir
        self.run = run
        plan = json_files.read_json(os.path.join(node_dir, "plan.json")) or {}
        unbound = plan.get("unbound")
        # slots are not text yet there: what is text, the job says itself
        self.asked = _node(unbound if isinstance(unbound, dict) else {})
        self.plan = _node(plan)

    def has_cuda(self) -> bool:
        """Whether the ranks may have used CUDA."""
        env = self.plan.get("env")
        shown = env.get("CUDA_VISIBLE_DEVICES") if isinstance(env, dict) else None
        if isinstance(shown, dict) and shown.get("value") in ("", "-1"):
            return False
        return os.path.exists(DRIVER) or os.path.exists("/dev/nvidiactl")

    def port(self, text: str) -> tuple[int, bool]:
        """Return the port in an error's text (0: it tells none), and whether the job fixes it."""
        hits = [match.compiled(pattern).search(text) for pattern in _PORTS]
        number = next((hit.group(1) for hit in hits if hit), "")
        if not number:
            return 0, False
        word = match.compiled(r"(?<![\w.])%s(?![\w.])" % number)
        return int(number), any(word.search(said) for said in _texts(self.asked.get("argv")))

    # -- disks -------------------------------------------------------------------------------------

    def full_disk(self, error: Mapping[str, Any] | None, what: str) -> str | None:
        """Return a file or folder on the disk that is full: as the error tells, else as found."""
        told = "%s\n%s" % (what, (error or {}).get("message") or "")
        hit = match.compiled(_FULL_PATH).search(told)
        if hit is not None:
            return _folder(os.path.join(self._cwd(), hit.group(2) or hit.group(1)))
        if error is not None and _prints(error):
            return self.node_dir
        return next((path for path in self._candidates() if _is_full(path)), None)

    def is_ours(self, path: str) -> bool:
        """Whether a path is the run directory."""
        return path == self.node_dir

    def to_look_at(self, path: str) -> str:
        """Return what to ask `df` about: of the run directory the folder of all runs."""
        return os.path.dirname(os.path.dirname(path)) if self.is_ours(path) else path

    def disk_words(self, path: str) -> str:
        """Return `the disk of the run directory (/x) is full`."""
        name = "the run directory (%s)" % path if self.is_ours(path) else path
        return "the disk of %s is full" % name

    def _cwd(self) -> str:
        return self.run.cwd or "/"

    def _candidates(self) -> Iterator[str]:
        """Yield where the job may have written: what its arguments name, and the usual places."""
        argv = self.plan.get("argv")
        for word in argv if isinstance(argv, list) else ():
            path = os.path.join(self._cwd(), str(word).rpartition("=")[2])
            if os.path.isdir(path):
                yield path
        yield from (self._cwd(), self.node_dir, *TEMPORARY)


def _node(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first node of a plan, in either of the two ways to write it."""
    nodes = plan.get("nodes")
    nodes = nodes.get("tuple") if isinstance(nodes, dict) else nodes
    first = nodes[0] if isinstance(nodes, list) and nodes else None
    return first if isinstance(first, dict) else {}


def _texts(argv: object) -> list[str]:
    words = argv.get("tuple") if isinstance(argv, dict) else argv
    return [word for word in words if isinstance(word, str)] if isinstance(words, list) else []


def _prints(error: Mapping[str, Any]) -> bool:
    frames = error.get("frames")
    last = frames[-1] if isinstance(frames, list) and frames else None
    if not isinstance(last, dict):
        return False
    if str(last.get("file")).endswith(_PRINTERS):
        return True
    return match.compiled(_PRINTS).search(str(last.get("code"))) is not None


def _folder(path: str) -> str:
    """Return the folder of a file, or the nearest one above that exists."""
    while not os.path.isdir(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _is_full(path: str) -> bool:
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    no_files = found.f_files > 0 and found.f_favail == 0
    return found.f_blocks > 0 and (found.f_bavail * found.f_frsize < ROOM or no_files)
