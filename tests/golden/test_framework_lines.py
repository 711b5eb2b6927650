"""What is planned for pasted lines of training frameworks, word for word."""

from __future__ import annotations

from support.framework_lines import FILE, text


def test_lines_of_frameworks_are_planned_as_before() -> None:
    assert text() == FILE.read_text(encoding="utf-8")
