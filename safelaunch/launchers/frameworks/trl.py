"""TRL: `trl sft --model_name_or_path X --num_processes 4`. Flags of accelerate are among its own.

What its parser does not know goes to `accelerate launch` in the same process, and that starts
trl/scripts/SUBCOMMAND.py (trl 1.16, cli/commands/training.py, and 0.24, cli.py). `trl.cli` is a
package since 0.29 and a module before, so its function is called, as the console script does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.launchers import Command, CommandLine, JobKeys, Launch, Rendezvous, common
from safelaunch.launchers.frameworks import accelerate_flags
from safelaunch.launchers.frameworks.accelerate_flags import ACCELERATE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.model import EnvVar, Job

SUMMARY = "TRL: command: [sft], [grpo], [vllm-serve] ...; processes become --num_processes"
TARGETS = ("command",)
STARTS_RANKS = True
COUNT_REQUIRED = True
RUNS_PYTHON = True
SETS_THREADS = True
PROGRAMS = ("trl",)
MODULES = ("trl.cli",)
SINGLE = ("vllm-serve",)
TIMEOUT = "`--ddp_timeout` (seconds)"

TRAINING = ("distillation", "dpo", "grpo", "kto", "reward", "rloo", "sft")
_MAIN = "from trl.cli import main; raise SystemExit(main())"


def command(launch: Launch) -> Command:
    """Return the command that calls TRL's command line."""
    job = launch.job
    sub, names = (job.command[0] if job.command else ""), (*TRAINING, *SINGLE)
    if sub not in names:
        raise ConfigError(
            f"trl has no subcommand `{sub}`",
            where=job.origin("command"),
            hint=did_you_mean(sub, names) or "known: " + ", ".join(names),
        )
    if job.launcher_args.words:
        raise ConfigError(
            "trl takes no `launcher_args`",
            where=job.origin("launcher_args"),
            hint="flags of accelerate are among its own: use `args:`",
        )
    words = (*job.command, *job.args.words)
    argv = (job.interpreter.word, "-c", _MAIN, *words)
    if sub in SINGLE:
        common.one_process(job)
        return Command(argv=argv, program=3, single="main")
    return Command(
        argv=(*argv, *accelerate_flags.added(launch, ACCELERATE, words)),
        program=3,
        single=accelerate_flags.single(job, words),
    )


def job_keys(line: CommandLine) -> JobKeys | None:
    """Return the job of `trl SUBCOMMAND ...`; without a count, one rank per GPU."""
    sub, words = (line.words[0] if line.words else ""), line.words[1:]
    if sub in SINGLE:
        return JobKeys({"command": (sub,), "args": words} if words else {"command": (sub,)})
    count = accelerate_flags.split_count(words, ACCELERATE)
    if sub not in TRAINING or count is None:
        return None
    keys: dict[str, str | tuple[str, ...]] = {"command": (sub,)}
    keys |= {"gpus": "auto"} if count.processes is None else {"processes": count.processes}
    return JobKeys(keys | ({"args": count.words} if count.words else {}))


def program(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return `trl SUBCOMMAND`, and the words after it."""
    return common.program_of_words(("trl", *job.command))


def imports(_job: Job) -> dict[str, str]:
    """Return TRL, and accelerate, which starts the ranks."""
    return {"trl": "trl", "accelerate": "accelerate", "torch": "torch"}


def ranks_per_node(job: Job) -> int | None:
    """Return the processes that accelerate starts."""
    return None if common.is_single(SINGLE, job.command) else job.topology.processes


def binds_gpus(job: Job) -> bool:
    """Whether ranks take the GPU of their local rank: a server chooses among all."""
    return not common.is_single(SINGLE, job.command)


def rendezvous(job: Job, env: Mapping[str, EnvVar]) -> Rendezvous:
    """Return the port that a flag of accelerate fixes, and the address of MASTER_ADDR."""
    fixed = accelerate_flags.rendezvous(ACCELERATE, job.args.words, "args")
    return fixed._replace(addresses=common.env_address(env))
