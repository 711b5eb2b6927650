"""Mends what is mechanical: the edits of findings laid over a file's bytes, and the difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.lint.finding import BOM, CRLF, Finding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


def mended(data: bytes, findings: Iterable[Finding]) -> bytes:
    """Return a file's bytes with all mechanical findings mended; the rest stays byte by byte."""
    found = list(findings)
    text = data.decode("utf-8", "surrogateescape")
    bom = text[: len(text) - len(text.lstrip("\ufeff"))]
    lines = text.removeprefix(bom).split("\n")
    edits = [f.edit for f in found if f.edit is not None]
    for edit in sorted(set(edits), key=lambda e: (e.line, e.column), reverse=True):
        at = edit.column - 1
        # a loader may know other line ends than LF: then it is elsewhere, and stays
        line = lines[edit.line - 1] if edit.line <= len(lines) else ""
        if line.startswith(edit.old, at):
            lines[edit.line - 1] = line[:at] + edit.new + line[at + len(edit.old) :]
    rules = {f.id for f in found}
    if CRLF in rules:
        lines = [line.removesuffix("\r") for line in lines]
    text = ("" if BOM in rules else bom) + "\n".join(lines)
    return text.encode("utf-8", "surrogateescape")


def difference(file: str, old: bytes, new: bytes, hidden: Collection[int] = ()) -> str:
    """Return the unified diff of two versions of a file; carriage returns and a BOM are shown.

    `hidden` are the numbers of lines that nobody should see, from 1: mending keeps the lines.
    """
    import difflib  # noqa: PLC0415 - only --fix pays for it

    before, after = (_shown(data, hidden) for data in (old, new))
    lines = difflib.unified_diff(before, after, f"a/{file}", f"b/{file}", lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _shown(data: bytes, hidden: Collection[int]) -> list[str]:
    text = data.decode("utf-8", "backslashreplace").replace("\ufeff", "<BOM>")
    lines = [line.replace("\r", "^M") for line in text.removesuffix("\n").split("\n")]
    for number in hidden:
        end = "^M" if lines[number - 1].endswith("^M") else ""
        lines[number - 1] = "(a line with a secret)" + end
    return lines
