"""Checks a job's arguments against the options that its script accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis import option_model
from safelaunch.analysis.argv import is_number
from safelaunch.analysis.option_model import (
    BOOL,
    DICT,
    FLOAT,
    INT,
    TRUTH_WORD,
    Option,
    OptionProblem,
    ScriptOptions,
)
from safelaunch.analysis.options.hf_renamed import replacement
from safelaunch.analysis.python.trees import Unclear
from safelaunch.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.model import Args

__all__ = ["OptionProblem", "option_problems"]

# transformers/hf_argparser.py, string_to_bool
_TRUTH_WORDS = frozenset({"yes", "true", "t", "y", "1", "no", "false", "f", "n", "0"})
# Words that end the program early, or after which no word is an option.
_LAST_WORDS = frozenset({"-h", "--help", "--version", "--"})
_FALSE = frozenset({"false", "no", "off", "0", "none", "f", "n"})


class _OptionUse(NamedTuple):
    """An option in the job's arguments: the word, and the values after it."""

    word: str
    option: Option | None
    values: tuple[str, ...]
    is_joined: bool = False  # --key=value


def option_problems(script_options: ScriptOptions, args: Args) -> Iterator[OptionProblem]:
    """Yield arguments that the script will refuse or misread; none if options are incomplete.

    Raise Unclear where a parser with rules of its own cannot judge them.
    """
    words = args.words
    if script_options.rules is not None:
        yield from script_options.rules.problems(args)
        return
    if script_options.commands:
        command = script_options.commands.get(words[0]) if words else None
        if command is None and script_options.kind == option_model.CLICK:
            raise Unclear("the command is not read", script_options.location)
        script_options, words = command or script_options, words[1:]
    if script_options.is_incomplete or script_options.commands or not script_options.options:
        return
    is_file = len(words) == 1 and words[0].endswith((".json", ".yaml", ".yml"))
    if is_file and script_options.kind == option_model.HF:
        return  # HfArgumentParser reads all options from this file
    names = script_options.names()
    # a program may have an option of its own by such a name, as LLaVA's `--version v1`
    ends = {word for word in _LAST_WORDS if word not in names or names[word].is_switch}
    if any(word in ends or word.startswith("@") or word.endswith("=--") for word in words):
        return
    is_help = (len(word) > len("--h") and "--help".startswith(word) for word in words)
    if script_options.allows_abbreviations and any(is_help):
        return
    checker = _CHECKERS.get(script_options.kind, _OptionChecker)
    yield from checker(script_options, args).problems(words)


def named_options(script_options: ScriptOptions, args: Args) -> set[str]:
    """Return the options that arguments set, by their dest."""
    _, uses = _OptionChecker(script_options, args).split(args.words)
    return {use.option.dest for use in uses if use.option is not None}


class _OptionChecker:
    """argparse, HfArgumentParser and click: options with a number of values each."""

    def __init__(self, script_options: ScriptOptions, args: Args) -> None:
        self.script_options = script_options
        self.args = args
        self.names = script_options.names()

    def problems(self, words: Sequence[str]) -> Iterator[OptionProblem]:
        """Yield the problems of the arguments."""
        leading, uses = self.split(words)
        yield from self.check_leading(leading)
        for use in uses:
            yield from self.check(use)
        yield from self.missing_options(uses, has_leading=bool(leading))

    def split(self, words: Sequence[str]) -> tuple[list[str], list[_OptionUse]]:
        """Return the words before the first option, and the options with their values."""
        leading: list[str] = []
        uses: list[_OptionUse] = []
        for word in words:
            if not self.is_option(word, uses):
                if uses:
                    uses[-1] = uses[-1]._replace(values=(*uses[-1].values, word))
                else:
                    leading.append(word)
                continue
            name, equals, value = word.partition("=")
            option = self.names.get(word) or self.find(name)
            is_joined = bool(equals) and word not in self.names
            uses.append(_OptionUse(name, option, (value,) if is_joined else (), is_joined))
        return leading, uses

    def is_option(self, word: str, uses: list[_OptionUse]) -> bool:
        """Whether a word is an option, and not a value such as -1."""
        if len(word) < 2 or word[0] != "-":  # noqa: PLR2004 - a dash and a letter
            return False
        if " " in word and self.find(word.partition("=")[0]) is None:
            return False
        del uses
        return not is_number(word)

    def find(self, name: str) -> Option | None:
        """Return the option of a name, also if abbreviated or joined with its value."""
        if name in self.names:
            return self.names[name]
        if not name.startswith("--"):
            return self.names.get(name[:2])  # -xVALUE, or several letters in one word
        if self.script_options.allows_abbreviations:
            matches = {id(o): o for spelling, o in self.names.items() if spelling.startswith(name)}
            if len(matches) == 1:
                return next(iter(matches.values()))
        return None

    def check_leading(self, leading: list[str]) -> Iterator[OptionProblem]:
        """Yield a positional argument if the script accepts none."""
        if leading and not self.script_options.positionals:
            message = f"`{leading[0]}`: the script accepts no positional arguments"
            fix = f"remove `{leading[0]}`, or put its option in front of it"
            yield OptionProblem(leading[0], message, fix, self.script_options.location)

    def check(self, use: _OptionUse) -> Iterator[OptionProblem]:
        """Yield the problems of one option."""
        option = use.option
        if option is None:
            yield from self.unknown_option(use)
        elif use.word not in self.names and not use.word.startswith("--"):
            return  # combined short options: their values cannot be separated here
        elif option.is_switch:
            yield from self.check_switch(use, option)
        elif option.min_values is not None:
            yield from self.check_values(use, option)

    def unknown_option(self, use: _OptionUse) -> Iterator[OptionProblem]:
        """Yield the problem of an option that the script does not have."""
        matches = [spelling for spelling in self.names if spelling.startswith(use.word)]
        if matches and self.script_options.allows_abbreviations and use.word.startswith("--"):
            choice = " or ".join(f"`{name}`" for name in sorted(matches))
            message, fix = f"`{use.word}` is ambiguous: {choice}", "write the option in full"
        else:
            long_names = [name for name in self.names if name.startswith("--")]
            message = f"the script has no option `{use.word}`"
            if self.script_options.ignores_unknown:
                message += " and ignores it"
            is_hf = self.script_options.kind == option_model.HF
            new = replacement(use.word, self.names) if is_hf else None
            near = did_you_mean(use.word, long_names or self.names)
            fix = new or near or f"remove `{use.word}`"
        yield OptionProblem(use.word, message, fix, self.script_options.location)

    def check_switch(self, use: _OptionUse, option: Option) -> Iterator[OptionProblem]:
        """Yield the problem of a switch with a value."""
        if not use.values or (self.script_options.positionals and not use.is_joined):
            return
        message = f"`{use.word}` takes no value, got `{use.values[0]}`"
        if use.values[0].lower() in _FALSE:
            fix = f"remove `{use.word}`"
        elif self.args.is_mapping:
            fix = f"write `{use.word.lstrip('-')}: true`"
        else:
            fix = f"write `{use.word}` without a value"
        yield OptionProblem(use.word, message, fix, option.location)

    def check_values(self, use: _OptionUse, option: Option) -> Iterator[OptionProblem]:
        """Yield too few or too many values, and values that will be refused or misread."""
        count, min_values = len(use.values), option.min_values or 0
        if count < min_values:
            expected = "a value" if min_values == 1 else f"{min_values} values"
            message = f"`{use.word}` takes {expected}, got {count or 'none'}"
            fix = f"give `{use.word}` {expected}, or remove it"
            if option.value_type == TRUTH_WORD:
                key = use.word.lstrip("-")
                fix = f"write `{use.word} true`"
                fix = (
                    f'write `{key}: "true"`, which passes the word' if self.args.is_mapping else fix
                )
            yield OptionProblem(use.word, message, fix, option.location)
            return
        values = use.values if option.max_values is None else use.values[: option.max_values]
        if count > len(values) and not self.script_options.positionals:
            message = f"`{use.word}` takes {option.max_values or 'no'} value, got {count}"
            if option.max_values and option.max_values > 1:
                message = message.replace("value", "values")
            surplus = use.values[len(values)]
            fix = f"remove `{surplus}`" if surplus.strip() else option_model.STRAY_BLANK
            yield OptionProblem(use.word, message, fix, option.location)
        for value in values:
            yield from self.check_value(use, option, value)

    def check_value(self, use: _OptionUse, option: Option, value: str) -> Iterator[OptionProblem]:
        """Yield the problem of a value that the script will refuse or misread."""
        problem = refusal(option, value)
        if problem is None and option.value_type == BOOL and value.lower() in _FALSE:
            problem = "is read as true: argparse's `type=bool` reads any text as true"
        if problem is not None:
            fix = self.suggest_value(use, option, value)
            yield OptionProblem(use.word, f"`{use.word} {value}` {problem}", fix, option.location)

    def suggest_value(self, use: _OptionUse, option: Option, value: str) -> str:
        """Return what to write instead of a wrong value."""
        if option.value_type == BOOL and value:
            if not option.default_is_true:
                return f"remove `{use.word}`"
            key = use.word.lstrip("-")
            return f'write `{key}: ""`' if self.args.is_mapping else f"write `{use.word}=`"
        if option.choices:
            hint = did_you_mean(value, option.choices)
            return hint or "one of " + ", ".join(f"`{choice}`" for choice in option.choices)
        expected = {INT: "a whole number", FLOAT: "a number", TRUTH_WORD: "`true` or `false`"}
        whole = whole_number(value) if option.value_type == INT else None
        if whole:
            return f"write {whole}"
        return f"give it {expected.get(option.value_type, 'another value')}"

    def missing_options(
        self, uses: list[_OptionUse], *, has_leading: bool
    ) -> Iterator[OptionProblem]:
        """Yield the options that the script requires and the job does not set."""
        dests = {use.option.dest for use in uses if use.option is not None}
        if any(use.word not in self.names and not use.word.startswith("--") for use in uses):
            return  # combined short options may contain a required one
        for option in self.script_options.options:
            if option.names and option.required and option.dest not in dests:
                yield self.missing_option(option)
        words = has_leading or any(use.values for use in uses)
        required = [o for o in self.script_options.positionals if o.required]
        if required and not words:
            message = f"the script requires the positional argument `{required[0].dest}`"
            fix = "put it before the options, in the list form of `args:`"
            yield OptionProblem(required[0].dest, message, fix, required[0].location)

    def missing_option(self, option: Option) -> OptionProblem:
        """Return the problem of a required option that the job does not set."""
        name = option.display_name
        key = name.lstrip("-") + ":" if self.args.is_mapping else name
        message = f"the script requires `{name}`"
        return OptionProblem(name, message, f"add `{key}` with its value", option.location)


class _FireChecker(_OptionChecker):
    """Fire: a parameter by name, with or without a value, or by position."""

    def problems(self, words: Sequence[str]) -> Iterator[OptionProblem]:
        """Yield the problems of the arguments."""
        if "--" in words or "-" in words:
            return  # Fire's own flags, or a chain of commands
        leading, uses = self.split(words)
        for use in uses:
            if use.option is None:
                yield from self.unknown_option(use)
        positional_count = len(leading) + sum(max(len(use.values) - 1, 0) for use in uses)
        dests = {use.option.dest for use in uses if use.option is not None}
        unset = [o for o in self.script_options.options if o.names and o.dest not in dests]
        for option in unset[positional_count:]:
            if option.required:
                yield self.missing_option(option)

    def is_option(self, word: str, uses: list[_OptionUse]) -> bool:
        """Whether Fire reads a word as a flag."""
        del uses
        return word.startswith("--") or (len(word) > 1 and word[0] == "-" and word[1].isalpha())

    def find(self, name: str) -> Option | None:
        """Return the parameter of a flag."""
        by_name = {option.dest: option for option in self.script_options.options if option.names}
        key = name.lstrip("-").replace("-", "_")
        option = by_name.get(key) or (by_name.get(key[2:]) if key.startswith("no") else None)
        if option is None and len(key) == 1:
            matches = [option for dest, option in by_name.items() if dest.startswith(key)]
            option = matches[0] if matches else None
        return option

    def unknown_option(self, use: _OptionUse) -> Iterator[OptionProblem]:
        """Yield a flag without a parameter: Fire runs the function, then exits with code 2."""
        for problem in super().unknown_option(use):
            message = f"{problem.message}: Fire runs everything first and then exits with code 2"
            yield problem._replace(message=message)


class _LastUseChecker(_OptionChecker):
    """A parser that converts only the last value of an option that is repeated."""

    def split(self, words: Sequence[str]) -> tuple[list[str], list[_OptionUse]]:
        """Return the options with their values, of a repeated one only the last use."""
        leading, uses = super().split(words)
        last = {use.option.dest: use for use in uses if use.option is not None}
        return leading, [u for u in uses if u.option is None or last[u.option.dest] is u]


class _ClickChecker(_LastUseChecker):
    """click and typer: an option takes its values whatever they look like."""

    def problems(self, words: Sequence[str]) -> Iterator[OptionProblem]:
        """Yield the problems of the arguments; none where a number of values is not known."""
        uses = super().split(words)[1]
        if all(use.option is None or use.option.min_values is not None for use in uses):
            yield from super().problems(words)

    def is_option(self, word: str, uses: list[_OptionUse]) -> bool:
        """Whether a word is an option, and not a value of the one before."""
        last = uses[-1] if uses else None
        if last is not None and last.option is not None and word.startswith("-"):
            return len(last.values) >= (last.option.min_values or 0) and not is_number(word)
        return super().is_option(word, uses)


class _TyroChecker(_LastUseChecker):
    """tyro: dashes equal underscores, and only words with two dashes are judged."""

    def is_option(self, word: str, uses: list[_OptionUse]) -> bool:
        """Whether a word is an option."""
        del uses
        return word.startswith("--")

    def find(self, name: str) -> Option | None:
        """Return the option of a name in either spelling."""
        return self.names.get(name.replace("_", "-"))


_CHECKERS = {
    option_model.FIRE: _FireChecker,
    option_model.CLICK: _ClickChecker,
    option_model.TYRO: _TyroChecker,
}


def refusal(option: Option, value: str) -> str | None:  # noqa: PLR0911 - one for each reason
    """Return why a value is refused, or None."""
    if option.accepts_none and value.lower() in ("none", "null"):
        return None
    if option.value_type == DICT and value:
        return "is text, and argparse makes no mapping of it"
    if option.value_type in (INT, FLOAT):
        try:
            number = int(value) if option.value_type == INT else float(value)
        except ValueError:
            return "is not a whole number" if option.value_type == INT else "is not a number"
        if option.choices and str(number) not in option.choices:
            return "is not one of its choices"
        return None
    if option.value_type == TRUTH_WORD and value.lower() not in _TRUTH_WORDS:
        return "is neither true nor false"
    if option.choices and value not in option.choices:
        return "is not one of its choices"
    return None


def whole_number(value: str) -> str | None:
    """Return a number such as `1e4` or `2.0` as digits that int() accepts, or None."""
    try:
        number = float(value)
    except ValueError:
        return None
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else None  # noqa: PLR2004
