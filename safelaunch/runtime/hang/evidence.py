"""Gathers what each rank of a hung job does, into `<node-dir>/hang-<n>/`, before it is destroyed.

Stacks by py-spy where the job has it and may use it, else by faulthandler: STACKS_SIGNAL goes only
to a process whose SigCgt mask shows a handler, since it would kill any other. Beside them what the
kernel knows, the last samples, and the NCCL flight recorder where the user has armed it.

It never waits: each `tick` works for some milliseconds. It reads no file of the user's and no
`environ` of a process in D state, both of which may hang as the job does.
"""

from __future__ import annotations

import os
import signal

from safelaunch.runtime import processes
from safelaunch.runtime.hang import flight_recorder, proc_stack, stacks
from safelaunch.runtime.records import HangReport, RankStack, StackFrame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from safelaunch.runtime.records import RunRecord

STACKS_SIGNAL = 44  # as site/safelaunch_rank.py has it
SLICE = 0.005  # seconds of work in one tick; one rank of 64 threads costs 2 ms
PERIOD = 1.0  # seconds at least, so that CPU time in ticks of 10 ms means something
SPY_LIMIT = 10.0  # seconds: py-spy needs 0.03, on a loaded machine 1; in D state it waits for ever
SIGNAL_LIMIT = 3.0  # seconds: faulthandler answers at once, unless the signal is blocked
SETTLE = 0.2  # seconds without growth after which an answer counts as complete
LIMIT = 20.0  # seconds for everything: the flight recorder looks once a second and dumps for 15 s
SAMPLES = 8192  # bytes of samples.csv that are kept: some minutes before the hang
MOST = 1 << 20  # bytes of one rank's stacks
TOLD = 2  # threads and ranks that ended before, as far as they are told
ABSENT = 127  # the exit code where there is no py-spy


class Evidence(object):
    """One gathering at a time; `pids` are the programs that it has started beside the job."""

    def __init__(self, node_dir: str, run: RunRecord, attempt: int | None = None) -> None:
        self.dir = node_dir
        self.run = run
        self.attempt = attempt
        self.folder = ""
        self.targets = []  # type: list[Target]
        self.children = {}  # type: dict[int, Target]
        self.told = set()  # type: set[int]
        self.began = None  # type: float | None
        self.began_ns = 0

    @property
    def pids(self) -> list[int]:
        """The children that have not been reaped yet."""
        return list(self.children)

    def begin(self, number: int, ranks: dict[int, tuple[int, int]]) -> None:
        """Start the n-th gathering, on {rank: (pid, start time)}."""
        import time  # noqa: PLC0415 - the slice is our own affair, `now` the caller's

        self.began_ns = time.time_ns()
        self.folder = os.path.join(self.dir, "hang-%d" % number)
        try:
            os.makedirs(self.folder, 0o700, exist_ok=True)
        except OSError:
            pass  # a full disk: the summary still tells
        self.targets = [Target(rank, *ranks[rank], self) for rank in sorted(ranks)]
        self.began = None

    def tick(self, now: float) -> HangReport | None:
        """Work a little; `now` is monotonic. Return the evidence once it is complete."""
        import time  # noqa: PLC0415 - the slice is our own affair, `now` the caller's

        if not self.folder:
            return None
        self.began = now if self.began is None else self.began
        late = now - self.began >= LIMIT
        until = time.monotonic() + SLICE
        for target in self.targets:
            if not target.done and time.monotonic() < until:
                target.step(now, late)
        if not late and (now - self.began < PERIOD or not all(t.done for t in self.targets)):
            return None
        if self.children and not late:
            return None  # they have been killed, and are not reaped yet
        return self._finish(now)

    def reaped(self, pid: int, status: int) -> bool:
        """Take note of a child's end; False if it is none of ours."""
        target = self.children.pop(pid, None)
        if target is not None:
            target.spied(status)
        return target is not None

    def cancel(self) -> None:
        """End the children and forget the gathering; they still have to be reaped."""
        for target in self.targets:
            target.end()
        self.folder = ""

    def started(self, pid: int, target: Target) -> None:
        """Take note of a child of a target."""
        self.children[pid] = target

    def _finish(self, now: float) -> HangReport:
        for target in self.targets:
            target.finish(now)
        found = {target.rank: target.seen for target in self.targets}
        summary, odd = stacks.summarise(found) if found else ("no rank is alive", None)
        gone = self._gone(list(found))
        if gone:
            summary = "%s\n%s" % ("\n".join(one["said"] for one in gone[:TOLD]), summary)
        _write(os.path.join(self.folder, "summary.txt"), (summary + "\n").encode())
        _write(os.path.join(self.folder, "samples.csv"), _samples(self.dir))
        shown = ("pid", "how", "frame", "call", "state", "wchan", "cpu")
        ranks = {
            str(rank): RankStack.from_json({key: seen.get(key) for key in shown})
            for rank, seen in found.items()
        }
        rank, frame, advice = _blame(odd, found, gone)
        report = HangReport(
            folder=self.folder,
            summary=summary,
            rank=rank,
            frame=frame,
            advice=advice,
            flight=[t.flight.copied for t in self.targets if t.flight and t.flight.copied],
            ranks=ranks,
        )
        self.folder = ""
        return report

    def _gone(self, alive: list[int]) -> list[dict[str, Any]]:
        """Return what had ended before: threads by an exception, ranks by themselves."""
        from safelaunch.runtime.failure import blame, log_tails, rank_ends  # noqa: PLC0415

        if self.attempt is None:
            return []
        roots = list(self.run.roots)
        known = sorted(rank_ends.collect(self.dir, self.attempt, {}, {}).items())
        left = {rank: end.left_ns for rank, end in known if end.left_ns and rank not in alive}
        found = []
        if left:
            first = min(left, key=lambda rank: left[rank])
            said = stacks.left(sorted(left), (self.began_ns - left[first]) / 1e9)
            found.append({"rank": first, "state": "left", "frame": None, "said": said})
        for rank, end in known:
            for record in end.threads[-1:]:
                error = log_tails.unwrapped(record)
                frame = log_tails.user_frame(log_tails.frames_of(error), roots)
                at = record.get("time_ns")
                passed = (self.began_ns - at) / 1e9 if isinstance(at, int) else 0.0
                what = dict(error, what=blame.in_short(error, 160))
                said = "rank %d: %s" % (rank, stacks.of_thread(what, frame, passed))
                found.append({"rank": rank, "state": "thread", "frame": frame, "said": said})
        return found


def _blame(
    odd: int | None, ranks: dict[int, dict[str, Any]], gone: list[dict[str, Any]]
) -> tuple[int | None, StackFrame | None, str]:
    """Return rank, line of code and advice: who holds the others up.

    What is gone is it, unless nobody waits for that.
    """
    from safelaunch.runtime.signatures import advice  # noqa: PLC0415 - only where a job hangs

    missed = any(seen.get("waits") for seen in ranks.values())
    for end in gone:
        if missed if end["state"] == "left" else odd in (None, end["rank"]):
            frame = None if end["frame"] is None else StackFrame.from_json(end["frame"])
            return end["rank"], frame, advice.hang(end["rank"], "", 0, end["state"])
    seen = ranks.get(odd, {}) if odd is not None else {}
    frame = None if seen.get("frame") is None else StackFrame.from_json(seen["frame"])
    place = "" if frame is None else "%s:%d" % (frame.file.rpartition("/")[2], frame.line)
    state = "stopped" if str(seen.get("state")) in ("T", "t") else ""
    return odd, frame, advice.hang(odd, place, int(seen.get("pid") or 0), state)


class Target(object):
    """One rank: looked at, then asked for its stacks in one way after the other."""

    def __init__(self, rank: int, pid: int, start: int, owner: Evidence) -> None:
        self.rank = rank
        self.pid = pid
        self.start = start
        self.owner = owner
        self.phase = "look"
        self.since = 0.0
        self.looked_at = 0.0
        self.cpu_before = 0.0
        self.how = ""
        self.why = ""  # stacks could not be had
        self.text = b""
        self.child = 0
        self.out = -1
        self.answer = ("", 0)  # faulthandler's file, and where the new part begins
        self.size = 0
        self.flight = None  # type: flight_recorder.Flight | None
        self.seen = {"pid": pid}  # type: dict[str, Any]

    @property
    def done(self) -> bool:
        """Whether there is nothing left to wait for."""
        return self.phase == "done"

    def step(self, now: float, late: bool) -> None:
        """Do the next thing, without waiting."""
        if self.phase == "look":
            self._look(now)
        elif self.phase == "spy":
            if now - self.since > SPY_LIMIT or late:
                self.kill()
        elif self.phase == "ask":
            self._ask(now)
        elif self.phase == "signal":
            self._listen(now, late)
        if self.phase == "flight" and (
            late or self.flight is None or self.flight.tick(now, self.owner.folder)
        ):
            self.phase = "done"

    def _look(self, now: float) -> None:
        if processes.start_time(self.pid) != self.start:
            self.phase, self.why, self.seen["state"] = "done", "it has ended", "X"
            return
        self.looked_at = now
        self.cpu_before = proc_stack.cpu_seconds(self.pid)
        state, wchan, text = proc_stack.report(self.pid)
        self.seen.update(state=state, wchan=wchan)
        _write(os.path.join(self.owner.folder, "rank-%d.kernel.txt" % self.rank), text)
        environ = (
            proc_stack.environ(self.pid, ("PATH", *flight_recorder.NAMES)) if state != "D" else {}
        )
        self.flight = flight_recorder.Flight(self.rank, environ, proc_stack.cwd(self.pid))
        self.flight.ask()
        self._spy(now, environ.get("PATH", ""))

    def _spy(self, now: float, path: str) -> None:
        try:
            self.out = _scratch(os.path.join(self.owner.folder, "rank-%d.py-spy" % self.rank))
            self.child = _spawn(self.owner.run.python, path, self.pid, self.out)
        except OSError as e:
            self.why = "py-spy cannot be started: %s" % e.strerror
            self._close()
            self._ask(now)
            return
        self.owner.started(self.child, self)
        self.phase, self.since = "spy", now

    def spied(self, status: int) -> None:
        """Take what py-spy has said; where it failed, ask faulthandler at the next step."""
        self.child = 0
        said = os.pread(self.out, MOST, 0) if self.out >= 0 else b""
        self._close()
        if self.phase != "spy":
            return
        if status == 0 and stacks.parse(said.decode("utf-8", "replace")):
            self.how, self.text, self.phase = "py-spy", said, "flight"
            return
        first = said.decode("utf-8", "replace").strip().split("\n")[0][:200]
        absent = os.WIFEXITED(status) and os.WEXITSTATUS(status) == ABSENT
        self.why = "no py-spy" if absent else "py-spy: %s" % (first or "no answer")
        self.phase = "ask"

    def _ask(self, now: float) -> None:
        """Ask faulthandler, if it is there."""
        path = self._stacks_file()
        if not path or not proc_stack.catches(self.pid, STACKS_SIGNAL):
            self._none("no handler of ours in it")
            return
        self.answer = (path, proc_stack.size(path))
        self.phase, self.since, self.size = "signal", now, 0
        if not processes.send(self.pid, self.start, STACKS_SIGNAL):
            self._none("it cannot be sent a signal")

    def _none(self, why: str) -> None:
        self.why = "%s; %s" % (self.why, why) if self.why else why
        self.phase = "flight"

    def _listen(self, now: float, late: bool) -> None:
        path, offset = self.answer
        grown = proc_stack.size(path) - offset
        if grown > self.size:
            self.size, self.since = grown, now
        elif grown and now - self.since >= SETTLE:
            self.text = proc_stack.read(path, offset, MOST).replace(b"\0", b"")
            self.how, self.phase = "faulthandler", "flight"
        elif not grown and (late or now - self.since > SIGNAL_LIMIT):
            self._none("it did not answer the signal")

    def _stacks_file(self) -> str:
        """Return the newest file to which this rank's faulthandler writes, or nothing."""
        folder = os.path.join(self.owner.dir, "records")
        best, found = (-1, -1), ""
        for name in proc_stack.names(folder):
            parts = name.split(".")
            if len(parts) != 4 or parts[3] != "stacks" or parts[0] != "rank-%d" % self.rank:  # noqa: PLR2004
                continue
            if parts[1].isdigit() and parts[2].isdigit():
                key = (int(parts[1]), int(parts[2]))
                if key > best and self.owner.attempt in (None, key[0]):
                    best, found = key, os.path.join(folder, name)
        return found

    def finish(self, now: float) -> None:
        """Read the stacks, and what happened meanwhile."""
        self.end()
        spent = now - self.looked_at
        if self.looked_at and spent > 0.1 and processes.start_time(self.pid) == self.start:  # noqa: PLR2004
            self.seen["cpu"] = round(
                (proc_stack.cpu_seconds(self.pid) - self.cpu_before) / spent, 2
            )
        roots = list(self.owner.run.roots)
        self.seen.update(stacks.examine(self.text.decode("utf-8", "replace"), roots))
        self.seen["how"] = self.how or "none: %s" % (self.why or "there was no time")
        if self.text:
            _write(os.path.join(self.owner.folder, "rank-%d.txt" % self.rank), self.text)

    def end(self) -> None:
        """Ask for nothing any more."""
        self.phase = "done"
        self.kill()

    def kill(self) -> None:
        """End the child: it is ours and not reaped, so the pid is still its own."""
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


def _find_spy(python: object, path: str) -> str:
    """Return the job's py-spy: beside its interpreter, or on its PATH; else nothing."""
    folders = [os.path.dirname(python)] if isinstance(python, str) else []
    for folder in (*folders, *path.split(os.pathsep)):
        found = os.path.join(folder, "py-spy")
        if os.path.isabs(found) and os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    return ""


def _spawn(python: object, path: str, pid: int, out: int) -> int:
    """Start py-spy beside the job. Raises OSError.

    The child looks for it: the job's environment may lie on the very disk that hangs.
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
    except BaseException as e:  # noqa: BLE001 - nothing of the supervisor may run on in the child
        os.write(2, str(e).encode())
    finally:
        os._exit(ABSENT)


def _scratch(path: str) -> int:
    """Return a file for a child's output: in memory, since the disk may be full. Raises OSError."""
    try:
        return os.memfd_create("safelaunch")  # type: ignore[attr-defined,unused-ignore]
    except (AttributeError, OSError):  # an old glibc, or a sandbox
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.unlink(path)
        return fd


def _samples(node_dir: str) -> bytes:
    """Return the head line and the last rows of the samples: load is evidence, no sign of life."""
    path = os.path.join(node_dir, "samples.csv")
    head = proc_stack.read(path, 0, 4096).split(b"\n")[0]
    offset = max(0, proc_stack.size(path) - SAMPLES)
    tail = proc_stack.read(path, offset, SAMPLES)
    rows = tail.partition(b"\n")[2]  # the head line, or half a row
    return head + b"\n" + rows if head else b""


def _write(path: str, data: bytes) -> None:
    """Write a file, if there is room for it and anything to write."""
    if not data:
        return
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
    except OSError:
        pass
