"""A flood of output from two ranks: is every byte there, what does it cost, what costs idleness.

Once in blocks, as of a program that buffers, and once line by line, each printed by itself.

Compared with what people type: the same two processes, both into one `tee FILE`. The clock runs
from the moment when both may write until all is in the file, so no start-up is in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import shutil
import subprocess
import sys
import threading
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from rows import SAFELAUNCH, Row, home
from timing import median_ratio, pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

RANKS = 2
SIZE = int(os.environ.get("SAFELAUNCH_BENCH_MIB", "1024")) << 20  # of all ranks together
PAIRS = 3
RATIO = 1.5
MEMORY = 30.0  # MB
IDLE_SHARE = 0.5  # % of a core
IDLE_SECONDS = 20
DEADLINE = 120.0

WORKER = """
import os, sys, time
rank, folder, count = os.environ["RANK"], sys.argv[1], int(sys.argv[2])
line = "rank %s loss 0.12345 lr 1e-4 grad_norm 0.98765 tokens/s 123456.7 mem 71.2\\n"
line = (line % rank).encode()
block = line * (65536 // len(line))
open(os.path.join(folder, "ready-" + rank), "w").close()
while not os.path.exists(os.path.join(folder, "go")):
    time.sleep(0.002)
for i in range(count):
    {write}
while not os.path.exists(os.path.join(folder, "end")):
    time.sleep(0.05)
"""


class Output(NamedTuple):
    """What each rank writes, in numbered pieces, so that none can go astray."""

    write: str  # the statement that writes piece `i`
    piece: Callable[[int, int], bytes]  # by rank and number
    pieces: int  # of a rank

    @property
    def size(self) -> int:
        """Bytes of all ranks; all pieces are as long as the first."""
        return RANKS * self.pieces * len(self.piece(0, 0))

    @property
    def lines(self) -> int:
        """Lines of all ranks."""
        return RANKS * self.pieces * self.piece(0, 0).count(b"\n")

    def of_rank(self, rank: int) -> Iterator[bytes]:
        """Yield what a rank writes."""
        return (self.piece(rank, number) for number in range(self.pieces))


def _block(rank: int, number: int) -> bytes:
    line = f"rank {rank} loss 0.12345 lr 1e-4 grad_norm 0.98765 tokens/s 123456.7 mem 71.2\n"
    return b"block %08d\n" % number + line.encode() * (65536 // len(line))


# of 64 KiB, as a full pipe takes them
BLOCKS = Output(
    'os.writev(1, [b"block %08d\\n" % i, block])', _block, SIZE // RANKS // len(_block(0, 0))
)
LINES = Output(
    'print("line %08d loss 0.5" % i, flush=True)',
    lambda _, number: b"line %08d loss 0.5\n" % number,
    1_000_000 // RANKS,
)


def flood() -> Iterator[Row]:
    """Yield what a flood costs beside `tee`, with a pane attached and without; then what idles."""
    for attached in (False, True):
        with home() as (folder, env):
            yield from _measure(folder, env, attached)
    with home() as (folder, env):
        yield from _measure_lines(folder, env)


def _measure_lines(folder: str, env: Mapping[str, str]) -> Iterator[Row]:
    wrong: list[list[str]] = []
    used: list[tuple[float, float]] = []  # CPU seconds, ours and those beside `tee`

    def ours() -> float:
        with _run(folder, env, False, LINES) as run:
            before = run.cpu()
            _, took = run.timed(folder)
            used.append((run.cpu() - before, 0.0))
            wrong.extend([run.wrong()] if not wrong else [])
        return took

    def tee() -> float:
        took, cpu = _tee(folder, LINES)
        used[-1] = (used[-1][0], cpu)
        return took

    measured = pairs(PAIRS, ours, tee)
    what = f"{LINES.lines:,} lines from two ranks, each printed by itself, no pane attached"
    for kind, values in (
        ("wall time", measured),
        ("CPU time of ranks, copier, supervisor", used[-PAIRS:]),
    ):
        ratio = median_ratio(values)
        mine, theirs = (median(column) for column in zip(*values, strict=True))
        yield Row(
            f"{what}: {kind} / the same two processes into one `tee FILE`, median of {PAIRS} pairs",
            f"{ratio:.2f} ({mine:.2f} s / {theirs:.2f} s)",
            f"<= {RATIO}",
            ratio <= RATIO,
        )
    yield Row(
        "rank logs and merged log of it",
        "; ".join(wrong[0]) or "every byte as written",
        "byte-exact",
        not wrong[0],
    )


def _measure(folder: str, env: Mapping[str, str], attached: bool) -> Iterator[Row]:
    facts: dict[str, Any] = {}

    def ours() -> float:
        with _run(folder, env, attached, BLOCKS) as run:
            written, took = run.timed(folder)
            facts["written"] = [*facts.get("written", ()), written]
            facts["memory"] = max(facts.get("memory", 0.0), _memory(run.supervisor))
            if "wrong" not in facts:
                facts["wrong"] = run.wrong()
                facts["idle"] = _idle_share(run.supervisor)
        return took

    measured = pairs(PAIRS, ours, lambda: _tee(folder, BLOCKS)[0])
    mib, how = SIZE >> 20, "a pane attached" if attached else "no pane attached"
    ratio = median_ratio(measured)
    mine, theirs = (median(column) for column in zip(*measured, strict=True))
    yield Row(
        f"{mib} MiB from two ranks, {how}: wall time / the same two processes into one `tee FILE`, "
        f"median of {PAIRS} pairs",
        f"{ratio:.2f} ({mine:.2f} s / {theirs:.2f} s, {mib / mine:.0f} MiB/s)",
        f"<= {RATIO}",
        ratio <= RATIO,
    )
    written = [
        (w, theirs) for w, (_, theirs) in zip(facts["written"][-PAIRS:], measured, strict=True)
    ]
    yield Row(
        f"of that the time until all is in the rank logs, beside `tee FILE`, {how}",
        f"{median_ratio(written):.2f} ({median(w for w, _ in written):.2f} s)",
        f"<= {RATIO}",
        median_ratio(written) <= RATIO,
    )
    wrong = facts["wrong"]
    yield Row(
        f"rank logs and merged log of it, {how}",
        "; ".join(wrong) or "every byte as written",
        "byte-exact",
        not wrong,
    )
    yield Row(
        f"the supervisor's peak memory (VmHWM) in it, {how}",
        f"{facts['memory']:.1f} MB",
        f"<= {MEMORY:.0f} MB",
        facts["memory"] <= MEMORY,
    )
    yield Row(
        f"the supervisor's CPU time while the job writes nothing, {IDLE_SECONDS} s, {how}",
        f"{facts['idle']:.2f} %",
        f"<= {IDLE_SHARE} %",
        facts["idle"] <= IDLE_SHARE,
    )


# -- ours ------------------------------------------------------------------------------------------


class _Run:
    """A run whose ranks stand ready to write."""

    def __init__(self, node_dir: str, status: Mapping[str, Any], output: Output) -> None:
        self.output = output
        self.logs = os.path.join(node_dir, "logs", "attempt-1")
        self.combined = os.path.join(self.logs, "combined.log")
        self.rank_logs = [os.path.join(self.logs, f"rank-{rank}.log") for rank in range(RANKS)]
        self.supervisor = int(status["pids"]["supervisor"])
        self.before = os.path.getsize(self.combined)
        self.pids = [self.supervisor, _copier(node_dir)]
        for rank in range(RANKS):
            with open(
                os.path.join(node_dir, "ranks", f"rank-{rank}.1.0"), encoding="ascii"
            ) as file:
                self.pids.append(int(file.read().split()[0]))

    def timed(self, folder: str) -> list[float]:
        """Return the seconds until the rank logs have all, and until the merged log has."""
        merged = self.before + self.output.size + self.output.lines * len("[0] ")
        return _timed(folder, (self.rank_logs, self.output.size), ([self.combined], merged))

    def cpu(self) -> float:
        """Return the CPU seconds of the ranks, and of what reads them."""
        return _cpu(self.pids)

    def wrong(self) -> list[str]:
        """Return what differs from what was written, by hashes."""
        differences = []
        merged = _unmerged(self.combined)
        for rank in range(RANKS):
            want = hashlib.blake2b()
            for piece in self.output.of_rank(rank):
                want.update(piece)
            with open(self.rank_logs[rank], "rb") as file:
                have = hashlib.blake2b()
                while data := file.read(1 << 20):
                    have.update(data)
            if have.digest() != want.digest():
                differences.append(f"rank-{rank}.log differs")
            if merged[rank] != want.digest():
                differences.append(f"lines of rank {rank} in combined.log differ")
        return differences


def _unmerged(path: str) -> list[bytes]:
    """Return for each rank the hash of its lines in the merged log, without their prefix."""
    hashes = [hashlib.blake2b() for _ in range(RANKS)]
    parts: list[list[bytes]] = [[] for _ in range(RANKS)]
    marks = {f"[{rank}] ".encode(): rank for rank in range(RANKS)}
    with open(path, "rb", buffering=1 << 20) as file:
        for line in file:
            rank = marks.get(line[:4])
            if rank is None:
                continue  # the launcher's own
            parts[rank].append(line[4:])
            if len(parts[rank]) > 10000:  # noqa: PLR2004 - a MB
                hashes[rank].update(b"".join(parts[rank]))
                parts[rank].clear()
    for rank in range(RANKS):
        hashes[rank].update(b"".join(parts[rank]))
    return [rank_hash.digest() for rank_hash in hashes]


@contextlib.contextmanager
def _run(folder: str, env: Mapping[str, str], attached: bool, output: Output) -> Iterator[_Run]:
    _clear(folder)
    worker, job = os.path.join(folder, "worker.py"), os.path.join(folder, "job.yaml")
    with open(worker, "w", encoding="utf-8") as file:
        file.write(WORKER.replace("{write}", output.write))
    with open(job, "w", encoding="utf-8") as file:
        file.write("launcher: torchrun\nprofile: cpu\nprocesses: 2\nscript: worker.py\n")
        file.write(f"args: {json.dumps([folder, str(output.pieces)])}\n")
        file.write(f"python: {json.dumps(sys.executable)}\n")
    shown = _ask([SAFELAUNCH, "run", "--json", job], env)
    try:
        with _client(shown["attach"] if attached else None, env):
            _wait(lambda: _ready(folder), "ranks")
            status = _ask([SAFELAUNCH, "show", "--json", shown["id"]], env)
            yield _Run(shown["run_dir"], status, output)
    finally:
        _touch(folder, "end")
        subprocess.run(
            [SAFELAUNCH, "stop", "--grace", "2", shown["id"]],
            env=env,
            capture_output=True,
            check=False,
        )
        shutil.rmtree(os.path.dirname(shown["run_dir"]), ignore_errors=True)


def _ask(argv: list[str], env: Mapping[str, str]) -> dict[str, Any]:
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, check=True)
    record: dict[str, Any] = json.loads(done.stdout)
    return record


@contextlib.contextmanager
def _client(command: str | None, env: Mapping[str, str]) -> Iterator[None]:
    """Attach a terminal that reads all it is sent, as a person's does."""
    if command is None:
        yield
        return
    ours, theirs = pty.openpty()
    plain = {k: v for k, v in env.items() if not k.startswith("TMUX")} | {"TERM": "xterm-256color"}
    client = subprocess.Popen(
        command.split(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=plain,
        start_new_session=True,
    )
    os.close(theirs)

    def read() -> None:
        with contextlib.suppress(OSError):  # EIO: the client is gone
            while os.read(ours, 1 << 16):
                pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        client.terminate()
        client.wait()
        reader.join()
        os.close(ours)


def _memory(pid: int) -> float:
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    raise SystemExit("no VmHWM in /proc")


def _idle_share(pid: int) -> float:
    """Return the share of a core that a process takes, in percent."""
    time.sleep(2)  # what came before the idleness does not count
    before, start = _ticks(pid), time.monotonic()
    time.sleep(IDLE_SECONDS)
    used = (_ticks(pid) - before) / os.sysconf("SC_CLK_TCK")
    return 100 * used / (time.monotonic() - start)


def _copier(node_dir: str) -> int:
    with open(os.path.join(node_dir, "status.json"), encoding="utf-8") as file:
        return int(json.load(file)["log_copier"]["pid"])


def _cpu(pids: list[int]) -> float:
    return sum(map(_ticks, pids)) / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])  # utime and stime: proc(5)


# -- both ------------------------------------------------------------------------------------------


def _tee(folder: str, output: Output) -> tuple[float, float]:
    """Return the wall time and the CPU time beside `tee`."""
    _clear(folder)
    path = os.path.join(folder, "tee.log")
    worker = os.path.join(folder, "worker.py")
    with open(os.devnull, "wb") as null:
        tee = subprocess.Popen(["tee", path], stdin=subprocess.PIPE, stdout=null)
        writers = [
            subprocess.Popen(
                [sys.executable, worker, folder, str(output.pieces)],
                stdout=tee.stdin,
                env={**os.environ, "RANK": str(rank), "PYTHONUNBUFFERED": "1"},  # as ours
            )
            for rank in range(RANKS)
        ]
    try:
        _wait(lambda: _ready(folder), "writers")
        pids = [tee.pid, *(writer.pid for writer in writers)]
        before = _cpu(pids)
        (took,) = _timed(folder, ([path], output.size))
        return took, _cpu(pids) - before
    finally:
        _touch(folder, "end")
        for process in writers:
            process.wait()
        if tee.stdin is not None:
            tee.stdin.close()
        tee.wait()
        os.unlink(path)


def _timed(folder: str, *sizes: tuple[list[str], int]) -> list[float]:
    """Return the seconds from the word to go until files have their size, for each in turn."""
    os.sync()  # what was written before must not be written back now
    _warm(folder)
    start = time.perf_counter()
    _touch(folder, "go")
    times = []
    for paths, size in sizes:
        _wait(partial(_have, paths, size), f"{size} bytes in {paths}")
        times.append(time.perf_counter() - start)
    return times


def _have(paths: list[str], size: int) -> bool:
    return sum(map(os.path.getsize, paths)) >= size


def _warm(folder: str) -> None:
    """Touch the memory that the files will take: both sides get it from the kernel's free list.

    A virtual machine's host hands out pages at their first touch, at a tenth of the speed; what
    is measured would be who came first.
    """
    path, zeros = os.path.join(folder, "warm"), bytes(1 << 20)
    with open(path, "wb", buffering=0) as file:
        file.writelines(zeros for _ in range(3 * SIZE >> 20))  # two copies of the output, and more
    os.unlink(path)


def _ready(folder: str) -> bool:
    return all(os.path.exists(os.path.join(folder, f"ready-{rank}")) for rank in range(RANKS))


def _clear(folder: str) -> None:
    for name in ("go", "end", *(f"ready-{rank}" for rank in range(RANKS))):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))


def _touch(folder: str, name: str) -> None:
    with open(os.path.join(folder, name), "w", encoding="ascii"):
        pass


def _wait(condition: Any, what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"in {DEADLINE:.0f} s there were no {what}")
        time.sleep(0.005)


def main() -> None:
    """Print the rows."""
    for row in flood():
        print(row, flush=True)


if __name__ == "__main__":
    main()
