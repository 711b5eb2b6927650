"""A diagnosis in a terminal of 80 columns."""

from __future__ import annotations

import io

from safelaunch.cli.diagnose.show import format_diagnosis
from safelaunch.diagnose.logs.sources import LogReader, LogSource
from safelaunch.diagnose.root_cause import diagnose

WIDTH = 80
SITE = "/opt/conda/envs/llm/lib/python3.11/site-packages"
CORE = "(EngineCore_DP0 pid=6611) ERROR 10-02 11:00:14 [core.py:708] "
ENGINE = [
    "Traceback (most recent call last):",
    f'  File "{SITE}/vllm/model_executor/model_loader/weight_utils.py", line 620, in read',
    '    with safe_open(st_file, framework="pt") as f:',
    "safetensors_rust.SafetensorError: Error while deserializing header: header too large",
]
LEFT = (
    "[rank0]:[W301 10:32:10.11 ProcessGroupNCCL.cpp:1496] Warning: WARNING:"
    " destroy_process_group() was not called before program exit, which can leak resources."
)
BUG = 'Traceback (most recent call last):\n  File "/home/me/t.py", line 3, in f\n    g()\n'


def shown(text: str, path: str = "train.log") -> list[str]:
    diagnosis = diagnose([LogReader(LogSource(path), io.BytesIO(text.encode()))])
    return list(format_diagnosis(diagnosis, WIDTH, show_all=False))


def row(lines: list[str], label: str) -> str:
    return next(line for line in lines if line.startswith(label))


def test_the_prefix_of_a_logger_is_removed_from_a_long_message() -> None:
    lines = shown("\n".join(CORE + line for line in ENGINE))
    assert row(lines, "failure").startswith("failure   safetensors_rust.SafetensorError: Error")
    assert any("> safetensors_rust.SafetensorError: Error while" in line for line in lines)


def test_a_frame_in_the_proof_keeps_the_end_of_its_path() -> None:
    lines = shown("\n".join(CORE + line for line in ENGINE))
    assert any('weight_utils.py", line 620, in read' in line for line in lines)


def test_a_rank_stays_before_a_line_that_is_shortened() -> None:
    text = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0"
    assert any("> [rank3]: torch.OutOfMemoryError" in line for line in shown(text))


def test_no_line_of_proof_is_wider_than_the_terminal() -> None:
    lines = shown("\n".join(CORE + line for line in ENGINE))
    start = lines.index(row(lines, "proof"))
    assert max(map(len, lines[start : start + 4])) <= WIDTH


def test_control_characters_of_a_log_are_not_printed() -> None:
    lines = shown("\x9b31m\x08RuntimeError: \x07\x08CUDA out of memory. \x9b2J\n")
    assert [line for line in lines if not line.isprintable()] == []


def test_standard_input_is_named() -> None:
    lines = shown(f"{BUG}ValueError: bad batch 17\n", "-")
    assert row(lines, "in").split() == ["in", "standard", "input:4"]


def test_a_warning_is_shown_below_the_line_without_a_failure() -> None:
    lines = shown(f"step 1 loss 0.3\n{LEFT}\n")
    assert lines[0].startswith("no failure found in ")
    assert not any(line.startswith(("failure", "class", "restart")) for line in lines)
    assert row(lines, "warning").startswith("warning   Warning: ")


def test_advice_about_a_restart_in_the_steps_is_not_repeated() -> None:
    lines = shown(f"{BUG}ValueError: bad batch 17\n")
    assert sum("a restart alone fails the same way" in line for line in lines) == 1
