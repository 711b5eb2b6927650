"""Data classes for the options that a script accepts on its command line."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.analysis.python.trees import SourceLine
    from safelaunch.model import Args

ARGPARSE, HF, FIRE, CLICK = "argparse", "HfArgumentParser", "fire", "click"
HYDRA, TYRO = "Hydra", "tyro"

# what to do about an argument of blanks alone
STRAY_BLANK = r"remove the blank behind a `\` at a line's end"

# Value types: the form that a value must have to be accepted.
INT, FLOAT = "int", "float"
BOOL = "bool"  # argparse's `type=bool`: any text except an empty one is true
TRUTH_WORD = "truth"  # a word that the framework accepts as true or false
DICT = "dict"  # `type=dict`: no text becomes one, only a settings file has them


class Option(NamedTuple):
    """One option, or a positional argument (`names` empty).

    `names` as typed, with their dashes. Between `min_values` and `max_values` values follow it;
    `max_values` is None for no limit, both are None where the number is not known.
    """

    dest: str
    names: tuple[str, ...]
    location: SourceLine
    min_values: int | None = 1
    max_values: int | None = 1
    value_type: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False
    default_is_true: bool = False  # its default is true, or counts as true
    accepts_none: bool = False  # `none` and `null` too, whatever the type
    lacks_default: bool = False  # a field of a dataclass that a settings file must set
    has_choices: bool = False  # also those that are computed, which `choices` lacks

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value."""
        return self.min_values == 0 and self.max_values == 0

    @property
    def display_name(self) -> str:
        """The name for messages: the longest spelling."""
        return max(self.names, key=len) if self.names else self.dest


OPTIONS, OVERRIDES = "options", "overrides"


class SettingsFile(NamedTuple):
    """A file of settings that a program reads its fields from.

    `option` names it, or it is the first argument and ends in one of `suffixes`; `rest` says what
    may follow. Its text is converted like an option's value, or reaches the fields as the file's
    format reads it.
    """

    reader: str  # the class that reads it, for messages
    option: str = ""
    suffixes: tuple[str, ...] = ()
    rest: str = ""  # "", OPTIONS, or OVERRIDES such as `key=value`
    is_converted: bool = False
    refuses_unknown: bool = True
    other_keys: frozenset[str] = frozenset()  # read by the parser itself


class FrameworkCommand(NamedTuple):
    """A command of a framework: `swift sft`. Only the command itself may read a settings file."""

    name: str  # of its launcher
    command: str
    reads_files: bool = True


class OptionProblem(NamedTuple):
    """A wrong or missing argument, with the fix.

    `option` as typed; `location` is where the script defines it.
    """

    option: str
    message: str
    fix: str
    location: SourceLine


class OptionRules(Protocol):
    """How a parser judges arguments that are no plain options, such as Hydra's overrides."""

    def problems(self, args: Args) -> Iterator[OptionProblem]:
        """Yield what the program will refuse; raise Unclear where that is not certain."""


class ScriptOptions(NamedTuple):
    """The options of a script. With `is_incomplete` there may be more; `why` is the reason.

    `commands`: subcommands by name; the first word selects one (Fire). `rules`: of a parser that
    has more than a list of options.
    """

    kind: str
    location: SourceLine
    options: tuple[Option, ...] = ()
    is_incomplete: bool = False
    why: str = ""
    allows_abbreviations: bool = True  # accepts `--learn` for `--learning_rate`
    commands: Mapping[str, ScriptOptions] = MappingProxyType({})
    settings: tuple[SettingsFile, ...] = ()
    ignores_unknown: bool = False  # options that it does not have are dropped without a word
    rules: OptionRules | None = None

    @property
    def positionals(self) -> tuple[Option, ...]:
        """The positional arguments."""
        return tuple(option for option in self.options if not option.names)

    def names(self) -> dict[str, Option]:
        """Return {spelling: option} for every spelling."""
        return {name: option for option in self.options for name in option.names}
