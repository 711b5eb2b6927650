"""Parses command-line words into options with their values, in all spellings programs accept.

`--key value`, `--key=value`, `-k value`, `--switch`; Hydra's `key.sub=value`, `+key=value`,
`++key=value`. Dashes and underscores stay distinct here; the caller decides whether they are equal.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from safelaunch.model import Args

_OVERRIDE = re.compile(r"[+~]{0,2}([A-Za-z_][\w.@/-]*)=(.*)", re.DOTALL)


class ParsedOption(NamedTuple):
    """An option on a command line: its name without leading signs, and its values.

    `values` is True or False for a switch. Words that belong to no option have an empty name.
    """

    name: str
    values: tuple[str, ...] | bool


def options(args: Args) -> Iterator[ParsedOption]:
    """Yield the options of `args` in order, whether it is a list or a mapping."""
    if not args.is_mapping:
        yield from options_from_words(args.words)
        return
    for key, values in args.options:
        yield ParsedOption(key.lstrip("+~"), values)


def options_from_words(words: Iterable[str]) -> Iterator[ParsedOption]:
    """Yield the options among words in order; a repeated option is repeated."""
    name, values = "", list[str]()
    for word in words:
        override = None if _is_option(word) else _OVERRIDE.fullmatch(word)
        if override is not None and name and not values:
            values.append(word)  # `--switch key=value` may be either
        elif override is None and not _is_option(word):
            values.append(word)
            continue
        if name or values:
            yield ParsedOption(name, tuple(values) or True)
        name, values = "", []
        if override is not None:
            yield ParsedOption(override[1], (override[2],))
        else:
            head, equals, value = word.partition("=")
            name, values = head.lstrip("-"), [value] if equals else []
    if name or values:
        yield ParsedOption(name, tuple(values) or True)


def _is_option(word: str) -> bool:
    return word.startswith("-") and not is_number(word)


def is_number(word: str) -> bool:
    """Whether a word is a number for Python: `-1`, `1e-4`, `inf`."""
    try:
        float(word)
    except ValueError:
        return False
    return True
