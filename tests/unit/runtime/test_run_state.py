"""What the state of a run is, from its files and the processes that live."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support import REPOSITORY

from safelaunch.runtime import processes, run_state
from safelaunch.runtime.records import AttemptDropped, Process, Status

if TYPE_CHECKING:
    from pathlib import Path

TRACE = "Traceback (most recent call last):\nOSError: [Errno 5]\n"


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (
            f"{run_state.OWN_ERROR}\n{TRACE}",
            "the supervisor ended by an error of its own: OSError: [Errno 5] ({}/supervisor.log)",
        ),
        (TRACE, "the supervisor is gone"),  # of a part that it did without
        ("", "the supervisor is gone"),
    ],
)
def test_a_supervisor_that_ended_by_its_own_error_is_told_from_one_that_was_killed(
    tmp_path: Path, log: str, reason: str
) -> None:
    machine = processes.machine()
    process = Process(pid=1 << 30, start=1, boot_id=machine["boot_id"], pidns=machine["pidns"])
    Status(id="a", state="running", supervisor=process).write(str(tmp_path))
    (tmp_path / "supervisor.log").write_text(log)
    status = run_state.current_status(str(tmp_path))
    assert (status.state, status.reason) == ("lost", reason.format(tmp_path))


HOLD = """
import sys
sys.path.insert(0, sys.argv[1])
from safelaunch.runtime import claim, processes
from safelaunch.runtime.records import Status
has_lock = sys.argv[3] == "lock" and claim.hold_lock(sys.argv[2]) >= 0
Status(id="a", state="running", hostname="box", supervisor=processes.identity(1)).write(sys.argv[2])
print(has_lock, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare here: install util-linux")
@pytest.mark.parametrize(
    ("lock", "after", "why"),
    [
        (
            "lock",
            "lost",
            "the supervisor is gone, with the container (pid namespace) that it ran in",
        ),
        # of a version without a lock nobody can know
        ("none", "unknown", "runs in another container (pid namespace) of this machine, box"),
    ],
)
def test_a_run_of_a_container_that_has_ended_is_lost_as_after_its_restart(
    tmp_path: Path, lock: str, after: str, why: str
) -> None:
    words = [
        "unshare",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
        sys.executable,
        "-I",
        "-S",
    ]
    words += ["-B", "-c", HOLD, str(REPOSITORY), str(tmp_path), lock]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as container:
        assert container.stdin is not None
        assert container.stdout is not None
        answer = container.stdout.readline()
        if not answer:
            pytest.skip("a pid namespace is not allowed here: run as root with util-linux")
        assert answer == f"{lock == 'lock'}\n".encode()
        shown = run_state.current_status(str(tmp_path))
        reason = "runs in another container (pid namespace) of this machine, box"
        assert (shown.state, shown.reason) == ("unknown", reason)
        container.stdin.close()
    shown = run_state.current_status(str(tmp_path))
    assert (shown.state, shown.reason) == (after, why)


@pytest.mark.parametrize("start", [None, 1], ids=["running", "lost"])
def test_bytes_that_logs_lack_are_those_that_their_copier_has_counted(
    tmp_path: Path, start: int | None
) -> None:
    """The supervisor may be dead, or unable to write on the full disk."""
    supervisor = processes.identity(os.getpid(), start)
    earlier = [{"file": name, "bytes": 1, "why": "full"} for name in ("copy.log", "rank-0.log")]
    newer = {"file": "rank-0.log", "bytes": 7, "why": "full"}
    status = Status.from_json({"state": "running", "dropped": earlier, "attempts": [{}, {}]})
    status.supervisor = supervisor
    status.write(str(tmp_path))
    logs = tmp_path / "logs" / "attempt-2"
    logs.mkdir(parents=True)
    (logs / AttemptDropped.FILE).write_text(json.dumps({"logs": [newer]}).ljust(1000))
    shown = run_state.current_status(str(tmp_path))
    assert shown.state == ("running" if start is None else "lost")
    assert [log.to_json() for log in shown.dropped] == [earlier[0], newer]
