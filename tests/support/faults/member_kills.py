"""What becomes of a run with a service, of one with parts, and of steps, when one of them is hit.

No pytest in it. A client's death changes nothing, and HUP to a supervisor is ignored. Where
something the run needs is ended, the run says so; nothing is left, and no program runs twice.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.runtime import processes
from safelaunch.runtime.records import Process, Status
from support.faults.kill_matrix import LIMIT, SIGNALS, check, none_left, what_is_wrong
from support.workspace import Place, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

# each program writes down that it has begun, and waits for a word to go on
PROGRAM = """\
import os, sys, time
name = sys.argv[1]
with open("begun-" + name, "a") as file:
    print(os.getpid(), file=file, flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
"""
SERVER = PROGRAM.replace('os.path.exists("go")', "False")


class MemberCase(NamedTuple):
    """A signal to one process of a run of that kind: service, part or step."""

    kind: str
    signal: str
    target: str

    def __str__(self) -> str:
        return f"{self.signal} to the {self.target} of a run with a {self.kind}"


TARGETS = {
    "service": ("client", "supervisor", "service's supervisor", "service"),
    "part": ("client", "supervisor", "coordinator", "part's supervisor", "part"),
    "step": ("supervisor", "waiting supervisor"),
}
CASES = tuple(
    MemberCase(k, s, t) for k, targets in TARGETS.items() for t in targets for s in SIGNALS
)


def run_case(case: MemberCase, root: str | None = None) -> str | None:
    """Run one case in a folder of its own; return None, or what was not as expected."""
    acts: dict[str, Callable[[Place, MemberCase], None]] = {
        "service": _service,
        "part": _part,
        "step": _step,
    }
    return what_is_wrong(lambda place: acts[case.kind](place, case), root)


def _start(place: Place, case: MemberCase, job: str) -> str:
    """Start a job, and hit its client at once where that is the target."""
    if case.target != "client":
        return place.start(job)
    client = place.popen("run", "--no-check", "--follow", job, stdout=subprocess.DEVNULL)
    runs = place.home / "runs"
    run = str(wait_for(lambda: runs.is_dir() and os.listdir(runs), "run")[0])
    wait_for(lambda: _starts(place, "job") or _starts(place, "0"), "program that has begun")
    client.send_signal(getattr(signal, f"SIG{case.signal}"))
    client.wait(timeout=LIMIT)
    return run


def _starts(place: Place, name: str) -> list[int]:
    """Return the pids of a program that was started so often."""
    path = place.project / f"begun-{name}"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def _hit(case: MemberCase, pid: int) -> None:
    processes.send(pid, processes.start_time(pid) or 0, getattr(signal, f"SIG{case.signal}"))


def _supervisor(folder: str) -> int:
    status = Status.read(folder)
    process = None if status is None else status.supervisor
    return (process or Process()).pid


def _after(place: Place, case: MemberCase, run: str, *, is_ended: bool, state: str) -> None:
    """Let the run end, and check how: a run that nobody owns any more has to be stopped."""
    is_lost = case.target == "supervisor" and case.signal == "KILL"
    if is_lost:
        wait_for(lambda: place.json("show", run)["state"] == "lost", "run that is lost", LIMIT)
        place.cli("stop", run)
    elif not is_ended:
        place.write("go", "")
    expected = "stopped" if is_lost else state
    check(place.ended(run, LIMIT)["state"], expected, "state")
    none_left(place, run)


def _service(place: Place, case: MemberCase) -> None:
    place.write("server.py", SERVER)
    server = {"launcher": "python", "script": "server.py", "args": ["server"],
              "ready": {"command": ["test", "-e", "begun-server"]}}  # fmt: skip
    run = _start(place, case, place.job(PROGRAM, args=["job"], services={"server": server}))
    wait_for(lambda: _starts(place, "job"), "job that has begun")
    folder = os.path.join(place.node(run), "members", "server", "node-0")
    pids = {
        "supervisor": _supervisor(str(place.node(run))),
        "service's supervisor": _supervisor(folder),
        "service": _starts(place, "server")[0],
    }
    if case.target in pids:
        _hit(case, pids[case.target])
    is_ignored = case.target == "client" or ("supervisor" in case.target and case.signal == "HUP")
    state = "stopped" if case.target == "supervisor" else "failed"
    _after(place, case, run, is_ended=not is_ignored, state="succeeded" if is_ignored else state)
    if not is_ignored and case.target != "supervisor":
        check(place.json("show", run)["failure"].get("service"), "server", "service")
    check([len(_starts(place, name)) for name in ("job", "server")], [1, 1], "starts")


def _part(place: Place, case: MemberCase) -> None:
    run = _start(place, case, place.job(PROGRAM, args=["{shard.index}"], shards=2, at_once=2))
    wait_for(lambda: _starts(place, "0") and _starts(place, "1"), "two parts that have begun")
    folder = os.path.join(place.node(run), "members", "part-0", "node-0")
    pids = {
        "supervisor": _supervisor(str(place.node(run))),
        "coordinator": (Process.from_json(place.status(run)["launcher"])).pid,
        "part's supervisor": _supervisor(folder),
        "part": _starts(place, "0")[0],
    }
    if case.target in pids:
        _hit(case, pids[case.target])
    is_ignored = case.target == "client" or ("supervisor" in case.target and case.signal == "HUP")
    goes_on = is_ignored or case.target.startswith("part")  # the other part does
    if not is_ignored and case.target.startswith("part"):
        wait_for(lambda: processes.start_time(pids["part"]) is None, "end of the part", LIMIT)
    state = "stopped" if case.target == "supervisor" else "failed"
    state = "succeeded" if is_ignored else state
    _after(place, case, run, is_ended=not goes_on, state=state)
    check([len(_starts(place, name)) for name in "01"], [1, 1], "starts")


def _step(place: Place, case: MemberCase) -> None:
    first = place.start(place.job(PROGRAM, name="first", args=["first"]))
    wait_for(lambda: _starts(place, "first"), "first step that has begun")
    second = place.start(place.job(PROGRAM, name="second", args=["second"]), "--after", first)
    wait_for(lambda: first in str(place.status(second).get("waits_for")), "second that waits")
    target = first if case.target == "supervisor" else second
    _hit(case, _supervisor(str(place.node(target))))
    is_ignored = case.signal == "HUP"
    if case.target == "supervisor":
        state = "succeeded" if is_ignored else "stopped"
        _after(place, case, first, is_ended=not is_ignored, state=state)
        end = place.ended(second, LIMIT)["state"]
        check(end, "succeeded" if is_ignored else "failed", "state of the second")
        began = int(is_ignored)
    else:
        if case.signal == "KILL":
            wait_for(lambda: place.json("show", second)["state"] == "lost", "lost run", LIMIT)
            place.cli("stop", second)
        place.write("go", "")
        check(place.ended(first, LIMIT)["state"], "succeeded", "state of the first")
        end = place.ended(second, LIMIT)["state"]
        check(end, "succeeded" if is_ignored else "stopped", "state of the second")
        began = int(is_ignored)
    none_left(place, first)
    none_left(place, second)
    check([len(_starts(place, name)) for name in ("first", "second")], [1, began], "starts")
