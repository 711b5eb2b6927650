"""What a sync costs beside `rsync -a`, and a large file beside `scp`, over the same sshd.

Ours are timed from the connection to the answer, in a process that has its imports; theirs from the
start of the program. Both trees are new for a first sync, and warm in the page cache.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from kills import tests
from plumbum import CommandNotFound, local
from rows import Row, home
from timing import median_ratio, pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plumbum.commands.base import BaseCommand
    from plumbum.machines.local import LocalCommand

FILES = 5000
FOLDERS = 200
MEAN = 7200  # bytes: 36 MB in all
LARGE = 256 << 20
PAIRS = 7
MEMORY = 150.0  # MB
_EDITED = 10


class Place(NamedTuple):
    """A host as both sides reach it."""

    connect: Callable[[], contextlib.AbstractContextManager[Any]]  # yields an agent
    options: list[str]  # of ssh, for the others
    user: str


def sync() -> Iterator[Row]:
    """Yield what a sync of 5,000 files and a push of a large one cost."""
    sshd = tests("support.ssh.sshd")
    why = sshd.missing()
    if why:
        yield Row("sync over sshd", f"not measured: {why}", "<= 1.2 rsync", False)
        return
    before = _forget_peak()
    with home() as (folder, _), sshd.Sshd() as server:
        place = Place(partial(_connected, server), server.options(), f"{server.user}@127.0.0.1")
        yield from _small(folder, place)
        yield from _large(folder, place)
    used = _memory("VmHWM") - before
    yield Row(
        "peak memory that the client needed in all of it",
        f"{used:.0f} MB",
        "<= 150 MB",
        used <= MEMORY,
    )


def _forget_peak() -> float:
    """Begin the peak of this process anew (proc(5)); return the MB that it holds already."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    return _memory("VmRSS")


def _memory(what: str) -> float:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        (line,) = (line for line in file if line.startswith(what))
    return int(line.split()[1]) / 1024


@contextlib.contextmanager
def _connected(server: Any) -> Iterator[Any]:
    from safelaunch.remote import agent_bootstrap  # noqa: PLC0415 - needs paramiko
    from safelaunch.ssh.connection import connect  # noqa: PLC0415

    digest = agent_bootstrap.digest()
    with connect(server.target()) as connection:
        yield agent_bootstrap.start_agent("box", partial(connection.exec, wait=False), digest, [])


def _small(folder: str, place: Place) -> Iterator[Row]:
    project = os.path.join(folder, "project")
    write_project(project)
    rsync = _program("rsync")
    ours = partial(_sync, folder, project, place)
    theirs = partial(_rsync, rsync, folder, project, place)

    def first(run: Callable[[], float], *results: str) -> float:
        for name in results:
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
        return run()

    def edited(run: Callable[[], float]) -> float:
        edit(project)
        return run()

    what = f"sync of {FILES:,} files (36 MB)"
    subjects = (
        ("first", 1.2, partial(first, ours, "ours", "cache"), partial(first, theirs, "theirs")),
        ("nothing changed", 1.5, ours, theirs),
        ("ten files changed", 1.5, partial(edited, ours), partial(edited, theirs)),
    )
    for name, bound, mine, other in subjects:
        yield _compared(f"{what}, {name}", bound, mine, other if rsync else None, "rsync -a")


def _large(folder: str, place: Place) -> Iterator[Row]:
    scp = _program("scp")
    path = os.path.join(folder, "large.bin")
    with open(path, "wb") as file:
        file.writelines(os.urandom(1 << 20) for _ in range(LARGE >> 20))

    def ours() -> float:
        from safelaunch.sync.push import push_file  # noqa: PLC0415 - only this subject

        shutil.rmtree(os.path.join(folder, "pushed"), ignore_errors=True)
        start = time.perf_counter()
        with place.connect() as agent:
            push_file(agent, path, os.path.join(folder, "pushed", "large.bin"))
        return time.perf_counter() - start

    def theirs() -> float:
        target = os.path.join(folder, "copied.bin")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target)
        return _timed(scp["-q"][place.options][path, f"{place.user}:{target}"])

    what = f"push of one file of {LARGE >> 20} MiB"
    yield _compared(what, 1.2, ours, theirs if scp else None, "scp")


def _compared(
    what: str,
    bound: float,
    ours: Callable[[], float],
    theirs: Callable[[], float] | None,
    program: str,
) -> Row:
    name = f"{what}: wall time / `{program}`, median of {PAIRS} pairs"
    if theirs is None:
        ours()
        alone = median(ours() for _ in range(PAIRS))
        text = f"{alone:.2f} s; not compared: no {program.split(maxsplit=1)[0]} here"
        return Row(name, text, f"<= {bound}", False)
    measured = pairs(PAIRS, ours, theirs)
    ratio = median_ratio(measured)
    mine, other = (median(column) for column in zip(*measured, strict=True))
    return Row(name, f"{ratio:.2f} ({mine:.2f} s / {other:.2f} s)", f"<= {bound}", ratio <= bound)


def _sync(folder: str, project: str, place: Place) -> float:
    from safelaunch.sync.push import start_push  # noqa: PLC0415 - only this subject

    start = time.perf_counter()
    with place.connect() as agent:
        target, cache = os.path.join(folder, "ours"), os.path.join(folder, "cache")
        start_push(agent, project, target, cache=cache).finish()
    return time.perf_counter() - start


def _program(name: str) -> LocalCommand | None:
    try:
        return local[name]
    except CommandNotFound:
        return None


def _rsync(rsync: LocalCommand, folder: str, project: str, place: Place) -> float:
    shell = " ".join(["ssh", *place.options])
    far = ["--rsync-path", str(rsync), "-e", shell]
    return _timed(rsync["-a"][far][project + "/", f"{place.user}:{folder}/theirs/"])


def _timed(command: BaseCommand) -> float:
    start = time.perf_counter()
    command()
    return time.perf_counter() - start


def edit(project: str) -> None:
    """Append a line to ten files of a project."""
    for number in range(_EDITED):
        with open(_path(project, number), "a", encoding="utf-8") as file:
            file.write(f"# {time.time_ns()}\n")


def write_project(project: str, count: int = FILES) -> None:
    """Write files of source text: pieces of the standard library, of lengths as code has them."""
    text = _text()
    chance = random.Random(1)  # noqa: S311 - the same files each time
    for number in range(count):
        path = _path(project, number)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        size = min(int(chance.expovariate(1 / MEAN)) + 10, len(text) // 2)
        at = chance.randrange(len(text) - size)
        with open(path, "wb") as file:
            file.write(text[at : at + size])


def _path(project: str, number: int) -> str:
    package = f"package{number % FOLDERS % 20}"
    return os.path.join(project, package, f"part{number % FOLDERS}", f"module{number}.py")


def _text() -> bytes:
    library = os.path.dirname(os.__file__)
    parts = []
    for name in sorted(os.listdir(library)):
        if name.endswith(".py"):
            with open(os.path.join(library, name), "rb") as file:
                parts.append(file.read())
    return b"".join(parts)
