"""LLaMA-Factory: `llamafactory-cli train x.yaml key=value`. Its topology is environment, not flags.

`train` starts torchrun itself if FORCE_TORCHRUN or USE_MCA is 1, true or y, or if the machine shows
several GPUs and neither USE_RAY nor USE_KT is set. It takes NPROC_PER_NODE or counts the GPUs, and
MASTER_PORT or a port that is free (launcher.py of llamafactory 0.9.5; cli.py of 0.9.1 likewise).
A plan forces torchrun for several processes; whether one runs under it is left to the program.
"""

from __future__ import annotations

from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.launchers import Command, CommandLine, JobKeys, Launch, common
from safelaunch.launchers.frameworks import torchrun_variables
from safelaunch.model import EnvVar, Job, Origin, PlanWarning

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
_ENABLED = ("true", "y", "1")  # extras/misc.py, is_env_enabled


rendezvous = torchrun_variables.rendezvous


def command(launch: Launch) -> Command:
    """Return `python -m llamafactory.cli SUBCOMMAND ...` for one node."""
    job = launch.job
    sub, names = (job.command[0] if job.command else ""), (*_TRAINING, *SINGLE)
    if sub not in names:
        raise ConfigError(
            f"llamafactory has no subcommand `{sub}`",
            where=job.origin("command"),
            hint=did_you_mean(sub, names) or "known: " + ", ".join(names),
        )
    if job.launcher_args.words:
        raise ConfigError(
            "llamafactory takes no `launcher_args`",
            where=job.origin("launcher_args"),
            hint="use `args:`",
        )
    words = (*job.command, *job.args.words)
    argv = (job.interpreter.word, "-m", "llamafactory.cli", *words)
    if sub in SINGLE:
        common.one_process(job)
        return Command(argv=argv, program=3, single="main")
    several = job.topology.nodes > 1 or (job.topology.processes or 0) > 1
    env = torchrun_variables.topology(launch, "llamafactory-cli hands it to torchrun")
    if several and not _is_enabled(job, _OTHER_BACKENDS):
        why = "without it one visible GPU means one process"
        env = (*env, EnvVar("FORCE_TORCHRUN", "1", Origin("launcher llamafactory"), why=why))
    is_direct = job.topology.world_size == 1 and not _is_enabled(job, FORCING)
    return Command(
        argv=argv,
        program=3,
        env=env,
        warnings=() if is_direct else _split_words(job),
        single="main" if is_direct else None,
    )


def _is_enabled(job: Job, names: tuple[str, ...]) -> bool:
    values = (str(var.value).lower() for var in job.env if var.name in names)
    return any(value in _ENABLED for value in values)


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
    if sub not in _TRAINING or any(line.env.get(name) for name in (*_OTHER_BACKENDS, *ELASTIC)):
        return None
    job = torchrun_variables.counted_keys(line)
    if job is None:
        return None
    if line.env.get("NPROC_PER_NODE") is None:
        keys = {key: value for key, value in job.keys.items() if key != "processes"}
        return JobKeys({**keys, "gpus": "auto"}, job.variables)
    is_forced = (line.env.get("FORCE_TORCHRUN") or "").lower() in _ENABLED
    if is_forced and job.keys["processes"] != "1":  # the plan sets it too
        return JobKeys(job.keys, job.variables | {"FORCE_TORCHRUN"})
    return job


def program(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return `llamafactory SUBCOMMAND`, and the words after it."""
    return common.program_of_words(("llamafactory", *job.command))


def imports(_job: Job) -> dict[str, str]:
    """Return LLaMA-Factory, and torch, whose torchrun it calls."""
    return {"llamafactory": "llamafactory", "torch": "torch"}


def ranks_per_node(job: Job) -> int | None:
    """Return the processes that llamafactory lets torchrun start."""
    return None if common.is_single(SINGLE, job.command) else job.topology.processes


def binds_gpus(job: Job) -> bool:
    """Whether ranks take the GPU of their local rank: other subcommands spread over all GPUs."""
    return not common.is_single(SINGLE, job.command)
