"""The options in front of the program that srun, mpirun and the like start."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class LineOption(NamedTuple):
    """An option by its name without dashes, its values, and its words as they are typed."""

    name: str
    values: tuple[str, ...]
    words: tuple[str, ...]


class OptionSyntax(NamedTuple):
    """How many of the words behind an option are its values.

    `short` are the letters of a program that reads its line with getopt: `-n8`, `-lu`. Without them
    one dash and two mean the same, and a letter is a name like all others. The value of an
    `optional` one is a part of its word: `--immediate=60`, `-I60`. That of one of the
    `assignments` may be `NAME=VALUE` in place of two words.
    """

    arity: Mapping[str, int]
    optional: frozenset[str] = frozenset()
    short: Mapping[str, str] = MappingProxyType({})
    assignments: frozenset[str] = frozenset()

    def split(self, words: Sequence[str]) -> tuple[list[LineOption], tuple[str, ...]] | None:
        """Return the options and the words from the program on; None for an unknown option."""
        options: list[LineOption] = []
        rest = list(words)
        while rest and rest[0].startswith("-"):
            if rest[0] == "--":
                return options, tuple(rest[1:])
            is_short = self.short and not rest[0].startswith("--")
            option = self._letters(rest) if is_short else self._long(rest)
            if option is None:
                return None
            options += option
            del rest[: sum(len(part.words) for part in option)]
        return options, tuple(rest)

    def _long(self, words: list[str]) -> list[LineOption] | None:
        name, equals, value = words[0].lstrip("-").partition("=")
        if equals:  # with getopt it is one word whatever the option is, that of a plug-in too
            is_clear = self.short or self.arity.get(name) == 1
            return [LineOption(name, (value,), (words[0],))] if is_clear else None
        if name in self.optional:
            return [LineOption(name, (), (words[0],))]
        end = 1 + self.arity.get(name, len(words))
        if name in self.assignments and "=" in "".join(words[1:2]):
            end = 2
        if end > len(words):
            return None
        return [LineOption(name, tuple(words[1:end]), tuple(words[:end]))]

    def _letters(self, words: list[str]) -> list[LineOption] | None:
        """Return the options of one word; the words are those of the first one."""
        options: list[LineOption] = []
        end, letters = 1, words[0][1:]
        while letters:
            name, letters = self.short.get(letters[0], ""), letters[1:]
            if name in self.optional:
                values, letters = tuple(filter(None, [letters])), ""
            elif name not in self.arity:
                return None
            elif self.arity[name] and not letters:
                values, end = tuple(words[1:2]), 2
            else:
                values = (letters,) if self.arity[name] else ()
                letters = "" if values else letters
            options.append(LineOption(name, values, ()))
        if not options or end > len(words):
            return None
        return [options[0]._replace(words=tuple(words[:end])), *options[1:]]
