"""ms-swift's `megatron sft`, `pt`, `rlhf`, `export`: Megatron-LM under the launcher of `swift`.

torchrun runs each of them if, and only if, NPROC_PER_NODE or NNODES is set: pt and sft since
ms-swift 3.5, export since 3.12 (swift/cli/main.py). pt, sft and rlhf take `--ddp_timeout`, whose
default is 208 days (swift/megatron/arguments/megatron_args.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.launchers import Command, CommandLine, JobKeys, Launch, common
from safelaunch.launchers.frameworks import swift

if TYPE_CHECKING:
    from safelaunch.model import Job

SUMMARY = "ms-swift's megatron: command: [sft], [pt] ...; processes become NPROC_PER_NODE"
TARGETS = ("command",)
STARTS_RANKS = True
COUNT_REQUIRED = False
RUNS_PYTHON = True
SETS_THREADS = True
PROGRAMS = ("megatron",)
MODULES = ("swift.cli._megatron.main",)
TIMEOUT = swift.TIMEOUT
READS = swift.READS
HUB_SWITCH = swift.HUB_SWITCH

_TRAINING = ("pt", "sft", "rlhf")
MEGATRON = swift.Program(
    name="megatron",
    module=MODULES[0],
    training=_TRAINING,
    distributed=(*_TRAINING, "export"),
)

imports = swift.imports
ranks_per_node = swift.ranks_per_node
binds_gpus = swift.binds_gpus
rendezvous = swift.rendezvous


def command(launch: Launch) -> Command:
    """Return `python -m swift.cli._megatron.main SUBCOMMAND ...` for one node."""
    return swift.run(MEGATRON, launch)


def job_keys(line: CommandLine) -> JobKeys | None:
    """Return the job of `megatron SUBCOMMAND ...`, and of `NPROC_PER_NODE=N megatron ...`."""
    return swift.read(MEGATRON, line)


def program(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return `megatron SUBCOMMAND`, and the words after it."""
    return common.program_of_words(("megatron", *job.command))
