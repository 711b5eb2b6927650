"""What importing a script brings to light: launches, notes, and why it may not be followed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

# Stands for a value that differs at each start: a character that Unicode reserves for private use,
# which is refused in scripts.
DIFFERENT = "\U0010fffc"


class Note(NamedTuple):
    """Something that a script does beside its launches, and what becomes of it."""

    line: int
    text: str
    outcome: str


class ValueSource(NamedTuple):
    """What stands behind the `=` of an assignment, and the folder of the shell there."""

    text: str
    folder: str


class Unresolved(Exception):  # noqa: N818 - a value too: what the script alone cannot say
    """A value that the script alone does not say: why, where, and the variable to ask for.

    `differs`: it is another one at each start, such as a random port. `content` is then a text or
    an array with `DIFFERENT` where that value stands, if so much can be said. `source` makes the
    value, if that needs nothing else of the script.
    """

    def __init__(
        self,
        reason: str,
        line: int,
        name: str | None = None,
        *,
        differs: bool = False,
        content: str | dict[int | str, str] | None = None,
        source: ValueSource | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.name = name
        self.differs = differs
        self.content = content
        self.source = source

    def for_variable(self, name: str) -> Unresolved:
        """Return the same as the value of a variable, by whose name it can be asked for."""
        return self._copy(self.content, self.name or name, self.source)

    def with_content(
        self, content: str | dict[int | str, str] | None, source: ValueSource | None = None
    ) -> Unresolved:
        """Return the same as the reason why a larger content cannot be said."""
        return self._copy(content, self.name, source)

    def _copy(
        self,
        content: str | dict[int | str, str] | None,
        name: str | None,
        source: ValueSource | None,
    ) -> Unresolved:
        return Unresolved(
            self.reason, self.line, name, differs=self.differs, content=content, source=source
        )


class UnsetName(Unresolved):
    """A variable that only the caller may have set, where `set -u` ends the script without it."""

    def for_variable(self, name: str) -> Unresolved:
        """Return this: it is asked for by its own name."""
        del name
        return self


class UnresolvedFile(Unresolved):
    """A test of a file, which depends on the machine; `exists` says how it is here and now."""

    exists = True


class Stop(Exception):  # noqa: N818 - the end of an import, no error of safelaunch
    """The script cannot be followed further, or must not be: refused with this reason."""

    def __init__(self, reason: str, line: int, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Redirection:
    """Where the output of a launch goes."""

    log: str | None = None
    appends: bool = False
    reader: str | None = None  # the program behind a pipe
    missing: str | None = None  # the folder of a file, which is not there: bash starts nothing


@dataclass(frozen=True, slots=True)
class ScriptLaunch:
    """A launch that a script makes: its words, what it exports, and where it runs."""

    line: int
    words: tuple[str, ...]
    env: Mapping[str, str | None]  # None: removed
    folder: str
    redirection: Redirection = Redirection()
    in_background: bool = False
    loop: int = 0  # line of the loop that it is in
    setup: tuple[str, ...] = ()
    interpreter: tuple[tuple[str, str], ...] = ()  # job keys of an activated environment
    # why `DIFFERENT` stands in a word, by its index, or in a variable, by its name
    different: Mapping[int | str, Unresolved] = field(default_factory=dict)


@dataclass(slots=True)
class Findings:
    """What a script starts, and what else it does."""

    launches: list[ScriptLaunch] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    problems: list[Unresolved] = field(default_factory=list)  # of launches
    stop: Stop | None = None

    def note(self, line: int, text: str, outcome: str) -> None:
        """Add a note, once."""
        note = Note(line, text, outcome)
        if note not in self.notes:
            self.notes.append(note)

    def problem(self, problem: Unresolved) -> None:
        """Add a problem of a launch, each reason once."""
        if problem.reason not in [other.reason for other in self.problems]:
            self.problems.append(problem)
