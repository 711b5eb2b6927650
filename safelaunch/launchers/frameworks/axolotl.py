"""Axolotl: `axolotl train cfg.yml [--launcher accelerate|torchrun|python] [-- launcher flags]`.

train, evaluate, inference and merge-sharded-fsdp-weights start `accelerate launch`, or torchrun,
with `-m axolotl.cli.SUBCOMMAND`; the words behind `--` and options that Axolotl does not know
become flags of that launcher (axolotl 0.19 and 0.21, cli/main.py and cli/utils/train.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.launchers import (
    Command,
    CommandLine,
    JobKeys,
    Launch,
    Rendezvous,
    accelerate,
    common,
    torchrun,
)
from safelaunch.launchers.flag_table import check_flags
from safelaunch.launchers.frameworks import accelerate_flags, subcommands
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

ranks_per_node = subcommands.ranks_per_node
binds_gpus = subcommands.binds_gpus


def command(launch: Launch) -> Command:
    """Return `python -m axolotl.cli.main SUBCOMMAND ...`."""
    job = launch.job
    sub = subcommands.check(job, (*DISTRIBUTED, *SINGLE))
    inner = _launcher(job.args.words)
    own = (*job.command, *job.args.words)
    argv = (job.interpreter.word, "-m", "axolotl.cli.main", *own)
    if sub in SINGLE or inner == _PYTHON:
        common.one_process(job)
        if job.launcher_args.words:
            what = f"axolotl {sub}" if sub in SINGLE else "axolotl with `--launcher python`"
            where = job.origin("launcher_args")
            raise ConfigError(f"`{what}` takes no `launcher_args`", where=where)
        return Command(argv=argv, program=3, single="main", has_workers=True)
    _check_words(job, inner)
    table = (accelerate if inner == ACCELERATE else torchrun).FLAGS
    warnings = check_flags(job, table._replace(owned={}))  # Axolotl hands all of them on
    flags = (*job.args.words, *job.launcher_args.words)
    behind = (*accelerate_flags.added(launch, inner, flags), *job.launcher_args.words)
    return Command(
        argv=(*argv, *(("--", *behind) if behind else ())),
        program=3,
        warnings=warnings,
        single=accelerate_flags.single(job, flags) if _is_replaced(sub, inner, flags) else None,
    )


def _check_words(job: Job, inner: str) -> None:
    """Refuse another launcher, and flags of the launcher among Axolotl's own words."""
    where = job.origin("args")
    if inner not in (ACCELERATE, TORCHRUN):
        hint = f"one of {ACCELERATE}, {TORCHRUN}, {_PYTHON}"
        raise ConfigError(f"axolotl has no launcher `{inner}`", where=where, hint=hint)
    if "--" in job.args.words:
        hint = "what follows it is `launcher_args:`"
        raise ConfigError("`--` in the arguments of axolotl", where=where, hint=hint)


def _is_replaced(sub: str, inner: str, words: Sequence[str]) -> bool:
    """Whether accelerate takes the place of Axolotl's process, and the program is its child."""
    return sub == "train" and inner == ACCELERATE and "sweep" not in accelerate_flags.flags(words)


def _launcher(words: Sequence[str]) -> str:
    """Return what Axolotl starts the ranks with; with Ray the program starts them itself."""
    stated = accelerate_flags.flags(words)
    return _PYTHON if "use_ray" in stated else stated.get("launcher") or ACCELERATE


def job_keys(line: CommandLine) -> JobKeys | None:
    """Return the job of `axolotl SUBCOMMAND cfg.yml ...`; without a count, one rank per GPU."""
    sub, words = (line.words[0] if line.words else ""), line.words[1:]
    keys: dict[str, str | tuple[str, ...]] = {"command": (sub,)}
    if sub in SINGLE:
        return JobKeys(keys | ({"args": words} if words else {}))
    inner, stated = _launcher(words), accelerate_flags.flags(words)
    if sub not in DISTRIBUTED or "cloud" in stated:  # it trains elsewhere
        return None
    if inner == _PYTHON:
        return JobKeys({**keys, "args": words, "processes": "1"}) if "--" not in words else None
    if inner not in (ACCELERATE, TORCHRUN):
        return None
    end = words.index("--") if "--" in words else len(words)
    own = accelerate_flags.split_count(words[:end], inner)
    files = accelerate_flags.settings(line, words) if inner == ACCELERATE else {}
    behind = accelerate_flags.split_count(words[end + 1 :], inner, files)
    if own is None or behind is None:
        return None
    default = "1" if inner == TORCHRUN else None
    count = behind.processes or own.processes or default
    keys |= {"gpus": "auto"} if count is None else {"processes": count}
    parts = {"args": own.words, "launcher_args": behind.words}
    return JobKeys(keys | {key: part for key, part in parts.items() if part})


def program(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return `axolotl SUBCOMMAND`, and the words after it."""
    return common.program_of_words(("axolotl", *job.command))


def imports(_job: Job) -> dict[str, str]:
    """Return Axolotl, and accelerate, which it imports."""
    return {"axolotl": "axolotl", "accelerate": "accelerate", "torch": "torch"}


def rendezvous(job: Job, env: Mapping[str, EnvVar]) -> Rendezvous:
    """Return the port that a flag of the inner launcher fixes, and the address of MASTER_ADDR."""
    inner = _launcher(job.args.words)
    if inner not in (ACCELERATE, TORCHRUN):
        return common.rendezvous(job, env)
    words = (*job.args.words, *job.launcher_args.words)
    fixed = accelerate_flags.rendezvous(inner, words, "launcher_args")
    return fixed._replace(addresses=common.env_address(env))
