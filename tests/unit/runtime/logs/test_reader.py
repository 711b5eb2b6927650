"""A log that is followed ends with the run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from safelaunch.runtime.logs import reader
from safelaunch.runtime.records import Status

if TYPE_CHECKING:
    from pathlib import Path


def test_a_recorded_end_is_seen_at_the_next_look(tmp_path: Path) -> None:
    Status(state="running").write(str(tmp_path))
    pieces = reader.follow_attempts(
        str(tmp_path), None, (1, 0), lambda: "succeeded" in status_text(tmp_path), on=True
    )
    assert next(pieces) == (1, 0, b"")
    next(pieces)  # the first check was behind the first piece
    Status(state="succeeded").write(str(tmp_path))
    assert list(pieces) == []


def test_the_processes_of_a_run_without_news_are_looked_for_seldom(tmp_path: Path) -> None:
    checks, start = 0, time.monotonic()

    def is_done() -> bool:
        nonlocal checks
        checks += 1
        return checks == 3

    Status(state="running").write(str(tmp_path))
    assert list(reader.follow_attempts(str(tmp_path), None, (1, 0), is_done, on=True))
    assert time.monotonic() - start >= 2 * reader.CHECK


def status_text(folder: Path) -> str:
    return (folder / Status.FILE).read_text()
