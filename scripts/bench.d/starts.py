"""How soon ranks start: through the launcher, directly and from preloaded modules, beside raw."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import socket
import subprocess
import sys
import time
from statistics import median
from typing import TYPE_CHECKING

from remote import started_host
from rows import SAFELAUNCH, Row, home
from timing import first_line, median_difference, median_ratio, pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PAIRS = 11
LAUNCHERS = ("accelerate", "torchrun")
THROUGH_LAUNCHER = 0.20  # seconds more than raw
FIRST_LINE = 0.5  # shares of raw
FIRST_REDUCE = 0.75
PRELOADED = 0.5
FAR = 0.7
RESTART = 0.5  # seconds
MEMORY = 30 << 20  # bytes
RANKS = 8
SUBREAPER = 36  # prctl(2), PR_SET_CHILD_SUBREAPER
WORKER = "print('first line', flush=True)\n"
REDUCE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
print("first line", flush=True)
dist.destroy_process_group()
"""
IMPORT = "import torch\nprint('first line', flush=True)\n"
AGAIN = """
import os, time
with open("times", "a") as file:
    file.write("start %r\\n" % time.time())
if os.environ["RANK"] == "0" and not os.path.exists("second"):
    open("second", "w").close()
    with open("times", "a") as file:
        file.write("death %r\\n" % time.time())
    raise ValueError("the first attempt")
"""
WAITING = "import time\nprint('first line', flush=True)\ntime.sleep(3)\n"


class Job:
    """A job in a folder, the same command raw, and environments for both."""

    def __init__(
        self, folder: str, env: Mapping[str, str], launcher: str, program: str, processes: int = 2
    ) -> None:
        self.folder, self.env = folder, env
        self.path = os.path.join(folder, "job.yaml")
        self._write("worker.py", program)
        self._write(
            "job.yaml",
            f"launcher: {launcher}\nprofile: cpu\nprocesses: {processes}\nscript: worker.py\n"
            f"python: {json.dumps(sys.executable)}\n",
        )
        words = [SAFELAUNCH, "run", "--dry-run", "--json", self.path]
        done = subprocess.run(words, env=env, capture_output=True, check=True)
        (node,) = json.loads(done.stdout)["nodes"]
        for name, body in node["files"].items():
            self._write(name, body)
        self._argv = node["argv"]
        variables = {n: v["value"] for n, v in node["env"].items() if v["value"] and n != "PATH"}
        self.raw_env = {**env, "OMP_NUM_THREADS": "1", **variables}

    def _write(self, name: str, text: str) -> None:
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def raw_words(self) -> list[str]:
        """Return the launcher's command, with a free port."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        return [w.replace("<run-dir>", self.folder).replace("<port>", port) for w in self._argv]

    def raw(self) -> float:
        """Return the seconds until the first line of the launcher's command."""
        return first_line(self.raw_words(), b"first line", self.raw_env, self.folder)

    def run(self, *options: str) -> float:
        """Return the seconds until the first line through `run --follow`."""
        words = [SAFELAUNCH, "run", "--no-check", "--follow", *options, self.path]
        return first_line(words, b"first line", self.env, self.folder)

    def direct(self) -> float:
        """Return the seconds until the first line of ranks that are started directly."""
        return self.run("--direct")


def starts() -> Iterator[Row]:
    """Yield what a start costs beside the launcher's own, of two processes without a GPU."""
    yield from follow()
    for launcher in LAUNCHERS:
        with home() as (folder, env):
            job = Job(folder, env, launcher, WORKER)
            what = f"first line of a worker, `run --direct --follow` / {launcher} raw"
            yield _ratio(what, pairs(PAIRS, job.direct, job.raw), FIRST_LINE)
    with home() as (folder, env):
        job = Job(folder, env, "torchrun", REDUCE)
        what = "until the first all_reduce, ranks importing torch, `run --direct` / torchrun raw"
        yield _ratio(what, pairs(PAIRS, job.direct, job.raw), FIRST_REDUCE)
    yield from _preload()
    yield _restart()
    yield _memory()
    yield from _far()


def follow() -> Iterator[Row]:
    """Yield how much later a worker's first line comes through `run --follow` than without."""
    for launcher in LAUNCHERS:
        with home() as (folder, env):
            job = Job(folder, env, launcher, WORKER)
            measured = pairs(PAIRS, job.run, job.raw)
        later = median_difference(measured)
        ours, raw = (median(column) for column in zip(*measured, strict=True))
        yield Row(
            "first line of a worker through `run --no-check --follow` - the same "
            f"{launcher} command raw, two CPU processes, median of {PAIRS} pairs",
            f"{later:+.2f} s ({ours:.2f} s - {raw:.2f} s)",
            f"<= {THROUGH_LAUNCHER:+} s",
            later <= THROUGH_LAUNCHER,
        )


def _ratio(what: str, measured: Sequence[tuple[float, float]], bound: float) -> Row:
    ratio = median_ratio(measured)
    ours, raw = (median(column) for column in zip(*measured, strict=True))
    return Row(
        f"{what}, median of {len(measured)} pairs",
        f"{ratio:.2f} ({ours:.2f} s / {raw:.2f} s)",
        f"<= {bound}",
        ratio <= bound,
    )


def _preload() -> Iterator[Row]:
    """Compare the CPU time of all processes until the end, of ranks that import torch."""
    with home() as (folder, env):
        job = Job(folder, env, "torchrun", IMPORT, RANKS)
        options = ["--no-check", "--follow", "--direct", "--set", "preload=[torch]"]
        words = [SAFELAUNCH, "run", *options, job.path]
        measured = pairs(
            5,
            lambda: total_cpu(words, env, folder),
            lambda: total_cpu(job.raw_words(), job.raw_env, folder),
        )
        yield _ratio(
            f"CPU time of {RANKS} ranks that import torch, all processes, with `preload: [torch]` "
            "/ torchrun raw",
            measured,
            PRELOADED,
        )


def total_cpu(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> float:
    """Run a command, and return the CPU time of it and of all processes that it leaves behind."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(_measure(argv, env, cwd))
        finally:
            os._exit(1)
    _, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"exit status {status} of {shlex.join(argv)}")
    return used.ru_utime + used.ru_stime


def _measure(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> int:
    """Run a command until nothing of it is left; what its children leave behind is adopted."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    null = subprocess.DEVNULL
    process = subprocess.Popen(argv, env=env, cwd=cwd, stdout=null, stderr=null)
    code = process.wait()
    while True:
        try:
            os.wait()
        except ChildProcessError:  # noqa: PERF203 - the end of the loop
            return code


def _restart() -> Row:
    """Measure from a rank's death to the first line of the next attempt."""
    seconds = []
    for _ in range(5):
        with home() as (folder, env):
            job = Job(folder, env, "torchrun", AGAIN)
            policy = (
                "recovery={max_restarts: 1, backoff: 0s, classes: {user-code-exception: restart}}"
            )
            words = [SAFELAUNCH, "run", "--no-check", "--follow", "--direct", "--set", policy]
            words += ["--set", "peer_grace=0s", job.path]
            subprocess.run(words, env=env, cwd=folder, check=True, capture_output=True)
            with open(os.path.join(folder, "times"), encoding="utf-8") as file:
                times = [line.split() for line in file]
            death = next(float(at) for what, at in times if what == "death")
            seconds.append(min(float(at) for what, at in times if float(at) > death) - death)
    wait = median(seconds)
    return Row(
        "from the death of a rank to the first line of the next attempt, direct, backoff 0, "
        f"median of {len(seconds)}",
        f"{wait:.2f} s",
        f"<= {RESTART} s",
        wait <= RESTART,
    )


def _memory() -> Row:
    """Measure what safelaunch's own processes add to a run that is under way."""
    with home() as (folder, env):
        job = Job(folder, env, "torchrun", WAITING)
        words = [SAFELAUNCH, "run", "--no-check", "--direct", "--json", job.path]
        done = subprocess.run(words, env=env, cwd=folder, check=True, capture_output=True)
        run_dir = json.loads(done.stdout)["run_dir"]
        peak, end = 0, time.monotonic() + 2.5
        while time.monotonic() < end:
            peak = max(peak, sum(_proportional(pid) for pid in _own_pids(run_dir)))
            time.sleep(0.05)
        wait = [SAFELAUNCH, "wait", json.loads(done.stdout)["id"]]
        subprocess.run(wait, env=env, check=True, capture_output=True)
    return Row(
        "peak memory (PSS) of supervisor, log copier and starter of the ranks, two ranks",
        f"{peak / (1 << 20):.0f} MiB",
        f"<= {MEMORY >> 20} MiB",
        0 < peak <= MEMORY,
    )


def _own_pids(run_dir: str) -> list[int]:
    """Return the processes whose program is of the runtime in a run directory."""
    pids = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", encoding="utf-8") as file:
                words = file.read().split("\0")
        except (OSError, UnicodeDecodeError):
            continue
        if any(word.startswith(f"{run_dir}/runtime/") for word in words[:6]):
            pids.append(int(name))
    return pids


def _proportional(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
            line = next((line for line in file if line.startswith("Pss:")), "Pss: 0")
    except OSError:
        return 0
    return int(line.split()[1]) << 10


def _far() -> Iterator[Row]:
    """Compare `remote --direct` with the raw launcher behind ssh."""
    with started_host(f"<= {FAR}") as host:
        if isinstance(host, Row):
            yield host
            return
        ours, theirs = host.direct_start()
        yield _ratio(
            "first line of a worker, `remote --direct --follow`, once synced / `ssh HOST torchrun`",
            pairs(PAIRS, ours, theirs),
            FAR,
        )
