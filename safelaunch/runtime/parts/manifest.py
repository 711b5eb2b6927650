"""parts.jsonl: which parts of a run have ended, and how; the newest line of a part counts.

A line is added at each end: a file that is rewritten each time would take longer with every part.
Parts on several machines, which cannot lock a file that they share, have a folder in its place: a
file with one line for each end, whose name is how many parts had ended before it.
"""

from __future__ import annotations

import json
import os
import socket

from safelaunch.runtime.records import PartEnd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.runtime.records import Failure, Status

# in a line of `add`; the quotes of a text in it are escaped
_SUCCEEDED = b'"state": "succeeded"'
FOLDER = "part-ends"  # of parts on several machines


def end_of(status: Status, failure: Failure | None) -> PartEnd:
    """Return how a part has ended, by its status and why it failed."""
    end = PartEnd(state=status.state, exit_code=status.exit_code, elapsed=status.elapsed)
    if status.state == "succeeded":
        return end
    if status.state not in ("failed", "stopped"):
        end.state = "failed"
    if failure is not None and failure.class_name:
        end.class_name = failure.class_name
    what = failure.what if failure is not None else status.reason
    end.cause = what or f"its supervisor has ended, state {status.state}"
    return end


def make_folder(node_dir: str) -> None:
    """Let the ends of the parts of a run come from several machines. Raises OSError."""
    os.makedirs(os.path.join(node_dir, FOLDER), mode=0o700, exist_ok=True)


def add_in_order(node_dir: str, end: PartEnd) -> int:
    """Record the end of a part once, from any machine; return how many have ended before it.

    By link(2), which one of several machines alone can do for a name, also over NFS: so one part
    is the last. Raises OSError.
    """
    folder = os.path.join(node_dir, FOLDER)
    temporary = os.path.join(folder, f".{end.part}.{socket.gethostname()}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(json.dumps(end.to_json()).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        number = 0
        while True:
            path = os.path.join(folder, str(number))
            earlier = _read_end(path)
            if earlier is None and _link(temporary, path):
                return number
            earlier = earlier or _read_end(path)
            if earlier is not None and earlier.part == end.part:
                return number
            number += 1
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)


def _link(source: str, path: str) -> bool:
    try:
        os.link(source, path)
    except FileExistsError:
        # over NFS the answer of a link that was made may be lost, and the second try fails
        return os.stat(source).st_nlink > 1
    return True


def _read_end(path: str) -> PartEnd | None:
    try:
        with open(path, "rb") as file:
            data = json.loads(file.read().decode("utf-8", "replace"))
    except (OSError, ValueError):
        return None
    return PartEnd.from_json(data) if isinstance(data, dict) else None


def add(node_dir: str, end: PartEnd) -> None:
    """Record the end of a part. Raises OSError."""
    line = json.dumps(end.to_json()).encode() + b"\n"
    path = os.path.join(node_dir, PartEnd.FILE)
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":  # a KILL has cut the last one short
            line = b"\n" + line
        os.write(fd, line)
    finally:
        os.close(fd)


def read(node_dir: str) -> dict[int, PartEnd]:
    """Return the newest end of each part that has ended, by its number."""
    ends: dict[int, PartEnd] = {}
    for line in read_lines(node_dir).splitlines():
        try:
            data = json.loads(line.decode("utf-8", "replace"))
        except ValueError:
            continue
        if isinstance(data, dict):
            end = PartEnd.from_json(data)
            ends[end.part] = end
    return ends


def read_lines(node_dir: str) -> bytes:
    """Return the lines of the file without one that a KILL has cut short."""
    if os.path.isdir(os.path.join(node_dir, FOLDER)):
        return b"".join(_ordered_lines(os.path.join(node_dir, FOLDER)))
    try:
        with open(os.path.join(node_dir, PartEnd.FILE), "rb") as file:
            return whole_lines(file.read())
    except OSError:
        return b""


def _ordered_lines(folder: str) -> Iterator[bytes]:
    number = 0
    while True:
        try:
            with open(os.path.join(folder, str(number)), "rb") as file:
                yield file.read()
        except OSError:
            return
        number += 1


def whole_lines(data: bytes) -> bytes:
    """Return bytes up to the last end of a line."""
    return data[: data.rfind(b"\n") + 1]


def count_done(lines: bytes) -> int:
    """Return how many parts have succeeded, by lines of the file, of which a part has one.

    Clients ask again and again: to parse ten thousand lines takes a tenth of a second.
    """
    return lines.count(_SUCCEEDED)


def is_done(end: PartEnd | None, words: dict[str, str], digest: str) -> bool:
    """Whether a part need not run again: it succeeded, with these values and this input."""
    if end is None or end.state != "succeeded":
        return False
    return dict(end.words) == words and end.input_sha256 == digest
