"""Collects what each rank of a hung job is doing, into `<node-dir>/hang-<n>/`.

Stacks come from py-spy where the job has it and may use it, else from faulthandler: STACKS_SIGNAL
goes only to a process whose SigCgt mask shows a handler, since it would kill any other. Also kept:
the kernel's view of each process, the last samples, and the NCCL flight recorder where the user has
enabled it.

It never blocks: each `tick` works for some milliseconds. It reads no file of the user's and no
`environ` of a process in D state, both of which may hang as the job does.
"""

# ruff: noqa: PLC0415 - failure and signatures are imported late: only a job that hangs needs them

from __future__ import annotations

import os
import signal
import time

from safelaunch.runtime import processes
from safelaunch.runtime.collectives import dumps
from safelaunch.runtime.hang import flight_recorder, proc_stack, stacks
from safelaunch.runtime.records import HangReport, RankStack, StackFrame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Tuple

    from safelaunch.runtime.records import CollectiveReport, RunRecord

    EarlyExit = Tuple[int, str, Optional[StackFrame], str]  # rank, left or thread, frame, text

STACKS_SIGNAL = 44  # the same number as in site/safelaunch_rank.py
SLICE = 0.005  # seconds of work in one tick; one rank of 64 threads costs 2 ms
PERIOD = 1.0  # seconds at least, since CPU time is counted in ticks of 10 ms
SPY_LIMIT = 10.0  # seconds: py-spy needs 0.03, 1 on a loaded machine, for ever on D state
SIGNAL_LIMIT = 3.0  # seconds: faulthandler answers at once, unless the signal is blocked
SETTLE = 0.2  # seconds without growth after which an answer counts as complete
LIMIT = 20.0  # seconds for everything: the flight recorder polls once a second and dumps for 15 s
SAMPLES_TAIL = 8192  # bytes of samples.csv that are copied: some minutes before the hang
MAX_STACKS = 1 << 20  # bytes of stacks of one rank
MAX_EXITS = 2  # threads and ranks that ended before the hang: lines of them in the summary
ABSENT = 127  # exit code of the child where there is no py-spy


class Evidence:
    """Collects evidence of one hang at a time; `children` are helper programs, not reaped yet."""

    def __init__(self, node_dir: str, run: RunRecord, attempt: int | None = None) -> None:
        self.dir = node_dir
        self.run = run
        self.attempt = attempt
        self.folder = ""
        self.targets: list[RankProbe] = []
        self.children: dict[int, RankProbe] = {}
        self.started_at: float | None = None
        self.started_ns = 0

    def start(self, number: int, ranks: dict[int, tuple[int, int]]) -> None:
        """Start to collect for hang number `number`, from {rank: (pid, start time)}."""
        self.started_ns = time.time_ns()
        self.folder = os.path.join(self.dir, f"hang-{number}")
        try:
            os.makedirs(self.folder, 0o700, exist_ok=True)
        except OSError:
            pass  # a full disk: the summary is returned all the same
        self.targets = [RankProbe(rank, *ranks[rank], self) for rank in sorted(ranks)]
        self.started_at = None

    def tick(self, now: float) -> HangReport | None:
        """Do a little work; `now` is monotonic. Return the evidence once it is complete."""
        if not self.folder:
            return None
        self.started_at = now if self.started_at is None else self.started_at
        late = now - self.started_at >= LIMIT
        until = time.monotonic() + SLICE
        for target in self.targets:
            if not target.done and time.monotonic() < until:
                target.step(now, late)
        if not late and (now - self.started_at < PERIOD or not all(t.done for t in self.targets)):
            return None
        if self.children and not late:
            return None  # they have been killed, but not reaped yet
        return self._finish(now)

    def reaped(self, pid: int, status: int) -> bool:
        """Record that a child has ended; return whether it was ours."""
        target = self.children.pop(pid, None)
        if target is not None:
            target.spy_exited(status)
        return target is not None

    def cancel(self) -> None:
        """Kill the helper programs and stop; they still have to be reaped."""
        for target in self.targets:
            target.stop()
        self.folder = ""

    def _finish(self, now: float) -> HangReport:
        for target in self.targets:
            target.finish(now)
        probed = {target.rank: target.report for target in self.targets}
        summary, odd = stacks.summarise(probed) if probed else ("no rank is running", None)
        exits = self._early_exits(list(probed))
        collectives = self._collectives()
        lines = [text for *_, text in exits[:MAX_EXITS]]
        if collectives is not None and collectives.what:
            lines.append(f"{collectives.kind}: {collectives.what}")
        summary = "\n".join([*lines, summary])
        _write(os.path.join(self.folder, "summary.txt"), (summary + "\n").encode())
        _write(os.path.join(self.folder, "samples.csv"), _samples(self.dir))
        fields = ("pid", "how", "frame", "call", "state", "wchan", "cpu")
        ranks = {
            str(rank): RankStack.from_json({key: report.get(key) for key in fields})
            for rank, report in probed.items()
        }
        rank, frame, advice = _blame(odd, probed, exits)
        if rank is None and collectives is not None and collectives.what:
            rank, frame, advice = collectives.rank, collectives.frame, collectives.advice
        report = HangReport(
            folder=self.folder,
            summary=summary,
            rank=rank,
            frame=frame,
            advice=advice,
            flight=[t.flight.copied for t in self.targets if t.flight and t.flight.copied],
            ranks=ranks,
        )
        if collectives is not None:
            report.collectives = collectives
        self.folder = ""
        return report

    def _collectives(self) -> CollectiveReport | None:
        """Return what the copied dumps of the flight recorders show; None without any."""
        from safelaunch.runtime.collectives import verdict
        from safelaunch.runtime.failure import log_tails

        roots = list(self.run.roots)
        states = dumps.read_all(
            dumps.paths(self.folder, flight_recorder.COPY),
            lambda frames: log_tails.user_frame(frames, roots),
        )
        if not states:
            return None
        report = verdict.report(states)
        report.folder = self.folder
        report.ranks = {}  # the dumps have it: status.json has a place of 8 KiB on a full disk
        return report

    def _early_exits(self, alive: list[int]) -> list[EarlyExit]:
        """Return the ranks that exited and the threads that raised before the hang."""
        from safelaunch.runtime.failure import blame, log_tails, rank_ends

        if self.attempt is None:
            return []
        roots = list(self.run.roots)
        ends = sorted(rank_ends.collect(self.dir, self.attempt).items())
        left = {
            rank: end.finished_ns for rank, end in ends if end.finished_ns and rank not in alive
        }
        exits: list[EarlyExit] = []
        if left:
            first = min(left, key=lambda rank: left[rank])
            text = stacks.describe_exits(sorted(left), (self.started_ns - left[first]) / 1e9)
            exits.append((first, "left", None, text))
        for rank, end in ends:
            for raised in end.threads[-1:]:
                error = log_tails.unwrapped(raised)
                frame = log_tails.user_frame(log_tails.frames_of(error), roots)
                age = (self.started_ns - raised.time_ns) / 1e9 if raised.time_ns else 0.0
                what = blame.describe_exception(error, 160)
                text = stacks.describe_thread_error(raised.thread or "thread", what, frame, age)
                exits.append((rank, "thread", frame, f"rank {rank}: {text}"))
        return exits


def _blame(
    odd: int | None, ranks: dict[int, dict[str, Any]], exits: list[EarlyExit]
) -> tuple[int | None, StackFrame | None, str]:
    """Return the rank that blocks the others, its line of code, and advice.

    A rank or thread that has ended is the cause, unless no rank waits for it.
    """
    from safelaunch.runtime.signatures import advice

    is_missed = any(report.get("waits") for report in ranks.values())
    for rank, state, frame, _ in exits:
        if is_missed if state == "left" else odd in (None, rank):
            return rank, frame, advice.hang(rank, "", 0, state)
    report = ranks.get(odd, {}) if odd is not None else {}
    frame = None if report.get("frame") is None else StackFrame.from_json(report["frame"])
    location = "" if frame is None else f"{frame.file.rpartition('/')[2]}:{frame.line}"
    state = "stopped" if str(report.get("state")) in ("T", "t") else ""
    return odd, frame, advice.hang(odd, location, int(report.get("pid") or 0), state)


class RankProbe:
    """Examines one rank: the kernel's view, py-spy, faulthandler, then the flight recorder."""

    def __init__(self, rank: int, pid: int, start: int, owner: Evidence) -> None:
        self.rank = rank
        self.pid = pid
        self.start = start
        self.owner = owner
        self.phase = "inspect"
        self.since = 0.0
        self.inspected_at = 0.0
        self.cpu_before = 0.0
        self.how = ""
        self.why = ""  # why there are no stacks
        self.text = b""
        self.child = 0
        self.out = -1
        self.answer = ("", 0)  # faulthandler's file, and the offset of its new part
        self.size = 0
        self.flight: flight_recorder.FlightRecorder | None = None
        self.report: dict[str, Any] = {"pid": pid}

    @property
    def done(self) -> bool:
        """Whether nothing more is to be done."""
        return self.phase == "done"

    def step(self, now: float, late: bool) -> None:
        """Do the next step, without blocking."""
        if self.phase == "inspect":
            self._inspect(now)
        elif self.phase == "spy":
            if now - self.since > SPY_LIMIT or late:
                self.kill()
        elif self.phase == "faulthandler":
            self._send_signal(now)
        elif self.phase == "signal":
            self._read_stacks(now, late)
        if self.phase == "flight" and (
            late or self.flight is None or self.flight.tick(now, self.owner.folder)
        ):
            self.phase = "done"

    def _inspect(self, now: float) -> None:
        if processes.start_time(self.pid) != self.start:
            self.phase, self.why, self.report["state"] = "done", "the process has ended", "X"
            return
        self.inspected_at = now
        self.cpu_before = proc_stack.cpu_seconds(self.pid)
        state, wchan, text = proc_stack.report(self.pid)
        self.report.update(state=state, wchan=wchan)
        _write(os.path.join(self.owner.folder, f"rank-{self.rank}.kernel.txt"), text)
        names = ("PATH", *flight_recorder.NAMES)
        environ = {} if state == "D" else proc_stack.environ(self.pid, names)
        own = os.path.join(dumps.folder(self.owner.dir, self.owner.attempt or 1), dumps.PREFIX)
        cwd = proc_stack.cwd(self.pid)
        self.flight = flight_recorder.FlightRecorder(self.rank, environ, cwd, own)
        self.flight.request()
        self._spy(now, environ.get("PATH", ""))

    def _spy(self, now: float, path: str) -> None:
        try:
            self.out = _scratch(os.path.join(self.owner.folder, f"rank-{self.rank}.py-spy"))
            self.child = _spawn(self.owner.run.python, path, self.pid, self.out)
        except OSError as e:
            self.why = f"py-spy cannot be started: {e.strerror}"
            self._close()
            self._send_signal(now)
            return
        self.owner.children[self.child] = self
        self.phase, self.since = "spy", now

    def spy_exited(self, status: int) -> None:
        """Read the output of py-spy; where it failed, the next step uses faulthandler."""
        self.child = 0
        output = os.pread(self.out, MAX_STACKS, 0) if self.out >= 0 else b""
        self._close()
        if self.phase != "spy":
            return
        if status == 0 and stacks.parse(output.decode("utf-8", "replace")):
            self.how, self.text, self.phase = "py-spy", output, "flight"
            return
        first = output.decode("utf-8", "replace").strip().split("\n")[0][:200]
        absent = os.WIFEXITED(status) and os.WEXITSTATUS(status) == ABSENT
        self.why = "no py-spy" if absent else f"py-spy: {first or 'no output'}"
        self.phase = "faulthandler"

    def _send_signal(self, now: float) -> None:
        """Signal the rank to dump its stacks, where faulthandler is registered."""
        path = self._stacks_file()
        if not path or not proc_stack.catches(self.pid, STACKS_SIGNAL):
            self._no_stacks("no faulthandler registered in the process")
            return
        self.answer = (path, proc_stack.size(path))
        self.phase, self.since, self.size = "signal", now, 0
        if not processes.send(self.pid, self.start, STACKS_SIGNAL):
            self._no_stacks("the process cannot be sent a signal")

    def _no_stacks(self, why: str) -> None:
        self.why = f"{self.why}; {why}" if self.why else why
        self.phase = "flight"

    def _read_stacks(self, now: float, late: bool) -> None:
        path, offset = self.answer
        grown = proc_stack.size(path) - offset
        if grown > self.size:
            self.size, self.since = grown, now
        elif grown and now - self.since >= SETTLE:
            self.text = proc_stack.read(path, offset, MAX_STACKS).replace(b"\0", b"")
            self.how, self.phase = "faulthandler", "flight"
        elif not grown and (late or now - self.since > SIGNAL_LIMIT):
            self._no_stacks("the process did not react to the signal")

    def _stacks_file(self) -> str:
        """Return the newest file to which this rank's faulthandler writes, or ""."""
        folder = os.path.join(self.owner.dir, "records")
        best, newest = (-1, -1), ""
        for name in proc_stack.list_folder(folder):
            parts = name.split(".")
            if len(parts) != 4 or parts[3] != "stacks" or parts[0] != f"rank-{self.rank}":  # noqa: PLR2004
                continue
            if parts[1].isdigit() and parts[2].isdigit():
                key = (int(parts[1]), int(parts[2]))
                if key > best and self.owner.attempt in (None, key[0]):
                    best, newest = key, os.path.join(folder, name)
        return newest

    def finish(self, now: float) -> None:
        """Read the stacks and the CPU time used meanwhile into the report."""
        self.stop()
        spent = now - self.inspected_at
        if self.inspected_at and spent > 0.1 and processes.start_time(self.pid) == self.start:  # noqa: PLR2004
            used = proc_stack.cpu_seconds(self.pid) - self.cpu_before
            self.report["cpu"] = round(used / spent, 2)
        roots = list(self.owner.run.roots)
        self.report.update(stacks.examine(self.text.decode("utf-8", "replace"), roots))
        self.report["how"] = self.how or f"none: {self.why or 'timed out'}"
        if self.text:
            _write(os.path.join(self.owner.folder, f"rank-{self.rank}.txt"), self.text)

    def stop(self) -> None:
        """Stop, and kill the child."""
        self.phase = "done"
        self.kill()

    def kill(self) -> None:
        """Kill the child: it is ours and not reaped, so the pid is still its own."""
        if self.child:
            try:
                os.kill(self.child, signal.SIGKILL)
            except OSError:
                pass

    def _close(self) -> None:
        if self.out >= 0:
            os.close(self.out)
            self.out = -1


# -- py-spy ----------------------------------------------------------------------------------------


def _find_spy(python: str | None, path: str) -> str:
    """Return the job's py-spy: next to its interpreter, or on its PATH; else ""."""
    folders = [os.path.dirname(python)] if python else []
    for folder in (*folders, *path.split(os.pathsep)):
        program = os.path.join(folder, "py-spy")
        if os.path.isabs(program) and os.path.isfile(program) and os.access(program, os.X_OK):
            return program
    return ""


def _spawn(python: str | None, path: str, pid: int, out: int) -> int:
    """Start py-spy on a rank; return the pid of the child. Raises OSError.

    The child searches for the program: the job's environment may lie on the very disk that hangs.
    """
    child = os.fork()
    if child:
        return child
    try:
        os.setpgid(0, 0)  # Ctrl-C in the pane is for the supervisor
        for fd, target in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (out, 2)):
            os.dup2(fd, target)
        spy = _find_spy(python, path)
        argv = [spy, "dump", "--full-filenames", "--pid", str(pid)]
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}
        os.execve(spy, argv, environment)  # noqa: S606 - no shell
    except BaseException as e:  # noqa: BLE001 - no code of the supervisor may go on in the child
        os.write(2, str(e).encode())
    finally:
        os._exit(ABSENT)


def _scratch(path: str) -> int:
    """Return a file in memory for a child's output: the disk may be full. Raises OSError."""
    try:
        return os.memfd_create("safelaunch")  # type: ignore[attr-defined,unused-ignore]
    except (AttributeError, OSError):  # an old glibc, or a sandbox
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.unlink(path)
        return fd


def _samples(node_dir: str) -> bytes:
    """Return the header and the last rows of samples.csv: the load before the hang."""
    path = os.path.join(node_dir, "samples.csv")
    head = proc_stack.read(path, 0, 4096).split(b"\n")[0]
    offset = max(0, proc_stack.size(path) - SAMPLES_TAIL)
    tail = proc_stack.read(path, offset, SAMPLES_TAIL)
    rows = tail.partition(b"\n")[2]  # without the header, or half a row
    return head + b"\n" + rows if head else b""


def _write(path: str, data: bytes) -> None:
    """Write a file, unless the data is empty or the disk is full."""
    try:
        if data:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
    except OSError:
        pass
