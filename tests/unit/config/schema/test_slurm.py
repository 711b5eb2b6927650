"""`slurm:` of a job file and of a host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import PYTHON, Project

from safelaunch.config.resolve import Flags
from safelaunch.model import SbatchOption, Slurm
from safelaunch.plan.serialize import freeze, thaw

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def block(project: Project, keys: str) -> Slurm:
    """Return the block of a job."""
    slurm = project.resolve(f"{PYTHON}slurm: {{{keys}}}\n").job.slurm
    assert slurm is not None
    return slurm


def test_values_are_read_in_seconds_bytes_and_words(project: Project) -> None:
    slurm = block(
        project,
        "partition: 'a,b', time: 1d12h, mem_per_gpu: 60GiB, signal: 5m, exclude: n7,"
        " requeue: false, constraint: 'a|b', setup: module load x, prefix: [ssh, login2]",
    )
    assert (slurm.partition, slurm.time, slurm.mem_per_gpu) == ("a,b", 36 * 3600, 60 * GIB)
    assert (slurm.signal, slurm.exclude, slurm.requeue) == (300, ("n7",), False)
    assert (slurm.constraint, slurm.setup) == ("a|b", ("module load x",))
    assert slurm.prefix == ("ssh", "login2")


def test_a_word_behind_an_option_is_its_value(project: Project) -> None:
    options = block(project, "options: [-H, --nice, '100', --mail-type=END]").options
    assert options == tuple(map(SbatchOption, [("-H",), ("--nice", "100"), ("--mail-type=END",)]))
    assert (options[1].origin.line, options[1].origin.column) == (3, 23)


def test_the_block_of_a_job_is_laid_over_that_of_its_host_key_by_key(project: Project) -> None:
    project.write(
        "hosts: {localhost: {slurm: {partition: cpu, qos: long, signal: 10m, mem: 4GiB}}}\n", "h"
    )
    text = PYTHON + "slurm: {partition: gpu, signal: null, mem: null, mem_per_gpu: 8GiB}\n"
    resolved = project.resolve(text, Flags(hosts_file="h"))
    own, host = resolved.job.slurm, resolved.hosts[0].slurm
    assert own is not None
    assert host is not None
    merged = own.over(host)
    assert (merged.partition, merged.qos, merged.signal) == ("gpu", "long", 120)
    assert (merged.mem, merged.mem_per_gpu) == (None, 8 * GIB)
    assert {key: str(origin) for key, origin in merged.origins.items()} == {
        "partition": "job.yaml:3:20", "qos": "h:1:50", "signal": "job.yaml:3:33",
        "mem": "job.yaml:3:44", "mem_per_gpu": "job.yaml:3:63",
    }  # fmt: skip


def test_a_block_survives_the_record_of_a_plan(project: Project) -> None:
    slurm = block(project, "time: 2h, options: [--nice, '100']")
    assert thaw(freeze(slurm)) == slurm


def test_a_start_without_slurm_notes_that_the_blocks_have_no_effect(project: Project) -> None:
    project.write("hosts: {localhost: {slurm: {partition: cpu}}}\n", "h")
    flags = Flags(hosts_file="h")
    assert project.plan(PYTHON + "slurm: {time: 2h}\n", flags).notes == (
        "`slurm:` (job.yaml:3:8, h:1:28) has no effect: Slurm does not start this job",
    )
    assert project.plan(PYTHON).notes == ()


BAD = {
    "slurm: gpu": ("3:8", "a mapping such as {partition: gpu", ""),
    "slurm: {partitions: gpu}": ("3:9", "unknown key `partitions`", "`partition`"),
    "slurm: {cpus-per-task: 4}": ("3:9", "unknown key `cpus-per-task`", "`cpus_per_task`"),
    "slurm: {partition: 'a b'}": ("3:20", "no word for sbatch", ""),
    "slurm: {account: -x}": ("3:18", "no word for sbatch", ""),
    "slurm: {qos: ünlimited}": ("3:14", "no word for sbatch", ""),
    "slurm: {gpu_type: 'h100:4'}": ("3:19", "no GPU type", ""),
    "slurm: {time: 24:00:00}": ("3:15", "expected a duration", "`1d`"),
    "slurm: {time: 1-12}": ("3:15", "expected a duration", "`1d12h`"),
    "slurm: {time: 2-0:30}": ("3:15", "expected a duration", "`2d30m`"),
    "slurm: {time: 90:00}": ("3:15", "expected a duration", "`1h30m`"),
    "slurm: {time: 90}": ("3:15", "expected a duration", "`90m`"),
    "slurm: {time: 0s}": ("3:15", "no time at all", ""),
    "slurm: {signal: 1d}": ("3:17", "at most 65535 s", ""),
    "slurm: {mem: 60}": ("3:14", "expected a size", "`60GiB`"),
    "slurm: {exclusive: yes}": ("3:20", "true or false", ""),
    "slurm: {gpus_per_node: 0}": ("3:24", "at least 1", ""),
    "slurm: {mem: 4GiB, mem_per_cpu: 1GiB}": ("3:33", "together", "`mem: null`"),
    "slurm: {cpus_per_task: 4, cpus_per_gpu: 2}": ("3:41", "together", "`cpus_per_task: null`"),
    "slurm: {options: --nice}": ("3:18", "a list of words", ""),
    "slurm: {options: [x]}": ("3:19", "no option of sbatch", ""),
    "slurm: {options: [--a, b, c]}": ("3:27", "no option of sbatch", ""),
    'slurm: {options: ["--comment=a\\nb"]}': ("3:19", "a line break", ""),
    "slurm: {token: x}": ("3:9", "a secret does not belong in a file", ""),
    "slurm: {setup: 'export HF_TOKEN=abc123'}": ("3:16", "a secret", ""),
}


@pytest.mark.parametrize("text", BAD)
def test_a_mistake_is_told_with_its_place(text: str, project: Project) -> None:
    where, message, hint = BAD[text]
    refusal = project.refused(PYTHON + text + "\n")
    assert refusal.where == f"job.yaml:{where}"
    assert message in refusal.message
    assert hint in refusal.hint


def test_two_forms_of_memory_that_come_together_by_extends_are_refused(project: Project) -> None:
    project.write(PYTHON + "slurm: {mem: 4GiB}\n", "base.yaml")
    refusal = project.refused("extends: base.yaml\nslurm: {mem_per_gpu: 8GiB}\n")
    assert (refusal.where, refusal.hint) == (
        "job.yaml:2:22", "`mem` is set at base.yaml:3:14; `mem: null` removes it",
    )  # fmt: skip
