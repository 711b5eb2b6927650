"""The signatures: each has its samples, and is written in the one dialect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import DATA

from safelaunch import runtime
from safelaunch.diagnose import pattern_dialect, signature_files
from safelaunch.diagnose.library_options import OPTIONS
from safelaunch.runtime.signatures import classes, table
from safelaunch.runtime.signatures import match as signatures_match

Records = tuple[dict[str, Any], ...]
PROGRESS = DATA / "progress"
RECORD = {
    "id": "x",
    "class": "nccl-timeout",
    "role": "root",
    "patterns": ["long enough"],
    "cause": "Why.",
    "remedy": "Do this.",
    "source": "https://example.org/x",
    "samples": "long enough",
    "near_misses": "short",
}


@pytest.fixture(scope="module")
def records() -> Records:
    return signature_files.source_records()


def matches(text: str) -> list[classes.Match]:
    return [match for _, match in classes.findings(signatures_match.clean(text))]


def ids(text: str) -> set[str]:
    return {match.signature.id for match in matches(text) if match.signature}


def test_every_sample_is_recognised(records: Records) -> None:
    missed = [(r["id"], text) for r in records for text in r["samples"] if r["id"] not in ids(text)]
    assert missed == []


def test_every_sample_of_a_cause_has_its_class(records: Records) -> None:
    causes = [record for record in records if record["role"] in ("root", "unknown")]
    samples = [(record, text) for record in causes for text in record["samples"]]
    classified = [(record, text, classes.classify(text)) for record, text in samples]
    assert [
        (record["id"], text, match)
        for record, text, match in classified
        if match is None or match.name != record["class"]
    ] == []


def test_no_near_miss_is_recognised(records: Records) -> None:
    near_misses = [(record["id"], text) for record in records for text in record["near_misses"]]
    assert [(name, text) for name, text in near_misses if name in ids(text)] == []


def test_the_runtime_has_the_same_signatures(records: Records) -> None:
    written = Path(runtime.FOLDER, "signatures/signatures.json").read_text(encoding="utf-8")
    assert written == signature_files.compile_records(records), "run scripts/signatures"


def test_re2_takes_every_pattern(records: Records) -> None:
    re2 = pytest.importorskip("re2", reason="google-re2 has no wheel for this Python")
    for record in records:
        for pattern, *_ in record["patterns"]:
            re2.compile(pattern)


def test_no_literal_stands_in_the_lines_of_a_healthy_run() -> None:
    with open(PROGRESS / "lines.jsonl", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    lines = [
        line for record in records if record["expected"].get("step") for line in record["lines"]
    ]
    shown = "\n".join(line for line in lines if "nan" not in line.lower())
    assert [text for text in table.load().by_literal if text in shown] == []


def test_every_step_that_names_an_option_says_for_which_versions(records: Records) -> None:
    steps = [(record["id"], step) for record in records for step in record["remedy"]]
    assert [
        (name, step)
        for name, step in steps
        for option in OPTIONS.values()
        if any(word in step for word in option.names) and option.text not in step
    ] == []


def test_an_option_without_versions_is_refused() -> None:
    with pytest.raises(signature_files.SignatureError, match="is not one of"):
        signature_files.parse_record({**RECORD, "remedy": "Set {{no-such}}."}, "mine.yaml")


def test_a_notice_of_a_fallback_stands_for_the_error_that_it_quotes() -> None:
    text = (
        "ERROR 10-02 [fa_utils.py:57] Cannot use FA version 2 is not supported due to FA2 is only"
    )
    roles = {
        match.role for match in matches(f"{text} supported on devices with compute capability >= 8")
    }
    assert roles == {"warning"}


def test_a_root_has_a_step_to_take_for_every_class(records: Records) -> None:
    roots = {
        record["class"]
        for record in records
        if record["role"] in ("root", "unknown", "late", "cascade")
    }
    # no log says these: the scheduler does, the record of another run, or the queue
    of_records = {"scheduler", "earlier-run", "cards", "service-failed", "preempted"}
    told_otherwise = {classes.USER, "killed", "hang", "tokenizers-fork"} | of_records
    assert set(classes.TABLE) - roots - told_otherwise == set()


# -- what a record must be -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern",
    [r"(?=long) enough", r"(long enough)\1", r"(?i)long enough", r"(?:(?:long)+ )*enough", "long("],
)
def test_a_pattern_out_of_the_dialect_is_refused(pattern: str) -> None:
    with pytest.raises(pattern_dialect.PatternError):
        pattern_dialect.check(pattern)


@pytest.mark.parametrize("pattern", [r"\d+", "abc", "long enough|\\w+", "(?:long enough)?"])
def test_a_pattern_without_a_literal_text_is_refused(pattern: str) -> None:
    with pytest.raises(pattern_dialect.PatternError):
        pattern_dialect.literals(pattern)


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"CUDA out of memory\. Tried", ("CUDA out of memory. Tried",)),
        (r"(?:foobar|barfoo) \d+", ("foobar", "barfoo")),
        (r"[Cc]onnection reset", ("onnection reset",)),
        (r"a{2,}bcde.*x", ("bcde",)),
    ],
)
def test_the_rarest_literals_of_a_pattern_are_found(pattern: str, texts: tuple[str, ...]) -> None:
    assert pattern_dialect.literals(pattern) == texts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"class": "no-such"}, "is not one of"),
        ({"role": "boss"}, "is not one of"),
        ({"samples": []}, "must be a text or a list"),
        ({"patterns": ["a|b"]}, "literal"),
        ({"when": {"moon": "full"}}, "`when` takes only"),
        ({"colour": "red"}, "not a key of a signature"),
        ({"cause": 3}, "cause must be a text"),
    ],
)
def test_a_wrong_record_says_what_is_wrong(change: dict[str, object], message: str) -> None:
    with pytest.raises(signature_files.SignatureError, match=message):
        signature_files.parse_record({**RECORD, **change}, "mine.yaml")


def test_a_record_without_a_key_says_which() -> None:
    record = {key: value for key, value in RECORD.items() if key != "remedy"}
    with pytest.raises(signature_files.SignatureError, match="remedy missing"):
        signature_files.parse_record(record, "mine.yaml")


def test_an_id_stands_once(tmp_path: Path) -> None:
    import yaml  # noqa: PLC0415 - this test alone

    (tmp_path / "a.yaml").write_text(yaml.safe_dump([RECORD, RECORD]), encoding="utf-8")
    with pytest.raises(signature_files.SignatureError, match="already"):
        list(signature_files.read_files([str(tmp_path / "a.yaml")]))
