"""JSON files that a reader sees whole, and that a full disk cannot keep from being written."""

from __future__ import annotations

import json
import os

RESERVED = 8192  # bytes kept for the last status of a run
RESERVED_FAILURE = 64 << 10  # bytes kept for failure.json: 64 ranks, an exception and its causes


def read_json(path: str) -> dict[str, object] | None:
    """Return the JSON object in a file, or None if there is none that can be read."""
    try:
        with open(path, "rb") as file:
            data = json.loads(file.read().decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def write_json(path: str, data: dict[str, object]) -> None:
    """Write a JSON file so that a reader sees the old or the new one, never half of it."""
    temporary = "%s.%d" % (path, os.getpid())
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(json.dumps(data, indent=1).encode())
        os.replace(temporary, path)
    except OSError:
        _remove(temporary)
        raise


def reserve(path: str, size: int = RESERVED) -> None:
    """Set space aside: a disk that fills up must not hide how the run ended. Raises OSError."""
    fd = os.open(path + ".reserve", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(b" " * size)


def write_reserved(path: str, data: dict[str, object]) -> None:
    """Write a JSON file into the space set aside; blanks behind JSON mean nothing. Raises OSError.

    What does not fit goes with its longest texts and lists cut short.
    """
    with open(path + ".reserve", "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        file.write(_fitting(data, size).ljust(size))
    os.replace(path + ".reserve", path)


def _fitting(data: dict[str, object], size: int) -> bytes:
    text = json.dumps(data).encode()
    while len(text) > size:
        shorter = _shortened(data)
        if shorter == data:
            break  # it has nothing that could be cut: names and numbers alone
        data = shorter if isinstance(shorter, dict) else data
        text = json.dumps(data).encode()
    return text


def _shortened(value: object) -> object:
    """Return a JSON value with the longest that it holds at half its length."""
    if isinstance(value, str):
        return value[: len(value) // 2]
    if isinstance(value, list):
        return value[: len(value) // 2]
    if isinstance(value, dict) and value:
        longest = max(value, key=lambda key: len(json.dumps(value[key])))
        return {**value, longest: _shortened(value[longest])}
    return value


def release(path: str) -> None:
    """Give up the space that was set aside."""
    _remove(path + ".reserve")


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
