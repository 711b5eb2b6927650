"""One finding in a file, and the edit that mends it where that is mechanical."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ERROR = "error"  # the job will not do what the file says
WARNING = "warning"
NOTE = "note"  # worth knowing; does not count for the exit code


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace `old`, which begins at a line and column (from 1), by `new`."""

    line: int
    column: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem in a file: where, what, and what to do. Lines and columns count from 1."""

    file: str
    line: int
    column: int
    id: str
    message: str
    fix: str | None = None
    severity: str = WARNING
    edit: Edit | None = None

    @property
    def is_mechanical(self) -> bool:
        """Whether `--fix` mends it."""
        return self.edit is not None or self.id in WHOLE_FILE

    def as_json(self) -> dict[str, Any]:
        """Return what `lint --json` prints."""
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "id": self.id,
            "message": self.message,
            "fix": self.fix,
            "severity": self.severity,
            "fixable": self.is_mechanical,
        }


CRLF = "crlf"
BOM = "bom"
WHOLE_FILE = (CRLF, BOM)  # mended over the whole file, not at one place
