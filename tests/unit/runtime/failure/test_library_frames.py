"""Which library a source file belongs to, and in which one an exception was raised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.failure import library_frames
from safelaunch.runtime.records import StackFrame

if TYPE_CHECKING:
    from pathlib import Path

SITE = "/opt/conda/envs/llm/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("file", "library", "path"),
    [
        (f"{SITE}/trl/trainer/sft_trainer.py", "trl", "trl/trainer/sft_trainer.py"),
        ("/usr/lib/python3/dist-packages/yaml/parser.py", "yaml", "yaml/parser.py"),
        ("/home/me/.local/lib/python3.10/site-packages/fire.py", "fire", "fire.py"),
        (r"C:\venv\Lib\site-packages\peft\tuners\lora.py", "peft", "peft/tuners/lora.py"),
        ("/x/site-packages/trl-1.16.0-py3.11.egg/trl/core.py", "trl", "trl/core.py"),
        ("/root/.pex/wheels/trl-1.16.0-py3-none-any.whl/trl/core.py", "trl", "trl/core.py"),
        ("/workspace/verl/verl/trainer/main_ppo.py", "verl", "verl/trainer/main_ppo.py"),
        ("/sgl-workspace/sglang/python/sglang/srt/x.py", "sglang", "sglang/srt/x.py"),
        ("/app/LLaMA-Factory/src/llamafactory/hparams/parser.py", "llamafactory",
         "llamafactory/hparams/parser.py"),
        ("/opt/Megatron-LM/megatron/core/parallel_state.py", "megatron",
         "megatron/core/parallel_state.py"),
        ("/home/me/ms-swift/swift/llm/train/sft.py", "swift", "swift/llm/train/sft.py"),
        ("/home/me/.cache/huggingface/modules/transformers_modules/org/m/modeling_m.py",
         "transformers_modules", "transformers_modules/org/m/modeling_m.py"),
    ],
)  # fmt: skip
def test_a_file_of_a_library_is_recognised_by_its_path(file: str, library: str, path: str) -> None:
    assert library_frames.split_path(file) == (library, path)


@pytest.mark.parametrize(
    "file",
    [
        "/home/me/proj/train.py",
        "/home/me/trl/train.py",  # a folder of that name
        "/home/me/proj/src/datasets/images.py",
        "/home/me/vllm-experiments/scripts/run.py",
        "train.py",
    ],
)
def test_a_file_of_the_user_belongs_to_no_library(file: str) -> None:
    assert not library_frames.is_library(file)


@pytest.mark.parametrize(
    "file",
    [
        "/usr/lib/python3.11/json/decoder.py",
        "/usr/lib64/python3.12/argparse.py",
        r"C:\Python312\Lib\json\decoder.py",
        "<frozen importlib._bootstrap>",
        "<string>",
    ],
)
def test_what_belongs_to_python_is_neither_a_library_nor_the_users(file: str) -> None:
    assert library_frames.split_path(file) is None
    assert library_frames.is_library(file)


def frame(file: str, code: str = "") -> StackFrame:
    return StackFrame(file=file, line=12, function="f", code=code)


OWN, LIBRARY = frame("/home/me/train.py"), frame(f"{SITE}/datasets/load.py")
STANDARD = frame("/usr/lib/python3.11/json/decoder.py")


@pytest.mark.parametrize(
    ("frames", "raising"),
    [
        ([OWN, LIBRARY], LIBRARY),
        ([OWN, LIBRARY, STANDARD], LIBRARY),  # it gave Python what Python refuses
        ([LIBRARY, OWN], None),  # a callback of the user
        ([LIBRARY, OWN, STANDARD], None),
        ([STANDARD], None),
        ([], None),
    ],
)
def test_the_raising_frame_is_the_innermost_outside_of_python(
    frames: list[StackFrame], raising: StackFrame | None
) -> None:
    assert library_frames.raising_frame(frames) == raising


@pytest.mark.parametrize(
    ("code", "is_raise"),
    [
        ("raise ValueError(", True),
        ("assert world_size % 8 == 0", True),
        ("raise", True),
        ("raise_for_status(response)", False),
        ("return config[key]", False),
        ("", False),
    ],
)
def test_a_refusal_is_told_from_a_fault_by_its_line_of_code(code: str, is_raise: bool) -> None:
    library = library_frames.library_frame(frame(f"{SITE}/trl/core.py", code))
    assert library.is_raise is is_raise


@pytest.mark.parametrize(
    "name",
    [
        "flash_attn-2.8.3.dist-info",
        "flash_attn-2.8.3-py3.11.egg-info",
        "Flash_Attn-2.8.3.dist-info",
    ],
)
def test_the_version_is_read_beside_the_library(tmp_path: Path, name: str) -> None:
    site = tmp_path / "site-packages"
    (site / name).mkdir(parents=True)
    (site / "flash_attn_extras-1.0.dist-info").mkdir()
    file = str(site / "flash_attn" / "interface.py")
    assert library_frames.installed_version(file, "flash_attn") == "2.8.3"


def test_a_version_that_cannot_be_read_is_empty() -> None:
    assert library_frames.installed_version("/gone/site-packages/trl/core.py", "trl") == ""
