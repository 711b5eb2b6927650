"""Variables by which a framework's command line starts torchrun with processes of its own.

ms-swift hands each that is set to torchrun as an option (ms-swift 4.6, swift/cli/main.py,
get_torchrun_args), LLaMA-Factory formats them into its line (llamafactory 0.9.5, launcher.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.launchers import FixedPort, JobKeys, Rendezvous, common
from safelaunch.model import EnvVar, Origin, Slot, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.launchers import CommandLine, Launch
    from safelaunch.model import Job

NAMES = ("NPROC_PER_NODE", "NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
_COUNTS = NAMES[:2]


def topology(launch: Launch, why: str) -> tuple[EnvVar, ...]:
    """Return the variables that say how many ranks there are, and where they meet.

    A job that leaves the count to the machine leaves it to the program, which sees all GPUs.
    """
    job, origin = launch.job, Origin(f"launcher {launch.job.launcher}")
    variables = []
    if job.topology.processes is not None:
        variables += [EnvVar("NPROC_PER_NODE", job.topology.count(), origin, why=why)]
    port_why = "rendezvous port chosen at the start"
    variables += [EnvVar("MASTER_PORT", text(Slot.PORT), origin, why=port_why)]
    if job.topology.nodes > 1:
        variables += [
            EnvVar("NNODES", str(job.topology.nodes), origin),
            EnvVar("NODE_RANK", str(launch.node_rank), origin),
            EnvVar("MASTER_ADDR", common.master_addr(job), origin),
        ]
    return tuple(variables)


def states_processes(job: Job) -> bool:
    """Whether the job says how many processes there are; else the program decides."""
    return "processes" in job.origins or job.topology.nodes > 1


def subcommand_keys(line: CommandLine) -> JobKeys:
    """Return the subcommand and its arguments; all variables stay."""
    keys = {"command": line.words[:1], "args": line.words[1:]}
    return JobKeys({key: words for key, words in keys.items() if words})


def counted_keys(line: CommandLine) -> JobKeys | None:
    """Return the subcommand, its arguments and processes; None where the variables mean more.

    A line of several nodes says where this machine stands among them, and no key of a job does.
    """
    job = subcommand_keys(line)
    if all(line.env.get(name) is None for name in _COUNTS):
        return job
    count = process_count(line.env)
    if count is None:
        return None
    counts = frozenset(name for name in _COUNTS if line.env.get(name) is not None)
    return JobKeys({**job.keys, "processes": count}, counts)


def process_count(env: Mapping[str, str | None]) -> str | None:
    """Return the processes on one node, torchrun's default is 1; None for anything else."""
    count, nodes = ("1" if env.get(name) is None else env[name] for name in _COUNTS)
    return common.process_number(count) if nodes == "1" else None


def rendezvous(job: Job, env: Mapping[str, EnvVar]) -> Rendezvous:
    """Return what MASTER_ADDR and MASTER_PORT fix: required where torchrun is started."""
    fixed = common.rendezvous(job, env)
    if "NPROC_PER_NODE" not in env:
        return fixed
    remedy = "take MASTER_PORT out of `env`: a free port is chosen at each start"
    ports = (FixedPort(port.port, port.setting, remedy) for port in fixed.ports)
    return Rendezvous(tuple(ports), fixed.addresses)
