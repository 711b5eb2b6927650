"""Set-ups that are broken on purpose: `check` finds each fault, and says of none that it is ok."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from support.setups.machine import HIT, TORCHRUN, Setup, outcome
from support.setups.others import OTHERS
from support.setups.reported import REPORTED

if TYPE_CHECKING:
    from pathlib import Path

ALL = (*REPORTED, *OTHERS)
WHOLE = {
    "an empty program": Setup("empty", "whole"),
    "a program with options and libraries": Setup(
        "options",
        "whole",
        files={
            "train.py": "import argparse\nimport torch, transformers, trl\n"
            "p = argparse.ArgumentParser()\np.add_argument('--lr', type=float)\np.parse_args()\n",
            "requirements.txt": "trl>=0.24\ntorch==2.8.0\n",
        },
        job=TORCHRUN + "args: {lr: 1e-3}\nenv: {NCCL_DEBUG: WARN, OMP_NUM_THREADS: 8}\n",
    ),
    "a program that writes and resumes": Setup(
        "folders",
        "whole",
        files={
            "out/checkpoint-9/trainer_state.json": "{}",
            "out/checkpoint-9/model.safetensors": "x",
        },
        job=TORCHRUN + "args: {output_dir: out, resume_from_checkpoint: out/checkpoint-9}\n",
    ),
}


@pytest.mark.parametrize("setup", ALL, ids=lambda setup: setup.id)
def test_the_fault_of_a_set_up_is_found(setup: Setup, tmp_path: Path) -> None:
    result = outcome(setup, tmp_path / "project")
    assert result.verdict == HIT, (result.complaints, result.refusal)


@pytest.mark.parametrize("setup", WHOLE.values(), ids=WHOLE)
def test_the_same_set_up_without_a_fault_has_no_complaint(setup: Setup, tmp_path: Path) -> None:
    assert outcome(setup, tmp_path / "project").complaints == {}


def test_each_set_up_has_an_id_of_its_own() -> None:
    assert [name for name, count in Counter(setup.id for setup in ALL).items() if count > 1] == []


def test_every_set_up_says_what_must_be_found() -> None:
    assert [setup.id for setup in ALL if not (setup.finds or setup.refused)] == []
