from __future__ import annotations

import errno

from safelaunch.remote.agent_client import AgentError


def test_what_nobody_has_foreseen_there_is_an_internal_error() -> None:
    answer = {"kind": "KeyError", "message": "'x'", "traceback": "Traceback ...\n"}
    error = AgentError(answer, "gpu1")
    assert str(error) == "gpu1: unexpected KeyError in the agent there: 'x'"
    assert (error.exit_code, error.details, error.hint) == (5, "Traceback ...\n", None)


def test_a_start_that_failed_there_is_told_as_it_is() -> None:
    answer = {"kind": "StartFailed", "message": "tmux did not start", "traceback": "Traceback"}
    error = AgentError(answer, "gpu1")
    assert (str(error), error.exit_code) == ("gpu1: tmux did not start", 4)
    assert error.details is None


def test_a_closed_folder_and_a_full_disk_there_have_a_hint() -> None:
    closed = {"errno": errno.EACCES, "message": "Permission denied", "path": "/data"}
    error = AgentError(closed, "gpu1")
    assert (str(error), error.exit_code) == ("gpu1: Permission denied (/data)", 4)
    assert "safelaunch hosts test gpu1" in str(error.hint)
    full = AgentError({"errno": errno.ENOSPC, "message": "No space left on device"}, "gpu1")
    assert "free space" in str(full.hint)
