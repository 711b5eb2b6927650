"""Words of a command line as options with their values, in the spellings that programs take.

`--key value`, `--key=value`, `-k value`, `--switch`; Hydra's `key.sub=value`, `+key=value`,
`++key=value`. Whether dashes and underscores are one is for who asks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from safelaunch.model import Args

_OVERRIDE = re.compile(r"[+~]{0,2}([A-Za-z_][\w.@/-]*)=(.*)", re.DOTALL)


class Given(NamedTuple):
    """An option as it is given: its name without signs in front, and its values.

    True or False for a switch. Words that belong to no option have an empty name.
    """

    name: str
    values: tuple[str, ...] | bool


def options(args: Args) -> Iterator[Given]:
    """Yield the options of arguments in their order, of either form."""
    if not args.is_mapping:
        yield from of_words(args.words)
        return
    for key, values in args.options:
        yield Given(key.lstrip("+~"), values)


def of_words(words: Iterable[str]) -> Iterator[Given]:
    """Yield the options among words, one that is given twice twice."""
    name, values = "", list[str]()
    for word in words:
        override = None if _is_option(word) else _OVERRIDE.fullmatch(word)
        if override is not None and name and not values:
            values.append(word)  # `--switch key=value` may be either
        elif override is None and not _is_option(word):
            values.append(word)
            continue
        if name or values:
            yield Given(name, tuple(values) or True)
        name, values = "", []
        if override is not None:
            yield Given(override[1], (override[2],))
        else:
            head, equals, value = word.partition("=")
            name, values = head.lstrip("-"), [value] if equals else []
    if name or values:
        yield Given(name, tuple(values) or True)


def _is_option(word: str) -> bool:
    return word.startswith("-") and not _is_number(word)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
