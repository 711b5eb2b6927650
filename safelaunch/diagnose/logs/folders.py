"""Finds the logs in a folder, as launchers, schedulers and safelaunch name them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_LOGS = 20_000  # of one folder
MAX_NAMES = 500_000  # of files, examined
MAX_DEPTH = 12  # nested folders
LOG_SUFFIXES = (".log", ".out", ".err", ".txt", ".stdout", ".stderr")
# a rotated log (`train.log.1`), one without an ending, Slurm's and PBS's `job.o123`
_NAME = re.compile(
    r".*\.(?:log|out|err|txt)[.-][\d.-]+|(?:stdout|stderr|nohup|console|log)(?:\.\w+)?"
    r"|.*\.[oe]\d+(?:[.-]\d+)?"
)
_RANK = re.compile(
    r"(?:^|[^a-z])(?:rank|worker|proc|gpu)[-_.]?(\d{1,5})(?![0-9a-z])", re.IGNORECASE
)
# torchrun --log-dir: <dir>/<id>/attempt_0/3/stderr.log
_TORCHRUN = re.compile(r"[/\\](\d{1,5})[/\\](?:stdout|stderr)\.log$")
_NODE = re.compile(r"(?:^|[^a-z])(node[-_]?\d{1,5})(?![0-9])", re.IGNORECASE)
_ATTEMPT = re.compile(r"(?<=[/\\])attempt[-_](\d+)(?=[/\\])")
_MERGED_LOG = "combined.log"


def rank_from_path(path: str) -> int | None:
    """Return the rank in the name of a log, None if it has none."""
    match = _TORCHRUN.search(path) or _RANK.search(os.path.basename(path))
    return int(match[1]) if match else None


def host_from_path(path: str) -> str:
    """Return the node name in the path of a log, "" if it has none."""
    match = _NODE.search(path)
    return match[1] if match else ""


def find_logs(folder: str) -> list[str]:
    """Return the logs in a folder in natural order, then the folders that cannot be listed.

    Raises ConfigError where there are no logs, or too many.
    """
    paths, unreadable_dirs = _walk(folder)
    paths = _last_attempts([path for path in paths if os.path.isfile(path)])
    if not paths and not unreadable_dirs:
        patterns = ", ".join(f"*{suffix}" for suffix in LOG_SUFFIXES)
        raise ConfigError(f"{folder}: no logs in this folder ({patterns})", hint="name the files")
    return paths + unreadable_dirs


def _walk(folder: str) -> tuple[list[str], list[str]]:
    paths: list[str] = []
    unreadable_dirs: list[str] = []
    depth = folder.rstrip(os.sep).count(os.sep)
    name_count = 0
    for directory, subdirs, names in os.walk(
        folder, onerror=lambda error: unreadable_dirs.append(str(error.filename))
    ):
        subdirs[:] = sorted((name for name in subdirs if name[0] != "."), key=_natural_key)
        if directory.count(os.sep) - depth >= MAX_DEPTH:
            subdirs.clear()
        paths += [os.path.join(directory, name) for name in _logs_among(names)]
        name_count += len(names) + len(subdirs)
        if len(paths) > MAX_LOGS or name_count > MAX_NAMES:
            limit = f"{MAX_LOGS:,} logs" if len(paths) > MAX_LOGS else f"{MAX_NAMES:,} files"
            hint = "name the files, or a subfolder"
            raise ConfigError(f"{folder}: more than {limit}", hint=hint)
    return paths, unreadable_dirs


def _logs_among(names: Iterable[str]) -> list[str]:
    """Return the logs among the names in one folder."""
    logs = [name for name in sorted(names, key=_natural_key) if _is_log(name)]
    if _MERGED_LOG in logs and any(_RANK.search(name) for name in logs):
        logs.remove(_MERGED_LOG)  # of our own runs: it repeats the lines of the ranks
    return logs


def _is_log(name: str) -> bool:
    low = name.lower().removesuffix(".gz")
    return low.endswith(LOG_SUFFIXES) or _NAME.fullmatch(low) is not None


def _last_attempts(paths: list[str]) -> list[str]:
    """Return paths without earlier attempts of each run: the last one ended it."""
    parts = [_ATTEMPT.split(path, maxsplit=1) for path in paths]
    last: dict[str, int] = {}
    for part in parts:
        if len(part) > 1:
            last[part[0]] = max(last.get(part[0], -1), int(part[1]))
    return [
        path
        for path, part in zip(paths, parts, strict=True)
        if len(part) == 1 or int(part[1]) == last[part[0]]
    ]


def _natural_key(name: str) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if index % 2 else (0, part) for index, part in enumerate(parts)]
