from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import Project

from safelaunch.errors import StartError
from safelaunch.model import Slot
from safelaunch.runtime.commands import CommandResult
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


@pytest.mark.parametrize(
    ("environ", "visible"),
    [
        ({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "1"}, ["5"]),
        ({"ROCR_VISIBLE_DEVICES": "4,5"}, ["4", "5"]),
        ({"ROCR_VISIBLE_DEVICES": "4,5", "CUDA_VISIBLE_DEVICES": "4,5"}, ["4", "5"]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "2,3"}, ["1"]),
        ({"ASCEND_RT_VISIBLE_DEVICES": "6,7"}, ["6", "7"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_visible_devices_are_what_the_runtimes_of_each_maker_leave(
    tmp_path: Path, environ: dict[str, str], visible: list[str]
) -> None:
    assert preflight.visible_gpus(Project(tmp_path).node(JOB), environ) == visible


@pytest.mark.parametrize(
    ("keys", "removed"),
    [
        ("", ["WORLD_SIZE", "SLURM_* (2)", "PYTHONHOME"]),
        ("env_from: [SLURM_NNODES]\n", ["WORLD_SIZE", "SLURM_NTASKS", "PYTHONHOME"]),
        ("inherit: [SLURM_*, PYTHONHOME]\n", ["WORLD_SIZE"]),
        ("env: {PYTHONHOME: /x, SLURM_NNODES: 1}\n", ["WORLD_SIZE", "SLURM_NTASKS"]),
    ],
)
def test_what_the_job_does_not_get_of_the_caller_is_said(
    tmp_path: Path, keys: str, removed: list[str]
) -> None:
    node = Project(tmp_path).node(JOB + keys)
    environ = dict.fromkeys(("WORLD_SIZE", "SLURM_NNODES", "SLURM_NTASKS", "PYTHONHOME"), "1")
    environ |= {"SAFELAUNCH_RUN_ID": "x", "PATH": "/bin", "RANKS": "2"}
    assert preflight.removed_names(node, environ) == removed
    (note,) = (text for text in preflight.inherited(node, environ) if "removed" in text)
    assert note.startswith(f"removed from your environment: {', '.join(removed)}; ")


def test_what_the_launcher_sets_to_the_same_value_is_not_mentioned(tmp_path: Path) -> None:
    node, environ = Project(tmp_path).node(JOB), {"WORLD_SIZE": "8", "RANK": "3"}
    (note,) = preflight.inherited(node, environ, {"WORLD_SIZE": "8"})
    assert note.startswith("removed from your environment: RANK; ")


def test_a_clean_environment_is_not_mentioned(tmp_path: Path) -> None:
    assert preflight.inherited(Project(tmp_path).node(JOB), {"PATH": "/bin", "HOME": "/x"}) == []


PROBE = "version 3.11.7\ncores 8\ngpus 0\nport 23456\nexecutable /usr/bin/python3\n"
COUNTED = "launcher: trl\ncommand: [sft]\ngpus: auto\n"


def report() -> preflight.MachineReport:
    """Return what a machine without a GPU reports."""
    probe = CommandResult(0, PROBE, "")
    return preflight.MachineReport("/home/me", "/base", {}, "python3", "/bin/bash", probe, "")


def test_a_command_with_the_number_of_gpus_needs_some(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="this machine shows no"):
        preflight.facts(Project(tmp_path).node(JOB), report(), "run")


def test_a_framework_that_counts_gpus_itself_starts_without_any(tmp_path: Path) -> None:
    facts = preflight.facts(Project(tmp_path).node(COUNTED), report(), "run")
    assert (facts[Slot.GPUS], facts[Slot.THREADS]) == ("0", "8")
