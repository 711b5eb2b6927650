"""Checks a job's arguments together with the settings files that its program reads its fields from.

`--config FILE` of TRL's TrlParser, `program FILE` of HfArgumentParser, `FILE key=value` of
LLaMA-Factory, `FILE --option` of ms-swift.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from safelaunch.analysis.option_model import DICT, FLOAT, HF, INT, OPTIONS, TRUTH_WORD
from safelaunch.analysis.options.hf_renamed import replacement
from safelaunch.analysis.options.settings_text import SettingsEntry, read_entries
from safelaunch.analysis.options.unknown_options import (
    OptionProblem,
    named_options,
    option_problems,
    refusal,
    whole_number,
)
from safelaunch.errors import did_you_mean
from safelaunch.model import Args

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from safelaunch.analysis.option_model import Option, ScriptOptions, SettingsFile

    FileReader = Callable[[str], bytes | None]  # a file of the job; None: it cannot be read

_TRUE = ("true", "yes", "on", "1")
_EXPECTED = {
    INT: "a whole number",
    FLOAT: "a number",
    TRUTH_WORD: "true or false",
    DICT: "a mapping",
}


def problems(accepted: ScriptOptions, args: Args, read: FileReader) -> Iterator[OptionProblem]:
    """Yield the wrong arguments of a job, and the wrong entries of the files that they name."""
    if accepted.is_incomplete or accepted.kind != HF:
        yield from option_problems(accepted, args)
        return
    first, rest = (args.words[0] if args.words else ""), args.words[1:]
    for settings in accepted.settings:
        if settings.option and settings.option in args.words:
            yield from _with_file(accepted, settings, args, read)
            return
        if (
            settings.suffixes
            and first.endswith(settings.suffixes)
            and not (rest and not settings.rest)
        ):
            entries = _entries(first, read)
            if settings.rest == OPTIONS:
                yield from _with_first(accepted, settings, args, entries)
            elif entries is not None:
                merged = {entry.key: entry for entry in (*entries, *_overrides(rest))}
                yield from _alone(accepted, settings, first, tuple(merged.values()))
            return
    for problem in option_problems(accepted, args):
        yield problem._replace(fix=_option_of_file(accepted, problem.option, args) or problem.fix)


def _option_of_file(accepted: ScriptOptions, word: str, args: Args) -> str | None:
    """Return how to name a settings file that is passed in another form than its option's."""
    options = [settings.option for settings in accepted.settings if settings.option]
    if not options:
        return None
    files = [w for w in args.words if w == word and w.endswith((".yaml", ".yml"))]
    # TrlParser looks for the word `--config` itself
    files += [
        w[len(word) + 1 :] for w in args.words if w.startswith(f"{word}=") and word in options
    ]
    return f"write `{options[0]} {files[0]}`" if files else None


def _alone(
    accepted: ScriptOptions,
    settings: SettingsFile,
    path: str,
    entries: tuple[SettingsEntry, ...],
) -> Iterator[OptionProblem]:
    """Yield the problems of a file that sets all fields."""
    yield from _file_problems(accepted, settings, path, entries)
    yield from _missing_fields(accepted, path, entries)


def _overrides(words: Sequence[str]) -> Iterator[SettingsEntry]:
    """Yield the `key=value` words after a file; line 0."""
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key.isidentifier():
            (entry,) = read_entries("x.yaml", f"{key}: {value}".encode()) or (None,)
            if entry is not None:
                yield entry._replace(line=0)


def _with_first(
    accepted: ScriptOptions,
    settings: SettingsFile,
    args: Args,
    entries: tuple[SettingsEntry, ...] | None,
) -> Iterator[OptionProblem]:
    """Yield the problems of a file whose entries become options before the others."""
    names = accepted.names()
    dests = {names[name].dest for e in entries or () if (name := f"--{e.key}") in names}
    words = Args(args.options, args.words[1:], is_mapping=args.is_mapping)
    yield from option_problems(_without_required(accepted, dests, is_open=entries is None), words)
    options = _without_required(accepted, (), is_open=True)
    for entry in entries or ():
        if entry.key not in settings.other_keys:
            for problem in option_problems(options, Args(words=_entry_words(entry))):
                message = _place(args.words[0], entry) + problem.message
                yield problem._replace(message=message)


def _entry_words(entry: SettingsEntry) -> tuple[str, ...]:
    """Return the words that ms-swift makes of an entry (4.6 cli/main.py, parse_yaml_args)."""
    value = entry.value
    values = value if isinstance(value, list) else [value]
    texts = [json.dumps(v) if isinstance(v, dict) else str(v) for v in values]
    return (f"--{entry.key}", *texts)


def _without_required(
    accepted: ScriptOptions, keys: Collection[str], *, is_open: bool
) -> ScriptOptions:
    """Return the options with those not required that a file sets, or all if it is not known."""
    options = tuple(
        option._replace(required=False) if is_open or option.dest in keys else option
        for option in accepted.options
    )
    return accepted._replace(options=options)


def _with_file(
    accepted: ScriptOptions, settings: SettingsFile, args: Args, read: FileReader
) -> Iterator[OptionProblem]:
    """Yield the problems of a file whose values replace the defaults, and of the other words."""
    index = args.words.index(settings.option)
    rest = args.words[:index] + args.words[index + 2 :]
    if index + 1 == len(args.words):
        message = f"`{settings.option}` takes a value, got none"
        fix = f"give `{settings.option}` a value, or remove it"
        yield OptionProblem(settings.option, message, fix, accepted.location)
        return
    path = args.words[index + 1]
    entries = _entries(path, read)
    keys = {entry.key for entry in entries or ()}
    words = Args(args.options, rest, is_mapping=args.is_mapping)
    yield from option_problems(_without_required(accepted, keys, is_open=entries is None), words)
    if entries is not None:
        named = named_options(accepted, words)  # argparse converts no default that is overridden
        yield from _file_problems(accepted, settings, path, entries, named)


def _entries(path: str, read: FileReader) -> tuple[SettingsEntry, ...] | None:
    data = read(path)
    return None if data is None else read_entries(path, data)


def _file_problems(
    accepted: ScriptOptions,
    settings: SettingsFile,
    path: str,
    entries: Iterable[SettingsEntry],
    overridden: Collection[str] = (),
) -> Iterator[OptionProblem]:
    """Yield the entries that no field has, or whose value its field refuses."""
    fields: dict[str, Option] = {}
    for option in accepted.options:
        if option.names and option.dest != "help":
            fields.setdefault(option.dest, option)
    for entry in entries:
        field = fields.get(entry.key)
        if field is not None:
            is_used = field.dest not in overridden
            why = _wrong_value(field, settings, entry) if is_used else None
            if why is not None:
                message = f"{_place(path, entry)}`{entry.key}: {entry.text}` {why[0]}"
                yield OptionProblem(entry.key, message, why[1], field.location)
        elif entry.key not in settings.other_keys:
            what = f"{_place(path, entry)}the script has no setting `{entry.key}`"
            if not settings.refuses_unknown:
                what += f": {settings.reader} ignores it"
            fix = replacement(entry.key, fields) or did_you_mean(entry.key, fields)
            fix = fix or f"remove `{entry.key}`"
            yield OptionProblem(entry.key, what, fix, accepted.location)


def _place(path: str, entry: SettingsEntry) -> str:
    """Return the line of an entry for a message; empty for one of the arguments."""
    return f"{path}:{entry.line}: " if entry.line else ""


def _wrong_value(
    option: Option, settings: SettingsFile, entry: SettingsEntry
) -> tuple[str, str] | None:
    """Return why a value is wrong, and what to write instead; None where it may be right."""
    value = entry.value
    if (
        not isinstance(value, str)
        or "${" in value
        or option.min_values is None
        or option.max_values is None
    ):
        return None
    number = whole_number(value) if option.value_type == INT else None
    expected = f"write {number or _EXPECTED.get(option.value_type, 'another value')}"
    if settings.is_converted:
        why = refusal(option._replace(choices=()), value)  # argparse compares no default with them
        return None if why is None else (f"{why}; YAML reads it as text", expected)
    if option.value_type not in _EXPECTED or _is_harmless(option, value):
        return None
    return f"is text, and {settings.reader} makes no other type of it", expected


def _is_harmless(option: Option, value: str) -> bool:
    """Whether text is no mistake of type: true in quotes, or a number such as YAML's `1e-5`.

    Of the second the check `settings-files` says what to write.
    """
    is_bool = option.value_type == TRUTH_WORD
    return value.lower() in _TRUE if is_bool else _is_number(value)


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _missing_fields(
    accepted: ScriptOptions, path: str, entries: tuple[SettingsEntry, ...]
) -> Iterator[OptionProblem]:
    """Yield the fields without a default that a file leaves out."""
    keys = {entry.key for entry in entries}
    for option in accepted.options:
        if option.lacks_default and option.dest not in keys:
            message = f"{path}: the script requires `{option.dest}`"
            yield OptionProblem(option.dest, message, f"add `{option.dest}:`", option.location)
