"""Judges the words of a program of draccus or pyrallis: `--a.b VALUE`, `--a.type NAME`.

Source: argparsing.py, wrappers and decoding.py of draccus 0.10 and 0.11.6 and of pyrallis 0.3.1.
Each option takes one word, which is read as YAML. A group of which nothing is set keeps its
default; one of which anything is set is made anew, and needs all fields that have no default.
"""

# ruff: noqa: PLC0415 - yaml is imported only for a program that reads such values

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.argv import is_number
from safelaunch.analysis.option_model import STRAY_BLANK, OptionProblem
from safelaunch.analysis.options.parsers.draccus.value_types import is_accepted
from safelaunch.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.analysis.options.parsers.draccus.config_classes import (
        ConfigClasses,
        FieldDeclaration,
        FieldShape,
    )
    from safelaunch.analysis.options.parsers.draccus.value_types import ValueType
    from safelaunch.analysis.python.names import Definition
    from safelaunch.analysis.python.trees import SourceLine
    from safelaunch.model import Args

_TYPE, _PATH, _FILE, _PLUGINS = "type", "path", "config_path", "discover_packages_path"
_ENDS = frozenset({"-h", "--help", "--"})
_INCLUDE = "include"
_MAX_DEPTH = 8


class Dialect(NamedTuple):
    """How a program parses: `has_file`: its values may come from a file too."""

    name: str
    is_lerobot: bool = False
    allows_abbreviations: bool = False
    has_file: bool = False
    has_plugins: bool = False

    @property
    def is_draccus(self) -> bool:
        """Whether it is draccus, and not pyrallis."""
        return self.name == "draccus"


class _OptionWords(NamedTuple):
    """An option in the job's arguments, without its dashes, and the words after it."""

    name: str
    values: tuple[str, ...]


class _OptionTypes(NamedTuple):
    """An option: the types that its value may have, and the choices of a registry."""

    types: tuple[ValueType, ...]
    location: SourceLine
    choices: tuple[str, ...] = ()


class _Options:
    """The options that are known, by name, and the names below which any may be."""

    def __init__(self) -> None:
        self.leaves: dict[str, _OptionTypes] = {}
        self.open_names: set[str] = set()

    def add(self, name: str, leaf: _OptionTypes) -> None:
        """Add an option; of one that several choices have, each type counts."""
        earlier = self.leaves.get(name)
        types = leaf.types if earlier is None else (*earlier.types, *leaf.types)
        self.leaves[name] = leaf._replace(types=types)

    def is_open(self, name: str) -> bool:
        """Whether a name is below one that any option may follow."""
        return any(name == top or name.startswith(f"{top}.") for top in self.open_names)


class DraccusRules:
    """The rules by which a program of draccus or pyrallis refuses its arguments."""

    def __init__(
        self,
        classes: ConfigClasses,
        config: Definition,
        dialect: Dialect,
        location: SourceLine,
    ) -> None:
        self.classes = classes
        self.config = config
        self.dialect = dialect
        self.location = location

    def problems(self, args: Args) -> Iterator[OptionProblem]:
        """Yield what the program refuses."""
        words = [*args.words]
        is_plugin = self.dialect.is_lerobot and any(_PLUGINS in word for word in words)
        if is_plugin or any(word in _ENDS or word.startswith("-h") for word in words):
            return
        if self.dialect.allows_abbreviations and any("--help".startswith(w) for w in words if w):
            return
        paths = _path_fields(words) if self.dialect.is_lerobot else ()
        words = _without_fields(words, paths)
        leading, uses = _split(words)
        last = {use.name: use for use in uses}
        has_file = self.dialect.has_file or _FILE in last
        options = self._options(last)
        if leading:
            yield self._surplus(leading[0])
        for use in uses:
            # LeRobot reads values beside the file of a checkpoint as JSON
            is_read = last[use.name] is use and not (self.dialect.is_lerobot and _FILE in last)
            yield from self._use_problems(use, options, is_read=is_read)
        is_whole = has_file or any(name not in options.leaves for name in last)
        if not is_whole:
            yield from self._missing(self.config, "", last, paths, _MAX_DEPTH)

    def _surplus(self, word: str) -> OptionProblem:
        message = f"`{word}`: the script accepts no positional arguments"
        fix = f"remove `{word}`, or put its option in front of it" if word.strip() else STRAY_BLANK
        return OptionProblem(word, message, fix, self.location)

    def _use_problems(
        self, use: _OptionWords, options: _Options, *, is_read: bool
    ) -> Iterator[OptionProblem]:
        """Yield the problems of one option."""
        leaf = options.leaves.get(use.name)
        word = f"--{use.name}"
        if leaf is None:
            is_short = self.dialect.allows_abbreviations and any(
                name.startswith(use.name) for name in options.leaves
            )
            if not is_short and not options.is_open(use.name):
                message = f"the script has no option `{word}`"
                names = [f"--{name}" for name in options.leaves]
                fix = did_you_mean(word, names) or f"remove `{word}`"
                yield OptionProblem(word, message, fix, self.location)
            return
        if not use.values:
            message = f"`{word}` takes a value, got none"
            fix = f"give `{word}` a value, or remove it"
            yield OptionProblem(word, message, fix, leaf.location)
            return
        if len(use.values) > 1:
            yield self._surplus(use.values[1])
        if is_read:
            yield from self._value_problems(word, use.values[0], leaf)

    def _value_problems(self, word: str, text: str, leaf: _OptionTypes) -> Iterator[OptionProblem]:
        """Yield the problem of a value that is refused."""
        if leaf.choices and text not in leaf.choices:
            message = f"`{word} {text}` is not one of its choices"
            listed = ", ".join(f"`{choice}`" for choice in sorted(leaf.choices))
            fix = did_you_mean(text, leaf.choices) or f"one of {listed}"
            yield OptionProblem(word, message, fix, leaf.location)
        if not leaf.types:
            return
        import yaml

        value: object = text
        try:
            if text or not self.dialect.is_draccus:
                value = yaml.safe_load(text)
        except yaml.YAMLError as e:
            shown = getattr(e, "problem", None) or "it is not complete"
            message = f"`{word} {text}` is no YAML, as which {self.dialect.name} reads it: {shown}"
            fix = f"put quotes inside of the value: `{word} '\"{text}\"'`"
            if "!" not in text:  # a tag that draccus knows
                yield OptionProblem(word, message, fix, leaf.location)
            return
        except (ValueError, RecursionError):
            return  # such as the date 2024-13-40, which is refused too
        if not self._accepts(leaf.types, value):
            expected = leaf.types[0].expected
            message = f"`{word} {text}` is not accepted: {self.dialect.name} expects {expected}"
            if isinstance(value, bool) and text.lower() not in ("true", "false"):
                message += f", and reads `{text}` as {str(value).lower()}"
            yield OptionProblem(word, message, f"give it {expected}", leaf.location)

    def _accepts(self, types: Sequence[ValueType], value: object) -> bool:
        """Whether a value that YAML has read is accepted by one of several types."""
        if isinstance(value, str) and value.startswith(_INCLUDE) and self.dialect.is_draccus:
            return True  # the name of a file with the value
        return any(is_accepted(t, value, is_draccus=self.dialect.is_draccus) for t in types)

    def _options(self, uses: Mapping[str, _OptionWords]) -> _Options:
        """Return the options that the words may name."""
        options = _Options()
        options.add(_FILE, _OptionTypes((), self.location))
        self._add(options, self.config, "", uses, _MAX_DEPTH)
        return options

    def _add(
        self,
        options: _Options,
        definition: Definition,
        prefix: str,
        uses: Mapping[str, _OptionWords],
        depth: int,
    ) -> None:
        """Add the options of a dataclass."""
        for field in self.classes.fields(definition).values():
            name = f"{prefix}{field.name}"
            shape = self.classes.shape(field)
            is_group = bool(shape.classes or shape.registries)
            if shape.is_open or not depth:
                options.open_names.add(name)
            if not is_group:
                if shape.value is not None:
                    options.add(name, _OptionTypes((shape.value,), field.location))
                continue
            if self.dialect.is_draccus:
                options.add(name, _OptionTypes((), field.location))
            is_used = any(use.startswith(f"{name}.") for use in uses)
            if not depth or not (is_used or self.dialect.allows_abbreviations):
                continue
            for cls in shape.classes:
                self._add(options, cls, f"{name}.", uses, depth - 1)
            for registry in shape.registries:
                self._add_choices(options, registry, name, uses, depth)

    def _add_choices(
        self,
        options: _Options,
        registry: Definition,
        name: str,
        uses: Mapping[str, _OptionWords],
        depth: int,
    ) -> None:
        """Add `--name.type`, and the options of the choice that it selects, or else of all."""
        choices = self.classes.choices(registry)
        location = registry.module.location(registry.node)
        if choices is None or self.dialect.has_plugins:
            options.open_names.add(name)
        if choices is None:
            options.add(f"{name}.{_TYPE}", _OptionTypes((), location))
            return
        listed = () if self.dialect.has_plugins else tuple(choices)
        options.add(f"{name}.{_TYPE}", _OptionTypes((), location, listed))
        use = uses.get(f"{name}.{_TYPE}")
        selected = use.values[0] if use is not None and use.values else None
        if selected is not None and selected not in choices:
            options.open_names.add(name)
            return
        for choice in [selected] if selected is not None else choices:
            cls = self.classes.choice_class(registry, choice)
            if cls is None:
                options.open_names.add(name)
            else:
                self._add(options, cls, f"{name}.", uses, depth - 1)

    def _missing(
        self,
        definition: Definition,
        prefix: str,
        uses: Mapping[str, _OptionWords],
        paths: Sequence[str],
        depth: int,
    ) -> Iterator[OptionProblem]:
        """Yield the fields that have no default and that nothing sets."""
        for field in self.classes.fields(definition).values():
            name = f"{prefix}{field.name}"
            below = [use for use in uses if use.startswith(f"{name}.")]
            shape = self.classes.shape(field)
            if name in uses or name in paths or not depth:
                continue
            if below:
                yield from self._missing_below(field, name, uses, paths, depth)
            elif not field.has_default:
                yield self._missing_field(field, shape, name)

    def _missing_below(
        self,
        field: FieldDeclaration,
        name: str,
        uses: Mapping[str, _OptionWords],
        paths: Sequence[str],
        depth: int,
    ) -> Iterator[OptionProblem]:
        """Yield what a group lacks, of which something is set."""
        shape = self.classes.shape(field)
        if shape.is_open or shape.value is not None or len(shape.classes + shape.registries) > 1:
            return
        if shape.classes:
            yield from self._missing(shape.classes[0], f"{name}.", uses, paths, depth - 1)
            return
        if not shape.registries:
            return
        registry, option = shape.registries[0], f"{name}.{_TYPE}"
        choices = self.classes.choices(registry)
        if choices is None:
            return
        if option not in uses:
            if not self.classes.has_default_choice(registry):
                message = f"the script requires `--{option}` with the other options of `{name}`"
                listed = ", ".join(f"`{choice}`" for choice in sorted(choices))
                fix = f"add `--{option}` with one of {listed}"
                yield OptionProblem(f"--{option}", message, fix, field.location)
            return
        selected = uses[option].values[:1]
        if selected and selected[0] in choices:
            cls = self.classes.choice_class(registry, selected[0])
            if cls is not None:
                yield from self._missing(cls, f"{name}.", uses, paths, depth - 1)

    def _missing_field(
        self, field: FieldDeclaration, shape: FieldShape, name: str
    ) -> OptionProblem:
        """Return the problem of a field that nothing sets."""
        is_group = shape.classes or shape.registries or shape.is_open
        option = f"--{name}." if is_group else f"--{name}"
        message = f"the script requires `{option}`"
        fix = f"add `{option}` with its value"
        if is_group:
            option = f"--{name}"
            message = f"the script requires options of `{name}`"
            fix = f"add options below `--{name}.`"
        return OptionProblem(option, message, fix, field.location)


def _split(words: Sequence[str]) -> tuple[list[str], list[_OptionWords]]:
    """Return the words before the first option, and the options with their values."""
    leading: list[str] = []
    uses: list[_OptionWords] = []
    for word in words:
        is_option = len(word) > 1 and word[0] == "-" and not is_number(word)
        if is_option and " " in word and "=" not in word:
            is_option = False
        if is_option:
            name, equals, value = word.partition("=")
            uses.append(
                _OptionWords(name[2:] if name[:2] == "--" else name, (value,) if equals else ())
            )
        elif uses:
            uses[-1] = uses[-1]._replace(values=(*uses[-1].values, word))
        else:
            leading.append(word)
    return leading, uses


def _path_fields(words: Sequence[str]) -> tuple[str, ...]:
    """Return the fields of `--field.path PATH`, whose options go to a checkpoint's class."""
    suffix = f".{_PATH}"
    names = (word.partition("=")[0] for word in words if word.startswith("--"))
    return tuple(name[2:].removesuffix(suffix) for name in names if name.endswith(suffix))


def _without_fields(words: Sequence[str], fields: Sequence[str]) -> list[str]:
    """Return the words without the options below these fields, and without their values."""
    others: list[str] = []
    is_value = False
    for word in words:
        if any(word.startswith(f"--{field}.") for field in fields):
            is_value = "=" not in word
        elif not is_value or word.startswith("--"):
            is_value = False
            others.append(word)
        else:
            is_value = False
    return others
