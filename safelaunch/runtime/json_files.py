"""JSON files that a reader sees whole, and that a full disk cannot keep from being written."""

from __future__ import annotations

import json
import os

RESERVED = 8192  # bytes set aside for the last status of a run
RESERVED_FAILURE = 64 << 10  # bytes set aside for failure.json: 64 ranks, an exception, its causes


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
    replace(path, json.dumps(data, indent=1).encode())


def replace(path: str, data: bytes) -> None:
    """Write a file under a temporary name, then rename it. Raises OSError."""
    temporary = f"{path}.{os.getpid()}"
    try:
        write(temporary, data)
        os.replace(temporary, path)
    except OSError:
        remove(temporary)
        raise


def write(path: str, data: bytes, mode: int = 0o600) -> None:
    """Write a file in place. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def remove(path: str) -> None:
    """Remove a file, if that is possible."""
    try:
        os.unlink(path)
    except OSError:
        pass


def reserve(path: str, size: int = RESERVED) -> None:
    """Set space aside: a disk that fills up must not hide how the run ended. Raises OSError."""
    write(path + ".reserve", b" " * size)


def write_reserved(path: str, data: dict[str, object]) -> None:
    """Write a JSON file into the space set aside, padded with blanks. Raises OSError.

    Where it does not fit, its longest texts and lists are cut short.
    """
    with open(path + ".reserve", "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        file.write(_fitting(data, size).ljust(size))
    os.replace(path + ".reserve", path)


def _fitting(data: object, size: int) -> bytes:
    text = json.dumps(data).encode()
    while len(text) > size:
        shorter = _shortened(data)
        if shorter == data:
            break  # only names and numbers are left
        data, text = shorter, json.dumps(shorter).encode()
    return text


def _shortened(value: object) -> object:
    """Return a JSON value whose longest text or list has half its length."""
    if isinstance(value, (str, list)):
        return value[: len(value) // 2]
    if isinstance(value, dict) and value:
        longest = max(value, key=lambda key: len(json.dumps(value[key])))
        return {**value, longest: _shortened(value[longest])}
    return value


def release(path: str) -> None:
    """Give up the space that was set aside."""
    remove(path + ".reserve")
