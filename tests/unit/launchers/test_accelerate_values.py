"""Values of accelerate's flags that its ranks refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import Project

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.model import PlanWarning

JOB = "launcher: accelerate\nscript: train.py\nprocesses: 4\nlauncher_args: {{{}}}\n"
WRONG = [
    "use_fsdp: true, fsdp_sharding_strategy: FULL_SHARDD",
    "use_fsdp: true, fsdp_auto_wrap_policy: TRANSFORMER",
    "use_fsdp: true, fsdp_backward_prefetch: PRE",
    "use_fsdp: true, fsdp_state_dict_type: SHARDED",
    "use_deepspeed: true, zero_stage: 4",
    "use_deepspeed: true, offload_optimizer_device: gpu",
]
RIGHT = [
    "use_fsdp: true, fsdp_sharding_strategy: full_shard",
    "use_fsdp: true, fsdp_sharding_strategy: 1, fsdp_state_dict_type: FULL_STATE_DICT",
    "use_fsdp: true, fsdp_version: 2, fsdp_sharding_strategy: FULL_SHARDD",
    "use_deepspeed: true, zero_stage: 3, offload_param_device: none",
    "use_deepspeed: true, fsdp_sharding_strategy: FULL_SHARDD",
    "fsdp_sharding_strategy: FULL_SHARDD",
]


def warnings(folder: Path, args: str) -> tuple[PlanWarning, ...]:
    return Project(folder / "project").plan(JOB.format(args)).warnings


@pytest.mark.parametrize("args", WRONG)
def test_a_value_that_the_ranks_refuse_is_a_warning(tmp_path: Path, args: str) -> None:
    [warning] = warnings(tmp_path, args)
    assert (warning.id, warning.where) == ("launcher-value", "job.yaml:4:16")
    assert args.rpartition(", ")[2].partition(":")[0] in warning.message
    assert warning.fix


@pytest.mark.parametrize("args", RIGHT)
def test_a_value_that_they_accept_or_do_not_read_is_none(tmp_path: Path, args: str) -> None:
    assert warnings(tmp_path, args) == ()


def test_counted_gpus_may_be_one_which_the_flag_would_refuse(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    job = "launcher: accelerate\nscript: train.py\ngpus: auto\n"
    node = project.node(job)
    assert "--multi_gpu" not in map(str, node.argv)
    assert "distributed_type: MULTI_GPU" in str(dict(node.files)["accelerate.yaml"])
    assert "--multi_gpu" in map(str, project.node(job.replace("auto", "2")).argv)
