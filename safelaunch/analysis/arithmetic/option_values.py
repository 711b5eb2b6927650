"""A program's options by name; the last of several counts, as in argparse and Hydra.

Dashes and underscores in names are equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis import argv
from safelaunch.model import Args

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SETTINGS_FILE = (".yaml", ".yml", ".json")


class OptionValue(NamedTuple):
    """The values of an option (True for a switch), and its spelling.

    `key` is the job's key if that is neither `args` nor `launcher_args`.
    """

    values: tuple[str, ...] | bool
    spelled: str
    key: str = ""

    @property
    def text(self) -> str | None:
        """The value of an option with exactly one, without the quotes that Hydra removes."""
        if isinstance(self.values, bool) or len(self.values) != 1:
            return None
        word = self.values[0]
        quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "\"'"
        return word[1:-1] if quoted else word


def normalize(name: str) -> str:
    """Return a name without leading dashes and with underscores for dashes."""
    return name.lstrip("-+").replace("-", "_")


def read_options(args: Args) -> dict[str, OptionValue]:
    """Return {normalized name: option} of `args`, whether it is a list or a mapping."""
    return {
        normalize(option.name): OptionValue(option.values, option.name)
        for option in argv.options(args)
        if option.name
    }


def options_from_words(words: Iterable[str]) -> dict[str, OptionValue]:
    """Return {normalized name: option} of words."""
    return read_options(Args(words=tuple(words)))


def positional_files(words: Iterable[str]) -> Iterator[str]:
    """Yield the settings files before the first option, as in `swift sft job.yaml`."""
    for word in words:
        if word.startswith("-"):
            return
        if word.endswith(_SETTINGS_FILE) and "=" not in word:
            yield word
