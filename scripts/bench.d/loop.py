"""What an edit and a run of it take: `remote --follow` beside `rsync -a` and then `ssh HOST true`.

Whole commands in fresh processes over one sshd, in turns. CPU is that of the commands here, and of
everything that they start on the host, to its end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from kills import tests
from rows import SAFELAUNCH, Row, home
from sync import edit, write_project
from timing import median_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from support.ssh.sshd import Sshd

_JOB = "launcher: command\ncommand: ['true']\n"
# files, pairs, bound of the ratio
_SIZES = ((5_000, 11, 1.0), (50_000, 5, 1.5))
_FIRST_PAIRS = 5
_DEADLINE = 60.0


class Taken(NamedTuple):
    """Seconds of one half of a pair: the clock's, of CPU here and on the host."""

    wall: float
    client: float
    host: float


def loop() -> Iterator[Row]:
    """Yield what `remote --no-check --follow` of `true` takes, with nothing and with edits."""
    sshd = tests("support.ssh.sshd")
    why = sshd.missing() or ("no rsync here: install rsync" if not shutil.which("rsync") else None)
    if why:
        yield Row("an edit and a run over sshd", f"not measured: {why}", "<= 1.0", None)
        return
    for count, number, bound in _SIZES:
        with home() as (folder, env), sshd.Sshd() as server:
            bench = _Bench(folder, {**env, "HOME": folder}, server, count)
            what = f"`remote --no-check --follow` of `true`, {count:,} files"
            for name, pairs, prepare in (
                ("first", _FIRST_PAIRS, bench.forget),
                ("nothing changed", number, lambda: None),
                ("ten files changed", number, bench.edit),
            ):
                yield from bench.rows(f"{what}, {name}", pairs, prepare, bound)


class _Bench:
    def __init__(self, folder: str, env: Mapping[str, str], server: Sshd, count: int) -> None:
        self._env = env
        self._server = server
        self._folder = folder
        self._project = os.path.join(folder, "project")
        write_project(self._project, count)
        Path(self._project, "job.yaml").write_text(_JOB)
        Path(folder, ".ssh").mkdir(0o700)
        config = Path(folder, ".ssh", "config")
        config.write_text(server.ssh_config("box"))
        self._ssh = ["ssh", "-F", str(config), "-o", "LogLevel=ERROR"]

    def forget(self) -> None:
        """Make both copies on the host new again, and the hashes on this side."""
        for path in ("safelaunch", "theirs"):
            shutil.rmtree(self._server.home() / path, ignore_errors=True)
        shutil.rmtree(os.path.join(self._folder, "cache"), ignore_errors=True)

    def edit(self) -> None:
        """Change ten files."""
        edit(self._project)

    def rows(
        self, what: str, count: int, prepare: Callable[[], None], bound: float
    ) -> Iterator[Row]:
        """Yield the ratios of wall time and of CPU time."""
        halves = (self._ours, self._theirs)
        measured = [[self._taken(half, prepare) for half in halves] for _ in range(count + 1)][1:]
        pairs = f"median of {count} pairs"
        wall = [(ours.wall, theirs.wall) for ours, theirs in measured]
        cpu = [(sum(ours[1:]), sum(theirs[1:])) for ours, theirs in measured]
        for name, values in (("wall", wall), ("CPU", cpu)):
            ratio = median_ratio(values)
            mine, other = (median(column) for column in zip(*values, strict=True))
            text = f"{ratio:.2f} ({mine:.2f} s / {other:.2f} s)"
            if name == "CPU":
                sides = [
                    f"{median(half.client for half in column):.2f} s here, "
                    f"{median(half.host for half in column):.2f} s there"
                    for column in zip(*measured, strict=True)
                ]
                text += f": {sides[0]} / {sides[1]}"
            is_bound = name == "wall"
            yield Row(
                f"{what}: {name} time / `rsync -a` and then `ssh HOST true`, {pairs}",
                text,
                f"<= {bound}" if is_bound else "-",
                ratio <= bound or not is_bound,
            )

    def _ours(self) -> None:
        words = ["remote", "--no-check", "--follow", "--host", "box", "job.yaml"]
        self._run([SAFELAUNCH, *words])

    def _theirs(self) -> None:
        shell = " ".join(self._ssh)
        self._run(["rsync", "-a", "-e", shell, f"{self._project}/", "box:theirs/"])
        self._run([*self._ssh, "box", "true"])

    def _run(self, argv: list[str]) -> None:
        done = subprocess.run(
            argv, env=self._env, cwd=self._project, capture_output=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"exit code {done.returncode} of {argv}: {done.stderr.decode()}")

    def _taken(self, half: Callable[[], None], prepare: Callable[[], None]) -> Taken:
        prepare()
        host, before = self._quiet(), os.times()
        start = time.perf_counter()
        half()
        wall, after = time.perf_counter() - start, os.times()
        client = after.children_user + after.children_system
        client -= before.children_user + before.children_system
        return Taken(wall, client, self._quiet() - host)

    def _quiet(self) -> float:
        """Wait until nothing runs on the host; return the CPU seconds that it has used so far."""
        deadline = time.monotonic() + _DEADLINE
        while self._server.processes():
            if time.monotonic() > deadline:
                raise SystemExit(f"still running: {self._server.processes()}")
            time.sleep(0.01)
        return self._server.cpu()
