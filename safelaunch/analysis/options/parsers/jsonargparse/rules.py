"""Checks dotted options, and the keys of the files that `--config` names.

Source: jsonargparse 4.28 and 4.53 with lightning 2.6: `--a.b VALUE`, `--a.b=VALUE`, `+` after the
name appends to a list, a unique beginning of a name is accepted.
"""

# ruff: noqa: PLC0415 - yaml is imported only for a program that reads such files

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.argv import is_number
from safelaunch.analysis.option_model import BOOL, FLOAT, INT, OptionProblem
from safelaunch.analysis.python.trees import SourceLine
from safelaunch.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import yaml

    from safelaunch.analysis.options.parsers.jsonargparse.signature import (
        CallSignature,
        TypedParameter,
    )
    from safelaunch.model import Args

_FILE_OPTIONS = frozenset({"--config", "-c"})
_MAX_BYTES = 1 << 20
_WORD = re.compile(r"[A-Za-z_]+")
_FRACTION = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|[-+]?\.\d+")
_TRUTH_WORDS = ("true", "false", "yes", "no", "on", "off", "y", "n")
_NULL_WORDS = ("null", "none")
_OTHER_NUMBERS = ("inf", "infinity", "nan")
_EXPECTED = {INT: "a whole number", FLOAT: "a number", BOOL: "`true` or `false`"}


class ConfigKeys(NamedTuple):
    """The dotted keys that a command accepts.

    Below a prefix in `open_prefixes` any key may be. `groups` are keys that take a mapping or a
    file of it; `linked` keys get their values from others. `positionals` are given by their place
    or in a file; None where their number is not certain.
    """

    keys: Mapping[str, TypedParameter]
    groups: frozenset[str] = frozenset()
    open_prefixes: frozenset[str] = frozenset()
    linked: frozenset[str] = frozenset()
    checks_required: bool = True
    positionals: tuple[TypedParameter, ...] | None = ()
    file_options: frozenset[str] = _FILE_OPTIONS

    def option_keys(self) -> dict[str, str]:
        """Return {option with its dashes: its key} of those with spellings of their own."""
        return {name: key for key, p in self.keys.items() for name in p.spellings}

    def parent(self, name: str) -> str | None:
        """Return the longest key or open prefix that a name is below."""
        while "." in name:
            name = name.rpartition(".")[0]
            if name in self.keys or name in self.open_prefixes:
                return name
        return None


def group_keys(prefix: str, signature: CallSignature) -> dict[str, TypedParameter]:
    """Return the keys of a callable's parameters below a prefix."""
    return {f"{prefix}.{p.name}" if prefix else p.name: p for p in signature.parameters}


class _FileKey(NamedTuple):
    """A key of a file, and its value as written where it is a plain word."""

    name: str
    value: str | None
    location: SourceLine


class _KeyUse(NamedTuple):
    """An option in the job's arguments: its key, and the words after it."""

    name: str
    values: tuple[str, ...]


class DottedOptionRules:
    """The rules by which a program of jsonargparse refuses its arguments.

    `commands`: the keys of each subcommand; a program without has those of "". `top`: what may
    stand before the subcommand, if that is more than `--config`.
    """

    def __init__(
        self,
        commands: Mapping[str, ConfigKeys],
        location: SourceLine,
        working_dir: str | None,
        top: ConfigKeys | None = None,
    ) -> None:
        self.commands = commands
        self.location = location
        self.working_dir = working_dir
        self.top = top

    def problems(self, args: Args) -> Iterator[OptionProblem]:
        """Yield what the program refuses."""
        words = args.words
        if any(_ends_early(word) for word in words):
            return
        if "" in self.commands:
            yield from self.command_problems(self.commands[""], words, has_file=False)
            return
        if self.top is not None:
            yield from self.nested_problems(self.top, words)
            return
        index, has_file = 0, False
        while index < len(words) and _is_option(words[index]):
            name, equals, _ = words[index].partition("=")
            if name.startswith("-c"):
                index += 1 if equals or len(name) > len("-c") else 2
            elif "--config".startswith(name):
                index += 1 if equals else 2
            else:
                yield self.misplaced(name)
                return
            has_file = True
        yield from self.subcommand_problems(words[index:], has_file=has_file)

    def nested_problems(self, top: ConfigKeys, words: Sequence[str]) -> Iterator[OptionProblem]:
        """Yield the problems of options, then a subcommand with its own."""
        index, has_file = 0, False
        places = len(top.positionals or ())
        while index < len(words) and (places or _is_option(words[index])):
            if _is_option(words[index]):
                name, equals, _ = words[index].partition("=")
                has_file |= any(option.startswith(name) for option in top.file_options)
                follows = index + 1 < len(words) and not _is_option(words[index + 1])
                index += 2 if follows and not equals else 1
            else:
                places -= 1
                index += 1
        if self.has_dashed_text(top, words[:index]):
            return
        problems = [*self.command_problems(top, words[:index], has_file=False)]
        yield from problems
        if not problems:
            yield from self.subcommand_problems(words[index:], has_file=has_file)

    def subcommand_problems(
        self, words: Sequence[str], *, has_file: bool
    ) -> Iterator[OptionProblem]:
        """Yield the problems of a subcommand and the words after it."""
        choice = ", ".join(f"`{command}`" for command in self.commands)
        if not words:
            if not has_file:  # a file may name the subcommand
                message = f"a subcommand is missing: one of {choice}"
                fix = f"put one of {choice} {'first' if self.top is None else 'last'}"
                yield OptionProblem("subcommand", message, fix, self.location)
            return
        keys = self.commands.get(words[0])
        if keys is None:
            fix = did_you_mean(words[0], list(self.commands)) or f"one of {choice}"
            message = f"there is no subcommand `{words[0]}`"
            yield OptionProblem(words[0], message, fix, self.location)
            return
        yield from self.command_problems(keys, words[1:], has_file=has_file)

    def misplaced(self, name: str) -> OptionProblem:
        """Return the problem of an option that stands before the subcommand."""
        message = f"`{name}` is not accepted before the subcommand"
        fix = "put the subcommand first"
        return OptionProblem(name, message, fix, self.location)

    def command_problems(
        self, keys: ConfigKeys, words: Sequence[str], *, has_file: bool
    ) -> Iterator[OptionProblem]:
        """Yield the problems of the arguments of one command."""
        if self.has_dashed_text(keys, words):
            return
        leading, uses = _split(words)
        places: list[str] = []
        if keys.positionals != ():
            places = [*leading, *(value for use in uses for value in use.values[1:])]
            uses = [use._replace(values=use.values[:1]) for use in uses]
        elif leading:
            message = f"`{leading[0]}`: the program accepts no positional arguments here"
            fix = f"remove `{leading[0]}`, or put its option in front of it"
            yield OptionProblem(leading[0], message, fix, self.location)
        option_keys = keys.option_keys()
        names: set[str] = set()
        is_refused = False
        is_complete = not has_file
        for use in uses:
            name = use.name
            if name in keys.file_options:
                file_keys = self.read(use.values[0]) if use.values else None
                is_complete &= file_keys is not None
                for key in file_keys or ():
                    names.add(key.name)
                    yield from self.file_problems(keys, key)
            elif name in option_keys or name.startswith("--"):
                names.add(option_keys.get(name, name[2:].removesuffix("+").replace("-", "_")))
                is_complete &= name in option_keys or not any(
                    option.startswith(name) for option in keys.file_options
                )
            else:
                is_complete = False
            problems = [*self.use_problems(keys, use)]
            is_refused |= bool(problems)
            yield from problems
        if keys.positionals and not is_refused:
            file_names = names if is_complete else None
            yield from self.place_problems(keys.positionals, places, file_names)
        if is_complete and keys.checks_required:
            yield from self.missing(keys, names)

    def place_problems(
        self,
        positionals: tuple[TypedParameter, ...],
        words: Sequence[str],
        file_names: set[str] | None,
    ) -> Iterator[OptionProblem]:
        """Yield the problems of positional arguments; `file_names` is None if a file is unread."""
        for parameter, word in zip(positionals, words, strict=False):
            yield from self.value_problems(parameter.name, parameter, word, None)
        for parameter in positionals[len(words) :]:
            if file_names is not None and parameter.name not in file_names:
                message = f"the program requires the positional argument `{parameter.name}`"
                fix = f"add the value of `{parameter.name}`, without an option in front of it"
                yield OptionProblem(parameter.name, message, fix, parameter.location)
        for word in words[len(positionals) :][:1]:
            names = ", ".join(f"`{parameter.name}`" for parameter in positionals)
            message = f"`{word}`: the program accepts no positional arguments after {names}"
            fix = f"remove `{word}`, or put its option in front of it"
            yield OptionProblem(word, message, fix, self.location)

    def has_dashed_text(self, keys: ConfigKeys, words: Sequence[str]) -> bool:
        """Whether a word with dashes and a space may be a positional argument."""
        return keys.positionals != () and any(
            word.startswith("-")
            and " " in word
            and self.is_unknown(keys, word[2:].partition("=")[0].removesuffix("+"))
            for word in words
        )

    def use_problems(self, keys: ConfigKeys, use: _KeyUse) -> Iterator[OptionProblem]:
        """Yield the problems of one option."""
        option_keys = keys.option_keys()
        name = use.name[2:].removesuffix("+")
        if use.name in keys.file_options or name in keys.groups:
            yield from self.count_problems(use)
            return
        parameter = keys.keys.get(option_keys.get(use.name, name))
        if parameter is not None:
            yield from self.parameter_problems(keys, use, parameter)
        elif not use.name.startswith("--"):
            # `-b3`, and several switches in one word
            is_short = use.name.startswith("-c") or any(
                len(each) == len("-x") for each in option_keys
            )
            if not is_short:
                yield self.unknown(keys, use.name, self.location)
        elif name in keys.open_prefixes or not self.is_unknown(keys, name):
            return
        else:
            yield self.unknown(keys, use.name.removesuffix("+"), self.location)

    def parameter_problems(
        self, keys: ConfigKeys, use: _KeyUse, parameter: TypedParameter
    ) -> Iterator[OptionProblem]:
        """Yield the problems of an option that sets a parameter."""
        spellings = parameter.spellings
        if spellings and not any(spelling.startswith(use.name) for spelling in spellings):
            message = f"the program has no option `{use.name}`"
            fix = f"write `{max(spellings, key=len)}`"
            yield OptionProblem(use.name, message, fix, self.location)
            return
        if keys.positionals is not None or parameter.min_values == parameter.max_values == 1:
            yield from self.count_problems(use, parameter)
        if not use.name.endswith("+"):
            for value in use.values[:1] if parameter.max_values == 1 else use.values:
                yield from self.value_problems(use.name, parameter, value, None)

    def is_unknown(self, keys: ConfigKeys, name: str) -> bool:
        """Whether no key has this name, also not in full or above it."""
        every = (*keys.keys, *keys.groups, *keys.open_prefixes, "config", "print_config", "help")
        every += tuple(name.lstrip("-") for name in (*keys.option_keys(), *keys.file_options))
        if any(key.startswith(name) for key in every):
            return False  # abbreviated
        parent = keys.parent(name)
        if parent is None:
            return True
        return parent in keys.keys and bool(keys.keys[parent].value_type)

    def unknown(self, keys: ConfigKeys, word: str, place: SourceLine) -> OptionProblem:
        """Return the problem of an option or key that the program does not have."""
        dashes = "--" if word.startswith("-") else ""
        name = word.lstrip("-")
        if dashes and any(parameter.name == name for parameter in keys.positionals or ()):
            message = f"the program takes `{name}` as a positional argument, not as `{word}`"
            return OptionProblem(word, message, f"remove `{word}`, keep its value", place)
        names = [key for key, p in keys.keys.items() if not (dashes and p.spellings)]
        names += [*keys.groups, *keys.open_prefixes]
        names += [n[2:] for n in (keys.option_keys() if dashes else ()) if n.startswith("--")]
        ends = [key for key in names if key.rpartition(".")[2] == name.replace("-", "_")]
        near = did_you_mean(name, names)
        if len(ends) == 1:
            near = f"write `{dashes}{ends[0]}`"
        elif near and dashes:
            near = near.replace("`", f"`{dashes}", 1)
        kind = "option" if dashes else "key"
        return OptionProblem(
            word, f"the program has no {kind} `{word}`", near or f"remove `{word}`", place
        )

    def count_problems(
        self, use: _KeyUse, parameter: TypedParameter | None = None
    ) -> Iterator[OptionProblem]:
        """Yield too few values, or too many."""
        least, most = (1, 1) if parameter is None else (parameter.min_values, parameter.max_values)
        count = len(use.values)
        if (least, most) != (1, 1):
            if least is not None and (count < least or (most is not None and count > most)):
                number = "no value" if most == 0 else f"{least} to {most or 'any number of'} values"
                number = f"{least} values" if least == most and most else number
                message = f"`{use.name}` takes {number}, got {count}"
                fix = f"give `{use.name}` {number}"
                yield OptionProblem(use.name, message, fix, self.location)
        elif not use.values:
            message = f"`{use.name}` takes a value, got none"
            yield OptionProblem(use.name, message, f"give `{use.name}` a value", self.location)
        elif len(use.values) > 1:
            message = f"`{use.name}` takes one value, got {len(use.values)}"
            fix = f"remove `{use.values[1]}`, or write a list as `[a,b]`"
            yield OptionProblem(use.name, message, fix, self.location)

    def value_problems(
        self, name: str, parameter: TypedParameter, value: str, place: SourceLine | None
    ) -> Iterator[OptionProblem]:
        """Yield a value that is of no use for a plain type."""
        if parameter.choices and value not in parameter.choices:
            choices = ", ".join(f"`{choice}`" for choice in parameter.choices)
            message = f"`{name}` takes one of {choices}, got `{value}`"
            fix = did_you_mean(value, parameter.choices) or f"give it one of {choices}"
            yield OptionProblem(name, message, fix, place or parameter.location)
            return
        word = value.lower()
        is_word = _WORD.fullmatch(value) is not None and word not in _NULL_WORDS
        is_decimal = _FRACTION.fullmatch(value) is not None
        kind = parameter.value_type
        if kind == INT:
            is_wrong = is_word or (is_decimal and not value.lstrip("+-").isdigit())
        elif kind == FLOAT:
            is_wrong = is_word and word not in _OTHER_NUMBERS
        else:
            is_wrong = kind == BOOL and (is_decimal or (is_word and word not in _TRUTH_WORDS))
        if is_wrong:
            expected = _EXPECTED[kind]
            message = f"`{name}` takes {expected}, got `{value}`"
            yield OptionProblem(name, message, f"give it {expected}", place or parameter.location)

    def missing(self, keys: ConfigKeys, names: set[str]) -> Iterator[OptionProblem]:
        """Yield the parameters without a default that nothing sets."""
        abbreviated = [n for n in names if n not in keys.keys]
        for name, parameter in keys.keys.items():
            is_set = parameter.has_default or name in names or name in keys.linked
            is_set |= parameter.accepts_none  # Optional[...] without a default is None
            is_set |= any(name.startswith(n) for n in abbreviated)
            if not is_set and parameter.value_type and not parameter.name.startswith("_"):
                option = max(parameter.spellings, key=len, default=f"--{name}")
                message = f"the program requires `{option}`"
                fix = f"add `{option}` with its value"
                yield OptionProblem(option, message, fix, parameter.location)

    def file_problems(self, keys: ConfigKeys, key: _FileKey) -> Iterator[OptionProblem]:
        """Yield the problems of a key of a file."""
        name = key.name
        if name in keys.groups or name in keys.open_prefixes or name == "config":
            return
        places = {parameter.name: parameter for parameter in keys.positionals or ()}
        parameter = keys.keys.get(name) or places.get(name)
        if parameter is not None:
            if key.value is not None:
                yield from self.value_problems(name, parameter, key.value, key.location)
        elif keys.parent(name) is None and not name.startswith("__"):
            yield self.unknown(keys, name, key.location)

    def read(self, path: str) -> list[_FileKey] | None:
        """Return the keys of a file that an option names; None where it cannot be read."""
        if self.working_dir is None and not os.path.isabs(path):
            return None
        return _read(os.path.join(self.working_dir or "", path))


def _read(path: str) -> list[_FileKey] | None:
    """Return the keys of two levels of a YAML or JSON file; None where it is not understood."""
    import yaml

    try:
        with open(path, "rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            return None
        loader = yaml.SafeLoader(data)
        try:
            node = loader.get_single_node()
            return None if node is None else list(_file_keys(loader, node, path))
        finally:
            loader.dispose()
    # a parser for whatever a file may contain
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return None


def _file_keys(loader: yaml.SafeLoader, node: yaml.Node, path: str) -> Iterator[_FileKey]:
    import yaml

    pending = [("", node)]
    while pending:
        prefix, mapping = pending.pop()
        if not isinstance(mapping, yaml.MappingNode):
            raise ValueError(path)  # noqa: TRY004 - as for other files that are not understood
        loader.flatten_mapping(mapping)  # `<<: *defaults`
        pairs = [(key.value, key, value) for key, value in mapping.value]
        if any(not isinstance(key, yaml.ScalarNode) for _, key, _ in pairs):
            raise ValueError(path)
        if prefix and any(name == "class_path" for name, _, _ in pairs):
            raise ValueError(path)  # its keys are those of a class that the file names
        for name, key, value in pairs:
            dotted = f"{prefix}{name.removesuffix('+')}"
            is_plain = isinstance(value, yaml.ScalarNode) and value.style is None
            place = SourceLine(path, key.start_mark.line + 1)
            yield _FileKey(dotted, value.value if is_plain else None, place)
            if not prefix and isinstance(value, yaml.MappingNode):
                pending.append((f"{dotted}.", value))


def _split(words: Sequence[str]) -> tuple[list[str], list[_KeyUse]]:
    """Return the words before any option, and the options with the words after each."""
    leading: list[str] = []
    uses: list[_KeyUse] = []
    for word in words:
        if _is_option(word):
            name, equals, value = word.partition("=")
            uses.append(_KeyUse(name, (value,) if equals else ()))
        elif uses:
            uses[-1] = uses[-1]._replace(values=(*uses[-1].values, word))
        else:
            leading.append(word)
    return leading, uses


def _is_option(word: str) -> bool:
    """Whether argparse reads a word as an option."""
    is_dashed = len(word) > 1 and word.startswith("-") and not is_number(word)
    return is_dashed and " " not in word.partition("=")[0]


def _ends_early(word: str) -> bool:
    """Whether the program prints something and ends, or no word after this one is an option."""
    name = word.partition("=")[0]
    if name in ("-h", "--") or name.endswith((".help", ".print_config")):
        return True
    is_long = len(name) > len("--")
    return is_long and ("--help".startswith(name) or "--print_config".startswith(name))
