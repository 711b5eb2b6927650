from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.cli.output import report
from safelaunch.errors import HostError

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_traceback_of_a_fault_is_kept_in_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    error = HostError("unexpected KeyError in the agent there: 'x'", where="gpu1")
    error.details = "Traceback ...\nKeyError: 'x'\n"
    report(error)
    (kept,) = tmp_path.iterdir()
    assert capsys.readouterr().err == f"error: {error}; details: {kept}\n"
    assert kept.read_text().endswith(error.details)
    assert "Traceback" not in str(error)
