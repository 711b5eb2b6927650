"""What a first sync over a long, narrow line takes beside `rsync -az`, and a large file by `scp`.

Whole commands: each is a new process, from its start to its end. The host has safelaunch's agent,
as it has rsync: the commands' first turn, which is not counted, has put it there.
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from latency import Latency, far_server
from rows import SAFELAUNCH, Row
from timing import cost, median_ratio, pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from support.ssh.sshd import Sshd

DELAY = 0.1  # seconds each way
MEGABIT = 1e6 / 8  # bytes
RATES = (50, 10)  # Mbit/s
PAIRS = 5
RATIO = 1.1
FILES, SIZE = 5000, 36_000_000  # of the project, at most
GIB = float(os.environ.get("SAFELAUNCH_BENCH_GIB", "3"))
_LARGE_PAIRS = 3


def slow_line() -> Iterator[Row]:
    """Yield the wall time of a first sync over long, narrow lines, and of a large file."""
    with far_server("a slow line to sshd", f"<= {RATIO}") as far:
        if isinstance(far, Row):
            yield far
            return
        bench = _Bench(*far)
        yield from bench.first_syncs()
        yield bench.large()


class _Bench:
    def __init__(self, folder: str, env: Mapping[str, str], server: Sshd, line: Latency) -> None:
        self._folder = folder
        self._env = env
        self._line = line
        self._config = os.path.join(folder, ".ssh", "config")
        os.mkdir(os.path.dirname(self._config), 0o700)
        alias = f"HostKeyAlias [{server.address}]:{server.port}"
        near = server.ssh_config("near")
        far = server.ssh_config("far").replace(f"Port {server.port}", f"Port {line.port}")
        with open(self._config, "w", encoding="utf-8") as file:
            file.write(f"{near}\n{far}  {alias}\n")

    def first_syncs(self) -> Iterator[Row]:
        """Copy a checkout to an empty folder."""
        project = os.path.join(self._folder, "project")
        files, size = write_checkout(project)
        place, copy = (os.path.join(self._folder, name) for name in ("ours", "theirs"))
        shell = f"ssh -F {self._config} -o LogLevel=ERROR"
        ours = [SAFELAUNCH, "push", project, "--host", "far", "--to", place]
        theirs = ["rsync", "-az", "-e", shell, f"{project}/", f"far:{copy}/"]
        self._line.delay = DELAY
        for rate in RATES:
            self._line.rate = rate * MEGABIT
            yield self._compared(
                f"first sync of {files:,} files of Python source ({size / 1e6:.0f} MB), "
                f"{2000 * DELAY:.0f} ms away, {rate} Mbit/s: wall time / `rsync -az`",
                PAIRS,
                partial(self._fresh, place, ours),
                partial(self._fresh, copy, theirs) if shutil.which("rsync") else None,
            )
        self._line.delay, self._line.rate = 0.0, None
        shutil.rmtree(project)

    def large(self) -> Row:
        """Copy one file without a slow line."""
        what = f"push of one file of {GIB:g} GiB: wall time / `scp`"
        size = int(GIB * (1 << 30))
        free = shutil.disk_usage(self._folder).free
        if free < 4 * size:
            return Row(what, f"not tried: {free >> 30} GiB free", f"<= {RATIO}", None)
        path = os.path.join(self._folder, "large.bin")
        block = os.urandom(1 << 24)
        with open(path, "wb") as file:
            file.writelines(  # no two blocks are the same
                at.to_bytes(8, "big") + block[8 : min(len(block), size - at)]
                for at in range(0, size, len(block))
            )
        place, copy = (os.path.join(self._folder, name) for name in ("pushed", "copied"))
        ours = [SAFELAUNCH, "push", path, "--host", "near", "--to", place]
        theirs = ["scp", "-q", "-F", self._config, path, f"near:{copy}"]
        return self._compared(
            what,
            _LARGE_PAIRS,
            partial(self._fresh, place, ours),
            partial(self._fresh, copy, theirs),
        )

    def _fresh(self, place: str, words: Sequence[str]) -> float:
        """Return what a command takes, to a place that is empty."""
        if os.path.isdir(place):
            shutil.rmtree(place)
        elif os.path.exists(place):
            os.unlink(place)
        return cost(words, self._env).wall

    @staticmethod
    def _compared(
        what: str, count: int, ours: Callable[[], float], theirs: Callable[[], float] | None
    ) -> Row:
        if theirs is None:
            return Row(what, "not compared: no rsync here", f"<= {RATIO}", None)
        measured = pairs(count, ours, theirs)
        ratio = median_ratio(measured)
        mine, other = (median(column) for column in zip(*measured, strict=True))
        return Row(
            f"{what}, median of {count} pairs",
            f"{ratio:.2f} ({mine:.2f} s / {other:.2f} s)",
            f"<= {RATIO}",
            ratio <= RATIO,
        )


def write_checkout(project: str) -> tuple[int, int]:
    """Copy this Python's library and packages, each file once, as far as FILES or SIZE; count."""
    source = os.path.dirname(os.__file__)
    count = size = 0
    for folder, folders, names in os.walk(source):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not name.endswith(".py") or os.path.islink(path):
                continue
            if count >= FILES or size >= SIZE:
                return count, size
            target = os.path.join(project, os.path.relpath(path, source))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(path, target)
            count, size = count + 1, size + os.path.getsize(path)
    return count, size
