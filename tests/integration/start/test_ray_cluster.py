"""A job with a Ray of its own: how program and Ray end, with a stand-in for the package `ray`.

tests/integration/ray/ has the real one, which takes 10 s to start.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.workspace import wait_for

from safelaunch.runtime import processes

if TYPE_CHECKING:
    from support.workspace import Place

CLUSTER = """
def init(**_): pass
def is_initialized(): return False
def nodes(): return [{"NodeManagerAddress": "127.0.0.1", "Alive": True}]
def cluster_resources(): return {"CPU": 1.0}
"""
# `ray start --block`: a head that listens, and a process with the name of Ray's own
HEAD = """
import os, signal, socket, subprocess, sys, time
port = next(word[7:] for word in sys.argv if word.startswith("--port="))
listener = socket.create_server(("127.0.0.1", int(port)))
os.makedirs("bin", exist_ok=True)
if not os.path.exists("bin/raylet"):
    os.symlink("/bin/sleep", "bin/raylet")
raylet = subprocess.Popen(["bin/raylet", "600"])
signal.signal(signal.SIGTERM, lambda *_: (raylet.kill(), os._exit(0)))
time.sleep(600)
"""
# as Ray 2.60 ends where another program has its port
TAKEN = """
print("Local node IP: 10.0.0.1", flush=True)
raise ConnectionError("Ray is trying to start at 127.0.0.1:6379, but is already running at it")
"""
FOREVER = "import os, time\nprint('up', os.environ['RAY_ADDRESS'], flush=True)\ntime.sleep(600)\n"


def job(place: Place, program: str, head: str = HEAD, **keys: Any) -> str:
    """Write a job, and what its interpreter imports as `ray`."""
    place.write("ray/__init__.py", CLUSTER)
    place.write("ray/scripts/__init__.py", "")
    place.write("ray/scripts/scripts.py", head)
    return place.job(program, ray_cluster=True, pythonpath=["."], **keys)


def raylet(run: str) -> int:
    """Return the pid of the process with Ray's name."""
    for pid in processes.marked(run):
        if b"raylet" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
            return pid
    return 0


def test_a_program_that_fails_is_the_failure_with_its_own_code(place: Place) -> None:
    failure = place.failed(job(place, "raise ValueError('bad batch 17')"), "--no-check")["failure"]
    assert (failure["rank"], failure["what"]) == (0, "ValueError: bad batch 17")
    assert failure["exit_code"] == 1


def test_a_program_that_is_killed_is_killed_and_not_its_ray(place: Place) -> None:
    program = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    shown = place.failed(job(place, program), "--no-check")
    assert (shown["failure"]["class"], shown["failure"]["rank"]) == ("killed", 0)
    assert shown["failure"]["signal"] == "SIGKILL"


def test_a_raylet_that_goes_is_the_cause_whatever_the_program_says(place: Place) -> None:
    program = "while not os.path.exists('lost'):\n    time.sleep(0.02)\nraise OSError('gone')\n"
    run = place.start(job(place, FOREVER.replace("time.sleep(600)\n", program)))
    place.wait_for_text(run, "up 127.0.0.1:")
    pid = wait_for(lambda: raylet(run), "raylet")
    os.kill(pid, signal.SIGTERM)
    place.write("lost", "")
    place.cli("wait", run, code=1)
    failure = place.json("show", run)["failure"]
    assert failure["class"] == "ray-node-dead"
    assert failure["what"] == f"Ray's raylet (pid {pid}) has ended"
    assert failure["others"][0]["what"] == "OSError: gone"
    assert processes.marked(run) == {}


def test_a_stop_goes_to_the_program_and_then_ends_ray(place: Place) -> None:
    run = place.start(job(place, FOREVER))
    place.wait_for_text(run, "up 127.0.0.1:")
    place.cli("stop", run)
    shown = place.json("show", run)
    assert (shown["state"], shown["stopped_by"]) == ("stopped", "SIGTERM")
    assert processes.marked(run) == {}


def test_a_ray_that_does_not_start_fails_the_run_with_what_it_said(place: Place) -> None:
    shown = place.failed(job(place, "print('trained')", TAKEN), "--no-check")
    failure = shown["failure"]
    assert failure["class"] == "port-in-use"
    assert failure["what"].startswith(
        "Ray does not start: `ray start` exited with code 1: ConnectionError: Ray is trying"
    )
    assert "trained" not in place.cli("logs").stdout
    assert (place.node(shown["id"]) / "ray/attempt-1/ray-start.log").exists()
    assert processes.marked(shown["id"]) == {}


def test_a_start_is_refused_where_the_interpreter_has_no_ray(place: Place) -> None:
    name = place.job("", ray_cluster=True)
    assert "no `ray`" in place.cli("run", name, code=3).stderr


def test_a_folder_that_is_too_long_for_ray_is_told_with_what_sets_it(place: Place) -> None:
    env = {"RAY_TMPDIR": "/tmp/of-somebody/with-long-names"}
    failure = place.failed(job(place, "print('trained')", env=env), "--no-check")["failure"]
    assert "RAY_TMPDIR is too long: /tmp/of-somebody/with-long-names/slray-" in failure["what"]
