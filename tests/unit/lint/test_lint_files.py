from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.lint.fix import apply_edits
from safelaunch.lint.run import check

if TYPE_CHECKING:
    from safelaunch.lint.finding import LintFinding

ZERO2 = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_machines: 1
mixed_precision: bf16
debug: false
deepspeed_config:
  zero_stage: 2
  offload_optimizer_device: none
  contiguous_gradients: true
  overlap_comm: true
  reduce_scatter: true
  reduce_bucket_size: 5.0e+8
  allgather_bucket_size: 5.0e+8
"""


def findings(file: str, text: str) -> list[LintFinding]:
    return list(check(file, text.encode()).findings)


def ids(file: str, text: str) -> list[str]:
    return [f.id for f in findings(file, text)]


def test_a_local_version_is_found_and_the_index_named() -> None:
    (finding,) = findings("requirements.txt", "numpy\ntorchrec==0.6.0+cu118\n")
    assert (finding.id, finding.line) == ("requirements-local", 2)
    assert "https://download.pytorch.org/whl/cu118" in str(finding.fix)


@pytest.mark.parametrize(
    "text",
    [
        "torch==2.4.0\n",
        "--extra-index-url https://download.pytorch.org/whl/cu118\ntorch==2.4.0+cu118\n",
        "-f https://x/y.html\ntorch==2.4.0+cu118\n",
        "x @ https://host/x-1.0+cu118-py3-none-any.whl\n",
        "# torch==2.4.0+cu118\n",
        "nvidia-nccl-cu12\nnvidia-cublas-cu12\n",
    ],
)
def test_a_requirement_that_pip_finds_is_none(text: str) -> None:
    assert ids("requirements.txt", text) == []


def test_wheels_of_two_cuda_versions_are_found_once() -> None:
    text = "nvidia-cublas-cu11\nnvidia-nccl-cu12==2.20\nnvidia-cudnn-cu12\n"
    assert ids("requirements.txt", text) == ["requirements-cuda"]


def test_keys_that_accelerate_does_not_read_are_found() -> None:
    result = findings("zero2.yaml", ZERO2)
    unread = {f.message.split("`")[1] for f in result if f.id == "config-key"}
    assert unread == {
        "contiguous_gradients",
        "overlap_comm",
        "reduce_scatter",
        "reduce_bucket_size",
        "allgather_bucket_size",
    }
    assert all("deepspeed_config_file" in str(f.fix) for f in result)


def test_a_number_that_reaches_accelerate_as_text_is_found() -> None:
    text = ZERO2.replace("  reduce_bucket_size: 5.0e+8", "  gradient_clipping: 1e0")
    assert "yaml-type" in ids("zero2.yaml", text)


def test_a_key_that_accelerate_refuses_is_an_error_with_the_nearest_name() -> None:
    text = "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nnum_proceses: 2\n"
    (finding,) = findings("a.yaml", text)
    assert finding.severity == "error"
    assert finding.fix == "did you mean `num_processes`?"


def test_keys_with_and_without_the_prefix_of_their_block_pass() -> None:
    text = (
        "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n"
        "  fsdp_version: 2\n  auto_wrap_policy: NO_WRAP\ndynamo_config: {backend: inductor}\n"
    )
    assert ids("a.yaml", text) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"zero_optimization": {"stage": 2,}}', 1),
        ('{\n  "zero_optimization": {"stage": 2}, // two\n  "steps_per_print": 1\n}', 2),
        ("{\n'zero_optimization': {'stage': 2}}", 2),
    ],
)
def test_a_deepspeed_file_that_is_no_json_is_an_error(text: str, line: int) -> None:
    result = [f for f in findings("ds.json", text) if f.id == "json-syntax"]
    assert [(f.line, f.severity) for f in result] == [(line, "error")]


ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_sharding_strategy: {}
num_processes: 4
"""


@pytest.mark.parametrize("value", ["FULL_SHARD", "full_shard", "1", "HYBRID_SHARD_ZERO2", "null"])
def test_a_value_that_accelerate_accepts_is_no_finding(value: str) -> None:
    assert ids("a.yaml", ACCELERATE.format(value)) == []


@pytest.mark.parametrize("value", ["FULL_SHARDD", "zero3", "6", "true"])
def test_a_value_that_accelerate_refuses_is_an_error_with_its_place(value: str) -> None:
    [finding] = findings("a.yaml", ACCELERATE.format(value))
    assert (finding.id, finding.line, finding.column, finding.severity) == (
        *("config-value", 4, 27),
        "error",
    )
    assert "FULL_SHARD" in (finding.fix or "")


@pytest.mark.parametrize("kind", ["MULTI_GPU", "DEEPSPEED"])
def test_a_value_of_a_block_that_accelerate_does_not_read_is_no_finding(kind: str) -> None:
    assert ids("a.yaml", ACCELERATE.format("x").replace("FSDP", kind)) == []


def test_values_of_the_deepspeed_block_are_compared_too() -> None:
    text = "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n  zero_stage: 4\n"
    text += "  offload_optimizer_device: gpu\n  offload_param_device: none\n"
    assert ids("a.yaml", text) == ["config-value", "config-value"]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ('"stage": 5', ["config-value"]),
        ('"stage": 3, "offload_param": {"device": "gpu"}', ["config-value"]),
        ('"stage": 3, "offload_optimizer": {"device": "none"}', []),
        ('"stage": "auto"', []),
    ],
)
def test_values_of_deepspeed_s_own_file_are_compared(block: str, expected: list[str]) -> None:
    assert ids("ds.json", f'{{"zero_optimization": {{{block}}}}}') == expected


def test_fsdp_2_has_no_sharding_strategy_to_refuse() -> None:
    text = ACCELERATE.format("x\n  fsdp_version: 2")
    assert ids("a.yaml", text) == []


def test_keys_that_deepspeed_does_not_read_are_found_with_their_place() -> None:
    text = (
        '{\n\t"zero_optimization": {\n\t\t"stage": 2,\n\t\t"reduce_buckt": 5e8\n\t},\n\t"x": 1\n}'
    )
    result = findings("ds.json", text)
    assert [(f.id, f.line, f.column, f.severity) for f in result] == [
        ("config-key", 4, 3, "error"),
        ("config-key", 6, 2, "warning"),
    ]


def test_a_usual_deepspeed_file_is_clean() -> None:
    text = (
        '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "sub_group_size": 1e9,'
        ' "stage3_prefetch_bucket_size": "auto", "offload_param": {"device": "cpu"}},'
        ' "bf16": {"enabled": "auto"}, "wandb": {}, "amp": {}, "wall_clock_breakdown": false}'
    )
    assert ids("ds.json", text) == []


def test_a_bom_before_json_and_a_duplicate_key_in_it_are_found() -> None:
    text = '\ufeff{"zero_optimization": {"stage": 2, "stage": 3}}'
    assert ids("ds.json", text) == ["bom", "yaml-duplicate"]


@pytest.mark.parametrize("text", ['{"a": 1}', "[1, 2", "", '{"a": 1, "a": 2}'])
def test_json_of_others_is_left_alone(text: str) -> None:
    assert ids("x.json", text) == []


NAMES = ("train.yaml", "run.sh", "ds.json", "requirements.txt", "run", ".env")
PIECES = (
    "lr: 1e-3", "a: [1e5, on]", "\n", "\r\n", "  ", "\t", "- ", "x: ", "{", "}", "\ufeff", "\\ \n",
    "export NCCL_BLOCKING_WAIT=1", "CUDA_VISIBLE_DEVICES=0, 1", "'", '"', "| tee x", "env:", "#",
    "zero_optimization: {x: 1}", "NCCL_MNNVL: 1", "torch==2+cu118", "\u2028", "&a ", "*a", "<<EOF",
)  # fmt: skip


@given(st.sampled_from(NAMES), st.binary(max_size=80))
def test_no_bytes_are_too_strange(name: str, data: bytes) -> None:
    check(name, data)


@settings(max_examples=300, derandomize=True, database=None)
@given(st.sampled_from(NAMES), st.lists(st.sampled_from(PIECES), max_size=12))
def test_what_is_mended_needs_no_mending_again(name: str, pieces: list[str]) -> None:
    data = "".join(pieces).encode()
    once = apply_edits(data, check(name, data).findings)
    assert apply_edits(once, check(name, once).findings) == once


def test_lines_that_only_a_loader_ends_are_left_alone() -> None:
    text = "\u2028lr: 1e-3".encode()
    assert apply_edits(text, check("train.yaml", text).findings) == text


def test_all_byte_order_marks_go_at_once() -> None:
    text = ("\ufeff" * 2 + "echo a\n").encode()
    assert apply_edits(text, check("run.sh", text).findings) == b"echo a\n"


def test_words_that_follow_a_list_of_devices_are_no_part_of_it() -> None:
    assert ids("run.sh", "CUDA_VISIBLE_DEVICES=0, 1x\n") == []
