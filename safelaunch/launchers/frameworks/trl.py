"""TRL: `trl sft --model_name_or_path X --num_processes 4`. Flags of accelerate are among its own.

What its parser does not know goes to `accelerate launch` in the same process, and that starts
trl/scripts/SUBCOMMAND.py (trl 1.16, cli/commands/training.py, and 0.24, cli.py). `trl.cli` is a
package since 0.29 and a module before, so its function is called, as the console script does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.launchers import Command, CommandLine, JobKeys, Launch, Rendezvous, common
from safelaunch.launchers.frameworks import accelerate_flags, subcommands
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

ranks_per_node = subcommands.ranks_per_node
binds_gpus = subcommands.binds_gpus


def command(launch: Launch) -> Command:
    """Return the command that calls TRL's command line."""
    job = launch.job
    sub = subcommands.check(job, (*TRAINING, *SINGLE))
    subcommands.refuse_launcher_args(job, "flags of accelerate are among its own: use `args:`")
    words = (*job.command, *job.args.words)
    argv = (job.interpreter.word, "-c", _MAIN, *words)
    if sub in SINGLE:
        common.one_process(job)
        return Command(argv=argv, program=3, single="main", has_workers=True)
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
    files = accelerate_flags.settings(line, words, "config")
    count = accelerate_flags.split_count(words, ACCELERATE, files)
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


def rendezvous(job: Job, env: Mapping[str, EnvVar]) -> Rendezvous:
    """Return the port that a flag of accelerate fixes, and the address of MASTER_ADDR."""
    fixed = accelerate_flags.rendezvous(ACCELERATE, job.args.words, "args")
    return fixed._replace(addresses=common.env_address(env))
