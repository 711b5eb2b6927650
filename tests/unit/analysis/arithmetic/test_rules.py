from __future__ import annotations

import copy
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import DATA, REPOSITORY

import safelaunch.analysis.arithmetic
from safelaunch.analysis.arithmetic import FAIL, Problem, Subject, find_problems
from safelaunch.analysis.arithmetic.option_values import options_from_words, positional_files
from safelaunch.analysis.arithmetic.rules import BadRule, Rule, check_rule, read_rule, rules

FILE = Path(safelaunch.analysis.arithmetic.__file__).parent / "rules.yaml"
SAMPLES: dict[str, dict[str, list[dict[str, Any]]]] = yaml.safe_load(
    (DATA / "arithmetic" / "samples.yaml").read_text("utf-8")
)
BY_ID = {rule.id: rule for rule in rules()}


def each(kind: str) -> list[Any]:
    return [
        pytest.param(rule, sample, id=f"{rule}-{n}")
        for rule, kinds in SAMPLES.items()
        for n, sample in enumerate(kinds[kind])
    ]


def subject(sample: dict[str, Any]) -> Subject:
    words = shlex.split(sample.get("args", ""))
    return Subject(
        program=tuple(sample["program"].split()),
        options=options_from_words(words),
        launcher_options=options_from_words(shlex.split(sample.get("launcher_args", ""))),
        configs=sample.get("configs", {}),
        files=tuple(positional_files(words)),
        processes=sample.get("world"),
        gpus=sample.get("gpus"),
        versions=sample.get("versions", {}),
        origins={"args": "job.yaml:4:7"},
        classes=frozenset(sample["classes"]) if "classes" in sample else None,
        parsed=sample.get("parsed"),
    )


def problem_for(rule: str, sample: dict[str, Any]) -> Problem | None:
    return next((p for p in find_problems(subject(sample)) if p.id == rule), None)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_every_rule_has_a_sample_that_fires_and_one_that_does_not(rule: Rule) -> None:
    assert SAMPLES[rule.id]["fires"]
    assert SAMPLES[rule.id]["silent"]


def test_the_documentation_names_the_rules_and_no_others() -> None:
    text = (REPOSITORY / "docs" / "arithmetic.md").read_text("utf-8")
    named = re.findall(r"^\| `([\w-]+)` \| (?:fail|warn) \|", text, re.MULTILINE)
    assert set(named) == BY_ID.keys()


def test_every_sample_belongs_to_a_rule() -> None:
    assert SAMPLES.keys() == BY_ID.keys()


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_every_record_is_sound(rule: Rule) -> None:
    check_rule(rule)
    assert rule.source.startswith("https://")


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_every_rule_names_the_release_that_it_was_checked_against(rule: Rule) -> None:
    assert re.fullmatch(r"[\w-]+ (?:\d+(?:\.\d+)+|[0-9a-f]{8}) \(20\d\d-\d\d-\d\d\)", rule.checked)


@pytest.mark.parametrize(("rule", "sample"), each("fires"))
def test_a_rule_speaks_where_it_must(rule: str, sample: dict[str, Any]) -> None:
    problem = problem_for(rule, sample)
    assert problem is not None
    assert problem.severity == sample.get("severity", BY_ID[rule].severity)
    assert problem.fix
    assert "{" not in problem.message + problem.fix


@pytest.mark.parametrize(("rule", "sample"), each("silent"))
def test_a_rule_is_silent_where_it_must(rule: str, sample: dict[str, Any]) -> None:
    assert problem_for(rule, sample) is None


def proposals(fix: str) -> list[tuple[str, str, str]]:
    """Return (name, its file or nothing, number) for each value that a fix proposes."""
    head = fix.partition("; ")[0].removeprefix("set ")
    if head == fix:
        return []
    values = []
    for part in re.split(r", or (?=`)", head):
        match = re.fullmatch(r"`([^`]+)`(?: of (\S+))? to (\d+(?: or \d+)*)", part)
        assert match is not None, part
        values += [(match[1], match[2] or "", number) for number in match[3].split(" or ")]
    return values


def applied(sample: dict[str, Any], name: str, file: str, number: str) -> dict[str, Any]:
    """Return a sample in which a proposal was followed to the letter."""
    sample = copy.deepcopy(sample)
    if name == "processes":
        sample["world"] = int(number)
    elif file in ("", "launcher_args"):
        where = file or "args"
        word = f"{name}={number}" if "." in name else f"--{name} {number}"
        sample[where] = f"{sample.get(where, '')} {word}"
    else:
        *parents, key = name.split(".")
        place = sample["configs"][file]
        for parent in parents:
            place = place[parent]
        place[key] = int(number)
    return sample


@pytest.mark.parametrize(("rule", "sample"), each("fires"))
def test_each_proposal_followed_literally_cures_the_finding(
    rule: str, sample: dict[str, Any]
) -> None:
    problem = problem_for(rule, sample)
    assert problem is not None
    left = {
        values: again.message
        for values in proposals(problem.fix)
        if (again := problem_for(rule, applied(sample, *values))) is not None
    }
    assert left == {}
    assert proposals(problem.fix) or BY_ID[rule].fix


@pytest.mark.parametrize(
    ("rule", "sample"), [p for p in each("fires") if BY_ID[str(p.values[0])].since]
)
def test_an_older_version_is_left_alone_and_an_unknown_one_only_warned(
    rule: str, sample: dict[str, Any]
) -> None:
    older = dict.fromkeys(BY_ID[rule].since, "0.0.1")
    assert problem_for(rule, {**sample, "versions": older}) is None
    unknown = problem_for(rule, {**sample, "versions": {}})
    assert unknown is not None
    assert unknown.severity != FAIL


@pytest.mark.parametrize("unreadable", ["auto", "$N", "1k", "", "9" * 40, "null", "1e9", "0", "-1"])
def test_a_value_that_is_no_plain_number_silences_the_rules_that_need_it(unreadable: str) -> None:
    for rule, kinds in SAMPLES.items():
        for sample in kinds["fires"]:
            args = re.sub(r"(?<=[ =])\d+(?= |$)", unreadable, sample.get("args", ""))
            configs = _without_numbers(sample.get("configs", {}), unreadable)
            blind = {**sample, "args": args, "configs": configs}
            if (args, configs) != (sample.get("args", ""), sample.get("configs", {})):
                assert problem_for(rule, blind) is None, (rule, blind)


def _without_numbers(value: Any, text: str) -> Any:
    if isinstance(value, dict):
        return {k: _without_numbers(v, text) for k, v in value.items()}
    return text if isinstance(value, int) else value


def test_a_problem_says_where_the_number_is_given() -> None:
    problem = problem_for("lightrft-batch", SAMPLES["lightrft-batch"]["fires"][0])
    assert problem is not None
    assert (problem.where, problem.origin) == ("args.train_batch_size", "job.yaml:4:7")


def test_the_message_shows_the_numbers_and_the_fix_the_next_ones() -> None:
    problem = problem_for("lightrft-batch", SAMPLES["lightrft-batch"]["fires"][0])
    assert problem is not None
    assert problem.message == (
        "train_batch_size 100 is not a multiple of micro_train_batch_size 4 x 8 processes = 32"
    )
    assert problem.fix == "set `train_batch_size` to 96 or 128"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"id": None}, "lacks"),
        ({"surprise": 1}, "unknown key"),
        ({"severity": "fail"}, "sure"),
        ({"conditions": ["total % nothing == 0"]}, "not a name"),
        ({"conditions": ["total ** 2 > 1"]}, "Pow"),
        ({"conditions": ["total %"]}, "not an expression"),
        ({"message": "{nothing}"}, "nothing"),
        ({"message": "{world}"}, "world"),
        ({"change": {"nothing": "search"}}, "not a name"),
        ({"change": {}}, "neither"),
    ],
)
def test_a_wrong_record_is_refused_with_what_is_wrong(change: dict[str, Any], says: str) -> None:
    record: dict[str, Any] = {
        "id": "x",
        "severity": "warn",
        "names": {"total": "train_batch_size"},
        "conditions": ["total > 1"],
        "message": "{total}",
        "change": {"total": "search"},
        "source": "https://example.org",
        "checked": "x 1.0 (2026-01-01)",
    }
    record |= change
    if record["id"] is None:
        del record["id"]
    with pytest.raises(BadRule, match=says):
        check_rule(read_rule(record))


def test_the_file_is_read_as_yaml_reads_it() -> None:
    records = yaml.safe_load(FILE.read_text("utf-8"))
    assert tuple(read_rule(record) for record in records) == rules()


def test_the_rules_are_read_without_the_c_library_too(monkeypatch: pytest.MonkeyPatch) -> None:
    first = rules()
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    rules.cache_clear()
    assert rules() == first
