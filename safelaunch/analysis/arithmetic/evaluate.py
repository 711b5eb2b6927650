"""Evaluates the rules for a program. A rule applies only if all its numbers are known."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.analysis.arithmetic import suggest
from safelaunch.analysis.arithmetic.areal_allocation import parse_allocation
from safelaunch.analysis.arithmetic.expression import NoValue
from safelaunch.analysis.arithmetic.option_values import normalize
from safelaunch.analysis.arithmetic.program import nested_value
from safelaunch.analysis.arithmetic.rules import ANY, FAIL, TRAINER, WARN, derive, holds, rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.analysis.arithmetic.expression import Value
    from safelaunch.analysis.arithmetic.program import Subject
    from safelaunch.analysis.arithmetic.rules import Name, Rule

_COUNT = re.compile(r"\+?[0-9]{1,15}")
_JOB_COUNTS = ("processes", "gpus")  # job keys that a problem without options refers to
_FILES = ("deepspeed", "accelerate", "model")  # prefixes of names in a rule, `role:key`


class Problem(NamedTuple):
    """Numbers that do not fit together. `where` is the job's key, `origin` its file and line."""

    id: str
    severity: str
    message: str
    fix: str
    source: str
    where: str = ""
    origin: str = ""


class NumberSource(NamedTuple):
    """The value of a rule's name, with its label for the user and where it is set.

    The value of an allocation is its number of GPUs, with `parts` by purpose; messages show `text`.
    """

    value: Value
    label: str
    where: str
    text: str
    parts: Mapping[str, int] = MappingProxyType({})


def find_problems(subject: Subject) -> Iterator[Problem]:
    """Yield the problems of a program in the order of the rules, at most one for each rule."""
    for rule in rules():
        problem = evaluate_rule(rule, subject)
        if problem is not None:
            yield problem


def evaluate_rule(rule: Rule, subject: Subject) -> Problem | None:
    """Return the problem that one rule finds in a program, or None."""
    if not _applies(rule, subject):
        return None
    is_sure = _matches_any(subject.program, rule.sure) or any(
        _is_set(subject, name, values) for name, values in rule.sure_options.items()
    )
    is_known = is_sure or _parses_class(rule, subject)
    if rule.is_complete and not (is_known and subject.is_complete):
        return None
    sources = _number_sources(rule, subject, is_known=is_known)
    if sources is None:
        return None
    numbers = _numbers(sources, subject)
    try:
        values = derive(rule, numbers)
        if rule.conditions and holds(rule, values):
            return None
    except NoValue:
        return None
    places = (*(source.where for source in sources.values()), *_given_places(rule, subject))
    in_job = (p for p in places if p and (p not in _JOB_COUNTS or p in subject.origins))
    where = next(in_job, "")
    texts = {name: source.text for name, source in sources.items()}
    labels = {name: source.label for name, source in sources.items()}
    return Problem(
        rule.id,
        FAIL if rule.severity == FAIL and is_sure and _is_since(rule, subject) else WARN,
        rule.message.format_map({**values, **texts}),
        suggest.suggest_fix(rule, numbers, labels),
        rule.source,
        where,
        subject.origins.get(where.partition(".")[0], ""),
    )


def _applies(rule: Rule, subject: Subject) -> bool:
    """Whether a rule applies to this program with these options."""
    if not all(_is_set(subject, name, values) for name, values in rule.required_options.items()):
        return False
    is_parsed = _parses_class(rule, subject)
    if rule.classes and subject.classes is not None and not is_parsed:
        names = subject.classes | ({TRAINER} if subject.classes else set())
        if names.isdisjoint(rule.classes):
            return False
    if rule.programs and not is_parsed and not _matches_any(subject.program, rule.programs):
        return False
    if _matches_any(subject.program, rule.not_programs) or _is_since(rule, subject) is False:
        return False
    if rule.one_of and not any(_is_set(subject, n, values) for n, values in rule.one_of.items()):
        return False
    return not any(_is_set(subject, name, values) for name, values in rule.without.items())


def _given_places(rule: Rule, subject: Subject) -> Iterator[str]:
    """Yield where a problem is that is in no number: in the job's counts, or in an option."""
    if rule.conditions:
        yield from _JOB_COUNTS
        return
    for name in (*rule.required_options, *rule.one_of):
        raw = _raw_value(subject, name)
        if raw is not None:
            yield raw[2]


def _parses_class(rule: Rule, subject: Subject) -> bool:
    """Whether the class that reads the command line is one of the rule's, or derived from it."""
    return subject.parsed in rule.classes or (
        subject.parsed is not None and TRAINER in rule.classes
    )


def _is_since(rule: Rule, subject: Subject) -> bool | None:
    """Whether the packages are new enough for a rule; None if a version is not known."""
    installed = {name.replace("_", "-"): version for name, version in subject.versions.items()}
    answers = [
        _version(installed[name]) >= _version(first) if name in installed else None
        for name, first in rule.since.items()
    ]
    return False if False in answers else None if None in answers else True


def _version(text: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def _matches_any(program: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    """Whether a pattern matches the words of the program, or the file name of the last one."""
    text = " ".join(program)
    names = (text, text.rpartition("/")[2])
    return any(_matches(name, pattern) for pattern in patterns for name in names)


def _matches(text: str, pattern: str) -> bool:
    """Whether a text matches a pattern in which `*` stands for any text.

    Not fnmatch: it compiles a regular expression for each of 60 patterns, 10 ms before a start.
    """
    first, *parts = pattern.split("*")
    if not parts:
        return text == pattern
    if not text.startswith(first) or len(text) < len(first) + len(parts[-1]):
        return False
    start, end = len(first), len(text) - len(parts[-1])
    for part in parts[:-1]:
        index = text.find(part, start, end)
        if index < 0:
            return False
        start = index + len(part)
    return text.endswith(parts[-1])


def _is_set(subject: Subject, name: str, values: tuple[str, ...]) -> bool:
    """Whether an option or a setting has one of the values."""
    raw = _raw_value(subject, name)
    if raw is None:
        return False
    return values == (ANY,) or str(raw[0]).lower() in values


def _raw_value(subject: Subject, name: str) -> tuple[Any, str, str] | None:
    """Return (value, label, where it is set) of a name; an option takes precedence over a file."""
    role, colon, key = name.partition(":")
    if colon and role in _FILES:
        return _setting(subject, role, key)
    option = subject.option(name)
    if option is None:
        return None if colon else _setting(subject, "config", name)
    key = "launcher_args" if role == "launcher" else "args"
    value = option.values if option.text is None else option.text
    return value, _label(name, option.spelled), option.key or f"{key}.{option.spelled}"


def _label(name: str, spelled: str) -> str:
    """Return the label of an option; launcher and program may have options of the same name."""
    return f"`{spelled}` of launcher_args" if name.startswith("launcher:") else f"`{spelled}`"


def _setting(subject: Subject, role: str, key: str) -> tuple[Any, str, str] | None:
    for file in subject.named(role):
        value = nested_value(subject.configs.get(file), key)
        if value is not None:
            return value, f"`{key}` of {file}", f"{file}: {key}"
    return None


def _number_sources(
    rule: Rule, subject: Subject, *, is_known: bool
) -> dict[str, NumberSource] | None:
    """Return {name: number} for a rule; None if one of them is not known."""
    sources = {}
    for name, spec in rule.names.items():
        values = filter(None, (_raw_value(subject, option) for option in spec.read))
        raw = next(values, None)
        source = _parse(spec, raw) if raw else _default(subject, spec, is_known=is_known)
        if source is None:
            return None
        sources[name] = source
    return sources


def _parse(spec: Name, raw: tuple[Any, str, str]) -> NumberSource | None:
    """Return a raw value as a number for a rule; None if it does not have the right kind."""
    text, label, where = raw
    if spec.kind == "allocation":
        parts = parse_allocation(str(text))
        if parts is None:
            return None
        return NumberSource(parts["generate"] + parts["train"], label, where, str(text), parts)
    value = number(text)
    return None if value is None else NumberSource(value, label, where, str(value))


def _default(subject: Subject, spec: Name, *, is_known: bool) -> NumberSource | None:
    """Return the default of a known program, unless another value may be set out of sight."""
    if spec.default is None or not is_known or not subject.is_complete:
        return None
    names = [normalize(name.partition(":")[2] or name) for name in spec.read]
    if any(name.startswith(option) for name in names for option in subject.options):
        return None  # argparse accepts `--per_device_train` as an abbreviation
    text = f"{spec.default} (the default)"
    label = _label(spec.read[-1], spec.read[-1].removeprefix("launcher:"))
    return NumberSource(spec.default, label, "", text)


def number(raw: Any) -> Value | None:
    """Return a raw value as a count of at least 1, or a list unchanged; else None.

    Programs use 0 and -1 for "off" and "all"; the rules make no statement about these.
    """
    if isinstance(raw, tuple):
        return raw
    text = str(raw).strip()
    if isinstance(raw, (bool, float)) or not _COUNT.fullmatch(text) or int(text) < 1:
        return None
    return int(text)


def _numbers(sources: Mapping[str, NumberSource], subject: Subject) -> dict[str, Value]:
    """Return {name: value} of a rule, with the numbers of the job."""
    counts = {"nodes": subject.nodes, "processes": subject.processes, "gpus": subject.gpus}
    numbers: dict[str, Value] = {name: n for name, n in counts.items() if n is not None}
    for name, source in sources.items():
        numbers[name] = source.value
        numbers.update({f"{name}_{part}": size for part, size in source.parts.items()})
    return numbers
