"""Which packages the record of a run names first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.start import provenance

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("launcher", "argv", "uses"),
    [
        ("accelerate", ["train.py"], ["accelerate", "torch", "trl", "deepspeed"]),
        ("python", ["train.py"], ["trl", "torch", "deepspeed"]),
        ("torchrun", ["util.py"], ["torch", "deepspeed", "trl"]),
        ("python", ["python", "-m", "swift.cli.sft"], ["ms-swift", "trl", "torch", "deepspeed"]),
    ],
)
def test_the_packages_of_launcher_and_program_come_first(
    tmp_path: Path, launcher: str, argv: list[str], uses: list[str]
) -> None:
    (tmp_path / "train.py").write_text("import os\nfrom trl import SFTTrainer\nimport torch.nn\n")
    (tmp_path / "util.py").write_text("def f():\n    import deepspeed\n")
    names = ["train.py", "util.py", "gone.py"]
    assert provenance.used(launcher, argv, str(tmp_path), names) == uses
