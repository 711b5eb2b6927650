from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import Project

from safelaunch.start import preflight

if TYPE_CHECKING:
    from pathlib import Path

JOB = "launcher: torchrun\nscript: train.py\ngpus: auto\n"


@pytest.mark.parametrize(
    ("keys", "visible"),
    [
        ("", ["0", "1", "2"]),  # the caller's
        ('env: {CUDA_VISIBLE_DEVICES: "0,1"}\n', ["0", "1"]),  # the plan's
        ("inherit: none\n", None),  # all that are installed
        ("env: {CUDA_VISIBLE_DEVICES: null}\n", None),
    ],
)
def test_visible_gpus_are_those_that_the_job_will_see(
    tmp_path: Path, keys: str, visible: list[str] | None
) -> None:
    node = Project(tmp_path).node(JOB + keys)
    assert preflight.visible_gpus(node, {"CUDA_VISIBLE_DEVICES": "0,1,2"}) == visible
