"""What importing a script brings to light: launches, notes, and why it may not be followed."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.importer.variables import marks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.importer.variables.marks import JobVariables

DIFFERENT = marks.DIFFERENT


_NUMBERS = itertools.count()
_MOST_OTHERS = 100


class Note(NamedTuple):
    """Something that a script does beside its launches, and what becomes of it."""

    line: int
    text: str
    outcome: str


class ValueSource(NamedTuple):
    """Shell text that makes a value anew: the folder it means, and `setup:` lines before it."""

    text: str
    folder: str
    before: tuple[str, ...] = ()


class Counted(Enum):
    """What a text that differs from machine to machine says about its GPUs."""

    A_LINE_EACH = 1
    NUMBER = 2


class Unresolved(Exception):  # noqa: N818 - a value too: what the script alone cannot say
    """A value that the script alone does not say: why, where, and the variable to ask for.

    `differs`: it is another one at each start, such as a random port. `content` is then a text or
    an array with `DIFFERENT` where that value stands, if so much can be said. `source` makes the
    value, if that needs nothing else of the script. `draws` are numbers of the values in it: one
    that stands in two places is the same in both. `others` are what else the same text needs of
    the caller, so that all of it can be asked for at once.
    """

    others: tuple[Unresolved, ...] = ()
    counted: Counted | None = None
    is_caller_value = False  # only its caller knows it: a variable of the job may be

    def __init__(
        self,
        reason: str,
        line: int,
        name: str | None = None,
        *,
        differs: bool = False,
        content: str | dict[int | str, str] | None = None,
        source: ValueSource | None = None,
        draws: frozenset[int] | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.name = name
        self.differs = differs
        self.content = content
        self.source = source
        self.draws = frozenset((next(_NUMBERS),)) if draws is None else draws

    def for_variable(self, name: str) -> Unresolved:
        """Return the same as the value of a variable, by whose name it can be asked for."""
        return self._copy(self.content, self.name or name, self.source, self.draws)

    def with_content(
        self,
        content: str | dict[int | str, str] | None,
        source: ValueSource | None = None,
        draws: frozenset[int] = frozenset(),
    ) -> Unresolved:
        """Return the same as the reason why a larger content cannot be said."""
        copy = self._copy(content, self.name, source, self.draws | draws)
        copy.counted = None if content is None else self.counted  # it may be calculated from it
        return copy

    def as_counted(self, counted: Counted | None) -> Unresolved:
        """Return the same as what it says about GPUs."""
        copy = self._copy(self.content, self.name, self.source, self.draws)
        copy.counted = counted
        return copy

    def with_others(self, others: Sequence[Unresolved]) -> Unresolved:
        """Return the same with what else has to be asked for."""
        if not others:
            return self
        inner = (more for other in others for more in other.others)
        reasons = {self.reason: self}  # each once: values are made of values
        for why in (*self.others, *others, *inner):
            reasons.setdefault(why.reason, why)

        copy = self._copy(self.content, self.name, self.source, self.draws)
        copy.others = tuple(reasons.values())[1:_MOST_OTHERS]
        return copy

    def as_unmarked(self) -> Unresolved:
        """Return the same for a place where no mark may stand: it has to be asked for."""
        copy = Unresolved(self.reason, self.line, self.name, draws=self.draws)
        copy.others, copy.is_caller_value = self.others, self.is_caller_value
        return copy

    def _copy(
        self,
        content: str | dict[int | str, str] | None,
        name: str | None,
        source: ValueSource | None,
        draws: frozenset[int],
    ) -> Unresolved:
        copy = Unresolved(
            self.reason, self.line, name,
            differs=self.differs, content=content, source=source, draws=draws,
        )  # fmt: skip
        copy.others, copy.counted, copy.is_caller_value = (
            self.others,
            self.counted,
            self.is_caller_value,
        )
        return copy


def combined(
    reasons: Sequence[Unresolved], content: str | dict[int | str, str] | None
) -> Unresolved:
    """Return the first of several reasons why a content differs, with the draws of all."""
    draws = frozenset(draw for why in reasons for draw in why.draws)
    result = reasons[0].with_content(content, None, draws)
    result.is_caller_value = any(why.is_caller_value for why in reasons)
    if len(reasons) > 1:
        result.counted = None
    return result


def joined(output: Sequence[str | Unresolved]) -> str | Unresolved:
    """Return what commands have written as one text, with marks for what differs."""
    reasons = [piece for piece in output if isinstance(piece, Unresolved)]
    if not reasons:
        return "".join(map(str, output))
    unknown = next((why for why in reasons if not why.differs), None)
    if unknown is not None:
        return unknown.as_unmarked()
    texts = [
        piece if isinstance(piece, str)
        else piece.content if isinstance(piece.content, str)
        else DIFFERENT
        for piece in output
    ]  # fmt: skip
    return combined(reasons, "".join(texts))


class UnsetName(Unresolved):
    """A variable that only the caller may have set, where `set -u` ends the script without it."""

    def for_variable(self, name: str) -> Unresolved:
        """Return this: it is asked for by its own name."""
        del name
        return self


class UnresolvedFile(Unresolved):
    """A test of a file, which depends on the machine; `exists` says how it is here and now."""

    exists = True


class MissingFolder(Unresolved):
    """The current folder behind a `cd` to one that is not there."""

    path = ""
    target = ""  # as the script names it


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
    replaced: set[str] = field(default_factory=set)  # answers in place of what it makes itself
    stop: Stop | None = None
    is_cut_off: bool = False  # by a limit of the recording
    unanswered: dict[str, Unresolved] = field(default_factory=dict)  # variables made of no output
    sources: list[str] = field(default_factory=list)  # files that a recorded script has sourced
    absent: list[str] = field(default_factory=list)  # files of its project that it needs to go on
    placeholders: tuple[str, ...] = ()  # for the script's arguments, in a command to be completed
    variables: JobVariables | None = None  # of the caller, as the jobs have them
    has_example: bool = False  # they are those with which a comment of the script calls it

    def note(self, line: int, text: str, outcome: str) -> None:
        """Add a note, once."""
        note = Note(line, text, outcome)
        if note not in self.notes:
            self.notes.append(note)

    def problem(self, problem: Unresolved) -> None:
        """Add a problem of a launch, each reason once."""
        if problem.reason not in [other.reason for other in self.problems]:
            self.problems.append(problem)
        reasons = {other.reason for other in self.problems}
        self.problems += [other for other in problem.others if other.reason not in reasons]
