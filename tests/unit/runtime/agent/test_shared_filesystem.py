"""The file that tells if hosts see one folder is gone afterwards, whatever became of the client."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

from safelaunch.runtime.agent import shared_filesystem, wire

if TYPE_CHECKING:
    from pathlib import Path

LINK = wire.Link(lambda _: b"", lambda _: None)


def ask(verb: str, folder: Path, **request: Any) -> dict[str, Any]:
    return shared_filesystem.VERBS[verb]({"folder": str(folder), "make": False, **request}, LINK)


def test_a_token_is_seen_until_it_is_taken(tmp_path: Path) -> None:
    assert ask("leave", tmp_path, token="one") == {"left": True}  # noqa: S106
    assert ask("seen", tmp_path, tokens=["one", "other"]) == {"seen": ["one"]}
    ask("take", tmp_path, token="one")  # noqa: S106
    assert list(tmp_path.iterdir()) == []


def test_a_token_is_taken_where_it_was_left(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    ask("leave", folder, token="one")  # noqa: S106
    folder.mkdir()  # a run has made it since
    ask("take", folder, token="one")  # noqa: S106
    assert list(tmp_path.iterdir()) == [folder]


def test_a_token_that_nobody_takes_goes_with_the_agent(tmp_path: Path) -> None:
    code = f"""
from safelaunch.runtime.agent import shared_filesystem as shared
assert shared.leave({{"folder": {str(tmp_path)!r}, "token": "one"}}, None) == {{"left": True}}
import os
assert os.listdir({str(tmp_path)!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert list(tmp_path.iterdir()) == []
