"""A restart from the process that has imported the modules of the attempt before."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from support.workspace import wait_for

from safelaunch.runtime import processes

if TYPE_CHECKING:
    from support.workspace import Place

# each import leaves a line; it may take what the test wants to differ later
SHARED = "import os\nwith open('imports', 'a') as file: file.write(f'{os.getpid()}\\n')\n"
RESTART = {"max_restarts": 1, "backoff": "0s", "classes": {"user-code-exception": "restart"}}
AGAIN = """
import os, shared, signal, sys, time
open("arguments." + os.environ["SAFELAUNCH_ATTEMPT"], "w").write(" ".join(sys.argv[1:]))
if os.environ["SAFELAUNCH_ATTEMPT"] == "1":
    server = os.path.join(os.environ["SAFELAUNCH_NODE_DIR"], "fork-server")
    if os.environ["RANK"] == "0":
        (pid,) = os.listdir(server)
        open("server", "w").write(pid)
        {between}
    raise ValueError("the first attempt")
assert os.environ["RANK"] in "01" and os.environ["WORLD_SIZE"] == "2"
if "kill" in sys.argv[1:]:
    open("rank." + os.environ["RANK"], "w").write(str(os.getpid()))
    if os.environ["RANK"] == "0":
        while not os.path.exists("rank.1"): time.sleep(0.01)
        os.kill(eval(sys.argv[2]), signal.SIGKILL)
    time.sleep(600)
"""


def ended(place: Place, between: str = "pass", **keys: Any) -> dict[str, Any]:
    """Run a job whose first attempt fails after `between`, and return what `show` says."""
    (place.project / "shared.py").write_text(SHARED)
    keys = {"peer_grace": "10s", "recovery": RESTART, "preload": ["shared"], **keys}
    job = place.direct(AGAIN.replace("{between}", between), **keys)
    place.cli("run", "--no-check", "--follow", job, code=None)
    return place.json("show")


def imports(place: Place) -> int:
    return len((place.project / "imports").read_text().split())


def is_gone(place: Place) -> bool:
    return processes.start_time(int((place.project / "server").read_text())) is None


def test_a_restart_does_not_import_again(place: Place) -> None:
    setup = ["exec 9>lock; flock -n 9"]  # an attempt that cannot have it fails
    shown = ended(place, setup=setup, recovery={**RESTART, "resume_args": ["--resume"]})
    states = [(attempt["state"], attempt.get("class")) for attempt in shown["attempts"]]
    assert states == [("failed", "user-code-exception"), ("succeeded", None)]
    assert imports(place) == 1
    assert is_gone(place)
    assert (place.project / "arguments.2").read_text() == "--resume"
    status = place.status(shown["id"])
    assert (status["proof"], status.get("warning")) == ("wait", None)


DIFFERENCES = {
    "os.kill(int(pid), signal.SIGKILL)": "that keeps the preloaded modules has ended (SIGKILL)",
    "open('shared.py', 'a').write('A = 1\\n')": "shared.py` has changed",
    "open('decimal.py', 'w').write('from _decimal import *')": "has changed",
    "open('settings', 'w').write('export OWN=2')": "environment variable OWN` has changed",
}


@pytest.mark.parametrize("between", DIFFERENCES)
def test_a_restart_imports_again_where_the_imports_may_differ(place: Place, between: str) -> None:
    setup = ['export OWN="$(cat settings 2>/dev/null)"']
    shown = ended(place, between, setup=setup, preload=["decimal", "shared"])
    assert [attempt["state"] for attempt in shown["attempts"]] == ["failed", "succeeded"]
    assert imports(place) == 2
    assert is_gone(place)
    logs = [path.read_text() for path in (place.node(shown["id"]) / "logs").rglob("*.log")]
    assert any(DIFFERENCES[between] in log for log in logs)


LATER_ENDS = {
    "raise OSError('no batch')": ("failed", "OSError: no batch"),
    "sys.exit(3)": ("failed", "exited with code 3"),
    "raise KeyboardInterrupt": ("failed", "SIGINT"),
    "sys.exit(0)": ("succeeded", ""),
}


@pytest.mark.parametrize("later", LATER_ENDS)
def test_ranks_of_a_restart_end_as_any_program(place: Place, later: str) -> None:
    program = f"""
import atexit, os, shared, sys
attempt, rank = os.environ["SAFELAUNCH_ATTEMPT"], os.environ["RANK"]
atexit.register(lambda: open("handler." + attempt + rank, "w").close())
if attempt == "1":
    raise ValueError("the first attempt")
if rank == "1":
    {later}
"""
    place.write("shared.py", SHARED)
    run = place.start(place.direct(program, preload=["shared"], recovery=RESTART))
    place.cli("wait", run, code=None)
    shown = place.json("show", run)
    state, what = LATER_ENDS[later]
    assert [attempt["state"] for attempt in shown["attempts"]] == ["failed", state]
    failure = shown["failure"] if state == "failed" else {"rank": 1, "what": ""}
    assert failure["rank"] == 1
    assert what in f"{failure['what']} {failure.get('signal')}"
    assert (place.project / "handler.21").exists()
    assert imports(place) == 1


@pytest.mark.parametrize("pid", ["os.getppid()", "int(os.environ['SAFELAUNCH_MAIN'])"])
def test_ranks_are_ended_where_their_starter_is_killed(place: Place, pid: str) -> None:
    shown = ended(place, recovery={**RESTART, "resume_args": ["kill", pid]})
    assert shown["state"] == "failed"
    assert imports(place) == 1
    pids = [int((place.project / f"rank.{rank}").read_text()) for rank in (0, 1)]
    assert [processes.start_time(rank) for rank in pids] == [None, None]
    assert place.status(shown["id"])["proof"] == "wait"


def test_a_stop_ends_it_with_the_run(place: Place) -> None:
    between = "open('go', 'w').close()\n        time.sleep(600)"
    (place.project / "shared.py").write_text(SHARED)
    job = place.direct(
        AGAIN.replace("{between}", between), preload=["shared"], recovery=RESTART, peer_grace="600s"
    )
    run = place.start(job)
    wait_for((place.project / "go").exists, "first attempt")
    place.cli("stop", run)
    assert is_gone(place)
    assert place.status(run)["state"] == "stopped"
    assert not os.path.exists(place.node(run) / "fork-server")


def test_it_dies_with_the_supervisor(place: Place) -> None:
    between = "os.kill(int(os.environ['SAFELAUNCH_SUPERVISOR']), signal.SIGKILL)"
    ended(place, between)
    assert wait_for(lambda: is_gone(place), "end of the process")
