"""What is no log at all given to `diagnose`: each kind ends in time, in little memory, and said.

What is generated lies in a temporary folder and goes with it.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import os
import resource
import signal
import subprocess
import sys
import time
import zipfile
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from diagnose import ALARM, DEADLINE, MEMORY, NOISE, SIZE, diagnosed
from plumbum import local
from rows import Row, home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def bad_input() -> Iterator[Row]:
    """Yield how many kinds of bad input end in time, in little memory, with the right exit code."""
    with home() as (folder, env):
        wrong, slowest, most = [], (0.0, ""), 0.0
        for case in CASES:
            code, number, make = case
            name = make.__name__.strip("_").replace("_", " ")
            with make(folder) as source:
                result = diagnosed(source.paths, env, source.stdin, source.then)
            bad = result.code != code or result.memory > MEMORY or b"Traceback" in result.stderr
            if bad or (number and result.number != number):
                wrong.append(name)
                print(f"{name}: {result._replace(out=result.out[:300])}", file=sys.stderr)
            slowest, most = max(slowest, (result.wall, name)), max(most, result.memory)
        yield Row(
            "bad input of `diagnose`: the stated exit code and line, no traceback, in "
            f"{DEADLINE:.0f} s and {MEMORY} MB (slowest: {slowest[1]}, {slowest[0]:.0f} s; "
            f"most memory: {most:.0f} MB)",
            f"{len(CASES) - len(wrong)}/{len(CASES)}"
            + "".join(f"; {problem}" for problem in wrong),
            "all",
            not wrong,
        )


# -- what is given ---------------------------------------------------------------------------------


class Input(NamedTuple):
    """What `diagnose` gets: paths or standard input; `then` is done once it runs."""

    paths: list[str]
    stdin: int | IO[bytes] = subprocess.DEVNULL
    then: Callable[[subprocess.Popen[bytes]], None] = lambda _: None


@contextlib.contextmanager
def _file(folder: str, name: str, blocks: Iterator[bytes]) -> Iterator[Input]:
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.writelines(blocks)
    try:
        yield Input([path])
    finally:
        os.unlink(path)


@contextlib.contextmanager
def _program(folder: str) -> Iterator[Input]:  # noqa: ARG001 - as the others
    yield Input([os.path.realpath(sys.executable)])


@contextlib.contextmanager
def _checkpoint(folder: str) -> Iterator[Input]:
    path = os.path.join(folder, "model.pt")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", os.urandom(5 << 20))
    yield Input([path])
    os.unlink(path)


def _random_bytes(folder: str) -> Any:
    return _file(folder, "x.log", iter([os.urandom(5 << 20)]))


@contextlib.contextmanager
def _ten_gib_of_a_hole(folder: str) -> Iterator[Input]:
    with _file(folder, "x.log", iter([b""])) as source:
        os.truncate(source.paths[0], 10 << 30)
        yield source


@contextlib.contextmanager
def _ten_gib_of_a_hole_through_a_pipe(folder: str) -> Iterator[Input]:
    with _ten_gib_of_a_hole(folder) as source, _piped(["cat", *source.paths]) as piped:
        yield piped


@contextlib.contextmanager
def _piped(argv: list[str]) -> Iterator[Input]:
    writer = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert writer.stdout is not None  # noqa: S101 - for the types
    yield Input([], writer.stdout, lambda _: writer.stdout.close())  # type: ignore[union-attr]
    writer.terminate()
    writer.wait()


def _yes(folder: str) -> Any:  # noqa: ARG001 - as the others
    return _piped(["yes"])


def _line_of_a_gib(folder: str) -> Any:
    long = itertools.repeat(b"x" * (1 << 20), SIZE >> 20)
    return _file(folder, "x.log", itertools.chain(long, [b"\n", ALARM]))


def _bar_of_100_mib_in_one_line(folder: str) -> Any:
    states = b"".join(
        b"\r%3d%%|####      | %d/9000 [00:01<00:02]" % (n // 90, n) for n in range(9000)
    )
    many = itertools.repeat(states, (100 << 20) // len(states))
    return _file(folder, "x.log", itertools.chain(many, [b"\n", ALARM]))


def _lines_of_a_mib_with_alarms(folder: str) -> Any:
    line = NOISE.strip() + b"x" * (1 << 20) + b"\n"
    return _file(folder, "x.log", itertools.repeat(line, 500))


def _bomb_of_ten_gib(folder: str) -> Any:
    member = gzip.compress(bytes(64 << 20))
    return _file(folder, "x.log.gz", itertools.repeat(member, 160))


def _packed_log_cut_off(folder: str) -> Any:
    packed = gzip.compress(ALARM + os.urandom(1 << 20).hex().encode())
    return _file(folder, "x.log.gz", iter([packed[: len(packed) // 2]]))


def _mixed_encodings(folder: str) -> Any:
    latin = "größe\n".encode("latin-1") * 1_000_000
    return _file(folder, "x.log", iter([b"\xef\xbb\xbf", latin, ALARM]))


def _utf_16_of_500_mib(folder: str) -> Any:
    quiet = ("step lr\r\n" * 100_000).encode("utf-16-le")
    lines = itertools.repeat(quiet, (500 << 20) // len(quiet))
    return _file(folder, "x.log", itertools.chain([b"\xff\xfe"], lines))


def _empty(folder: str) -> Any:
    return _file(folder, "x.log", iter([b""]))


@contextlib.contextmanager
def _device(path: str) -> Iterator[Input]:
    yield Input([path])


def _dev_null(folder: str) -> Any:  # noqa: ARG001 - as the others
    return _device("/dev/null")


def _dev_zero(folder: str) -> Any:  # noqa: ARG001 - as the others
    return _device("/dev/zero")


def _dev_urandom(folder: str) -> Any:  # noqa: ARG001 - as the others
    return _device("/dev/urandom")


@contextlib.contextmanager
def _2001_logs(folder: str) -> Iterator[Input]:
    below = os.path.join(folder, "ranks")
    os.mkdir(below)
    frames = b'Traceback (most recent call last):\n  File "train.py", line 3, in f\n    f()\n'
    text = b"step 1 loss 0.5 lr 1e-5\n" * 2000 + frames + ALARM
    for rank in range(2001):
        with open(os.path.join(below, f"rank-{rank}.log"), "wb") as file:
            file.write(text)
    yield Input([below])


@contextlib.contextmanager
def _growing(folder: str) -> Iterator[Input]:
    with _file(folder, "x.log", itertools.repeat(b"step lr\n" * 100_000, 300)) as source:
        writer = (local["yes"] >> source.paths[0]).popen()
        _limited(writer)
        yield source
        writer.terminate()
        writer.wait()


def _limited(writer: subprocess.Popen[bytes]) -> None:
    resource.prlimit(writer.pid, resource.RLIMIT_FSIZE, (20 << 30, 20 << 30))


@contextlib.contextmanager
def _truncated(folder: str) -> Iterator[Input]:
    with _file(folder, "x.log", itertools.repeat(b"step lr\n" * 100_000, 1000)) as source:
        path = source.paths[0]

        def cut(process: subprocess.Popen[bytes]) -> None:
            _until_open(process.pid, path)
            os.truncate(path, 1000)

        yield source._replace(then=cut)


def _until_open(pid: int, path: str) -> None:
    deadline = time.monotonic() + DEADLINE
    folder = f"/proc/{pid}/fd"
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if path in {os.readlink(os.path.join(folder, name)) for name in os.listdir(folder)}:
                return
        time.sleep(0.002)


@contextlib.contextmanager
def _silent_until_ctrl_c(folder: str) -> Iterator[Input]:  # noqa: ARG001 - as the others
    out, into = os.pipe()
    os.write(into, b"quiet\n" + ALARM)

    def end(process: subprocess.Popen[bytes]) -> None:
        time.sleep(3)
        process.send_signal(signal.SIGINT)

    yield Input([], out, end)
    os.close(out)
    os.close(into)


# exit code, line that is named (0: none), what is given
CASES: tuple[tuple[int, int, Any], ...] = (
    (2, 0, _program),
    (2, 0, _checkpoint),
    (2, 0, _random_bytes),
    (0, 0, _ten_gib_of_a_hole),
    (2, 0, _ten_gib_of_a_hole_through_a_pipe),
    (0, 0, _yes),
    (1, 2, _line_of_a_gib),
    (1, 2, _bar_of_100_mib_in_one_line),
    (1, 1, _lines_of_a_mib_with_alarms),
    (0, 0, _bomb_of_ten_gib),
    (1, 1, _packed_log_cut_off),
    (1, 1_000_001, _mixed_encodings),
    (0, 0, _utf_16_of_500_mib),
    (0, 0, _empty),
    (0, 0, _dev_null),
    (0, 0, _dev_zero),
    (2, 0, _dev_urandom),
    (1, 2004, _2001_logs),
    (0, 0, _growing),
    (0, 0, _truncated),
    (130, 2, _silent_until_ctrl_c),
)
