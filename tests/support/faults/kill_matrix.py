"""The kill matrix: what becomes of a run when one of its parts gets a signal. No pytest in it.

Used by tests/integration/supervise/test_kill_matrix.py with one case a row and by
`scripts/bench matrix` with all.
What is expected here is what was seen of the real launchers; see `Case`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.runtime import processes, run_state
from safelaunch.runtime.backends import tmux
from safelaunch.runtime.records import Process
from support.faults import process_search
from support.faults.process_search import LifePipe, processes_in, programs_of
from support.workspace import Place, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

SIGNALS = ("INT", "TERM", "HUP", "KILL")
LAUNCHERS = ("accelerate", "torchrun")
LIMIT = 20.0  # seconds from the signal until the end is known, and proved
WITH_DETACHED = 5  # processes: the launcher, two ranks, and what each of them has detached
START_LIMIT = 90.0  # two launchers that import torch beside others, on two cores

# Nothing heavy: the launchers' own start is long enough. A line in 50 ms shows that it goes on.
RANK = (
    process_search.HOLD_PIPE + "import time\nn = 0\nwhile True:\n"
    "    print('rank', os.environ['RANK'], 'line', n, flush=True)\n"
    "    n += 1\n    time.sleep(0.05)\n"
)


class Case(NamedTuple):
    """A signal to one part of a run.

    client, tmux: the job keeps running. tmux ignores HUP; the others end it, and the pane with it.
    supervisor: INT and TERM stop the job, HUP is ignored, after KILL the job keeps running, `lost`.
    rank: each of the four ends it (Python dies of INT by KeyboardInterrupt), so the run failed.
    launcher: both are torch's elastic agent, which makes of INT, TERM and HUP a SignalException:
        it passes the signal on to the ranks (agent/server/api.py, `_shutdown(e.sigval)`) and ends
        with exit code 1. The launcher is to blame then, no rank. Where the ranks are started
        directly, their starter does the same, and dies of the signal itself.
    """

    signal: str
    target: str
    launcher: str
    start: str = "launcher"

    def __str__(self) -> str:
        how = "" if self.start == "launcher" else ", ranks started directly"
        return f"{self.signal} to the {self.target} ({self.launcher}{how})"

    @property
    def detaches(self) -> bool:
        """Whether the ranks detach a process each.

        After a failure what is left has 10 s to end by itself, which would double the time of the
        matrix; after KILL to the launcher 2 s, as its ranks have.
        """
        return self.target in ("client", "tmux", "supervisor") or (
            self.target == "launcher" and self.signal == "KILL"
        )


TARGETS = ("client", "tmux", "supervisor", "launcher", "rank")
CASES = tuple(Case(s, t, x) for t in TARGETS for s in SIGNALS for x in LAUNCHERS)
DIRECT = tuple(case._replace(start="direct") for case in CASES)


def run_case(case: Case, root: str | None = None, *, real: bool = True) -> str | None:
    """Run one case in a folder of its own; return None, or what was not as expected.

    With `real` false the stand-in for torchrun starts the ranks, for signals to other parts.
    """

    def act(place: Place) -> None:
        with contextlib.closing(LifePipe(place.project)) as pipe:
            run = _start(place, case, real=real)
            if case.detaches:
                wait_for(lambda: programs_of(place.project), "what rank 1 has detached")
            check(pipe.is_held(), True, "whether a rank holds the pipe")
            began = time.monotonic()
            EXPECT[case.target](place, case, run)
            check(pipe.is_held(), False, "whether a process that inherited the pipe is left")
            check(programs_of(place.project), {}, "programs of the case's folder that are left")
            none_left(place, run)
        taken = time.monotonic() - began
        if taken > LIMIT:
            raise AssertionError(f"it took {taken:.1f} s, {LIMIT:g} are allowed")

    return what_is_wrong(act, root)


def what_is_wrong(act: Callable[[Place], None], root: str | None = None) -> str | None:
    """Do something at a place of its own, and clean up; return None, or what went wrong there."""
    place = Place(Path(tempfile.mkdtemp(prefix="matrix-", dir=root)))
    wrong = None
    try:
        act(place)
    except (AssertionError, LookupError, OSError, subprocess.SubprocessError, ValueError) as e:
        wrong = f"{type(e).__name__}: {e}"
        process_search.kill(place.root)
    try:
        place.close()
    except AssertionError as e:
        wrong = wrong or f"after the end: {e}"
    if wrong is None or "SAFELAUNCH_KEEP" not in os.environ:
        shutil.rmtree(place.root, ignore_errors=True)
    return wrong


def _start(place: Place, case: Case, *, real: bool) -> str:
    """Start the job and wait until both ranks are up; return the run's id."""
    args = ["detach"] if case.detaches else []
    write = place.job if real else place.ranks
    keys: dict[str, Any] = {"launcher": case.launcher, "processes": 2, "profile": "cpu"}
    job = write(RANK, args=args, start=case.start, **keys)
    if case.target == "client":
        place.popen("run", "--follow", job, stdout=subprocess.DEVNULL)
        runs = place.home / "runs"
        run = str(wait_for(lambda: runs.is_dir() and os.listdir(runs), "run", START_LIMIT)[0])
    else:
        run = place.start(job, timeout=START_LIMIT)
    for rank in (0, 1):
        wait_for(lambda r=rank: _size(place, run, r), f"output of rank {rank}", START_LIMIT)  # type: ignore[misc]
    wait_for(lambda: place.json("show", run)["state"] == "running", "running run")
    check(place.json("show", run).get("start", "launcher"), case.start, "start")
    return run


# -- what is expected ------------------------------------------------------------------------------


def _client(place: Place, case: Case, run: str) -> None:
    (client,) = place.started
    client.send_signal(_number(case))
    code = client.wait(timeout=LIMIT)
    expected = 130 if case.signal == "INT" else -_number(case)
    check(code, expected, "exit code of the client")
    _goes_on(place, run)
    _stop(place, run)


def _tmux(place: Place, case: Case, run: str) -> None:
    socket = str(place.status(run)["socket"])
    command = ["tmux", "-S", socket, "display-message", "-p", "#{pid}"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    os.kill(int(result.stdout), _number(case))
    says = "attach needs a terminal"
    if case.signal != "HUP":
        wait_for(lambda: not tmux.serves(socket), "end of the tmux server", LIMIT)
        says = "tmux server of"
    _goes_on(place, run)
    refused = place.cli("attach", run, code=1, stdin=subprocess.DEVNULL)
    holds(says, refused.stderr, "attach")
    if case.signal != "HUP":
        holds("the job keeps running", refused.stderr, "attach")
    _stop(place, run)


def _supervisor(place: Place, case: Case, run: str) -> None:
    who = place.status(run)["supervisor"]
    if case.signal == "KILL":
        # without a control group what is detached is not found before it was recorded
        wait_for(
            lambda: len(run_state.recorded(str(place.node(run)))) == WITH_DETACHED,
            "record of the launcher, the ranks and what they have detached",
            LIMIT,
        )
    processes.send(who["pid"], who["start"], _number(case))
    if case.signal == "HUP":
        _goes_on(place, run)
        _stop(place, run)
    elif case.signal == "KILL":
        wait_for(
            lambda: not processes.is_alive(Process.from_json(who)), "death of the supervisor", LIMIT
        )
        _goes_on(place, run, "lost")
        alive = place.json("show", run)["alive"]
        check(alive, WITH_DETACHED, "processes alive of a lost run")
        holds(f"lost, {alive} alive", place.cli("ps").stdout, "ps")
        _stop(place, run)
    else:
        status = place.ended(run, LIMIT)
        check(status["state"], "stopped", "state")
        check(status["stopped_by"], f"SIG{case.signal}", "stopped by")


def _launcher(place: Place, case: Case, run: str) -> None:
    who = place.status(run)["launcher"]
    processes.send(who["pid"], who["start"], _number(case))
    shown = _failed(place, run)
    failure = shown["failure"]
    ending = f"{failure['what']} {failure['signal']}"
    holds(f"SIG{case.signal}", ending, "what and signal of the failure")
    check(failure["rank"], None, "rank to blame where the launcher was killed")


def _rank(place: Place, case: Case, run: str) -> None:
    pids = place.json("show", run)["pids"]["ranks"]
    pid = int(pids["1"])
    processes.send(pid, processes.start_time(pid) or 0, _number(case))
    failure = _failed(place, run)["failure"]
    check(failure["rank"], 1, "rank")
    check(failure["signal"], f"SIG{case.signal}", "signal of the failure")


EXPECT: dict[str, Callable[[Place, Case, str], None]] = {
    "client": _client,
    "tmux": _tmux,
    "supervisor": _supervisor,
    "launcher": _launcher,
    "rank": _rank,
}


def _failed(place: Place, run: str) -> dict[str, Any]:
    place.ended(run, LIMIT)
    shown = place.json("show", run)
    check(shown["state"], "failed", "state")
    check(place.cli("wait", run, code=None).returncode, 1, "exit code of wait")
    if not isinstance(shown["failure"], dict):
        raise AssertionError("`failure` is null")  # noqa: TRY004 - a finding, not a wrong type
    return shown


def _goes_on(place: Place, run: str, expected: str = "running") -> None:
    before = [_size(place, run, rank) for rank in (0, 1)]
    for rank in (0, 1):
        wait_for(lambda r=rank: _size(place, run, r) > before[r], f"more of rank {rank}", 5)  # type: ignore[misc]
    check(place.json("show", run)["state"], expected, "state")


def _stop(place: Place, run: str) -> None:
    shown = place.json("stop", run)
    check((shown["state"], shown["alive"]), ("stopped", 0), "state and processes after stop")


def none_left(place: Place, run: str) -> None:
    """Raise AssertionError where processes of a run are left, or of safelaunch itself."""
    left = run_state.remaining(str(place.node(run)), run)
    check(len(left), 0, "processes that are left")
    try:
        wait_for(lambda: not processes_in(place.root), "end of all that uses the folder", LIMIT)
    except AssertionError as e:
        raise AssertionError(f"{e}: {processes_in(place.root)}") from None


def _size(place: Place, run: str, rank: int) -> int:
    try:
        return (place.logs(run) / f"rank-{rank}.log").stat().st_size
    except OSError:
        return 0


def _number(case: Case) -> int:
    return int(getattr(signal, f"SIG{case.signal}"))


def check(actual: object, expected: object, what: str) -> None:
    """Raise AssertionError where something is not as it should be."""
    if actual != expected:
        raise AssertionError(f"{what}: {actual!r}, not {expected!r}")


def holds(part: str, text: str, what: str) -> None:
    """Raise AssertionError where a text does not hold what it should."""
    if part not in text:
        raise AssertionError(f"{what} does not say {part!r}: {text!r}")
