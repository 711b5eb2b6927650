"""Variables by which a framework's command line starts torchrun with processes of its own.

ms-swift hands each that is set to torchrun as an option (ms-swift 4.6, swift/cli/main.py,
get_torchrun_args), LLaMA-Factory formats them into its line (llamafactory 0.9.5, launcher.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.launchers import FixedPort, JobKeys, Rendezvous, common
from safelaunch.model import EnvVar, Origin

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
    port_why = "torchrun's default" if job.starts_one_node else "chosen at the start"
    port_why = f"rendezvous port {port_why}"
    variables += [EnvVar("MASTER_PORT", common.master_port(job), origin, why=port_why)]
    if job.topology.nodes > 1:
        variables += [
            EnvVar("NNODES", str(job.topology.nodes), origin),
            EnvVar("NODE_RANK", launch.node, origin),
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


def counted_keys(line: CommandLine, address: str = "MASTER_ADDR") -> JobKeys | None:
    """Return the subcommand, its arguments and counts; None where the variables mean more.

    The defaults are torchrun's: one process, one node, and this is node 0. Of several nodes the
    line must say where they meet: `address` is the variable for it.
    """
    job, env = subcommand_keys(line), line.env
    if all(env.get(name) is None for name in _COUNTS):
        return job
    count, nodes = (common.process_number(_value(env, name, "1")) for name in _COUNTS)
    rank = _value(env, "NODE_RANK", "0")
    if count is None or nodes is None:
        return None
    counts = frozenset(name for name in _COUNTS if env.get(name) is not None)
    keys = {**job.keys, "processes": count}
    if nodes == "1":
        return JobKeys(keys, counts)
    is_number = re.fullmatch(r"[0-9]{1,6}", rank) is not None
    if not env.get(address) or not is_number or int(rank) >= int(nodes):
        return None
    own_rank = {"NODE_RANK"} if env.get("NODE_RANK") is not None else set()
    return JobKeys(keys | {"nodes": nodes, "node_rank": rank}, counts | own_rank)


def _value(env: Mapping[str, str | None], name: str, default: str) -> str:
    value = env.get(name)
    return default if value is None else value


def rendezvous(job: Job, env: Mapping[str, EnvVar]) -> Rendezvous:
    """Return what MASTER_ADDR and MASTER_PORT fix: required where torchrun is started."""
    fixed = common.rendezvous(job, env)
    if "NPROC_PER_NODE" not in env:
        return fixed
    remedy = "take MASTER_PORT out of `env`: a free port is chosen at each start"
    ports = (FixedPort(port.port, port.setting, remedy) for port in fixed.ports)
    return Rendezvous(tuple(ports), fixed.addresses)
