"""What is said of a run whose supervisor is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime import processes, run_state
from safelaunch.runtime.records import Process, Status

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
