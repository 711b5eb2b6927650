"""LLaMA-Factory: `llamafactory-cli train x.yaml key=value`. Its topology is environment, not flags.

`train` starts torchrun itself if FORCE_TORCHRUN or USE_MCA is 1, true or y, or if the machine shows
several GPUs and neither USE_RAY nor USE_KT is set. It takes NPROC_PER_NODE or counts the GPUs, and
MASTER_PORT or a port that is free (launcher.py of llamafactory 0.9.5; cli.py of 0.9.1 likewise).
A plan forces torchrun for several processes; whether one runs under it is left to the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.launchers import Command, CommandLine, JobKeys, Launch, common, direct
from safelaunch.launchers.frameworks import subcommands, torchrun_variables
from safelaunch.model import (
    BUILT_IN,
    DirectStart,
    EnvVar,
    Gate,
    Job,
    Origin,
    PlanWarning,
    RankVariable,
    Slot,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

SUMMARY = "LLaMA-Factory: command: [train], [export] ...; processes become NPROC_PER_NODE"
TARGETS = ("command",)
STARTS_RANKS = True
COUNT_REQUIRED = True
RUNS_PYTHON = True
SETS_THREADS = True
PROGRAMS = ("llamafactory-cli", "lmf")
MODULES = ("llamafactory.cli",)
SINGLE = ("api", "chat", "eval", "export", "webchat", "webui")
TIMEOUT = "`ddp_timeout` (seconds) in the YAML file of the training"

_TRAINING = ("train", "sft", "dpo", "rm")  # sft, dpo and rm with USE_V1=1 (v1/launcher.py)
FORCING = ("FORCE_TORCHRUN", "USE_MCA")
_OTHER_BACKENDS = ("USE_RAY", "USE_KT")  # with them `train` is one process
ELASTIC = ("MIN_NNODES", "MAX_NNODES")
READS = (*torchrun_variables.NAMES, *FORCING)
_OPTIM_TORCH = (
    ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
    ("TORCH_NCCL_AVOID_RECORD_STREAMS", "1"),
)
_ENABLED = ("true", "y", "1")  # extras/misc.py, is_env_enabled


rendezvous = torchrun_variables.rendezvous

ranks_per_node = subcommands.ranks_per_node
binds_gpus = subcommands.binds_gpus


def command(launch: Launch) -> Command:
    """Return `python -m llamafactory.cli SUBCOMMAND ...` for one node."""
    job = launch.job
    sub = subcommands.check(job, (*_TRAINING, *SINGLE))
    subcommands.refuse_launcher_args(job)
    words = (*job.command, *job.args.words)
    argv = (job.interpreter.word, "-m", "llamafactory.cli", *words)
    own = {var.name: var.value if isinstance(var.value, str) else None for var in job.env}
    if sub in SINGLE or _starts_own_workers(own):
        common.one_process(job)
        return Command(argv=argv, program=3, single="main", has_workers=True)
    several = job.topology.nodes > 1 or (job.topology.processes or 0) > 1
    env = torchrun_variables.topology(launch, "llamafactory-cli hands it to torchrun")
    if several:
        why = "without it one visible GPU means one process"
        env = (*env, EnvVar("FORCE_TORCHRUN", "1", Origin("launcher llamafactory"), why=why))
    is_direct = job.topology.world_size == 1 and not _is_enabled(own, FORCING)
    return Command(
        argv=argv,
        program=3,
        env=env,
        warnings=() if is_direct else _split_words(job),
        single="main" if is_direct else None,
    )


def direct_start(launch: Launch) -> DirectStart | str:
    """Return how the ranks of a node are started without llamafactory-cli and its torchrun.

    They run llamafactory/launcher.py, with variables of its own since 0.9.3 (cli.py of 0.9.1 to
    0.9.3, launcher.py of 0.9.4 and 0.9.5).
    """
    job = launch.job
    own = {var.name: var.value if isinstance(var.value, str) else None for var in job.env}
    if own.keys() & {"RDZV_ID", "MAX_RESTARTS", *ELASTIC}:
        return "an elastic start needs the launcher"
    if job.command[:1] != ("train",) or _split_words(job):
        return "llamafactory-cli changes the words of its ranks"
    meeting = direct.reason(job, None, {}, ()) or direct.rendezvous(job, {})
    if isinstance(meeting, str):
        return meeting
    gate = Gate("llamafactory", ">=0.9.3", BUILT_IN)
    # unless the job decides it, the caller's environment or `setup` may
    is_optimised = (own.get("OPTIM_TORCH", "1") or "0").lower() in _ENABLED
    return direct.start(
        launch,
        meeting,
        flags={},
        variables=tuple(RankVariable(*row, gate, switch="OPTIM_TORCH") for row in _OPTIM_TORCH)
        if is_optimised
        else (),
        tested=(Gate("llamafactory", ">=0.9.1,<0.9.6", BUILT_IN),),
        program=(text(Slot.PACKAGE, "/launcher.py"),),
        replaced=1,  # the subcommand
        package="llamafactory",
    )


def _is_enabled(env: Mapping[str, str | None], names: tuple[str, ...]) -> bool:
    return any((env.get(name) or "").lower() in _ENABLED for name in names)


def _starts_own_workers(env: Mapping[str, str | None]) -> bool:
    """Whether `train` is one process, and Ray or KTransformers does the rest."""
    return _is_enabled(env, _OTHER_BACKENDS) and not _is_enabled(env, FORCING)


def _split_words(job: Job) -> tuple[PlanWarning, ...]:
    """Warn about arguments that do not survive: launcher.py joins them and splits at blanks."""
    split = [word for word in job.args.words if word.split() != [word]]
    if not split:
        return ()
    message = (
        f"`{split[0]}` reaches the ranks as other words: llamafactory-cli splits its arguments at "
        "blanks where it starts torchrun; put it into the YAML file"
    )
    return (PlanWarning("argument-split", message, str(job.origin("args"))),)


def job_keys(line: CommandLine) -> JobKeys | None:
    """Return the job of `llamafactory-cli SUBCOMMAND ...`; without a count, one rank per GPU."""
    sub = line.words[0] if line.words else ""
    if sub in SINGLE:
        return torchrun_variables.subcommand_keys(line)
    if sub not in _TRAINING or any(line.env.get(name) for name in ELASTIC):
        return None
    if _starts_own_workers(line.env):
        return JobKeys({**torchrun_variables.subcommand_keys(line).keys, "processes": "1"})
    return _training_keys(line)


def _training_keys(line: CommandLine) -> JobKeys | None:
    """Return the job of a training under torchrun; None for one of several machines."""
    job = torchrun_variables.counted_keys(line)
    if job is None:
        return None
    if line.env.get("NPROC_PER_NODE") is None:
        keys = {key: value for key, value in job.keys.items() if key != "processes"}
        return JobKeys({**keys, "gpus": "auto"}, job.variables)
    if _is_enabled(line.env, FORCING[:1]) and job.keys["processes"] != "1":  # the plan sets it too
        return JobKeys(job.keys, job.variables | {"FORCE_TORCHRUN"})
    return job


def program(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return `llamafactory SUBCOMMAND`, and the words after it."""
    return common.program_of_words(("llamafactory", *job.command))


def imports(_job: Job) -> dict[str, str]:
    """Return LLaMA-Factory, and torch, whose torchrun it calls."""
    return {"llamafactory": "llamafactory", "torch": "torch"}
