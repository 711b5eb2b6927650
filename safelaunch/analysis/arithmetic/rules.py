"""Reads rules.yaml: one record for each rule, validated when it is read."""

# ruff: noqa: PLC0415 - yaml is imported only when the rules are evaluated

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.analysis.arithmetic.expression import BadExpression, names_in, value_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.analysis.arithmetic.expression import Value

FAIL, WARN = "fail", "warn"
ANY = "any"  # in `given`: any value
TRAINER = "TrainingArguments"  # of transformers: the configurations of TRL are derived from it
SEARCH = "search"  # in `change`: try numbers near the value
JOB_NUMBERS = ("nodes", "processes", "world", "gpus")

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rules.yaml")
_REQUIRED = ("id", "severity", "names", "conditions", "message", "source", "checked")
_KEYS = frozenset((
    *_REQUIRED, "programs", "classes", "not_programs", "sure", "sure_given", "since", "given",
    "complete", "one_of", "without", "derived", "change", "fix",
))  # fmt: skip


class BadRule(ValueError):  # noqa: N818 - the name says that it is an error
    """A record of rules.yaml is invalid; a test finds this before a release."""


class Name(NamedTuple):
    """Where a rule's name gets its number: the first option of `read` that is set, or a default."""

    read: tuple[str, ...]
    default: int | None = None
    kind: str = "number"  # or allocation


class Rule(NamedTuple):
    """One record. All conditions must hold; docs/arithmetic.md describes the parts.

    Of a record without conditions the options of `given` contradict each other.
    """

    id: str
    severity: str
    programs: tuple[str, ...]
    classes: tuple[str, ...]
    not_programs: tuple[str, ...]
    sure: tuple[str, ...]
    sure_options: Mapping[str, tuple[str, ...]]
    since: Mapping[str, str]
    required_options: Mapping[str, tuple[str, ...]]
    is_complete: bool
    one_of: Mapping[str, tuple[str, ...]]
    without: Mapping[str, tuple[str, ...]]
    names: Mapping[str, Name]
    derived: Mapping[str, str]
    conditions: tuple[str, ...]
    message: str
    change: Mapping[str, tuple[str, ...]]
    fix: str
    source: str
    checked: (
        str  # the newest text of the framework that has the options: `verl b178a3cd, 2026-01-29`
    )


@functools.cache
def rules() -> tuple[Rule, ...]:
    """Return the rules, in the order of the file. Raises BadRule."""
    import yaml

    with open(_FILE, encoding="utf-8") as file:
        tree = yaml.compose(file.read(), Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    return tuple(map(read_rule, _construct(tree)))


def _construct(node: Any) -> Any:
    """Return the value of a YAML node: text, counts, lists, mappings with merge keys.

    The rest of what YAML's constructors do would double the time (8 ms instead of 4).
    """
    if node.id == "scalar":
        return int(node.value) if node.value.isdecimal() and not node.style else node.value
    if node.id == "sequence":
        return list(map(_construct, node.value))
    built: dict[str, Any] = {}
    for key, value in node.value:
        part = _construct(value)
        built.update(part if key.value == "<<" else {key.value: part})
    return built


def read_rule(record: Any) -> Rule:
    """Return a record as a rule. Raises BadRule if a key is missing or unknown."""
    if not isinstance(record, dict):
        raise BadRule(f"a record is a mapping, not `{record}`")
    name = record.get("id", "a record without id")
    missing = [key for key in _REQUIRED if key not in record]
    unknown = sorted(set(record) - _KEYS)
    if missing or unknown:
        problem = f"lacks {missing[0]}" if missing else f"has an unknown key `{unknown[0]}`"
        raise BadRule(f"{name} {problem}")
    return Rule(
        id=str(name),
        severity=record["severity"],
        programs=_words(record.get("programs", ())),
        classes=_words(record.get("classes", ())),
        not_programs=_words(record.get("not_programs", ())),
        sure=_words(record.get("sure", record.get("programs", ()))),
        sure_options=_options(record.get("sure_given", {})),
        since=record.get("since", {}),
        required_options=_options(record.get("given", {})),
        is_complete=str(record.get("complete")).lower() == "true",
        one_of=_options(record.get("one_of", {})),
        without=_options(record.get("without", {})),
        names={key: _name(spec) for key, spec in record["names"].items()},
        derived={key: str(text) for key, text in record.get("derived", {}).items()},
        conditions=_words(record["conditions"]),
        message=" ".join(record["message"].split()),
        change={key: _words(value) for key, value in record.get("change", {}).items()},
        fix=" ".join(record.get("fix", "").split()),
        source=record["source"],
        checked=record["checked"],
    )


def derive(rule: Rule, numbers: Mapping[str, Value]) -> dict[str, Value]:
    """Return the numbers of a rule's names with the derived ones. Raises NoValue."""
    whole = dict(numbers)
    if "nodes" in whole and "processes" in whole:
        whole["world"] = value_of("nodes * processes", whole)
    for name, text in rule.derived.items():
        whole[name] = value_of(text, whole)
    return whole


def holds(rule: Rule, whole: Mapping[str, Value]) -> bool:
    """Whether all conditions of a rule hold. Raises NoValue."""
    return all(value_of(condition, whole) for condition in rule.conditions)


def _words(value: Any) -> tuple[str, ...]:
    return tuple(str(v) for v in value) if isinstance(value, (list, tuple)) else (str(value),)


def _options(value: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {key: _words(values) for key, values in value.items()}


def _name(spec: Any) -> Name:
    if isinstance(spec, (str, list)):
        return Name(_words(spec))
    return Name(_words(spec["read"]), spec.get("default"), spec.get("kind", "number"))


def check_rule(rule: Rule) -> None:
    """Raise BadRule for errors that appear only when a rule applies; for tests, it is slow."""
    if rule.severity not in (FAIL, WARN) or (
        rule.severity == FAIL and not (rule.sure or rule.sure_options)
    ):
        raise BadRule(f"{rule.id}: `severity` is warn, or fail with `sure` or `sure_given`")
    if not rule.conditions and not (rule.required_options or rule.one_of):
        raise BadRule(f"{rule.id}: neither `conditions` nor options that contradict each other")
    if not rule.change and not rule.fix:
        raise BadRule(f"{rule.id}: neither `change` nor `fix`")
    defined = {*JOB_NUMBERS, *rule.names, *rule.derived}
    for name, spec in rule.names.items():
        if spec.kind == "allocation":
            defined |= {f"{name}_{part}" for part in ("generate", "train")}
            defined |= {f"{name}_generate_{part}" for part in ("tensor", "pipeline")}
    changed = [text for texts in rule.change.values() for text in texts if text != SEARCH]
    try:
        used = frozenset[str]().union(
            *map(names_in, (*rule.derived.values(), *rule.conditions, *changed))
        )
        shown = {name: 0 for name in defined if name in used or name not in JOB_NUMBERS}
        rule.message.format_map(shown)
        rule.fix.format_map(shown)
    except (BadExpression, KeyError, IndexError, ValueError) as e:
        raise BadRule(f"{rule.id}: {e}") from e
    if used - defined:
        raise BadRule(f"{rule.id}: `{min(used - defined)}` is not a name of the rule")
    unknown = set(rule.change) - {*rule.names, "processes"}
    if unknown:
        raise BadRule(f"{rule.id}: `{min(unknown)}` in `change` is not a name of the rule")
