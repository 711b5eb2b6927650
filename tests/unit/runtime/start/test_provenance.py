"""Which packages the record of a run names first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.start import provenance

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("argv", "uses"),
    [
        (
            ["-m", "accelerate.commands.launch", "train.py"],
            ["accelerate", "trl", "torch", "deepspeed"],
        ),
        (["train.py"], ["trl", "torch", "deepspeed"]),
        (["-m", "torch.distributed.run", "util.py"], ["torch", "deepspeed", "trl"]),
        (["-m", "swift.cli.sft"], ["ms-swift", "trl", "torch", "deepspeed"]),
    ],
)
def test_the_packages_of_launcher_and_program_come_first(
    tmp_path: Path, argv: list[str], uses: list[str]
) -> None:
    (tmp_path / "train.py").write_text("import os\nfrom trl import SFTTrainer\nimport torch.nn\n")
    (tmp_path / "util.py").write_text("def f():\n    import deepspeed\n")
    names = ["train.py", "util.py", "gone.py"]
    assert provenance.used(argv, str(tmp_path), names) == uses
