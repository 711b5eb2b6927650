"""A start resolves its job once and plans it once, on this machine and for hosts."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.ssh import sshd

if TYPE_CHECKING:
    from support.ssh.sshd import Sshd
    from support.workspace import Place

# the command line as it is, in an interpreter that counts some calls of all its threads
COUNTING = """
import json, os, sys, threading
counted = {"resolve_file": 0, "make_plan": 0, "read_file": 0}
def count(frame, event, _):
    name, file = frame.f_code.co_name, frame.f_code.co_filename
    if event == "call" and name in counted and os.sep + "safelaunch" + os.sep in file:
        if name != "read_file" or str(frame.f_locals.get("path", "")).endswith("job.yaml"):
            counted[name] += 1
threading.setprofile(count)
sys.setprofile(count)
from safelaunch.cli.main import main
try:
    main()
finally:
    sys.setprofile(None)
    print(json.dumps(counted), file=sys.stderr)
"""


def calls(place: Place, *words: str) -> dict[str, int]:
    """Return how often a command resolves and plans its job, and reads the job file."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTING, *words],
        env=place.env,
        cwd=place.project,
        capture_output=True,
        text=True,
        check=False,
    )
    place.note()
    assert done.returncode == 0, done.stderr
    counted: dict[str, int] = json.loads(done.stderr.splitlines()[-1])
    assert place.json("wait")["state"] == "succeeded"
    return counted


ONCE = {"resolve_file": 1, "make_plan": 1, "read_file": 1}


def test_a_start_here_plans_its_job_once(place: Place) -> None:
    assert calls(place, "run", place.job("print('x')")) == ONCE


@pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
def test_a_start_on_a_host_plans_its_job_once(place: Place, server: Sshd) -> None:
    user = "alice" if sshd.ROOT else None
    place.ssh_config(server.ssh_config("gpu1", user))
    job = place.job("print('x')", python=None)
    assert calls(place, "remote", "--host", "gpu1", job) == ONCE
