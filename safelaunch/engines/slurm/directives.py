"""The options of sbatch that a plan asks for, each with its origin."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.model import BUILT_IN, Origin, Slurm
from safelaunch.runtime.engines.slurm import batch_log
from safelaunch.runtime.parts import expand, preparation
from safelaunch.runtime.records import FanOutSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.engines.submission import Submission
    from safelaunch.model import FanOut, Plan

SCRIPT = "batch.sh"  # in the folder of the run, as its log
# what the batch script inherits: not the caller's secrets, which Slurm's accounting may record
# (AccountingStoreFlags=job_env)
_INHERITED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TZ", "USER")
_MEMORY = ("mem", "mem_per_gpu", "mem_per_cpu")
_TEXTS = ("partition", "account", "qos", "reservation", "constraint")


def comment(submission: Submission) -> str:
    """Return the comment of the job, by which a start finds it again."""
    return f"safelaunch:{submission.run_id}"


class Directive(NamedTuple):
    """One option of sbatch with its value."""

    words: tuple[str, ...]
    origin: Origin


def directives(plan: Plan, submission: Submission) -> tuple[Directive, ...]:
    """Return the options of sbatch for a plan; nothing for one that Slurm does not start."""
    block = plan.engine
    return tuple(_directives(plan, block, submission)) if isinstance(block, Slurm) else ()


def _directives(plan: Plan, block: Slurm, submission: Submission) -> Iterator[Directive]:
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", plan.name).strip("-") or "job"
    nodes = block.job_origins.get("nodes", block.job_origins.get("hosts", BUILT_IN))
    yield _option("job-name", name, block.job_origins.get("name", BUILT_IN))
    yield _option("comment", comment(submission), BUILT_IN)
    yield _option("nodes", plan.topology.nodes, nodes)
    yield _option("ntasks-per-node", 1, BUILT_IN)
    if plan.fan_out is not None:
        yield _option("array", array_tasks(plan.fan_out), BUILT_IN)
    yield from _resources(block)
    for key in _TEXTS:
        if getattr(block, key) is not None:
            yield _option(key, getattr(block, key), block.origins[key])
    for key in ("nodelist", "exclude"):
        if getattr(block, key):
            yield _option(key, ",".join(getattr(block, key)), block.origins[key])
    if block.exclusive:
        yield Directive(("--exclusive",), block.origins["exclusive"])
    if block.time is not None:
        yield _option("time", _time(block.time), block.origins["time"])
    if block.signal:  # to the batch script alone: without `B:` the ranks would get it too
        signal = f"B:USR2@{math.ceil(block.signal)}"
        yield _option("signal", signal, block.origins.get("signal", BUILT_IN))
    requeue = "--requeue" if block.requeue else "--no-requeue"
    yield Directive((requeue,), block.origins.get("requeue", BUILT_IN))
    folder = submission.folder
    yield _option("chdir", folder, BUILT_IN)
    place = folder.replace("%", "%%")
    if plan.fan_out is not None:
        place = preparation.folder(f"{place}/node-0", "%a")
    yield _option("output", f"{place}/{batch_log.NAME}", BUILT_IN)
    yield _option("open-mode", "append", BUILT_IN)  # a job that is requeued goes on in its log
    yield _option("export", ",".join(_INHERITED), BUILT_IN)
    yield from (Directive(option.words, option.origin) for option in block.options)


def array_tasks(fan_out: FanOut) -> str:
    """Return the tasks of the array of a plan with parts, as sbatch takes them: `0-7%4`."""
    matrix = {name: list(values) for name, values in fan_out.matrix.items()}
    count = expand.part_count(FanOutSpec(count=fan_out.count, matrix=matrix))
    return f"0-{count - 1}" + (f"%{fan_out.at_once}" if fan_out.at_once else "")


def _option(name: str, value: object, origin: Origin) -> Directive:
    return Directive((f"--{name}={value}",), origin)


def _resources(block: Slurm) -> Iterator[Directive]:
    """Yield what each node must have. What is counted by GPU is left out where there are none."""
    gpus, origins = block.gpus_per_node, block.origins
    if gpus:
        count = f"{block.gpu_type}:{gpus}" if block.gpu_type else str(gpus)
        name, value = ("gres", f"gpu:{count}") if block.gres else ("gpus-per-node", count)
        yield _option(name, value, origins["gpus_per_node"])
    if block.cpus_per_task is not None:
        yield _option("cpus-per-task", block.cpus_per_task, origins["cpus_per_task"])
    elif block.cpus_per_gpu is not None and gpus:
        yield _option("cpus-per-task", block.cpus_per_gpu * gpus, origins["cpus_per_gpu"])
    for key in _MEMORY:
        size = getattr(block, key)
        if size is not None and (gpus or key != "mem_per_gpu"):
            yield _option(key.replace("_", "-"), _size(size), origins[key])


def _size(count: int) -> str:
    """Return bytes as sbatch takes them; its units are binary."""
    gib, rest = divmod(count, 1 << 30)
    return f"{gib}G" if not rest else f"{math.ceil(count / (1 << 20))}M"


def _time(seconds: float) -> str:
    """Return `[days-]hours:minutes:seconds`."""
    minutes, second = divmod(math.ceil(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}-" * bool(days) + f"{hour:02}:{minute:02}:{second:02}"
