"""The defaults of `Launcher`, and answers that several launchers share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.launchers import CommandLine, FixedPort, JobKeys, Rendezvous
from safelaunch.model import Job, Slot, Word, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from safelaunch.launchers import Launch
    from safelaunch.launchers.flag_table import FlagTable
    from safelaunch.model import Args, DirectStart, EnvVar

VERSIONS: tuple[str, ...] = ()
SINGLE: tuple[str, ...] = ()
PROGRAMS: tuple[str, ...] = ()
MODULES: tuple[str, ...] = ()
CONSOLE_MODULES: dict[str, str] = {}
FLAGS = None
PLACES_RANKS = False
MODULE_FLAGS: dict[str, FlagTable] = {}
TIMEOUT = "`init_process_group(timeout=...)`; with the HF Trainer `--ddp_timeout` (seconds)"
HUB_SWITCH = None
CLUSTER = None
READS: tuple[str, ...] = ()
MACHINE_LIST = ""
NODE_0 = "env: {MASTER_ADDR: ADDRESS, MASTER_PORT: PORT}, the same on all nodes"
ENV_PORT = "`env: {MASTER_PORT: ...}`"
# of torchrun (torch/distributed/run.py) and accelerate (utils/launch.py)
DEFAULT_PORT = 29500
_PYTHON = ("python", "python3")
_MAX_NAME = 3  # words of a program's name: `trl grpo`, `vllm serve MODEL`; more are arguments


def module_or_script(job: Job, module_flag: str) -> tuple[str, ...]:
    """Return the words that name the program: `train.py`, or the flag and a module."""
    if job.module is not None:
        return (module_flag, job.module)
    script = job.script or ""
    return (f"./{script}" if script.startswith("-") else script,)


def master_addr(job: Job) -> Word:
    """Return the rendezvous address: loopback on one node, else node 0's, known at the start."""
    return "127.0.0.1" if job.topology.nodes == 1 else text(Slot.MASTER_ADDR)


def master_port(job: Job) -> Word:
    """Return the rendezvous port: a free one of node 0; by hand the launcher's default for all."""
    return str(DEFAULT_PORT) if job.starts_one_node else text(Slot.PORT)


def for_elastic(words: Iterable[str]) -> tuple[str, ...]:
    """Return words so that torch's elastic agent passes them on unchanged.

    It sends each word after the launcher's flags through string.Template
    (torch/distributed/elastic/utils/api.py): `$$` would become `$`, `${local_rank}` a number.
    """
    return tuple(w.replace("$", "$$") if "$$" in w or "local_rank" in w else w for w in words)


def one_process(job: Job) -> None:
    """Refuse a job that asks a launcher without ranks for several processes."""
    if job.topology.processes != 1:
        raise ConfigError(
            f"launcher `{job.launcher}` starts one process",
            where=job.origin("processes"),
            hint="use torchrun or accelerate",
        )


def job_keys(_line: CommandLine) -> JobKeys | None:
    """Return None: `FLAGS` reads a pasted line, or it becomes `launcher: command`."""
    return None


def program(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words by which rules recognise the program, and the words that follow them."""
    name = job.script or job.module
    if name is not None:
        return (name.removeprefix("./"),), ()
    return program_of_words(job.command)


def program_of_words(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return `program` for the words of a shell line, without the interpreter in front."""
    if words and words[0].rpartition("/")[2].startswith(_PYTHON):
        words = words[2:] if words[1:2] == ("-m",) else words[1:]
    end = next((n for n, w in enumerate(words) if w.startswith("-") or "=" in w), len(words))
    end = min(end, _MAX_NAME)
    return words[:end], words[end:]


def direct_start(launch: Launch) -> DirectStart | str:
    """Return that only the launcher can start its ranks."""
    return f"safelaunch does not know how {launch.job.launcher} starts its ranks"


def imports(_job: Job) -> dict[str, str]:
    """Return nothing: there is no launcher beside the program."""
    return {}


def rank_options(_job: Job) -> dict[str, str]:
    """Return nothing: ranks get the job's arguments alone."""
    return {}


def environment(_job: Job) -> tuple[str, ...]:
    """Return nothing: what other launchers and clusters have set is removed."""
    return ()


def topology_options(_job: Job) -> dict[str, tuple[str, str]]:
    """Return nothing: the program learns its topology from the launcher's ranks."""
    return {}


def numbers_nodes(_launcher_args: Args) -> bool:
    """Return False: each node is told its number."""
    return False


def is_single(single: Iterable[str], command: Sequence[str]) -> bool:
    """Whether a launcher's subcommand is one of its SINGLE; `web_ui` is `web-ui` too."""
    return bool(command) and command[0].replace("_", "-") in single


def planned_ranks(job: Job) -> int | None:
    """Return the job's processes per node, each of which is a rank."""
    return job.topology.processes


def ranks_per_node(_job: Job) -> int | None:
    """Return None: the program may start ranks of its own."""
    return None


def each_rank_its_gpu(_job: Job) -> bool:
    """Return True: each rank takes the GPU of its local rank."""
    return True


def binds_gpus(_job: Job) -> bool:
    """Return False: the program itself chooses among the visible GPUs."""
    return False


def process_number(text: str | None) -> str | None:
    """Return a number of processes without zeros before it; None for text that is none."""
    match = re.fullmatch(r"0*([1-9][0-9]{0,5})", text or "")
    return match[1] if match else None


def port_number(text: str | None) -> int | None:
    """Return a port; None for text that is no port number, and for 0 (any)."""
    number = int(text) if text and re.fullmatch(r"\d{1,5}", text) else 0
    return number if 0 < number < 1 << 16 else None


def is_zero(text: str) -> bool:
    """Whether a text is the whole number 0, in any way of writing it that `int` takes."""
    return re.fullmatch(r"[+-]?0+", text) is not None


def planned_value(env: Mapping[str, EnvVar], name: str) -> str | None:
    """Return the value of a planned variable; None if it has none, or only at the start."""
    var = env.get(name)
    return var.value if var is not None and isinstance(var.value, str) else None


def env_address(env: Mapping[str, EnvVar]) -> tuple[tuple[str, str], ...]:
    """Return MASTER_ADDR as an address of the rendezvous, where the environment has it."""
    host = planned_value(env, "MASTER_ADDR")
    return ((host, "env: MASTER_ADDR"),) if host else ()


def flag_port(flag: str, port: int) -> FixedPort:
    """Return the port that a flag of the launcher fixes."""
    remedy = f"take `{flag}` out of `launcher_args`: a free port is chosen at each start"
    return FixedPort(port, f"`launcher_args: {{{flag}: {port}}}`", remedy)


def rendezvous(_job: Job, env: Mapping[str, EnvVar]) -> Rendezvous:
    """Return what MASTER_ADDR and MASTER_PORT fix for a program that may read them."""
    port = port_number(planned_value(env, "MASTER_PORT"))
    remedy = "env: {MASTER_PORT: {free}}"
    ports = [FixedPort(port, ENV_PORT, remedy, required=False)] if port else []
    return Rendezvous(tuple(ports), env_address(env))
