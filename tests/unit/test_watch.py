from __future__ import annotations

import pytest

from safelaunch.cli.watch import describe, duration, last_state, writer


def test_a_progress_bar_shows_its_last_state() -> None:
    assert last_state(b"\r 10%\r 20%\r") == b" 20%"


def test_a_line_that_only_overwrites_itself_is_not_kept_whole(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    write = writer(raw=False)
    for percent in range(1000):
        write(b"\r%d%%" % percent)
    cells = getattr(write, "__closure__")  # noqa: B009 - what it holds back is what is tested
    held = [cell.cell_contents for cell in cells if isinstance(cell.cell_contents, bytes)]
    write(b"\n")
    write(b"")
    assert max(len(data) for data in held) < 20
    assert capfdbinary.readouterr().out == b"999%\n"


def test_a_stopped_run_names_the_signal() -> None:
    status = {"state": "stopped", "stopped_by": "SIGTERM", "signal": "SIGKILL", "exit_code": 137}
    assert describe(status) == "stopped (SIGKILL)"


@pytest.mark.parametrize(
    ("seconds", "shown"), [(8.21, "8.2 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_time_spans_are_short(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
