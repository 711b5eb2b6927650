"""Axolotl: `axolotl train cfg.yml [--launcher accelerate|torchrun|python] [-- launcher flags]`.

train, evaluate, inference and merge-sharded-fsdp-weights start `accelerate launch`, or torchrun,
with `-m axolotl.cli.SUBCOMMAND`; the words behind `--` and options that Axolotl does not know
become flags of that launcher (axolotl 0.19 and 0.21, cli/main.py and cli/utils/train.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.launchers import Command, CommandLine, JobKeys, Launch, Rendezvous, common
from safelaunch.launchers.frameworks import accelerate_flags
from safelaunch.launchers.frameworks.accelerate_flags import ACCELERATE, TORCHRUN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.model import EnvVar, Job

SUMMARY = "Axolotl: command: [train], [preprocess] ...; launcher_args follow `--`"
TARGETS = ("command",)
STARTS_RANKS = True
COUNT_REQUIRED = True
RUNS_PYTHON = True
SETS_THREADS = True
PROGRAMS = ("axolotl",)
MODULES = ("axolotl.cli.main",)
SINGLE = ("preprocess", "merge-lora", "quantize", "export", "vllm-serve", "delinearize-llama4")
TIMEOUT = "`ddp_timeout` (seconds) in the YAML file of the training"

DISTRIBUTED = ("train", "evaluate", "inference", "merge-sharded-fsdp-weights")
_PYTHON = "python"
_ELSEWHERE = ("cloud", "use_ray")  # other machines, or Ray, run the training


def command(launch: Launch) -> Command:
    """Return `python -m axolotl.cli.main SUBCOMMAND ...`."""
    job = launch.job
    sub, names = (job.command[0] if job.command else ""), (*DISTRIBUTED, *SINGLE)
    if sub not in names:
        raise ConfigError(
            f"axolotl has no subcommand `{sub}`",
            where=job.origin("command"),
            hint=did_you_mean(sub, names) or "known: " + ", ".join(names),
        )
    inner = _launcher(job.args.words)
    own = (*job.command, *job.args.words)
    argv = (job.interpreter.word, "-m", "axolotl.cli.main", *own)
    if sub in SINGLE or inner == _PYTHON:
        common.one_process(job)
        if job.launcher_args.words:
            what = f"axolotl {sub}" if sub in SINGLE else "axolotl with `--launcher python`"
            where = job.origin("launcher_args")
            raise ConfigError(f"`{what}` takes no `launcher_args`", where=where)
        return Command(argv=argv, program=3, single="main")
    flags = (*job.args.words, *job.launcher_args.words)
    behind = (*accelerate_flags.added(launch, inner, flags), *job.launcher_args.words)
    return Command(
        argv=(*argv, *(("--", *behind) if behind else ())),
        program=3,
        single=accelerate_flags.single(job, flags) if _is_replaced(sub, inner, flags) else None,
    )


def _is_replaced(sub: str, inner: str, words: Sequence[str]) -> bool:
    """Whether accelerate takes the place of Axolotl's process, and the program is its child."""
    return sub == "train" and inner == ACCELERATE and "sweep" not in accelerate_flags.flags(words)


def _launcher(words: Sequence[str]) -> str:
    """Return what Axolotl starts the ranks with."""
    return accelerate_flags.flags(words).get("launcher") or ACCELERATE


def job_keys(line: CommandLine) -> JobKeys | None:
    """Return the job of `axolotl SUBCOMMAND cfg.yml ...`; without a count, one rank per GPU."""
    sub, words = (line.words[0] if line.words else ""), line.words[1:]
    keys: dict[str, str | tuple[str, ...]] = {"command": (sub,)}
    if sub in SINGLE:
        return JobKeys(keys | ({"args": words} if words else {}))
    inner, stated = _launcher(words), accelerate_flags.flags(words)
    if sub not in DISTRIBUTED or any(name in stated for name in _ELSEWHERE):
        return None
    if inner == _PYTHON:
        return JobKeys({**keys, "args": words, "processes": "1"}) if "--" not in words else None
    end = words.index("--") if "--" in words else len(words)
    own, behind = (accelerate_flags.split_count(w, inner) if inner in (ACCELERATE, TORCHRUN)
                   else None for w in (words[:end], words[end + 1 :]))  # fmt: skip
    if own is None or behind is None:
        return None
    count = behind.processes or own.processes
    if count is None and inner == TORCHRUN:
        count = "1"  # torchrun's default
    keys |= {"gpus": "auto"} if count is None else {"processes": count}
    keys |= {key: words for key, words in
             (("args", own.words), ("launcher_args", behind.words)) if words}  # fmt: skip
    return JobKeys(keys)


def program(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return `axolotl SUBCOMMAND`, and the words after it."""
    return common.program_of_words(("axolotl", *job.command))


def imports(_job: Job) -> dict[str, str]:
    """Return Axolotl, and accelerate, which it imports."""
    return {"axolotl": "axolotl", "accelerate": "accelerate", "torch": "torch"}


def ranks_per_node(job: Job) -> int | None:
    """Return the processes that accelerate or torchrun starts."""
    return None if common.is_single(SINGLE, job.command) else job.topology.processes


def binds_gpus(job: Job) -> bool:
    """Whether ranks take the GPU of their local rank: a server chooses among all."""
    return not common.is_single(SINGLE, job.command)


def rendezvous(job: Job, env: Mapping[str, EnvVar]) -> Rendezvous:
    """Return the port that a flag of the inner launcher fixes, and the address of MASTER_ADDR."""
    inner = _launcher(job.args.words)
    if inner not in (ACCELERATE, TORCHRUN):
        return common.rendezvous(job, env)
    words = (*job.args.words, *job.launcher_args.words)
    fixed = accelerate_flags.rendezvous(inner, words, "launcher_args")
    return fixed._replace(addresses=common.env_address(env))
