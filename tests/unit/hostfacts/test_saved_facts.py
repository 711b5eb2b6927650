"""Facts that are kept: whole or not at all."""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING, Any

from safelaunch.hostfacts.saved import ProbeOptions, SavedFacts

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_full_disk_keeps_what_was_there_and_no_half_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = SavedFacts(str(tmp_path))
    saved.save("gpu1", ProbeOptions(), {"version": 1, "cores": 4})

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(json, "dump", full)
    saved.save("gpu1", ProbeOptions(), {"version": 1, "cores": 8})
    stored = saved.load("gpu1")
    assert stored is not None
    assert stored["cores"] == 4
    assert [path.name for path in (tmp_path / "facts").iterdir()] == ["gpu1.json"]
