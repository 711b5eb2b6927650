"""Reads rules.yaml: one record for each rule, checked when it is read."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.analysis.arithmetic.expression import BadExpression, names_in, value_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.analysis.arithmetic.expression import Value

FAIL, WARN = "fail", "warn"
ANY = "any"  # in `given`: whatever the value
SEARCH = "search"  # in `change`: try numbers near the value
OF_THE_JOB = ("nodes", "processes", "world", "gpus")

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rules.yaml")
_REQUIRED = ("id", "severity", "names", "conditions", "message", "source")
_OPTIONAL = (
    "programs",
    "classes",
    "not_programs",
    "sure",
    "sure_given",
    "since",
    "given",
    "one_of",
    "without",
)
_KEYS = frozenset((*_REQUIRED, *_OPTIONAL, "derived", "change", "fix"))


class BadRule(ValueError):  # noqa: N818 - reads as what it is
    """A record of rules.yaml is wrong; a test would have said so."""


class Name(NamedTuple):
    """Where a rule's name gets its number: the first of `read` that is given, or the default."""

    read: tuple[str, ...]
    default: int | None = None
    kind: str = "number"  # or allocation


class Rule(NamedTuple):
    """One record. All conditions must hold; docs/arithmetic.md describes the parts."""

    id: str
    severity: str
    programs: tuple[str, ...]
    classes: tuple[str, ...]
    not_programs: tuple[str, ...]
    sure: tuple[str, ...]
    sure_given: Mapping[str, tuple[str, ...]]
    since: Mapping[str, str]
    given: Mapping[str, tuple[str, ...]]
    one_of: Mapping[str, tuple[str, ...]]
    without: Mapping[str, tuple[str, ...]]
    names: Mapping[str, Name]
    derived: Mapping[str, str]
    conditions: tuple[str, ...]
    message: str
    change: Mapping[str, tuple[str, ...]]
    fix: str
    source: str


@functools.cache
def rules() -> tuple[Rule, ...]:
    """Return the rules, in the order of the file. Raises BadRule."""
    import yaml  # noqa: PLC0415 - with the table: only who asks pays for it

    with open(_FILE, encoding="utf-8") as file:
        tree = yaml.compose(file.read(), Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    return tuple(map(read_rule, _built(tree)))


def _built(node: Any) -> Any:
    """Return a value of our own file: text, counts, lists, mappings with merge keys.

    What YAML's constructors do beyond that takes as long again (4 ms of 8).
    """
    if node.id == "scalar":
        return int(node.value) if node.value.isdecimal() and not node.style else node.value
    if node.id == "sequence":
        return list(map(_built, node.value))
    built: dict[str, Any] = {}
    for key, value in node.value:
        part = _built(value)
        built.update(part if key.value == "<<" else {key.value: part})
    return built


def read_rule(record: Any) -> Rule:
    """Return a record as a rule. Raises BadRule where a key is missing or unknown."""
    if not isinstance(record, dict):
        raise BadRule(f"a record is a mapping, not `{record}`")
    name = record.get("id", "a record without id")
    missing = [key for key in _REQUIRED if key not in record]
    unknown = sorted(set(record) - _KEYS)
    if missing or unknown:
        what = f"lacks {missing[0]}" if missing else f"has an unknown key `{unknown[0]}`"
        raise BadRule(f"{name} {what}")
    return Rule(
        id=str(name),
        severity=record["severity"],
        programs=_words(record.get("programs", ())),
        classes=_words(record.get("classes", ())),
        not_programs=_words(record.get("not_programs", ())),
        sure=_words(record.get("sure", record.get("programs", ()))),
        sure_given=_options(record.get("sure_given", {})),
        since=record.get("since", {}),
        given=_options(record.get("given", {})),
        one_of=_options(record.get("one_of", {})),
        without=_options(record.get("without", {})),
        names={key: _name(spec) for key, spec in record["names"].items()},
        derived={key: str(text) for key, text in record.get("derived", {}).items()},
        conditions=_words(record["conditions"]),
        message=" ".join(record["message"].split()),
        change={key: _words(value) for key, value in record.get("change", {}).items()},
        fix=" ".join(record.get("fix", "").split()),
        source=record["source"],
    )


def derive(rule: Rule, numbers: Mapping[str, Value]) -> dict[str, Value]:
    """Return the numbers of a rule's names with what follows from them. Raises Unknown."""
    whole = dict(numbers)
    if "nodes" in whole and "processes" in whole:
        whole["world"] = value_of("nodes * processes", whole)
    for name, text in rule.derived.items():
        whole[name] = value_of(text, whole)
    return whole


def holds(rule: Rule, whole: Mapping[str, Value]) -> bool:
    """Whether all conditions of a rule hold. Raises Unknown."""
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
    """Refuse what would only be seen when the rule speaks. For tests: it costs as much as reading.

    Raises BadRule.
    """
    if rule.severity not in (FAIL, WARN) or (rule.severity == FAIL and not rule.sure):
        raise BadRule(f"{rule.id}: `severity` is warn, or fail with `sure`")
    if not rule.change and not rule.fix:
        raise BadRule(f"{rule.id}: neither `change` nor `fix`")
    known = {*OF_THE_JOB, *rule.names, *rule.derived}
    for name, spec in rule.names.items():
        if spec.kind == "allocation":
            known |= {f"{name}_{part}" for part in ("generate", "train")}
            known |= {f"{name}_generate_{part}" for part in ("tensor", "pipeline")}
    changed = [text for texts in rule.change.values() for text in texts if text != SEARCH]
    try:
        read = [names_in(text) for text in (*rule.derived.values(), *rule.conditions, *changed)]
        used = frozenset().union(*read)
        shown = {name: 0 for name in known if name in used or name not in OF_THE_JOB}
        rule.message.format_map(shown)
        rule.fix.format_map(shown)
    except (BadExpression, KeyError, IndexError, ValueError) as e:
        raise BadRule(f"{rule.id}: {e}") from e
    if used - known:
        raise BadRule(f"{rule.id}: `{min(used - known)}` is read, and is no name")
    strange = set(rule.change) - {*rule.names, "processes"}
    if strange:
        raise BadRule(f"{rule.id}: `change` names `{min(strange)}`, which is no option")
