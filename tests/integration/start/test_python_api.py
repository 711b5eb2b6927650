"""A run from Python: started, followed and its end read without the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.ssh import sshd
from support.workspace import DEADLINE

if TYPE_CHECKING:
    from support.ssh.sshd import Sshd
    from support.workspace import Place

WATCH = """
import json, sys
from safelaunch import api

run = api.start(api.plan("job.yaml", sets=["args=[3]"]))
log = b"".join(run.log(api.LogRequest(follow=True))).decode()
status = run.wait(timeout=60)
with api.catalog() as runs:
    same = runs.find("job")
    again = b"".join(same.log(api.LogRequest(which="launcher"))).decode()
    failure = same.failure(same.status())
print(json.dumps({
    "log": log, "again": again, "state": status.state, "failure": failure and failure.what,
    "id": run.id, "same": same.id,
    "modules": [name for name in sys.modules if name.startswith(("safelaunch.cli", "click"))],
}))
"""


START_REMOTE = """
import json, sys
from safelaunch import api

with api.catalog() as runs:
    run = api.start_remote(runs, "job.yaml", hosts=["gpu1"], sets=["args=[3]"])
    log = b"".join(run.log(api.LogRequest(follow=True))).decode()
    status = run.wait(timeout=60)
    print(json.dumps({
        "log": log, "state": status.state, "hosts": [place.host for place in run.places()],
        "same": runs.find("job").id == run.id,
        "modules": [name for name in sys.modules if name.startswith(("safelaunch.cli", "click"))],
    }))
"""


def watch(place: Place, program: str = WATCH) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=place.project, env=place.env, capture_output=True, text=True, timeout=DEADLINE,
        check=False,
    )  # fmt: skip
    place.note()
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_a_run_is_started_and_its_log_read_without_the_command_line(place: Place) -> None:
    place.job("import sys\nprint('step', sys.argv[1])\n")
    result = watch(place)
    assert result["modules"] == []
    assert (result["log"], result["again"]) == ("step 3\n", "step 3\n")
    assert (result["state"], result["failure"]) == ("succeeded", None)
    assert result["id"] == result["same"]


def test_why_a_run_failed_is_shown_without_the_command_line(place: Place) -> None:
    place.job("raise ValueError('bad batch 17')\n")
    result = watch(place)
    assert (result["state"], result["failure"]) == ("failed", "ValueError: bad batch 17")
    assert "bad batch 17" in result["log"]


@pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
def test_a_run_on_a_host_is_started_and_watched_without_the_command_line(
    place: Place, server: Sshd
) -> None:
    place.ssh_config(server.ssh_config("gpu1", "alice" if sshd.ROOT else None))
    place.job("import sys\nprint('step', sys.argv[1])\n", python=None)
    result = watch(place, START_REMOTE)
    assert result["modules"] == []
    assert (result["log"], result["state"]) == ("step 3\n", "succeeded")
    assert (result["hosts"], result["same"]) == (["gpu1"], True)


AFTER = """
import json
from safelaunch import api
from safelaunch.errors import Refused

bad = api.start(api.plan("job.yaml", sets=["args=[3]"]))
plan = api.plan("good.yaml")
good = api.start(plan, after_any=[bad])
last = api.start(plan, after=[good])
print(json.dumps({"state": last.wait(timeout=60).state, "ends": [
    run.status().ended_at for run in (bad, good, last)
]}), flush=True)
try:
    api.start(plan, after=[bad])
except Refused as e:
    assert e.message.startswith(bad.id + " has ended: failed"), e.message
else:
    raise SystemExit("it was started")
"""


def test_a_run_from_python_begins_after_another(place: Place) -> None:
    place.job("import sys\nsys.exit(int(sys.argv[1]))")
    place.job("print('ok')", name="good")
    shown = watch(place, AFTER)
    assert (shown["state"], sorted(shown["ends"])) == ("succeeded", shown["ends"])


ONCE = """
import json
from safelaunch import api
from safelaunch.errors import Refused

with api.catalog() as runs:
    first, again = [
        api.start_remote(runs, "nightly.yaml", hosts=["gpu1"], key="nightly-7") for _ in range(2)
    ]
    try:
        api.start_remote(runs, "nightly.yaml", hosts=["gpu1"], sets=["args=[3]"], key="nightly-7")
    except Refused as e:
        refused = e.message
    state = again.wait(timeout=60).state
    places = [place.host for place in again.places()]
print(json.dumps([first.id, again.id, refused, state, places]))
"""


@pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
def test_a_key_starts_a_run_on_a_host_once_from_python(place: Place, server: Sshd) -> None:
    place.ssh_config(server.ssh_config("gpu1", "alice" if sshd.ROOT else None))
    place.job("print('ok')", name="nightly", python=None)
    first, again, refused, state, places = watch(place, ONCE)
    assert (first, state, places) == (again, "succeeded", ["gpu1"])
    assert f"the key `nightly-7` has started {first} with another plan" in refused
    ids = [run["id"] for run in place.json("ps", "--host", "gpu1")["runs"]]
    assert [name for name in ids if name.startswith("nightly-")] == [first]
