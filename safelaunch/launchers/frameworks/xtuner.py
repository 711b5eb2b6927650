"""XTuner: `xtuner train CONFIG`, `test`, `mmbench` ... Its topology is environment, not flags.

Where NPROC_PER_NODE or NNODES is more than one it starts `torchrun` from PATH, whose ranks meet at
ADDR and PORT, and adds `--launcher pytorch` to their words; else one `python`. Its exit code is 0
also where they fail (xtuner 0.2.0, entry_point.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.launchers import Command, CommandLine, JobKeys, Launch, Rendezvous, common
from safelaunch.launchers.common import for_elastic
from safelaunch.launchers.frameworks import subcommands, torchrun_variables
from safelaunch.launchers.frameworks.torchrun_variables import states_processes
from safelaunch.model import EnvVar, Origin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.model import Job, Word

SUMMARY = "XTuner: command: [train], [test], [chat] ...; processes become NPROC_PER_NODE"
TARGETS = ("command",)
STARTS_RANKS = True
COUNT_REQUIRED = False
RUNS_PYTHON = True
SETS_THREADS = True
PROGRAMS = ("xtuner",)
DISTRIBUTED = ("train", "test", "mmbench", "eval_refcoco")
# with NPROC_PER_NODE each of them would run several times
SINGLE = ("chat", "convert", "preprocess", "log-dataset", "check-custom-dataset")
ADDRESS, PORT = "ADDR", "PORT"
READS = ("NPROC_PER_NODE", "NNODES", "NODE_RANK", ADDRESS, PORT)
NODE_0 = "env: {ADDR: ADDRESS, PORT: PORT}, the same on all nodes"
TIMEOUT = "`env_cfg: {dist_cfg: {timeout: ...}}` (seconds) in its config"

_MAIN = "from xtuner import cli; cli()"  # as its console script does

ranks_per_node = subcommands.ranks_per_node


def command(launch: Launch) -> Command:
    """Return the command that calls XTuner's command line, for one node."""
    job = launch.job
    sub = subcommands.check(job, (*DISTRIBUTED, *SINGLE))
    subcommands.refuse_launcher_args(job)
    words = (*job.command, *job.args.words)
    start: tuple[Word, ...] = (job.interpreter.word, "-c", _MAIN)
    if not _has_ranks(job):
        return Command((*start, *words), program=3, single="child")
    if sub in SINGLE:
        raise ConfigError(
            f"`xtuner {sub}` is a single process",
            where=job.origin("processes" if "processes" in job.origins else "hosts"),
            hint="leave it out: each rank would do all of it",
        )
    return Command((*start, *for_elastic(words)), program=3, env=_topology(launch))


def _has_ranks(job: Job) -> bool:
    """Whether XTuner starts torchrun; without a count it is one process over all GPUs."""
    return states_processes(job) and job.topology.world_size != 1


def _topology(launch: Launch) -> tuple[EnvVar, ...]:
    """Return the variables of torchrun, by the names that XTuner reads."""
    names = {"MASTER_ADDR": ADDRESS, "MASTER_PORT": PORT}
    variables = torchrun_variables.topology(launch, "xtuner hands it to torchrun")
    return tuple(
        EnvVar(names.get(v.name, v.name), v.value, Origin("launcher xtuner"), why=v.why)
        for v in variables
    )


def job_keys(line: CommandLine) -> JobKeys | None:
    """Return the job of `xtuner train ...`, and of `NPROC_PER_NODE=N xtuner train ...`."""
    sub = line.words[0] if line.words else ""
    if "--launcher" in line.words and "slurm" in line.words:  # the ranks are those of srun
        return None
    if sub in SINGLE:
        return torchrun_variables.subcommand_keys(line)
    if sub not in DISTRIBUTED:
        return None
    return torchrun_variables.counted_keys(line, address=ADDRESS)


def rendezvous(_job: Job, env: Mapping[str, EnvVar]) -> Rendezvous:
    """Return what ADDR and PORT fix."""
    names = {ADDRESS: "MASTER_ADDR", PORT: "MASTER_PORT"}
    own = {other: env[name] for name, other in names.items() if name in env}
    fixed = common.rendezvous(_job, own)
    ports = tuple(
        port._replace(
            setting="`env: {PORT: ...}`",
            remedy="take PORT out of `env`: a free port is chosen at each start",
        )
        for port in fixed.ports
    )
    return Rendezvous(ports, tuple((host, "env: ADDR") for host, _ in fixed.addresses))


def binds_gpus(job: Job) -> bool:
    """Whether ranks take the GPU of their local rank: a single process sees all of them."""
    return _has_ranks(job)


def program(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return `xtuner SUBCOMMAND`, and the words after it."""
    return common.program_of_words(("xtuner", *job.command))


def imports(_job: Job) -> dict[str, str]:
    """Return XTuner, and mmengine, which its command line imports."""
    return {name: name for name in ("xtuner", "mmengine", "torch")}
