"""Marks in the words of a script for what only its caller knows, each a variable of its jobs.

A mark may only be put into words as it is: what looks at a value, or changes it, does not get one,
and asks for the value instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Stands for a value that differs at each start: a character that Unicode reserves for private use,
# which is refused in scripts.
DIFFERENT = "\U0010fffc"
ALL = "@"  # the name of what is behind the arguments with numbers
RESERVED = re.compile("[\U00100000-\U00100fff]")  # for private use; refused in scripts
FIRST = 0x100000
MARK = re.compile(f"{DIFFERENT}({RESERVED.pattern})")
_TYPES = ("text", "nonempty", "word")


@dataclass(slots=True)
class JobVariables:
    """The variables of a script: their names by what the script calls them, `$1` or `MODEL`.

    `types` grow with what the script does with them.
    """

    names: Mapping[str, str]
    lines: Mapping[str, int]
    types: dict[str, str] = field(default_factory=dict)
    is_count_read: bool = False  # `$#`
    are_all_read: bool = False  # `"$@"`

    @property
    def has_arguments(self) -> bool:
        """Whether arguments of the script are among them."""
        return bool(self.count) or ALL in self.names

    @property
    def count(self) -> int:
        """How many arguments with numbers there are."""
        return max((int(key[1:]) for key in self.names if key[1:].isdigit()), default=0)

    def key(self, text: str) -> str | None:
        """Return the variable of the first mark of a text; None without any."""
        match = MARK.search(text)
        return None if match is None else list(self.names)[ord(match[1]) - FIRST]

    def mark(self, key: str) -> str:
        """Return what stands for a value in words."""
        return DIFFERENT + chr(FIRST + list(self.names).index(key))

    def need(self, text: str, kind: str) -> None:
        """Note that values in a text must be of a type for what the script does with them."""
        for number in MARK.findall(text):
            key = list(self.names)[ord(number) - FIRST]
            old = self.types.get(key, "text")
            self.types[key] = max(old, kind, key=_TYPES.index)


def is_whole(text: str) -> bool:
    """Whether all marks of a text are those of variables."""
    return DIFFERENT not in MARK.sub("", text)


def has_mark(text: str) -> bool:
    """Whether a value of the caller is in a text."""
    return MARK.search(text) is not None
