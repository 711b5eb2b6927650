"""The fault matrix: a connection to a host that is cut in the middle of a step, and what must hold.

A step has five moments, at shares of the bytes that it takes in a run without a cut. Used by
tests/integration/remote/test_connection_cuts.py with one moment of each step, by
`scripts/bench matrix` with all.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import shutil
import socket
import subprocess
import threading
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.runtime import processes
from support import REPOSITORY
from support.cli_process import CLI
from support.faults.kill_matrix import check, holds, what_is_wrong
from support.ssh import sshd, step_marks
from support.ssh.faulty_proxy import DOWN, UP, Faults
from support.ssh.sshd import Sshd
from support.workspace import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from support.ssh.faulty_proxy import Direction, How
    from support.workspace import Place

USER = "alice" if sshd.ROOT else None
LIMIT = 60.0  # seconds for one command: a sync waits 15 for one that fell silent
MIB = 1 << 20
# three seconds of silence, instead of a minute: a stall would be no cheap fault
SOON = "  ServerAliveInterval 1\n  ServerAliveCountMax 2\n"


class Case(NamedTuple):
    """A cut of one command's connection, once that share of a step's bytes has passed.

    connect: up to the new keys. auth: up to the login. agent: until the first answer, on a host
    that its files are put on first. sync, upload: from the question what is there to the last
    answer. start, stop: request and answer. logs: from the request on.
    """

    step: str
    command: str
    direction: Direction
    share: float
    how: How

    def __str__(self) -> str:
        return f"{self.how} at {self.share:.0%} {self.direction} of {self.step} ({self.command})"


TRIES = 3  # of a case whose moment was missed
NO_CUT = "cut at all"
STEPS = ("connect", "auth", "sync", "upload", "start", "logs", "stop")
_COMMANDS = {"sync": "remote", "upload": "push", "start": "remote", "logs": "logs", "stop": "stop"}
# All of it up: the host has everything, and its answer does not come.
_MOMENTS: tuple[tuple[Direction, float], ...] = (
    (UP, 0.1), (UP, 0.6), (UP, 1.0), (DOWN, 0.3), (DOWN, 0.9),
)  # fmt: skip
_OF_UPLOADS: tuple[tuple[Direction, float], ...] = (
    (UP, 0.1), (UP, 0.6), (UP, 0.998), (DOWN, 0.3), (DOWN, 0.9),  # sizes differ by some packets
)  # fmt: skip
_OF_LOGS: tuple[tuple[Direction, float], ...] = (
    (UP, 1.0), (DOWN, 0.1), (DOWN, 0.4), (DOWN, 0.7), (DOWN, 1.0),
)  # fmt: skip
_HOWS: tuple[How, ...] = ("reset", "drop", "stall")


def _cases(*steps: str) -> Iterator[Case]:
    for turn, step in enumerate(steps):
        moments = {"upload": _OF_UPLOADS, "logs": _OF_LOGS}.get(step, _MOMENTS)
        # before the first request silence is not asked about: that waits half a minute
        hows = _HOWS if step in _COMMANDS else _HOWS[:2]
        for number, (direction, share) in enumerate(moments):
            command = _COMMANDS.get(step) or tuple(COMMANDS)[number]
            yield Case(step, command, direction, share, hows[(turn + number) % len(hows)])


def run_case(case: Case, root: str | None = None) -> str | None:
    """Cut one command in a world of its own; return None, or what was not as expected.

    A command may send some bytes less than the one that was measured, so that the end of what it
    sends is never reached: then its sizes are measured again, and it is tried anew.
    """
    for _ in range(TRIES - 1):
        wrong = _try_case(case, root)
        if wrong is None or NO_CUT not in wrong:
            return wrong
        with _measuring:
            _marks.cache_clear()
    return _try_case(case, root)


def _try_case(case: Case, root: str | None) -> str | None:
    def act(place: Place) -> None:
        count = measured(case.command, case.step).count(case)
        with _world(place, case.how) as world:
            command = COMMANDS[case.command](world)
            command.prepare(fresh=case.step == "agent")
            with world.read(command.folder, command.old, command.new):
                world.proxy.cut_after(count, case.direction, case.how, once=True)
                done = command.enter(case.how)
                check(world.proxy.was_cut, True, NO_CUT)
                world.understandable(done)
                command.after_cut(case, done)
                command.again(done)
            command.clean()
            world.nothing_left()

    return what_is_wrong(act, root)


# -- how many bytes a step takes -------------------------------------------------------------------


class Size(NamedTuple):
    """Bytes that have passed since a command's start where a step begins, and where it ends."""

    start: dict[Direction, int]
    end: dict[Direction, int]

    def count(self, case: Case) -> int:
        """Return after how many bytes of the command to cut."""
        start, end = self.start[case.direction], self.end[case.direction]
        return start + max(1, round(case.share * (end - start)))


_measuring = threading.Lock()


def measured(command: str, step: str) -> Size:
    """Return what a step takes in a run without a cut, measured once for each command."""
    with _measuring:
        marks = _marks(command, step == "agent")
    start, end = {
        "connect": ("start", "behind connect"),
        "auth": ("behind connect", "behind auth"),
        "agent": ("behind auth", next(m for m in marks if m.startswith("behind ") and "." in m)),
        "sync": ("before receive.compare", "behind receive.put"),
        "upload": ("before receive.compare", "behind receive.put"),
        "start": ("before start.start", "behind start.start"),
        "logs": ("before runs.log", "first part"),
        "stop": ("before runs.stop", "behind runs.stop"),
    }[step]
    return Size(marks[start], marks[end])


@functools.cache
def _marks(command: str, fresh: bool) -> Mapping[str, dict[Direction, int]]:
    """Return how much had passed when: of several marks of a name the last."""
    marks: dict[str, dict[Direction, int]] = {}

    def act(place: Place) -> None:
        with _world(place) as world:
            instance = COMMANDS[command](world)
            instance.prepare(fresh=fresh)
            before = dict(world.proxy.passed)

            def note(name: str) -> None:
                passed = {way: world.proxy.passed[way] - before[way] for way in (UP, DOWN)}
                if not (name.startswith("before ") and name in marks):  # the first of several
                    marks[name] = passed

            note("start")
            ours, theirs = socket.socketpair()
            with ours, theirs:
                world.marked = (theirs.fileno(), functools.partial(_listen, ours, note))
                instance.marks = note
                done = instance.enter(None)
                world.marked = None
            check(done.code, 0, "exit code without a cut")
            instance.clean()

    wrong = what_is_wrong(act)
    if wrong is not None:
        raise AssertionError(f"{command} without a cut: {wrong}")
    return marks


def _listen(channel: socket.socket, note: Callable[[str], None]) -> None:
    """Note what a marked command tells, until it has ended."""
    with contextlib.suppress(OSError):
        while data := channel.recv(200):
            for name in data.decode().split("\n")[:-1]:
                note(name)
            channel.sendall(b".")


# -- the world -------------------------------------------------------------------------------------


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: bytes
    stderr: str


@contextlib.contextmanager
def _world(place: Place, how: How | None = None) -> Iterator[World]:
    with Sshd() as server, Faults(server.address, server.port) as proxy:
        yield World(place, server, proxy, how)


class World:
    """A laptop, a host `box` that nothing was ever done on, and the network between them."""

    def __init__(self, place: Place, server: Sshd, proxy: Faults, how: How | None) -> None:
        self.place = place
        self.server = server
        self.proxy = proxy
        self.marked: tuple[int, Callable[[], None]] | None = None
        folder = place.user / ".ssh"
        folder.mkdir(mode=0o700)
        config = server.ssh_config("box", USER).replace(str(server.port), str(proxy.port))
        alias = f"  HostKeyAlias [{server.address}]:{server.port}\n"
        (folder / "config").write_text(config + alias + (SOON if how == "stall" else ""))
        self.home = server.home(USER)
        self.tree = self.home / "safelaunch" / "project"

    def popen(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command; one that is to be measured tells how far it is."""
        if self.marked is None:
            return self.place.popen(*words)
        number, listen = self.marked
        process = subprocess.Popen(
            [CLI[0], step_marks.__file__, str(number), *words],
            env={**self.place.env, "PYTHONPATH": str(REPOSITORY)},
            cwd=self.place.project,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[number],
        )
        self.place.started.append(process)
        threading.Thread(target=listen, daemon=True).start()
        return process

    def ended(self, process: subprocess.Popen[bytes]) -> Done:
        """Wait for a command's end."""
        out, stderr = process.communicate(timeout=LIMIT)
        return Done(process.returncode, out, stderr.decode())

    @staticmethod
    def understandable(done: Done) -> None:
        """Raise AssertionError unless a command went on, or says what happened and what to do."""
        check("Traceback" in done.stderr, False, f"a traceback in {done.stderr!r}")
        check(done.code in (0, 4), True, f"exit code {done.code} with {done.stderr!r}")
        if done.code:
            holds("error: ", done.stderr, "stderr")
            holds("box", done.stderr, "stderr")
            holds("hint: ", done.stderr, "stderr")

    def state(self, run: str) -> str:
        """Return what `show` says of a run."""
        return str(self.place.json("show", run)["state"])

    def runs(self) -> dict[str, str]:
        """Return the state of each run of the job that `ps` finds on the host."""
        listed = self.place.json("ps", "--host", "box", "--all")["runs"]
        return {run["id"]: run["state"] for run in listed if run["id"].startswith("cut-")}

    def started(self) -> list[str]:
        """Return the ids of the runs whose programs have begun, once for each time."""
        try:
            return (self.tree / "started").read_text().split()
        except OSError:
            return []

    def stopped(self, run: str) -> None:
        """Stop a run, and see that nothing of it is left."""
        shown = self.place.json("stop", run)
        actual = (shown["state"], shown.get("alive", 0))
        check(actual, ("stopped", 0), "state and processes after stop")
        self.dead(run)

    @staticmethod
    def dead(run: str) -> None:
        """Raise AssertionError where processes of a run are left."""
        check(processes.marked(run), {}, "processes that are left")

    def nothing_left(self) -> None:
        """See that commands and agents, also those that fell silent, leave nothing behind."""
        self.proxy.close()
        wait_for(lambda: not self.server.processes(), "end of all that ran on the host")
        parts = [p for p in self.home.rglob("*") if p.name.endswith((".part", ".tmp"))]
        check(parts, [], "halves of files")
        copies = os.listdir(self.home / ".safelaunch" / "runtime")
        check(len(copies), 1, "copies of the runtime")

    @contextlib.contextmanager
    def read(
        self, folder: Path, old: Mapping[str, bytes], new: Mapping[str, bytes]
    ) -> Iterator[None]:
        """Read files all the time: each is the old one or the new one, whole."""
        wrong: list[str] = []
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.05) and not wrong:
                for name in {*old, *new}:
                    try:
                        content = (folder / name).read_bytes()
                    except FileNotFoundError:
                        if name in old:
                            wrong.append(f"{name} was taken away")
                        continue
                    if content not in (old.get(name), new.get(name)):
                        wrong.append(f"{name} was neither old nor new, {len(content)} bytes")

        reader = threading.Thread(target=watch)
        reader.start()
        try:
            yield
        finally:
            over.set()
            reader.join()
        check(wrong, [], "what a reader saw")


# -- the commands ----------------------------------------------------------------------------------

WORK = """
import os, signal, sys, time

def end(*_):
    time.sleep(0.5)  # a stop takes its time
    sys.exit(0)

signal.signal(signal.SIGTERM, end)
with open("started", "a") as file:
    file.write(os.environ["SAFELAUNCH_RUN_ID"] + "\\n")
print("up", flush=True)
time.sleep(600)
"""
WRITE = """
import os, sys, time
sys.stdout.write("".join("line %06d %s\\n" % (n, "x" * 80) for n in range(3000)))
sys.stdout.flush()
while not os.path.exists("end"):
    time.sleep(0.01)
sys.stdout.write("".join("line %06d and the rest\\n" % n for n in range(3000, 3100)))
"""
FIRST = b"".join(b"line %06d %s\n" % (n, b"x" * 80) for n in range(3000))
REST = b"".join(b"line %06d and the rest\n" % n for n in range(3000, 3100))


class Command:
    """A command and what is true of it: each in a world of its own."""

    name = ""

    def __init__(self, world: World) -> None:
        self.world = world
        self.place = world.place
        self.words: tuple[str, ...] = ()
        self.run = ""
        self.folder = world.tree
        self.old: dict[str, bytes] = {}  # files there, before
        self.new: dict[str, bytes] = {}
        self.marks: Callable[[str], None] = lambda _: None

    def prepare(self, *, fresh: bool = False) -> None:
        """Do what comes before the command; `fresh`: the agent's files are not there."""
        self.before()
        if fresh:
            shutil.rmtree(self.world.home / ".safelaunch" / "runtime")

    def before(self) -> None:
        """Do what comes before the command."""
        raise NotImplementedError

    def enter(self, how: How | None = None) -> Done:  # noqa: ARG002 - for those that need it
        """Run the command to its end."""
        return self.world.ended(self.world.popen(*self.words))

    def after_cut(self, case: Case, done: Done) -> None:
        """Raise AssertionError where something is not true after the cut."""

    def again(self, done: Done) -> None:  # noqa: ARG002 - for those that need it
        """Type it again, and see that all is as the user wanted it."""
        second = self.enter()
        check((second.code, "Traceback" in second.stderr), (0, False), f"again: {second.stderr!r}")
        self.right(second)

    def right(self, done: Done) -> None:
        """Raise AssertionError where not all is as the user wanted it."""

    def clean(self) -> None:
        """End what runs."""
        if self.run:
            self.world.stopped(self.run)

    def _start(self, program: str) -> None:
        file = self.place.job(program, name="cut", python=None)
        self.run = str(self.place.json("remote", "--host", "box", file)["id"])


class Remote(Command):
    """A start with a sync, where an earlier sync has put a tree there."""

    name = "remote"

    def before(self) -> None:
        """Bring the old tree by another job."""
        self.old = self._tree(1)
        prepared = self.place.shell("exit 0", name="old", python=None)
        self.place.cli("remote", "--host", "box", "--follow", prepared, timeout=LIMIT)
        file = self.place.job(WORK, name="cut", python=None)
        self.new = self._tree(2)
        self.words = ("remote", "--host", "box", "--json", file)

    def _tree(self, seed: int) -> dict[str, bytes]:
        some = random.Random(seed)  # noqa: S311 - no secret
        names = [f"part{n % 4}/words{n}.txt" for n in range(40)]
        files = {name: some.randbytes(3000).hex().encode() for name in names}
        files["weights.bin"] = some.randbytes(300_000)
        for name, body in files.items():
            self.place.write(name, body)
        return files

    def after_cut(self, case: Case, done: Done) -> None:
        """It runs, or it does not, and that is what is told."""
        if case.step == "start":
            check(done.code, 0, f"exit code of a start that can go on ({done.stderr!r})")
        if done.code == 4:  # `ps` of the host tells of runs that only this machine knows too
            check(self.world.runs(), {}, "runs after a start that failed")
            check(self.world.started(), [], "programs that began")

    def again(self, done: Done) -> None:
        """Type it again where it did not start: a second one were another job."""
        if done.code == 4:
            super().again(done)
        else:
            self.right(done)

    def right(self, done: Done) -> None:
        """One job runs, in the new tree."""
        self.run = str(json.loads(done.out)["id"])
        check(self.world.runs(), {self.run: "running"}, "runs")
        check(wait_for(self.world.started, "begin of the program"), [self.run], "programs begun")
        for name, body in self.new.items():
            check((self.folder / name).read_bytes() == body, True, f"{name} as it is here")


class Push(Command):
    """A large file over an older one of the same name."""

    name = "push"
    size = 9 * MIB
    sent_before = 0  # bytes

    def before(self) -> None:
        """Bring the older one."""
        some = random.Random(3)  # noqa: S311 - no secret
        self.folder = self.world.home / "safelaunch" / "assets"
        self.words = ("push", "big.bin", "--host", "box")
        self.old = {"big.bin": some.randbytes(self.size)}
        self.place.write("big.bin", self.old["big.bin"])
        self.place.cli(*self.words, timeout=LIMIT)
        self.new = {"big.bin": some.randbytes(self.size)}
        self.place.write("big.bin", self.new["big.bin"])
        self.sent_before = self.world.proxy.passed[UP]

    def after_cut(self, case: Case, done: Done) -> None:
        """What was on its way arrives, or is lost: a user types more slowly than this."""
        del done
        if case.how != "stall":  # sshd waits for more then
            wait_for(lambda: not self.world.server.processes(), "end of what was cut")

    def again(self, done: Done) -> None:
        """Type it again: what has arrived does not travel twice, but for what was on its way."""
        passed = self.world.proxy.passed
        before = passed[UP]
        arrived = before - self.sent_before
        super().again(done)
        # on its way: at most sshd's window of 2 MiB, a block of 1 MiB that is lost if it is packed
        # and breaks off, pipes of 64 KiB; the session itself; and the agent's files, under 1 MiB,
        # which travel again where they were what broke off
        most = max(2 * MIB, self.size - arrived + 5 * MIB)
        check(passed[UP] - before < most, True, f"less than {most} bytes sent again")

    def right(self, done: Done) -> None:
        """The file is there."""
        del done
        content = (self.folder / "big.bin").read_bytes()
        check(content == self.new["big.bin"], True, "the file as it is here")


class Logs(Command):
    """A log that is followed: two thirds are there, the rest comes after the cut."""

    name = "logs"

    def before(self) -> None:
        """Start what writes, and let it write the first part."""
        self._start(WRITE)
        self.words = ("logs", "-f", self.run)
        log = self.world.home / ".safelaunch" / "runs" / self.run / "node-0" / "logs"
        path = log / "attempt-1" / "combined.log"
        wait_for(lambda: path.exists() and path.stat().st_size == len(FIRST), "the first part")

    def enter(self, how: How | None = None) -> Done:
        """Follow it; the rest is written once the cut is there."""
        follow = self.world.popen(*self.words)
        proxy, output = self.world.proxy, bytearray()

        def read() -> None:
            assert follow.stdout is not None
            while data := os.read(follow.stdout.fileno(), 1 << 16):
                output.extend(data)

        reader = threading.Thread(target=read)
        reader.start()
        wait_for(
            lambda: (
                len(output) >= len(FIRST) or (how and proxy.was_cut) or follow.poll() is not None
            ),
            "the first part",
            LIMIT,
        )
        if how and not proxy.was_cut:  # a last byte more or less: now nothing passes but silence
            proxy.cut(how)
        self.marks("first part")
        (self.folder / "end").touch()
        reader.join(LIMIT)
        assert follow.stderr is not None
        stderr = follow.stderr.read().decode()
        return Done(follow.wait(LIMIT), bytes(output), stderr)

    def after_cut(self, case: Case, done: Done) -> None:
        """What came are the log's bytes, all of them, wherever the cut was."""
        if case.step == "logs":
            check(done.code, 0, f"exit code of what can go on ({done.stderr!r})")
        if done.code == 0:
            self.right(done)

    def right(self, done: Done) -> None:
        """Each line came once, and the job has succeeded."""
        check(done.out == FIRST + REST, True, f"{len(done.out)} bytes: every line once")
        check(self.world.state(self.run), "succeeded", "state")

    def clean(self) -> None:
        """See that it has ended."""
        self.world.dead(self.run)


class Stop(Command):
    """A stop of a job that needs its time."""

    name = "stop"

    def before(self) -> None:
        """Start the job."""
        self._start(WORK)
        wait_for(self.world.started, "begin of the program")
        self.words = ("stop", self.run)

    def after_cut(self, case: Case, done: Done) -> None:
        """It runs still or it is stopped, never failed."""
        del case
        shown = self.world.state(self.run)
        check(shown in ("running", "stopped"), True, f"state after a cut stop ({shown})")
        if done.code == 0:
            check(shown, "stopped", "state after a stop that succeeded")
        if shown == "stopped":
            self.world.dead(self.run)

    def right(self, done: Done) -> None:
        """Nothing of it is alive."""
        del done
        self.world.dead(self.run)
        check(self.world.state(self.run), "stopped", "state")

    def clean(self) -> None:
        """Leave it: it is stopped."""


class Show(Command):
    """A look at a job that runs."""

    name = "show"

    def before(self) -> None:
        """Start the job."""
        self._start(WORK)
        self.words = ("show", self.run, "--json")

    def after_cut(self, case: Case, done: Done) -> None:
        """Nothing is known, or it runs: no cut makes it anything else."""
        del case
        check(done.code, 0, "exit code")
        is_reported = any(
            word in done.out for word in (b'"state": "unknown"', b'"state": "running"')
        )
        check(is_reported, True, f"unknown or running ({done.out.decode()})")

    def right(self, done: Done) -> None:
        """It runs."""
        holds('"state": "running"', done.out.decode(), "show")


COMMANDS: dict[str, type[Command]] = {
    command.name: command for command in (Remote, Push, Logs, Show, Stop)
}
CASES = tuple(_cases(*STEPS))
AGENT = tuple(_cases("agent"))
