"""Data classes for the options that a script accepts on its command line."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.analysis.python.trees import SourceLine

ARGPARSE, HF, FIRE, CLICK = "argparse", "HfArgumentParser", "fire", "click"

# Value types: the form that a value must have to be accepted.
INT, FLOAT = "int", "float"
BOOL = "bool"  # argparse's `type=bool`: any text except an empty one is true
TRUTH_WORD = "truth"  # a word that the framework accepts as true or false


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

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value."""
        return self.min_values == 0 and self.max_values == 0

    @property
    def display_name(self) -> str:
        """The name for messages: the longest spelling."""
        return max(self.names, key=len) if self.names else self.dest


class ScriptOptions(NamedTuple):
    """The options of a script. With `is_incomplete` there may be more; `why` is the reason.

    `commands`: subcommands by name; the first word selects one (Fire).
    """

    kind: str
    location: SourceLine
    options: tuple[Option, ...] = ()
    is_incomplete: bool = False
    why: str = ""
    allows_abbreviations: bool = True  # accepts `--learn` for `--learning_rate`
    commands: Mapping[str, ScriptOptions] = MappingProxyType({})

    @property
    def positionals(self) -> tuple[Option, ...]:
        """The positional arguments."""
        return tuple(option for option in self.options if not option.names)

    def names(self) -> dict[str, Option]:
        """Return {spelling: option} for every spelling."""
        return {name: option for option in self.options for name in option.names}
