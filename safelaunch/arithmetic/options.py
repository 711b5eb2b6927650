"""Words of a command line as options with their values, in the spellings that programs take.

`--key value`, `--key=value`, `-k value`, `--switch`; Hydra's `key.sub=value`, `+key=value`,
`++key=value`. Dashes and underscores are one. The last of several counts, as in argparse and Hydra.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from safelaunch.model import Args

_NEGATIVE = re.compile(r"-\.?\d")
_OVERRIDE = re.compile(r"(\+{0,2}[A-Za-z_][\w.@/-]*)=(.*)", re.DOTALL)
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
    if args.is_mapping:
        return {plain(key): Option(values, key) for key, values in args.options}
    return of_words(args.words)


def of_words(words: Iterable[str]) -> dict[str, Option]:
    """Return the options among words by their plain names."""
    found: dict[str, Option] = {}
    name, values = "", list[str]()
    for word in (*words, "--"):
        if word.startswith("-") and not _NEGATIVE.match(word):
            if name:
                found[plain(name)] = Option(tuple(values) or True, name)
            head, equals, value = word.partition("=")
            name, values = head.lstrip("-"), [value] if equals else []
            continue
        override = _OVERRIDE.fullmatch(word)
        if override is not None:
            key = override[1].lstrip("+")
            found[plain(key)] = Option((override[2],), key)
        if override is None or not values:  # `--switch key=value` may be either
            values.append(word)
    return found


def positional_files(words: Iterable[str]) -> Iterator[str]:
    """Yield the settings files that stand before the first option: `swift sft job.yaml`."""
    for word in words:
        if word.startswith("-"):
            return
        if word.endswith(_SETTINGS_FILE) and "=" not in word:
            yield word
