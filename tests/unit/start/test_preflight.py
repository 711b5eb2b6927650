from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import Project

from safelaunch.start import preflight

if TYPE_CHECKING:
    from pathlib import Path

JOB = "launcher: torchrun\nscript: train.py\ngpus: auto\n"


@pytest.mark.parametrize(
    ("more", "seen"),
    [
        ("", 3),  # the caller's
        ('env: {CUDA_VISIBLE_DEVICES: "0,1"}\n', 2),  # the plan's
        ("inherit: none\n", 8),  # what is installed
        ("env: {CUDA_VISIBLE_DEVICES: null}\n", 8),
    ],
)
def test_gpus_are_counted_as_the_job_will_see_them(tmp_path: Path, more: str, seen: int) -> None:
    node = Project(tmp_path).node(JOB + more)
    assert preflight._visible_gpus(node, {"CUDA_VISIBLE_DEVICES": "0,1,2"}, 8) == seen
