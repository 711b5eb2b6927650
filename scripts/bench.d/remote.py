"""What `remote --follow` costs beside the same script behind `ssh`, and how often it waits.

Round trips are what a longer line adds to the time, in times of its length; those of the login are
measured alone and taken off.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import subprocess
import sys
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from latency import Latency, far_server
from rows import SAFELAUNCH, Row
from timing import first_line, median_difference, median_ratio, pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from support.ssh.sshd import Sshd

PAIRS = 11
SECONDS = 0.4
TRIPS = 3
QUERY = 1.5
SHARED = 1.0
DELAYS = (0.0, 0.005, 0.1)  # seconds each way
DELAY = 0.1  # seconds each way
_LONG_PAIRS = 7
_LINE = b"first line"
_TICK = 0.1  # seconds, after which the hash of a new file may be kept


def remote() -> Iterator[Row]:
    """Yield how much later a worker's first line comes through `remote` than through `ssh`."""
    with started_host(f"<= {SECONDS:+} s") as bench:
        if isinstance(bench, Row):
            yield bench
            return
        yield bench.later()
        yield bench.trips()


def queries() -> Iterator[Row]:
    """Yield what `ps --host` takes beside `ssh HOST true`, on lines of several lengths."""
    with started_host(f"<= {QUERY}") as bench:
        if isinstance(bench, Row):
            yield bench
            return
        yield from bench.queries()


@contextlib.contextmanager
def started_host(bound: str) -> Iterator[HostBench | Row]:
    """Yield a host that was used once; where none can be started, the row that says why."""
    with far_server("commands over sshd", bound) as far:
        yield far if isinstance(far, Row) else HostBench(*far)


class HostBench:
    """A project, a host behind a line, and what is measured on them."""

    def __init__(self, folder: str, env: Mapping[str, str], server: Sshd, line: Latency) -> None:
        self._env = env
        self._server = server
        self._line = line
        self._project = os.path.join(folder, "project")
        os.makedirs(self._project)
        self._write("worker.py", f"print({_LINE.decode()!r}, flush=True)\n")
        self._write("job.yaml", "launcher: python\nscript: worker.py\n")
        os.mkdir(os.path.join(folder, ".ssh"), 0o700)
        self._config = os.path.join(folder, ".ssh", "config")
        alias = f"HostKeyAlias [{server.address}]:{server.port}"
        far = server.ssh_config("box").replace(f"Port {server.port}", f"Port {line.port}")
        shared = f"  ControlMaster auto\n  ControlPath {folder}/ssh\n  ControlPersist 10m\n"
        both = f"{far}  {alias}\n{far.replace('box', 'shared')}  {alias}\n{shared}"
        self._write(self._config, both)
        time.sleep(_TICK)
        self._script = self._once()

    def _write(self, name: str, text: str) -> None:
        with open(os.path.join(self._project, name), "w", encoding="utf-8") as file:
            file.write(text)

    def _once(self) -> str:
        """Run the job once, and return the script that it was on the host."""
        words = [SAFELAUNCH, "remote", "--host", "box", "--json", "job.yaml"]
        done = subprocess.run(
            words, env=self._env, cwd=self._project, check=True, capture_output=True
        )
        started = json.loads(done.stdout)
        wait = [SAFELAUNCH, "wait", started["id"]]
        subprocess.run(wait, env=self._env, check=True, capture_output=True)
        return f"{started['run_dir']}/launch.sh"

    def _ours(self) -> float:
        words = [SAFELAUNCH, "remote", "--host", "box", "--follow", "job.yaml"]
        return first_line(words, _LINE, self._env, self._project)

    def _theirs(self) -> float:
        words = ["ssh", "-F", self._config, "-o", "LogLevel=ERROR", "box", f"bash {self._script}"]
        return first_line(words, _LINE, self._env, self._project)

    def queries(self) -> Iterator[Row]:
        """Compare `ps` with a fresh login, over one of its own and over one that ssh shares."""
        theirs = ["ssh", "-F", self._config, "-o", "LogLevel=ERROR", "box", "true"]
        self._wall([SAFELAUNCH, "ps", "--host", "shared"])  # makes the shared login
        kinds = (("box", "", QUERY), ("shared", " over a login that ssh shares", SHARED))
        for delay, (host, how, bound) in itertools.product(DELAYS, kinds):
            ours = [SAFELAUNCH, "ps", "--host", host]
            self._line.delay = delay
            measured = pairs(_LONG_PAIRS, partial(self._wall, ours), partial(self._wall, theirs))
            ratio = median_ratio(measured)
            mine, other = (median(column) for column in zip(*measured, strict=True))
            yield Row(
                f"wall time of `ps --host`{how} / a fresh `ssh HOST true`, "
                f"{2000 * delay:.0f} ms there and back, median of {_LONG_PAIRS} pairs",
                f"{ratio:.2f} ({mine:.2f} s / {other:.2f} s)",
                f"<= {bound}",
                ratio <= bound,
            )
        end = ["ssh", "-F", self._config, "-O", "exit", "shared"]
        subprocess.run(end, check=True, capture_output=True)

    def _wall(self, words: list[str]) -> float:
        start = time.perf_counter()
        subprocess.run(words, env=self._env, cwd=self._project, check=True, capture_output=True)
        return time.perf_counter() - start

    def _login(self) -> float:
        from safelaunch.ssh.connection import connect  # noqa: PLC0415 - needs paramiko

        start = time.perf_counter()
        alias = f"[{self._server.address}]:{self._server.port}"
        with connect(self._server.target(port=self._line.port, host_key_alias=alias)):
            return time.perf_counter() - start

    def later(self) -> Row:
        """Compare with the same script behind ssh, on a line without latency."""
        self._line.delay = 0.0
        measured = pairs(PAIRS, self._ours, self._theirs)
        later = median_difference(measured)
        ours, theirs = (median(column) for column in zip(*measured, strict=True))
        return Row(
            "first line of a worker through `remote --follow` - through `ssh HOST bash launch.sh`, "
            f"once synced, median of {PAIRS} pairs",
            f"{later:+.2f} s ({ours:.2f} s - {theirs:.2f} s)",
            f"<= {SECONDS:+} s",
            later <= SECONDS,
        )

    def direct_start(self) -> tuple[Callable[[], float], Callable[[], float]]:
        """Return what times the first line of two ranks: through `remote --direct`, and raw."""
        python = json.dumps(sys.executable)
        job = "launcher: torchrun\nprofile: cpu\nprocesses: 2\nscript: worker.py\n"
        self._write("ranks.yaml", f"{job}python: {python}\n")
        self._line.delay = 0.0
        ours = [SAFELAUNCH, "remote", "--host", "box", "--direct", "--follow", "ranks.yaml"]
        folder = os.path.dirname(self._script)
        with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
            project = json.load(file)["cwd"]
        raw = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "worker.py"]
        line = f"cd {shlex.quote(project)} && OMP_NUM_THREADS=1 {shlex.join(raw)}"
        theirs = ["ssh", "-F", self._config, "-o", "LogLevel=ERROR", "box", line]
        return (
            lambda: first_line(ours, _LINE, self._env, self._project),
            lambda: first_line(theirs, _LINE, self._env, self._project),
        )

    def trips(self) -> Row:
        """Count round trips until the first line, without those of the login."""
        ours, theirs, login = (
            self._added(work) for work in (self._ours, self._theirs, self._login)
        )
        return Row(
            f"round trips of it behind the login: what {2000 * DELAY:.0f} ms more for each add, "
            f"median of {_LONG_PAIRS} pairs",
            f"{ours - login:.1f} ({ours:.1f} with the login; `ssh`: {theirs:.1f})",
            f"<= {TRIPS}",
            ours - login < TRIPS + 0.5,  # of one is noise
        )

    def _added(self, work: Callable[[], float]) -> float:
        def at(delay: float) -> float:
            self._line.delay = delay
            return work()

        measured = pairs(_LONG_PAIRS, lambda: at(DELAY), lambda: at(0.0))
        return median_difference(measured) / (2 * DELAY)
