from __future__ import annotations

import pytest
import yaml
from support.inputs.yaml_scalars import EXAMPLES, disagreements, generate

from safelaunch.lint.fix import apply_edits, unified_diff
from safelaunch.lint.kinds import FileKind
from safelaunch.lint.run import check
from safelaunch.lint.yaml_files.scalars import (
    portable_float,
    pyyaml_value,
    ruamel_value,
)


def ids(text: str, file: str = "train.yaml") -> list[str]:
    return [f.id for f in check(file, text.encode()).findings]


def test_the_verdict_on_scalars_is_what_two_loaders_say() -> None:
    pytest.importorskip("ruamel.yaml", reason="needs ruamel.yaml")
    assert list(disagreements(generate(2000, seed=1))) == []


@pytest.mark.parametrize(
    "text", ["1e-3", "1e5", "on", "22:22", "0777", "1.5e3", "-.5", "08", "0o17", "No", "190:20:30"]
)
def test_a_value_that_loaders_read_differently_is_found(text: str) -> None:
    assert ids(f"lr: {text}\n") == ["yaml-type"]


@pytest.mark.parametrize("text", ["1.0e-3", "0.001", "true", "7", "bf16", '"1e-3"', "null", "3.10"])
def test_a_value_that_all_read_alike_is_none(text: str) -> None:
    assert ids(f"lr: {text}\n") == []


def test_a_date_is_found_though_both_loaders_make_one() -> None:
    assert ids("day: 2026-05-20\nquoted: '2026-05-20'\n") == ["yaml-date"]


def test_a_float_of_the_standard_that_no_loader_reads_is_found() -> None:
    assert pyyaml_value(".5e3") == ruamel_value(".5e3")
    assert ids("lr: .5e3\n") == ["yaml-type"]


def test_keys_list_items_and_flow_values_are_looked_at() -> None:
    text = "distributed_type: x\nfsdp_config: {}\non: 1\nl: [1, 1e-3]\nm: {a: 1e5}\n"
    assert ids(text).count("yaml-type") == 3


def test_a_number_is_an_error_only_where_the_reader_is_known_to_take_it_for_text() -> None:
    files = (b"tpu_env: []\ndowncast_bf16: 1e-3\n", b"lr: 1e-3\n")  # accelerate's, and any
    assert [f.severity for file in files for f in check("a.yaml", file).findings] == [
        "error",
        "note",
    ]


def test_notes_about_numbers_are_one_for_the_file_and_mended_all() -> None:
    text = b"lr: 1e-3\neps: 1e-8\nwd: 1e-2  # safelaunch: ignore\non: 1\n"
    (finding,) = check("a.yaml", text).findings
    assert "2 more values of this kind below" in finding.message
    after = b"lr: 1.0e-3\neps: 1.0e-8\nwd: 1e-2  # safelaunch: ignore\non: 1\n"
    assert apply_edits(text, [finding]) == after


def test_a_tag_says_the_type_itself() -> None:
    assert ids("lr: !!float 1e-3\nname: !custom 1e-3\n") == []


def test_the_place_of_a_value_counts_characters() -> None:
    (finding,) = check("a.yaml", 'é: ["ü", 1e-3]\n'.encode()).findings
    assert (finding.line, finding.column) == (1, 10)


@pytest.mark.parametrize("text", [t for t in EXAMPLES if portable_float(t)])
def test_a_mended_float_is_the_same_number_to_all(text: str) -> None:
    new = str(portable_float(text))
    assert pyyaml_value(new) == ruamel_value(new)
    assert yaml.safe_load(f"v: {new}")["v"] == float(text)


def test_mending_touches_nothing_else() -> None:
    before = b"\xef\xbb\xbf# x: 1e-3\r\nlr: 1e-3  # 1e-3\r\nb: [ 1e5,0.1, 5e8 ]\r\n"
    after = b"\xef\xbb\xbf# x: 1e-3\r\nlr: 1.0e-3  # 1e-3\r\nb: [ 1.0e+5,0.1, 5.0e+8 ]\r\n"
    findings = check("a.yaml", before).findings
    assert apply_edits(before, findings) == after
    assert [f.is_fixable for f in check("a.yaml", after).findings] == []


def test_a_line_end_that_only_yaml_knows_is_not_edited_wrongly() -> None:
    before = "a: x\u2028lr: 1e-3\nb: y\nc: z\n".encode()
    assert apply_edits(before, check("a.yaml", before).findings) == before


def test_the_difference_shows_what_cannot_be_seen() -> None:
    shown = unified_diff("a.sh", b"\xef\xbb\xbfa\r\n", b"a\n")
    assert "-<BOM>a^M\n+a\n" in shown


@pytest.mark.parametrize(
    "text", ["a: 1\na: 2\n", 'a: 1\n"a": 2\n', "yes: 1\ntrue: 2\n", "{1: a, 01: b}"]
)
def test_a_duplicate_key_is_found(text: str) -> None:
    assert "yaml-duplicate" in ids(text)


@pytest.mark.parametrize("text", ["a: {x: 1}\nb: {x: 1}\n", "- a: 1\n- a: 2\n", "1: a\n'1': b\n"])
def test_the_same_key_elsewhere_is_none(text: str) -> None:
    assert ids(text) == []


def test_merge_keys_and_anchors_of_training_configs_are_fine() -> None:
    text = "base: &b {x: 1}\nother: &o {y: 1}\nuse:\n  <<: *b\n  <<: *o\n  z: [*b, *o]\n"
    assert ids(text) == []


def test_a_tab_is_named() -> None:
    (finding,) = check("a.yaml", b"a:\n\tb: 1\n").findings
    assert (finding.id, finding.line, finding.column) == ("yaml-tab", 2, 1)


@pytest.mark.parametrize("text", ["a: [1\n", "a: b: c\n", "a: \x01\n", "a: 'x\n", "%%\n"])
def test_what_is_no_yaml_is_one_finding(text: str) -> None:
    assert ids(text) == ["yaml-syntax"]


@pytest.mark.parametrize("text", ["", "\n", "# only\n", "---\n", "a: 1\n---\na: 2\n", "plain"])
def test_empty_files_and_several_documents_are_fine(text: str) -> None:
    assert ids(text) == []


def test_deep_nesting_does_no_harm() -> None:
    assert ids("[" * 5000 + "]" * 5000) in ([], ["yaml-syntax"])


def test_utf_16_is_named() -> None:
    assert [f.id for f in check("a.yaml", "a: 1".encode("utf-16")).findings] == ["encoding"]


def test_crlf_and_a_bom_do_no_harm_in_yaml() -> None:
    assert ids("\ufeffa: 1\r\nb: x\r\n") == []


@pytest.mark.parametrize(
    "text",
    ["lr: 1e-3  # safelaunch: ignore\n", "# safelaunch: ignore[yaml-type]\nlr: 1e-3\n",
     "lr: 1e-3  # safelaunch: ignore[yaml-date, yaml-type]\n"],
)  # fmt: skip
def test_a_comment_ignores(text: str) -> None:
    assert ids(text) == []


def test_a_comment_ignores_only_what_it_names() -> None:
    assert ids("lr: 1e-3  # safelaunch: ignore[yaml-date]\n") == ["yaml-type"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("launcher: torchrun\nscript: train.py\n", FileKind.JOB),
        ("script: train.py\nprocesses: 4\nlancher: x\n", FileKind.JOB),
        ("extends: base.yaml\nargs: {lr: 1e-3}\n", FileKind.JOB),
        ("hosts: {a: {address: 10.0.0.1}}\n", FileKind.HOSTS),
        ("accelerator: cuda\nenv: {}\n", FileKind.PROFILE),
        ("compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\n", FileKind.ACCELERATE),
        ("zero_optimization: {stage: 2}\n", FileKind.DEEPSPEED),
        ("model: x\nlearning_rate: 0.1\nlauncher: {a: b}\nargs: 1\n", FileKind.TRAINING),
        ("experiment_name: a\nlauncher: local\ntrial_name: b\n", FileKind.TRAINING),
    ],
)
def test_the_kind_of_a_file_is_told_by_its_keys(text: str, kind: FileKind) -> None:
    assert check("x.yaml", text.encode()).kind is kind


def test_a_job_keeps_the_spelling_of_its_arguments() -> None:
    assert ids("launcher: torchrun\nscript: train.py\nargs: {lr: 1e-3}\n") == []


def test_a_workflow_may_say_on() -> None:
    assert ids("on: push\njobs: {}\n", file=".github/workflows/ci.yml") == []
