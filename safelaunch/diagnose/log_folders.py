"""The logs in a folder, as launchers, schedulers and safelaunch lay them out."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_LOGS = 20_000  # of one folder
MOST_NAMES = 500_000  # that are looked through
DEEPEST = 12  # folders below it
ENDINGS = (".log", ".out", ".err", ".txt", ".stdout", ".stderr")
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
_MERGED = "combined.log"


def rank(path: str) -> int | None:
    """Return the rank that the name of a log tells."""
    said = _TORCHRUN.search(path) or _RANK.search(os.path.basename(path))
    return int(said[1]) if said else None


def host(path: str) -> str:
    """Return the node that the path of a log tells, "" where it tells none."""
    said = _NODE.search(path)
    return said[1] if said else ""


def logs(folder: str) -> list[str]:
    """Return the logs in a folder in the order of their names; folders that cannot be listed too.

    Raises ConfigError where there are none, or too many to be meant.
    """
    found, shut = _walk(folder)
    found = _last_attempts([path for path in found if os.path.isfile(path)])
    if not found and not shut:
        said = ", ".join(f"*{ending}" for ending in ENDINGS)
        raise ConfigError(f"{folder}: no logs in there ({said})", hint="name the files")
    return found + shut


def _walk(folder: str) -> tuple[list[str], list[str]]:
    found: list[str] = []
    shut: list[str] = []
    depth = folder.rstrip(os.sep).count(os.sep)
    seen = 0

    def failed(error: OSError) -> None:
        shut.append(str(error.filename))

    for here, folders, names in os.walk(folder, onerror=failed):
        folders[:] = sorted((name for name in folders if name[0] != "."), key=_natural)
        if here.count(os.sep) - depth >= DEEPEST:
            folders.clear()
        found += [os.path.join(here, name) for name in _of_one(names)]
        seen += len(names) + len(folders)
        if len(found) > MOST_LOGS or seen > MOST_NAMES:
            many = f"{MOST_LOGS:,} logs" if len(found) > MOST_LOGS else f"{MOST_NAMES:,} files"
            hint = "name the files, or a folder further down"
            raise ConfigError(f"{folder}: more than {many}", hint=hint)
    return found, shut


def _of_one(names: Iterable[str]) -> list[str]:
    """Return the logs among the names in one folder."""
    found = [name for name in sorted(names, key=_natural) if _is_log(name)]
    if _MERGED in found and any(_RANK.search(name) for name in found):
        found.remove(_MERGED)  # of our own runs: the same lines once more
    return found


def _is_log(name: str) -> bool:
    low = name.lower().removesuffix(".gz")
    return low.endswith(ENDINGS) or _NAME.fullmatch(low) is not None


def _last_attempts(paths: list[str]) -> list[str]:
    """Leave out the attempts before the last of each run: that one ended it."""
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


def _natural(name: str) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if index % 2 else (0, part) for index, part in enumerate(parts)]
