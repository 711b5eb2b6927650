"""Holds a program against the rules. A rule speaks only where it knows every number it needs."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.analysis.arithmetic import suggest
from safelaunch.analysis.arithmetic.areal_allocation import allocated
from safelaunch.analysis.arithmetic.expression import Unknown
from safelaunch.analysis.arithmetic.option_values import plain
from safelaunch.analysis.arithmetic.program import looked_up
from safelaunch.analysis.arithmetic.rules import ANY, FAIL, WARN, derive, holds, rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.analysis.arithmetic.expression import Value
    from safelaunch.analysis.arithmetic.program import Subject
    from safelaunch.analysis.arithmetic.rules import Name, Rule

_COUNT = re.compile(r"\+?[0-9]{1,15}")
_COUNTS = ("processes", "gpus")  # keys of the job that a rule without options is about
_FILES = ("deepspeed", "accelerate", "model")  # roles that a name may begin with, `role:key`


class Problem(NamedTuple):
    """Numbers that do not go together. `where` is the job's key, `origin` its file and line."""

    id: str
    severity: str
    message: str
    fix: str
    source: str
    where: str = ""
    origin: str = ""


class Found(NamedTuple):
    """What a name stands for: its value, what the user calls it, and where it is given.

    An allocation counts as its GPUs, with `parts` by purpose; `text` is how a message shows it.
    """

    value: Value
    label: str
    where: str
    text: str
    parts: Mapping[str, int] = MappingProxyType({})


def problems(subject: Subject) -> Iterator[Problem]:
    """Yield what each rule has to say, in their order: at most one problem for each."""
    for rule in rules():
        found = judged(rule, subject)
        if found is not None:
            yield found


def judged(rule: Rule, subject: Subject) -> Problem | None:
    """Return what one rule has to say of a program."""
    if not _concerns(rule, subject):
        return None
    is_sure = _is_one_of(subject.program, rule.sure) or any(
        _has(subject, name, values) for name, values in rule.sure_given.items()
    )
    found = _found(rule, subject, is_known=is_sure or subject.parsed in rule.classes)
    if found is None:
        return None
    numbers = _numbers(found, subject)
    try:
        whole = derive(rule, numbers)
        if holds(rule, whole):
            return None
    except Unknown:
        return None
    places = (*(f.where for f in found.values()), *_COUNTS)
    where = next((p for p in places if p and (p not in _COUNTS or p in subject.origins)), "")
    return Problem(
        rule.id,
        FAIL if rule.severity == FAIL and is_sure and _is_since(rule, subject) else WARN,
        rule.message.format_map({**whole, **{name: f.text for name, f in found.items()}}),
        suggest.advice(rule, numbers, {name: f.label for name, f in found.items()}),
        rule.source,
        where,
        subject.origins.get(where.partition(".")[0], ""),
    )


def _concerns(rule: Rule, subject: Subject) -> bool:
    """Whether the rule is about this program, with these options."""
    if not all(_has(subject, name, values) for name, values in rule.given.items()):
        return False
    if rule.classes and subject.classes is not None and subject.classes.isdisjoint(rule.classes):
        return False
    is_parsed = subject.parsed in rule.classes
    if rule.programs and not is_parsed and not _is_one_of(subject.program, rule.programs):
        return False
    if _is_one_of(subject.program, rule.not_programs) or _is_since(rule, subject) is False:
        return False
    if rule.one_of and not any(_has(subject, n, values) for n, values in rule.one_of.items()):
        return False
    return not any(_has(subject, name, values) for name, values in rule.without.items())


def _is_since(rule: Rule, subject: Subject) -> bool | None:
    """Whether the packages are new enough for the rule; None where a version is not known."""
    known = {name.replace("_", "-"): version for name, version in subject.versions.items()}
    answers = [
        _version(known[name]) >= _version(first) if name in known else None
        for name, first in rule.since.items()
    ]
    return False if False in answers else None if None in answers else True


def _version(text: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def _is_one_of(program: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    """Whether a pattern fits the words of the program, or its last word's file name."""
    text = " ".join(program)
    names = (text, text.rpartition("/")[2])
    return any(_fits(name, pattern) for pattern in patterns for name in names)


def _fits(text: str, pattern: str) -> bool:
    """Whether a text is a pattern with anything for each `*`.

    Not fnmatch: it compiles a regular expression for each of 60 patterns, 10 ms before a start.
    """
    first, *others = pattern.split("*")
    if not others:
        return text == pattern
    if not text.startswith(first) or len(text) < len(first) + len(others[-1]):
        return False
    at, end = len(first), len(text) - len(others[-1])
    for part in others[:-1]:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return text.endswith(others[-1])


def _has(subject: Subject, name: str, values: tuple[str, ...]) -> bool:
    """Whether an option or a setting is given, with one of the values."""
    raw = _raw(subject, name)
    if raw is None:
        return False
    return values == (ANY,) or str(raw[0]).lower() in values


def _raw(subject: Subject, name: str) -> tuple[Any, str, str] | None:
    """Return what is given under a name, what to call it, and where: an option beats a file."""
    role, colon, key = name.partition(":")
    if colon and role in _FILES:
        return _setting(subject, role, key)
    option = subject.option(name)
    if option is not None:
        within = "launcher_args" if role == "launcher" else "args"
        value = option.values if option.text is None else option.text
        where = option.key or f"{within}.{option.spelled}"
        return value, _label(name, option.spelled), where
    return None if colon else _setting(subject, "config", name)


def _label(name: str, spelled: str) -> str:
    """Return what to call an option: the launcher and the program may have one of the same name."""
    return f"`{spelled}` of launcher_args" if name.startswith("launcher:") else f"`{spelled}`"


def _setting(subject: Subject, role: str, key: str) -> tuple[Any, str, str] | None:
    for file in subject.named(role):
        value = looked_up(subject.configs.get(file), key)
        if value is not None:
            return value, f"`{key}` of {file}", f"{file}: {key}"
    return None


def _found(rule: Rule, subject: Subject, *, is_known: bool) -> dict[str, Found] | None:
    """Return what the names of a rule stand for; None where one of them is not known."""
    found = {}
    for name, spec in rule.names.items():
        raw = next((r for r in (_raw(subject, n) for n in spec.read) if r is not None), None)
        one = _default(subject, spec, is_known=is_known) if raw is None else _parsed(spec, raw)
        if one is None:
            return None
        found[name] = one
    return found


def _parsed(spec: Name, raw: tuple[Any, str, str]) -> Found | None:
    """Return what a given value stands for; None where it is not what the rule takes."""
    given, label, where = raw
    if spec.kind == "allocation":
        parts = allocated(str(given))
        if parts is None:
            return None
        return Found(parts["generate"] + parts["train"], label, where, str(given), parts)
    value = number(given)
    return None if value is None else Found(value, label, where, str(value))


def _default(subject: Subject, spec: Name, *, is_known: bool) -> Found | None:
    """Return the default of a known program, where nothing can hide another value."""
    if spec.default is None or not is_known or not subject.is_complete:
        return None
    names = [plain(name.partition(":")[2] or name) for name in spec.read]
    if any(name.startswith(given) for name in names for given in subject.options):
        return None  # argparse takes `--per_device_train` for the whole name
    text = f"{spec.default} (the default)"
    label = _label(spec.read[-1], spec.read[-1].removeprefix("launcher:"))
    return Found(spec.default, label, "", text)


def number(raw: Any) -> Value | None:
    """Return a given value as a count from 1, a list as it is; None for what is neither.

    0 and -1 are how programs spell "off" and "all"; what a count of them does is theirs to know.
    """
    if isinstance(raw, tuple):
        return raw
    text = str(raw).strip()
    if isinstance(raw, (bool, float)) or not _COUNT.fullmatch(text) or int(text) < 1:
        return None
    return int(text)


def _numbers(found: Mapping[str, Found], subject: Subject) -> dict[str, Value]:
    """Return the values by name, with those of the job."""
    numbers: dict[str, Value] = {}
    for name in ("nodes", "processes", "gpus"):
        value = getattr(subject, name)
        if value is not None:
            numbers[name] = value
    for name, one in found.items():
        numbers[name] = one.value
        numbers.update({f"{name}_{part}": size for part, size in one.parts.items()})
    return numbers
