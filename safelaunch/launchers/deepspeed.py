"""DeepSpeed's own launcher, `deepspeed train.py`: each rank gets `--local_rank=N` first.

From deepspeed/launcher/runner.py, 0.19.8: without a hostfile it starts the ranks of its machine. Of
several machines it reaches the others by its own SSH, or, with `--no_ssh` (0.14.5 and later), is
started on each of them: this is how the nodes of a job start. It reads CUDA_VISIBLE_DEVICES only
where no flag names or counts GPUs, and /job/hostfile wherever that is a file and no other is named.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.launchers import Command, Launch, Rendezvous, common
from safelaunch.launchers.flag_table import PASTED_LINE, FlagTable, check_flags, flag_values
from safelaunch.model import EnvVar, Job, Origin, PlanWarning, Slot, Word, text
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

SUMMARY = "deepspeed: one process per GPU, each with --local_rank"
TARGETS = ("script", "module")
STARTS_RANKS = True
COUNT_REQUIRED = True
RUNS_PYTHON = True
SETS_THREADS = True
PROGRAMS = ("deepspeed",)
MODULES = ("deepspeed.launcher.runner",)
NODE_0 = "--master_addr ADDRESS --master_port PORT, in a job file under `launcher_args`"
MACHINE_LIST = "--hostfile FILE"  # runner.py: "Num nodes is >1 but no extra nodes available"
TIMEOUT = "`deepspeed.init_distributed(timeout=...)`, or DEEPSPEED_TIMEOUT (minutes)"

_RUNNER = "deepspeed 0.19.8, launcher/runner.py"
_HOSTFILE = "/job/hostfile"  # DLTS_HOSTFILE of the same file
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_COUNTS = ("num_gpus", "num_accelerators")
_LOCAL_GPUS = re.compile(r"localhost(?::([0-9]+(?:,[0-9]+)*))?")


def _without_blanks(text: str) -> str:
    """Return `localhost:0,1` for `localhost:0, 1`: it reads each number with int()."""
    return re.sub(r"\s*([:,])\s*", r"\1", text.strip())


def _keep_flags(flags: Mapping[str, str]) -> Collection[str]:
    """Return the flags that only deepspeed can read: those about the machines of a hostfile."""
    if "hostfile" in flags:
        return flags.keys() - {*_COUNTS, "module"}
    is_local = _LOCAL_GPUS.fullmatch(_without_blanks(flags.get("include") or "localhost"))
    return () if is_local else ("include",)


def _default_values(flags: Mapping[str, str]) -> dict[str, str]:
    """Return the hostfile of a pasted line that names machines of one and gives no file."""
    named = [_without_blanks(flags.get(flag, "")) for flag in ("include", "exclude")]
    is_elsewhere = any(text and not _LOCAL_GPUS.fullmatch(text) for text in named)
    return {"hostfile": _HOSTFILE} if is_elsewhere and "hostfile" not in flags else {}


def _count_processes(values: Mapping[str, str], _flags: Collection[str]) -> dict[str, str]:
    """Return the counts of a pasted line: without a number deepspeed takes every GPU."""
    keys = {**values}
    local = _LOCAL_GPUS.fullmatch(_without_blanks(keys.pop("gpus", "") or "localhost"))
    if local is not None and local[1]:
        return {**keys, "gpus": local[1]}
    return keys if "processes" in keys else {**keys, "gpus": "auto"}


# The parser of deepspeed 0.19.8.
FLAGS = FlagTable(
    valued=frozenset((
        "hostfile", "include", "exclude", "num_nodes", *_COUNTS, "master_port", "master_addr",
        "node_rank", "launcher", "launcher_args", "enable_each_rank_log", "autotuning",
        "bind_core_list", "ssh_port", "venv_script", "log_level",
    )),
    switches=frozenset((
        "help", "module", "no_python", "no_local_rank", "no_ssh", "no_ssh_check", "force_multi",
        "save_pid", "bind_cores_to_rank", "quiet",
    )),
    owned={
        "include": "`gpus:`, or a `hostfile` beside it",
        "num_nodes": "`nodes:`",
        **dict.fromkeys(_COUNTS, "`processes:`"),
        "module": "`module:`",
    },
    short={"-H": "hostfile", "-i": "include", "-e": "exclude", "-q": "quiet"},
    keys={"include": "gpus", "num_nodes": "nodes", **dict.fromkeys(_COUNTS, "processes")},
    implied=frozenset(),
    one_node=frozenset({"master_addr"}),
    count_processes=_count_processes,
    parser="",  # it is built and used in one function
    keep=_keep_flags,
    default_values=_default_values,
    no_python="no_python",
    abbreviates=True,
    unset=frozenset({"-1"}),
)  # fmt: skip
_HOSTFILE_FLAGS = FLAGS._replace(
    owned={name: key for name, key in FLAGS.owned.items() if name in (*_COUNTS, "module")}
)

binds_gpus = common.each_rank_its_gpu


def command(launch: Launch) -> Command:
    """Return `python -m deepspeed.launcher.runner ...` for one node. Raises ConfigError."""
    job = launch.job
    flags = flag_values(job.launcher_args, FLAGS)
    warnings = check_flags(job, _HOSTFILE_FLAGS if "hostfile" in flags else FLAGS)
    gpus = () if "hostfile" in flags else _gpus(job)
    words: list[Word] = [job.interpreter.word, "-m", "deepspeed.launcher.runner"]
    files: tuple[tuple[str, Word], ...] = ()
    if job.topology.nodes > 1:
        words += _node_flags(launch, flags, gpus)
        slots = max((int(gpu) + 1 for gpu in gpus), default=job.topology.processes)
        nodes = range(job.topology.nodes)
        files = (("hostfile", "".join(f"node-{node} slots={slots}\n" for node in nodes)),)
    elif "hostfile" in flags:
        words += ["--num_gpus", job.topology.count()] * ("processes" in job.origins)
    else:
        words += ["--hostfile", "/dev/null"]  # no file to deepspeed: this machine alone
        words += _gpu_flags(job, flags, gpus)
    if "master_port" not in flags and ("hostfile" not in flags or job.topology.nodes > 1):
        words += ["--master_port", common.master_port(job)]
    words += job.launcher_args.words
    program = (*common.module_or_script(job, "--module"), *job.args.words)
    return Command(
        (*words, *program),
        program=len(words),
        env=_devices(launch, flags, gpus),
        files=files,
        warnings=(*warnings, *_passed_over(job, gpus)),
    )


def _gpus(job: Job) -> tuple[str, ...]:
    """Return the GPUs of the ranks that the job names, also by a variable. Raises ConfigError."""
    gpus, where = job.gpus, job.origin("gpus")
    own = next((var for var in job.env if var.name == _VISIBLE), None)
    if not gpus and own is not None and isinstance(own.value, str) and own.value:
        gpus, where = tuple(own.value.split(",")), own.origin
    if unknown := next((gpu for gpu in gpus if not gpu.isdecimal()), None):
        raise ConfigError(f"deepspeed takes GPUs by number, not `{unknown}`", where=where)
    processes = job.topology.processes
    if gpus and processes is not None and processes > len(gpus):
        what = f"{processes} processes on {len(gpus)} GPUs"
        raise ConfigError(what, where=where, hint="list more GPUs, or start fewer processes")
    return gpus[:processes]


def _gpu_flags(job: Job, flags: Mapping[str, str], gpus: tuple[str, ...]) -> list[Word]:
    """Return the flags that name or count the GPUs of the one machine."""
    is_open = not gpus and job.topology.processes is None
    if not is_open and "exclude" in flags:
        raise ConfigError(
            "deepspeed takes no `--exclude` where GPUs are named or counted",
            where=job.origin("launcher_args"),
            hint="gpus: [...] with the GPUs that are left",
        )
    if job.queue is not None:
        if len(gpus) < job.queue.count:
            raise ConfigError(
                f"{quantity(len(gpus), 'process')} on {job.queue.count} cards of the queue",
                where=job.origin("processes"),
                hint=f"deepspeed starts a process on each: gpus: {len(gpus)}",
            )
        return ["--include", text("localhost:", Slot.CARDS)]
    if gpus:
        return ["--include", "localhost:" + ",".join(gpus)]
    return [] if is_open else ["--num_gpus", job.topology.count()]


def _node_flags(launch: Launch, flags: Mapping[str, str], gpus: tuple[str, ...]) -> list[Word]:
    """Return the flags of one of several nodes. Raises ConfigError."""
    job, topology = launch.job, launch.job.topology
    if topology.processes is None:
        where = job.origin("gpus")
        raise ConfigError("`gpus: auto` on several nodes", where=where, hint="give `processes:`")
    own = ("hostfile", "exclude", "node_rank", "no_ssh", "force_multi", "autotuning")
    if other := next((flag for flag in own if flag in flags), None):
        raise ConfigError(
            f"`--{other}` of deepspeed together with `nodes:` or `hosts:`",
            where=job.origin("launcher_args"),
            hint="leave it out: deepspeed is started on each node, without SSH of its own",
        )
    words: list[Word] = ["--hostfile", text(Slot.RUN_DIR, "/hostfile"), "--no_ssh"]
    words += ["--node_rank", launch.node]
    if "master_addr" not in flags:
        words += ["--master_addr", common.master_addr(job)]
    if gpus:
        slots = ",".join(gpus)
        words += ["--include", "@".join(f"node-{n}:{slots}" for n in range(topology.nodes))]
    return words


def _devices(launch: Launch, flags: Mapping[str, str], gpus: tuple[str, ...]) -> tuple[EnvVar, ...]:
    """Return what keeps deepspeed on the CPU, or the GPUs that it takes where they are counted."""
    origin, processes = Origin("launcher deepspeed"), launch.job.topology.processes
    if launch.accelerator != "cpu":
        if gpus or processes is None or "hostfile" in flags:
            return ()
        why = "where GPUs are counted deepspeed takes the first, whatever is visible"
        first = ",".join(map(str, range(processes)))
        return (EnvVar(_VISIBLE, first, origin, why=why, source=_RUNNER),)
    why = "deepspeed shows its ranks the GPUs again; with this it leaves them alone"
    source = "deepspeed 0.19.8, accelerator/real_accelerator.py, cpu_accelerator.py"
    return (EnvVar("DS_ACCELERATOR", "cpu", origin, why=why, source=source),)


def _passed_over(job: Job, gpus: tuple[str, ...]) -> tuple[PlanWarning, ...]:
    """Warn about a pasted line whose CUDA_VISIBLE_DEVICES deepspeed itself would ignore."""
    if not (gpus and job.origin("gpus") == job.origin("processes") == PASTED_LINE):
        return ()
    names = ",".join(gpus)
    message = (
        f"deepspeed by itself ignores CUDA_VISIBLE_DEVICES beside --num_gpus; the ranks get "
        f"GPUs {names} (`--include localhost:{names}`)"
    )
    return (PlanWarning("gpus-named", message, str(PASTED_LINE)),)


def ranks_per_node(job: Job) -> int | None:
    """Return the processes of a node; None where a hostfile or the autotuner decides."""
    flags = flag_values(job.launcher_args, FLAGS)
    is_open = not flags.keys().isdisjoint(("hostfile", "exclude", "autotuning"))
    return None if is_open else job.topology.processes


def rank_options(job: Job) -> dict[str, str]:
    """Return the first argument of each rank, unless a flag leaves it out."""
    flags = flag_values(job.launcher_args, FLAGS)
    remedy = "`launcher_args: {no_local_rank: true}`"
    return {} if "no_local_rank" in flags else {"--local_rank=0": remedy}


def imports(_job: Job) -> dict[str, str]:
    """Return deepspeed, and torch, which it imports."""
    return {"deepspeed": "deepspeed", "torch": "torch"}


def rendezvous(job: Job, _env: Mapping[str, EnvVar]) -> Rendezvous:
    """Return the port and the address that flags fix, unless they are those of a hostfile."""
    flags = flag_values(job.launcher_args, FLAGS)
    if "hostfile" in flags:
        return Rendezvous()
    port = common.port_number(flags.get("master_port"))
    if port is None and job.starts_one_node:
        port = common.DEFAULT_PORT
    host = flags.get("master_addr")
    return Rendezvous(
        (common.flag_port("master_port", port),) if port is not None else (),
        ((host, "launcher_args: master_addr"),) if host else (),
    )
