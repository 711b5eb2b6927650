"""Applies the edits of findings to a file's bytes, and shows the difference."""

# ruff: noqa: PLC0415 - difflib is imported only for the diff of --fix

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.lint.finding import BOM, CRLF, LintFinding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


def apply_edits(data: bytes, findings: Iterable[LintFinding]) -> bytes:
    """Return a file's bytes with all fixable findings fixed; all other bytes are unchanged."""
    listed = list(findings)
    text = data.decode("utf-8", "surrogateescape")
    bom = text[: len(text) - len(text.lstrip("\ufeff"))]
    lines = text.removeprefix(bom).split("\n")
    edits = [edit for f in listed for edit in f.edits]
    for edit in sorted(set(edits), key=lambda e: (e.line, e.column), reverse=True):
        index = edit.column - 1
        # a loader may count other line ends than LF: then the text is not there, and is not edited
        line = lines[edit.line - 1] if edit.line <= len(lines) else ""
        if line.startswith(edit.old, index):
            lines[edit.line - 1] = line[:index] + edit.new + line[index + len(edit.old) :]
    rules = {f.id for f in listed}
    if CRLF in rules:
        lines = [line.removesuffix("\r") for line in lines]
    text = ("" if BOM in rules else bom) + "\n".join(lines)
    return text.encode("utf-8", "surrogateescape")


def unified_diff(file: str, old: bytes, new: bytes, hidden: Collection[int] = ()) -> str:
    """Return the unified diff of two versions of a file, with carriage returns and BOM visible.

    `hidden` are the numbers (from 1) of lines with secrets; fixes do not change line numbers.
    """
    import difflib

    old_lines, new_lines = (_display_lines(data, hidden) for data in (old, new))
    lines = difflib.unified_diff(old_lines, new_lines, f"a/{file}", f"b/{file}", lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _display_lines(data: bytes, hidden: Collection[int]) -> list[str]:
    text = data.decode("utf-8", "backslashreplace").replace("\ufeff", "<BOM>")
    lines = [line.replace("\r", "^M") for line in text.removesuffix("\n").split("\n")]
    for number in hidden:
        end = "^M" if lines[number - 1].endswith("^M") else ""
        lines[number - 1] = "(a line with a secret)" + end
    return lines
