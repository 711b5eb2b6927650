"""Judges a job's words against the options that its script takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.option_model import BOOL, CLICK, FIRE, FLOAT, HF, INT, TRUTH, Flags, Option
from safelaunch.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.analysis.python.trees import Place
    from safelaunch.model import Args

# transformers/hf_argparser.py, string_to_bool
_TRUTHS = frozenset({"yes", "true", "t", "y", "1", "no", "false", "f", "n", "0"})
# Words that end the program first, or after which none is an option.
_ENDS = frozenset({"-h", "--help", "--version", "--"})
_FALSE = frozenset({"false", "no", "off", "0", "none", "f", "n"})
_TRUE = frozenset({"true", "yes", "on", "1", "t", "y"})


class FlagProblem(NamedTuple):
    """One word, or a missing one: what is wrong and what to do.

    `option` as typed; `place` is where the script says what it takes.
    """

    option: str
    message: str
    fix: str
    place: Place


class _Given(NamedTuple):
    """An option as it is given: the word, and the values after it."""

    word: str
    option: Option | None
    values: tuple[str, ...]
    is_joined: bool = False  # --key=value


def judge(flags: Flags, args: Args) -> Iterator[FlagProblem]:
    """Yield what the script will refuse, or misread. Nothing where the options are open."""
    words = args.words
    if flags.commands:
        command = flags.commands.get(words[0]) if words else None
        flags, words = command or flags, words[1:]
    if flags.is_open or flags.commands or not flags.options:
        return
    if flags.kind == HF and len(words) == 1 and words[0].endswith((".json", ".yaml", ".yml")):
        return  # read as the file with all options
    if any(word in _ENDS or word.startswith("@") or word.endswith("=--") for word in words):
        return
    judged = _Fire(flags, args) if flags.kind == FIRE else _Words(flags, args)
    yield from judged.problems(words)


class _Words:
    """argparse, HfArgumentParser and click: options with a number of values each."""

    def __init__(self, flags: Flags, args: Args) -> None:
        self.flags = flags
        self.args = args
        self.names = flags.names()

    def problems(self, words: Sequence[str]) -> Iterator[FlagProblem]:
        """Yield what is wrong with the words."""
        loose, given = self.split(words)
        yield from self.check_loose(loose)
        for item in given:
            yield from self.check(item)
        yield from self.missing(given, is_loose=bool(loose))

    def split(self, words: Sequence[str]) -> tuple[list[str], list[_Given]]:
        """Return the words before the first option, and the options with what follows each."""
        loose: list[str] = []
        given: list[_Given] = []
        for word in words:
            if not self.is_option(word, given):
                if given:
                    given[-1] = given[-1]._replace(values=(*given[-1].values, word))
                else:
                    loose.append(word)
                continue
            name, equals, value = word.partition("=")
            option = self.names.get(word) or self.find(name)
            is_joined = bool(equals) and word not in self.names
            given.append(_Given(name, option, (value,) if is_joined else (), is_joined))
        return loose, given

    def is_option(self, word: str, given: list[_Given]) -> bool:
        """Whether a word begins an option, and is not a value such as -1."""
        if len(word) < 2 or word[0] != "-":  # noqa: PLR2004 - a dash and a letter
            return False
        if " " in word and self.find(word.partition("=")[0]) is None:
            return False
        last = given[-1] if given else None
        if self.flags.kind == CLICK and last is not None and last.option is not None:
            least = last.option.least or 0
            if len(last.values) < least:
                return False
        return not _is_number(word)

    def find(self, name: str) -> Option | None:
        """Return the option of a name, also an abbreviated one or one with its value behind it."""
        if name in self.names:
            return self.names[name]
        if not name.startswith("--"):
            return self.names.get(name[:2])  # -xVALUE, or several letters in one word
        if self.flags.abbreviates:
            near = {id(o): o for known, o in self.names.items() if known.startswith(name)}
            if len(near) == 1:
                return next(iter(near.values()))
        return None

    def check_loose(self, loose: list[str]) -> Iterator[FlagProblem]:
        """Yield a word before all options that the script has no place for."""
        if loose and not self.flags.positionals:
            message = f"`{loose[0]}`: the script takes options only"
            fix = f"leave `{loose[0]}` out, or put the option that it belongs to before it"
            yield FlagProblem(loose[0], message, fix, self.flags.place)

    def check(self, given: _Given) -> Iterator[FlagProblem]:
        """Yield what is wrong with one option."""
        option = given.option
        if option is None:
            yield from self.unknown(given)
        elif given.word not in self.names and not given.word.startswith("--"):
            return  # letters in one word: their values are not told apart here
        elif option.is_switch:
            yield from self.switch(given, option)
        elif option.is_counted:
            yield from self.counted(given, option)

    def unknown(self, given: _Given) -> Iterator[FlagProblem]:
        """Yield an option that the script does not have."""
        near = [known for known in self.names if known.startswith(given.word)]
        if near and self.flags.abbreviates and given.word.startswith("--"):
            message = f"`{given.word}` may be " + " or ".join(f"`{name}`" for name in sorted(near))
            yield FlagProblem(given.word, message, "write the option in full", self.flags.place)
            return
        long = {name.lstrip("-"): name for name in self.names if name.startswith("--")}
        hint = did_you_mean(given.word, [f"--{name}" for name in long] or self.names)
        message = f"the script has no option `{given.word}`"
        yield FlagProblem(
            given.word, message, hint or f"leave `{given.word}` out", self.flags.place
        )

    def switch(self, given: _Given, option: Option) -> Iterator[FlagProblem]:
        """Yield a switch that is given a value."""
        if not given.values or (self.flags.positionals and not given.is_joined):
            return
        value = given.values[0]
        message = f"`{given.word}` takes no value, got `{value}`"
        key = given.word.lstrip("-")
        if value.lower() in _FALSE:
            fix = f"leave `{given.word}` out"
        elif self.args.is_mapping:
            fix = f"write `{key}: true`"
        else:
            fix = f"write `{given.word}` alone"
        yield FlagProblem(given.word, message, fix, option.place)

    def counted(self, given: _Given, option: Option) -> Iterator[FlagProblem]:
        """Yield too few or too many values, and values that are not taken."""
        count, least = len(given.values), option.least or 0
        if count < least:
            wants = "a value" if least == 1 else f"{least} values"
            message = f"`{given.word}` takes {wants}, got {count or 'none'}"
            fix = f"give `{given.word}` {wants}, or leave it out"
            yield FlagProblem(given.word, message, fix, option.place)
            return
        taken = given.values if option.most is None else given.values[: option.most]
        if count > len(taken) and not self.flags.positionals:
            message = f"`{given.word}` takes {option.most or 'no'} value, got {count}"
            if option.most and option.most > 1:
                message = message.replace("value", "values")
            fix = f"leave `{given.values[len(taken)]}` out"
            yield FlagProblem(given.word, message, fix, option.place)
        for value in taken:
            yield from self.value(given, option, value)

    def value(self, given: _Given, option: Option, value: str) -> Iterator[FlagProblem]:
        """Yield a value that the script will refuse or misread."""
        problem = _refused(option, value)
        if problem is None and option.reading == BOOL and value.lower() in _FALSE:
            problem = "is read as true: argparse's `type=bool` takes any text for true"
        if problem is not None:
            fix = self.instead(given, option, value)
            yield FlagProblem(given.word, f"`{given.word} {value}` {problem}", fix, option.place)

    def instead(self, given: _Given, option: Option, value: str) -> str:
        """Return what to write in place of a value that is refused."""
        if option.reading == BOOL and value:
            if not option.is_on:
                return f"leave `{given.word}` out"
            key = given.word.lstrip("-")
            return f'write `{key}: ""`' if self.args.is_mapping else f"write `{given.word}=`"
        if option.choices:
            near = did_you_mean(value, option.choices)
            return near or "one of " + ", ".join(f"`{choice}`" for choice in option.choices)
        wants = {INT: "a whole number", FLOAT: "a number", TRUTH: "`true` or `false`"}
        whole = _whole(value) if option.reading == INT else None
        return (
            f"write {whole}" if whole else f"give it {wants.get(option.reading, 'another value')}"
        )

    def missing(self, given: list[_Given], *, is_loose: bool) -> Iterator[FlagProblem]:
        """Yield what the script requires and does not get."""
        seen = {item.option.dest for item in given if item.option is not None}
        letters = [i for i in given if i.word not in self.names and not i.word.startswith("--")]
        if letters:
            return  # they may hide an option
        for option in self.flags.options:
            if option.names and option.required and option.dest not in seen:
                message = f"the script requires `{option.shown}`"
                fix = f"add `{option.shown}` with its value"
                if self.args.is_mapping:
                    fix = f"add `{option.shown.lstrip('-')}:` with its value"
                yield FlagProblem(option.shown, message, fix, option.place)
        words = is_loose or any(item.values for item in given)
        needed = [o for o in self.flags.positionals if o.required]
        if needed and not words:
            message = f"the script requires a word for `{needed[0].dest}`"
            fix = "put it before the options, in the list form of `args:`"
            yield FlagProblem(needed[0].dest, message, fix, needed[0].place)


class _Fire(_Words):
    """Fire: a parameter by name, with or without a value, or by its place."""

    def problems(self, words: Sequence[str]) -> Iterator[FlagProblem]:
        """Yield what is wrong with the words."""
        if "--" in words or "-" in words:
            return  # Fire's own flags, or a chain of commands
        loose, given = self.split(words)
        for item in given:
            if item.option is None:
                yield from self.unknown(item)
        by_place = len(loose) + sum(max(len(i.values) - 1, 0) for i in given)
        seen = {item.option.dest for item in given if item.option is not None}
        open_ones = [o for o in self.flags.options if o.names and o.dest not in seen]
        for option in open_ones[by_place:]:
            if option.required:
                message = f"the script requires `{option.shown}`"
                key = option.shown.lstrip("-") + ":" if self.args.is_mapping else option.shown
                fix = f"add `{key}` with its value"
                yield FlagProblem(option.shown, message, fix, option.place)

    def is_option(self, word: str, given: list[_Given]) -> bool:
        """Whether Fire takes a word for a flag."""
        del given
        return word.startswith("--") or (len(word) > 1 and word[0] == "-" and word[1].isalpha())

    def find(self, name: str) -> Option | None:
        """Return the parameter of a flag."""
        by_name = {option.dest: option for option in self.flags.options if option.names}
        key = name.lstrip("-").replace("-", "_")
        found = by_name.get(key) or (by_name.get(key[2:]) if key.startswith("no") else None)
        if found is None and len(key) == 1:
            near = [option for dest, option in by_name.items() if dest.startswith(key)]
            found = near[0] if near else None
        return found

    def unknown(self, given: _Given) -> Iterator[FlagProblem]:
        """Yield a flag that no parameter takes: Fire runs everything, then exits 2."""
        for problem in super().unknown(given):
            message = f"{problem.message}: Fire runs everything first and then exits with code 2"
            yield problem._replace(message=message)


def _refused(option: Option, value: str) -> str | None:
    """Return why a value is refused, or None."""
    if option.reading in (INT, FLOAT):
        try:
            number = int(value) if option.reading == INT else float(value)
        except ValueError:
            return "is no whole number" if option.reading == INT else "is no number"
        if option.choices and str(number) not in option.choices:
            return "is none of its choices"
        return None
    if option.reading == TRUTH and value.lower() not in _TRUTHS:
        return "is neither true nor false"
    if option.choices and value not in option.choices:
        return "is none of its choices"
    return None


def _whole(value: str) -> str | None:
    """Return a number such as `1e4` or `2.0` in the digits that int() reads, or None."""
    try:
        number = float(value)
    except ValueError:
        return None
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else None  # noqa: PLR2004


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
