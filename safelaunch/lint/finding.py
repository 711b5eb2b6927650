"""A finding in a file, with the edits that fix it where that is possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ERROR = "error"  # the job will not do what the file says
WARNING = "warning"
NOTE = "note"  # information only; does not affect the exit code


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace `old` at a line and column (from 1) by `new`."""

    line: int
    column: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One problem in a file: where, what, and how to fix it. Lines and columns start at 1."""

    file: str
    line: int
    column: int
    id: str
    message: str
    fix: str | None = None
    severity: str = WARNING
    edits: tuple[Edit, ...] = ()

    @property
    def is_fixable(self) -> bool:
        """Whether `--fix` can fix it."""
        return bool(self.edits) or self.id in WHOLE_FILE

    def as_json(self) -> dict[str, Any]:
        """Return the finding as `lint --json` prints it."""
        keys = ("file", "line", "column", "id", "message", "fix", "severity")
        return {key: getattr(self, key) for key in keys} | {"fixable": self.is_fixable}


JOB_VARIABLE = "job-variable"  # of a job file
CRLF = "crlf"
BOM = "bom"
WHOLE_FILE = (CRLF, BOM)  # fixed in the whole file, not at one location
