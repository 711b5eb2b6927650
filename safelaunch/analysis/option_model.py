"""What a script takes on its command line, as data."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.analysis.python.trees import Place

ARGPARSE, HF, FIRE, CLICK = "argparse", "HfArgumentParser", "fire", "click"

# Readings of a value: what it must look like to be taken.
INT, FLOAT = "int", "float"
BOOL = "bool"  # argparse's `type=bool`: any text but an empty one is true
TRUTH = "truth"  # a word that the framework knows as true or false


class Option(NamedTuple):
    """One option, or a positional word (`names` empty).

    `names` as typed, with their dashes. `least` and `most` values follow it, `most` None without
    end; both None where that is not known.
    """

    dest: str
    names: tuple[str, ...]
    place: Place
    least: int | None = 1
    most: int | None = 1
    reading: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False
    is_on: bool = False  # true, or anything that counts as true, where it is not given

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value at all."""
        return self.least == 0 and self.most == 0

    @property
    def is_counted(self) -> bool:
        """Whether it is known how many values it takes."""
        return self.least is not None

    @property
    def shown(self) -> str:
        """The name for a message: the longest, which is the one that says most."""
        return max(self.names, key=len) if self.names else self.dest


class Flags(NamedTuple):
    """The options of a script. With `is_open` there may be more, and `why` says what hides them.

    `commands`: the first word chooses among these (Fire).
    """

    kind: str
    place: Place
    options: tuple[Option, ...] = ()
    is_open: bool = False
    why: str = ""
    abbreviates: bool = True  # `--learn` for `--learning_rate`
    commands: Mapping[str, Flags] = MappingProxyType({})

    @property
    def positionals(self) -> tuple[Option, ...]:
        """The words that are no options."""
        return tuple(option for option in self.options if not option.names)

    def names(self) -> dict[str, Option]:
        """Return each option by each of its spellings."""
        return {name: option for option in self.options for name in option.names}
