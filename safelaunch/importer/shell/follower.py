"""What the parts of the interpreter ask of it: the statements, the findings, where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from safelaunch.importer.findings import Findings, Unresolved
    from safelaunch.importer.state import State
    from safelaunch.importer.syntax import SyntaxNode

    Item = str | Unresolved

MOST_ROUNDS = 1000
DEEPEST = 40


class Follower(Protocol):
    """Follows statements; the modules beside it follow one kind of command each."""

    findings: Findings
    doubt: Unresolved | None  # why the last status is unresolved
    depth: int  # of functions and files
    substitutions: int  # > 0: inside of `$(...)`
    guards: int  # > 0: a failure does not end the script under `set -e`
    files: list[str]  # scripts that are being followed
    traps: list[SyntaxNode]

    def statement(self, statement: SyntaxNode, state: State) -> None:
        """Follow one statement."""

    def statements(self, statements: Sequence[SyntaxNode], state: State) -> None:
        """Follow statements in turn."""

    def conditions(self, statements: Sequence[SyntaxNode], state: State) -> None:
        """Follow statements whose failure does not end the script."""

    def to_exit(self, statements: Sequence[SyntaxNode], state: State) -> None:
        """Follow the statements of a shell of its own to its end."""

    def starts_none(self, statements: Sequence[SyntaxNode], state: State) -> bool:
        """Whether statements, followed by a shell of their own, start nothing."""

    def file(self, path: str) -> AbstractContextManager[None]:
        """Say of a file that it is being followed."""

    def parse_file(self, path: str, name: str, line: int, *, posix: bool) -> SyntaxNode:
        """Return the tree of another script. Raises Stop."""

    def parse_text(self, text: str, what: str, line: int) -> SyntaxNode:
        """Return the tree of a text that a script runs. Raises Stop."""
