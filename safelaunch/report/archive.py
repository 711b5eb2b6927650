"""Writes a bundle as a .zip or a folder, readable only by its owner. Overwrites nothing."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import time
import zipfile
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MAX_NAME_CHARS = 120  # of a run id in a file name


def write_zip(files: Mapping[str, bytes], path: str) -> int:
    """Write a bundle as a .zip of mode 0600 and return its size. Raises ConfigError, RunError."""
    data, now = io.BytesIO(), time.gmtime()[:6]
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in files.items():
            info = zipfile.ZipInfo(name, now)
            info.external_attr = 0o600 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(info, content)
    try:
        _write(path, data.getvalue())
    except FileExistsError:
        raise ConfigError(
            "this file exists already and is not overwritten",
            where=path,
            hint="choose another path with -o, or remove it",
        ) from None
    except OSError as e:
        raise RunError(f"the bundle cannot be written: {e.strerror or e}", where=path) from e
    return len(data.getvalue())


def write_folder(files: Mapping[str, bytes], path: str) -> int:
    """Write a bundle as files of mode 0600 into a new or empty folder and return their size.

    Raises ConfigError, RunError.
    """
    try:
        if os.path.isdir(path) and os.listdir(path):
            raise ConfigError(
                "this folder is not empty; its files are not overwritten",
                where=path,
                hint="choose another path with -o, or empty it",
            )
        for name, data in files.items():
            file_path = os.path.join(path, *name.split("/"))
            _make_dirs(path, os.path.dirname(file_path))
            _write(file_path, data)
    except OSError as e:
        raise RunError(f"the bundle cannot be written: {e.strerror or e}", where=path) from e
    return sum(map(len, files.values()))


def _make_dirs(base: str, folder: str) -> None:
    missing: list[str] = []
    while not os.path.isdir(folder):
        missing.append(folder)
        if folder == os.path.dirname(folder) or len(folder) < len(base):
            break
        folder = os.path.dirname(folder)
    for directory in reversed(missing):
        os.mkdir(directory, 0o700)


def _write(path: str, data: bytes) -> None:
    """Write a new file, or none. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    fd = os.open(path, flags, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def free_name(folder: str, name: str, existing: Iterable[str]) -> str:
    """Return an unused path for a bundle: `x-report.zip`, then `x-report-2.zip`."""
    stem = re.sub(r"[^\w.-]", "", name)[:_MAX_NAME_CHARS] or "run"
    numbered = (f"{stem}-report-{number}.zip" for number in itertools.count(2))
    existing_names = set(existing)
    names = (
        n for n in itertools.chain([f"{stem}-report.zip"], numbered) if n not in existing_names
    )
    return os.path.join(folder, next(names))
