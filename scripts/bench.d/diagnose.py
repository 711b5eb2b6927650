"""`diagnose` on logs of a GiB: speed on one core, the right line, memory; and what a start costs.

What is generated lies in a temporary folder and goes with it.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from statistics import median
from typing import IO, TYPE_CHECKING, NamedTuple

from kills import ROOT
from rows import SAFELAUNCH, Row, home
from timing import cost, median_ratio, pairs

from safelaunch.diagnose.literal_search import GENERAL
from safelaunch.runtime.signatures import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SIZE = int(os.environ.get("SAFELAUNCH_BENCH_MIB", "1024")) << 20
SPEED = 200  # MB/s of CPU time, start included
MEMORY = 200  # MB
HELP_RATIO = 2.0
DEADLINE = 300.0  # seconds
ALARM = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.\n"
NOISE = b"RuntimeError: CUDA error: an illegal memory access was encountered\n"
NCCL = b"gpu01:4242:4299 [3] NCCL INFO Channel 02/0 : 3[b3000] -> 0[1b000] via P2P/IPC/read\n"
EXCERPTS = os.path.join(ROOT, "tests", "data", "failures", "failure-logs.jsonl")


class Diagnosis(NamedTuple):
    """How a diagnosis went."""

    code: int
    cpu: float  # seconds
    wall: float
    memory: float  # MB, the peak
    out: bytes
    stderr: bytes

    @property
    def number(self) -> int:
        """The number of the line that is named, 0 where none is."""
        findings = json.loads(self.out)["findings"] if self.out else []
        return int(findings[0]["line_number"]) if findings else 0


def diagnose() -> Iterator[Row]:
    """Yield speed and memory with a large log, and what a start costs."""
    with home() as (folder, env):
        peaks = []
        literals = _write_literals(folder)
        for what, blocks, bound, ratio_bound in (
            ("real excerpts among progress bars and lines", _mixed(), SPEED, 1.2),
            ("lines in colours, codes round each word", _coloured(), 0, 0),
            ("NCCL_DEBUG=INFO, a known text in each line", itertools.repeat(NCCL * 9000), 0, 5),
            ("one alarm in each line", itertools.repeat(NOISE * 9000), 0, 5),
        ):
            path = os.path.join(folder, "train.log")
            size = _write(path, blocks, SIZE)
            result = diagnosed([path], env)
            peaks.append(result.memory)
            speed = size / 1e6 / result.cpu
            yield Row(
                f"{size >> 20} MiB of {what}: CPU time of `diagnose`, its start included",
                f"{speed:.0f} MB/s ({result.cpu:.1f} s, {result.memory:.0f} MB at its peak)",
                f">= {bound} MB/s" if bound else "-",
                speed >= bound and result.memory <= MEMORY and _is_right(path, result),
            )
            if ratio_bound:
                yield _beside_grep(what, path, literals, ratio_bound, env)
            os.unlink(path)
        most = max(peaks)
        yield Row(
            "the most memory in it (peak RSS)",
            f"{most:.0f} MB",
            f"<= {MEMORY} MB",
            most <= MEMORY,
        )
        yield from _starts(folder, env)


def _beside_grep(what: str, path: str, literals: str, bound: float, env: Mapping[str, str]) -> Row:
    # through a pipe: grep stops at the first match where its output is /dev/null
    script = 'LC_ALL=C grep -aFc -f "$1" "$2" | cat'
    argv = ["sh", "-c", script, "sh", literals, path]
    measured = pairs(3, lambda: diagnosed([path], env).cpu, partial(_cpu, argv, env))
    ratio = median_ratio(measured)
    ours, theirs = (median(column) for column in zip(*measured, strict=True))
    return Row(
        f"{what}: CPU time of `diagnose` / `grep -aFc -f` of its literals, median of 3 pairs",
        f"{ratio:.2f} ({ours:.1f} s / {theirs:.1f} s)",
        f"<= {bound}",
        ratio <= bound,
    )


def _write_literals(folder: str) -> str:
    """Return a file with the texts that `diagnose` searches for, one a line."""
    texts = {text.rstrip("\n") for text in (*table.load().by_literal, *GENERAL)}
    path = os.path.join(folder, "literals")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(sorted(texts)) + "\n")
    return path


# -- running it ------------------------------------------------------------------------------------


def diagnosed(
    paths: list[str],
    env: Mapping[str, str],
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    then: Callable[[subprocess.Popen[bytes]], None] = lambda _: None,
) -> Diagnosis:
    """Run `diagnose --json` and return how it went; `then` is done while it runs."""
    argv = [SAFELAUNCH, "diagnose", "--json", *paths]
    start = time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(argv, env=env, stdin=stdin, stdout=out, stderr=err)
        watch = threading.Timer(DEADLINE, process.kill)
        watch.start()
        then(process)
        _, status, used = os.wait4(process.pid, 0)
        watch.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (out, err):
            file.seek(0)
        texts = out.read(), err.read()
    return Diagnosis(
        process.returncode,
        used.ru_utime + used.ru_stime,
        time.perf_counter() - start,
        used.ru_maxrss * _RSS / 1e6,
        *texts,
    )


_RSS = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes there, KiB here


def _is_right(path: str, result: Diagnosis) -> bool:
    """Whether the line that is named stands where it is said to."""
    findings = json.loads(result.out)["findings"]
    if not findings:
        return result.code == 0
    with open(path, "rb") as file:
        line = next(itertools.islice(file, findings[0]["line_number"] - 1, None))
    return bool(findings[0]["line"].encode()[:200] in line)


def _starts(folder: str, env: Mapping[str, str]) -> Iterator[Row]:
    bare = [sys.executable, "-c", "import click, yaml"]
    log = os.path.join(folder, "ok.log")
    with open(log, "wb") as file:
        file.write(b"step 1 loss 0.5 lr 1e-5\n" * 100)
    for what, words, bound in (
        ("diagnose --help", ["--help"], HELP_RATIO),
        ("diagnose` of a log of 100 lines, `", [log], 0),
    ):
        argv = [SAFELAUNCH, "diagnose", *words]
        measured = pairs(15, partial(_cpu, argv, env), partial(_cpu, bare, env))
        ratio = median_ratio(measured)
        ours, theirs = (median(column) * 1000 for column in zip(*measured, strict=True))
        yield Row(
            f'CPU time of `{what}` / `python -c "import click, yaml"`, median of 15 pairs'.replace(
                ", ``", ""
            ),
            f"{ratio:.2f} ({ours:.0f} ms / {theirs:.0f} ms)",
            f"<= {bound}" if bound else "-",
            not bound or ratio <= bound,
        )


def _cpu(argv: list[str], env: Mapping[str, str]) -> float:
    return cost(argv, env).cpu


# -- logs ------------------------------------------------------------------------------------------


def _write(path: str, blocks: Iterator[bytes], size: int) -> int:
    with open(path, "wb") as file:
        while file.tell() < size:
            file.write(next(blocks))
        return file.tell()


def _bars() -> bytes:
    """Return what a trainer prints: a bar that is drawn over, and a line for each tenth step."""
    bar = "\rTraining: {0:3}%|{1:<10}| {2}/20000 [{3:02}:{4:02}<11:42,  3.21it/s, loss={5:.4f}]"
    line = "2025-01-01 12:{3:02}:{4:02},123 - INFO - trainer - step {2} loss {5:.4f} lr 1e-05\n"
    parts = []
    for n in range(8000):
        values = (n // 200, "█" * (n // 2000), n, n // 60 % 60, n % 60, 1 / (n + 1))
        parts.append(bar.format(*values))
        if n % 10 == 0:
            parts.append("\n" + line.format(*values))
    return "".join([*parts, "\n"]).encode()


def _mixed() -> Iterator[bytes]:
    """Yield progress with a real excerpt every 8 MB: as an alarm now and then in a long run."""
    with open(EXCERPTS, encoding="utf-8") as file:
        excerpts = [json.loads(line)["log"].encode() + b"\n" for line in file]
    bars = _bars()
    count = max(1, (8 << 20) // len(bars))
    for excerpt in itertools.cycle(excerpts):
        yield from itertools.repeat(bars, count)
        yield excerpt


def _coloured() -> Iterator[bytes]:
    line = (
        b"\x1b[32m12:00:%02d\x1b[0m \x1b[1mINFO\x1b[0m step %d loss \x1b[33m%.4f\x1b[0m lr 1e-05\n"
    )
    whole = b"".join(line % (n % 60, n, 1 / (n + 1)) for n in range(10_000))
    yield whole + ALARM
    yield from itertools.repeat(whole)
