"""A supervisor that is killed at some moment of a run; what must hold of the run afterwards.

Used by tests/integration/supervise/test_restarts.py with few moments and by `scripts/bench matrix`
with many.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from safelaunch.runtime import json_files, processes, run_state
from safelaunch.runtime.backends import tmux
from support.faults.kill_matrix import check, none_left, what_is_wrong
from support.workspace import wait_for

if TYPE_CHECKING:
    from support.workspace import Place

# The first attempt fails as NCCL does, the second one ends well: start, attempt, backoff, start,
# attempt and end all lie within SPAN seconds of the supervisor's own start.
PROGRAM = """
import os, sys, time
print("rank", os.environ["RANK"], "attempt", os.environ["SAFELAUNCH_ATTEMPT"], flush=True)
time.sleep(0.3)
if os.environ["SAFELAUNCH_ATTEMPT"] == "1":
    print("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)", file=sys.stderr)
    os.abort()
"""
SPAN = 2.5
OPEN = ("running", "pending", "lost")


def kill_at(moment: float, root: str | None = None, *, by: str = "stand-in") -> str | None:
    """Kill a supervisor so many seconds after its start; return None, or what went wrong.

    `by` starts the ranks: the stand-in for torchrun, or a direct start.
    """

    def act(place: Place) -> None:
        write = place.direct if by == "direct" else place.ranks
        job = write(PROGRAM, recovery={"backoff": "0.3s", "max_restarts": 1})
        client = place.popen("run", job)
        run = _killed(place, moment)
        client.communicate(timeout=run_state.START_LIMIT + 15)
        if client.returncode:  # killed before it could start anything: the client takes all back
            check(place.node(run).exists(), False, "a run directory of a start that failed")
            check(len(processes.marked(run)), 0, "processes of a start that failed")
        else:
            _can_be_shown_and_stopped(place, run)

    return what_is_wrong(act, root)


def _killed(place: Place, moment: float) -> str:
    """Kill the supervisor at its moment and return the run's id; one that has ended is left."""
    pid, node = wait_for(lambda: _supervisor(place), "supervisor")
    pid, node = int(pid), str(node)
    start = processes.start_time(pid) or 0
    time.sleep(moment)
    processes.send(pid, start, signal.SIGKILL)
    wait_for(lambda: processes.start_time(pid) != start, "death of the supervisor")
    return os.path.basename(os.path.dirname(node))


def _supervisor(place: Place) -> tuple[int, str] | None:
    """Return (pid, node directory) of the place's supervisor, found before it has said anything."""
    home = os.fsencode(place.home)
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        scripts = [n for n, word in enumerate(words) if word.endswith(b"/supervisor.py")]
        is_python = os.path.basename(words[0]).startswith(b"python")  # not the tmux that starts it
        if is_python and scripts and words[scripts[0]].startswith(home):
            return int(name), os.fsdecode(words[scripts[0] + 1])
    return None


def _can_be_shown_and_stopped(place: Place, run: str) -> None:
    socket = (json_files.read_json(str(place.node(run) / "run.json")) or {}).get("socket")
    shown = place.json("show", run)
    has_state = shown["state"] in (*OPEN, *run_state.ENDED)
    check(has_state, True, f"state after the kill ({shown['state']})")
    place.cli("show", run)
    place.cli("ps")
    stopped = place.json("stop", run)
    check(stopped["alive"], 0, "processes alive after stop")
    none_left(place, run)
    check(place.json("show", run)["state"] in run_state.ENDED, True, "ended after stop")
    if shown["state"] in run_state.ENDED:
        check(stopped["state"], shown["state"], "state of a run that had ended")
    if socket:
        wait_for(lambda: not tmux.serves(str(socket)), "end of tmux")
        check(os.path.lexists(str(socket)), False, "a socket is left")
