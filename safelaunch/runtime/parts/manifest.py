"""parts.jsonl: which parts of a run have ended, and how; the newest line of a part counts.

A line is added at each end: a file that is rewritten each time would take longer with every part.
"""

from __future__ import annotations

import json
import os

from safelaunch.runtime.records import PartEnd

# in a line of `add`; the quotes of a text in it are escaped
_SUCCEEDED = b'"state": "succeeded"'


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
    try:
        with open(os.path.join(node_dir, PartEnd.FILE), "rb") as file:
            return whole_lines(file.read())
    except OSError:
        return b""


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
