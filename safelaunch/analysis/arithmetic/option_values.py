"""A program's options by name: the last of several counts, as in argparse and Hydra.

Dashes and underscores are one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis import argv

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from safelaunch.model import Args

_SETTINGS_FILE = (".yaml", ".yml", ".json")


class Option(NamedTuple):
    """An option as it is given: its values (True for a switch), and its own spelling.

    `key` is the job's key where it is another than `args` or `launcher_args`.
    """

    values: tuple[str, ...] | bool
    spelled: str
    key: str = ""

    @property
    def text(self) -> str | None:
        """The value of an option with exactly one, without quotes that Hydra takes off."""
        if isinstance(self.values, bool) or len(self.values) != 1:
            return None
        word = self.values[0]
        quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "\"'"
        return word[1:-1] if quoted else word


def plain(name: str) -> str:
    """Return a name without dashes in front, with underscores within."""
    return name.lstrip("-+").replace("-", "_")


def read(args: Args) -> dict[str, Option]:
    """Return the options of arguments by their plain names, in either form."""
    return _by_name(argv.options(args))


def of_words(words: Iterable[str]) -> dict[str, Option]:
    """Return the options among words by their plain names."""
    return _by_name(argv.of_words(words))


def _by_name(found: Iterable[argv.Given]) -> dict[str, Option]:
    return {plain(one.name): Option(one.values, one.name) for one in found if one.name}


def positional_files(words: Iterable[str]) -> Iterator[str]:
    """Yield the settings files that stand before the first option: `swift sft job.yaml`."""
    for word in words:
        if word.startswith("-"):
            return
        if word.endswith(_SETTINGS_FILE) and "=" not in word:
            yield word
