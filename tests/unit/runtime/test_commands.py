"""What a command leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.workspace import wait_for

from safelaunch.runtime import commands, processes

if TYPE_CHECKING:
    from pathlib import Path


def test_a_command_that_is_late_ends_with_its_children(tmp_path: Path) -> None:
    script = 'sleep 600 & echo $! > "$0.part"; mv "$0.part" "$0"; wait'
    pid = tmp_path / "pid"
    limit = 0.1
    while not pid.exists():  # a busy machine may not have started it in that time
        limit *= 2
        result = commands.run(["sh", "-c", script, str(pid)], limit=limit)
    child = int(pid.read_text())
    assert result.err == f"`sh` did not answer within {limit:g} s"
    wait_for(lambda: processes.start_time(child) is None, "end of the command's child")
