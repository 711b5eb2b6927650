"""What becomes of a run that keeps its imports for a restart, when a part of it gets a signal.

No pytest in it. The process that keeps them is needed by no attempt that runs: where it ends, the
next attempt imports again. The other parts end the run as they do without it, and it with them.
"""

from __future__ import annotations

import os
import signal
from typing import NamedTuple

from safelaunch.runtime import processes
from safelaunch.runtime.ranks import fork_servers
from safelaunch.runtime.records import Process
from support.faults.kill_matrix import LIMIT, SIGNALS, check, none_left, what_is_wrong
from support.workspace import Place, wait_for

IMPORTS = "import os\nwith open('imports', 'a') as file: file.write(f'{os.getpid()}\\n')\n"
PROGRAM = """\
import os, shared, time
attempt, rank = os.environ["SAFELAUNCH_ATTEMPT"], os.environ["RANK"]
with open("new-" + rank, "w") as file:
    file.write(str(os.getpid()))
os.rename("new-" + rank, "up-%s-%s" % (attempt, rank))
while not os.path.exists("go-" + attempt):
    time.sleep(0.02)
if attempt == "1":
    raise ValueError("the first attempt")
"""
RECOVERY = {"max_restarts": 1, "backoff": "0s", "classes": {"user-code-exception": "restart"}}


class WarmCase(NamedTuple):
    """A signal to a process of the attempt of that number."""

    signal: str
    target: str
    attempt: int

    def __str__(self) -> str:
        return f"{self.signal} to the {self.target} in attempt {self.attempt}, imports kept"


TARGETS = (
    ("process that keeps the imports", 1),
    ("process that keeps the imports", 2),
    ("supervisor", 2),
    ("starter of the ranks", 2),
    ("rank", 2),
)
CASES = tuple(WarmCase(s, target, attempt) for target, attempt in TARGETS for s in SIGNALS)


def run_case(case: WarmCase, root: str | None = None) -> str | None:
    """Run one case in a folder of its own; return None, or what was not as expected."""

    def act(place: Place) -> None:
        place.write("shared.py", IMPORTS)
        run = place.start(place.direct(PROGRAM, preload=["shared"], recovery=RECOVERY))
        _await_ranks(place, 1)
        (warm,) = fork_servers.pids(str(place.node(run)))
        if case.attempt > 1:
            _go_on(place, 1)
            _await_ranks(place, 2)
        pid = _pid(place, case, run, warm)
        processes.send(pid, processes.start_time(pid) or 0, getattr(signal, f"SIG{case.signal}"))
        _expect(place, case, run, pid)
        check(processes.start_time(warm), None, "the process that keeps the imports")
        is_lost = (
            case.target == "supervisor" and case.signal == "KILL"
        )  # its files stay as they are
        if not is_lost:
            check(os.path.exists(place.node(run) / fork_servers.FOLDER), False, "its folder")
        none_left(place, run)

    return what_is_wrong(act, root)


def _await_ranks(place: Place, attempt: int) -> None:
    for rank in (0, 1):
        path = place.project / f"up-{attempt}-{rank}"
        wait_for(path.exists, f"rank {rank} of attempt {attempt}", LIMIT)


def _go_on(place: Place, attempt: int) -> None:
    place.write(f"go-{attempt}", "")


def _pid(place: Place, case: WarmCase, run: str, warm: int) -> int:
    status = place.status(run)
    pids = {
        "process that keeps the imports": warm,
        "supervisor": status["supervisor"]["pid"],
        "starter of the ranks": status["launcher"]["pid"],
        "rank": int((place.project / f"up-{case.attempt}-1").read_text()),
    }
    return int(pids[case.target])


def _expect(place: Place, case: WarmCase, run: str, pid: int) -> None:
    """Let the run go on where it should, and check how it ends."""
    if case.target in ("starter of the ranks", "rank"):
        check(place.ended(run, LIMIT)["state"], "failed", "state")
        failure = place.json("show", run)["failure"]
        check(failure["rank"], 1 if case.target == "rank" else None, "rank to blame")
        return
    if case.target == "supervisor" and case.signal != "HUP":
        _expect_loss(place, case, run)
        return
    if case.attempt == 1:
        wait_for(lambda: processes.start_time(pid) is None, "its end", LIMIT)
        _go_on(place, 1)
        _await_ranks(place, 2)
    _go_on(place, 2)
    check(place.ended(run, LIMIT)["state"], "succeeded", "state")
    check(len(place.json("show", run)["attempts"]), 2, "attempts")
    imports = (place.project / "imports").read_text().split()
    check(len(imports), 2 if case.attempt == 1 else 1, "imports")


def _expect_loss(place: Place, case: WarmCase, run: str) -> None:
    """Check the end of a run whose supervisor is stopped, or killed."""
    if case.signal == "KILL":
        who = Process.from_json(place.status(run)["supervisor"])
        wait_for(lambda: not processes.is_alive(who), "death of the supervisor", LIMIT)
        check(place.json("show", run)["state"], "lost", "state")
        place.cli("stop", run)
    check(place.ended(run, LIMIT)["state"], "stopped", "state")
