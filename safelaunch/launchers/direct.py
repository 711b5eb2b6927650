"""Ranks without their launcher: what torchrun sets for each, as a table, and where it is fixed.

torch's elastic agent adds the variables below to its own environment
(torch/distributed/elastic/agent/server/local_elastic_agent.py, LocalElasticAgent._start_workers;
torch/distributed/launcher/api.py), read in torch 2.4 to 2.13: the same in all of them but for those
with a gate. Three more, and TORCHELASTIC_ERROR_FILE, differ by rank: runtime/ranks/start_ranks.py
sets them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.launchers import common
from safelaunch.model import BUILT_IN, DirectStart, Gate, RankVariable, Slot, text
from safelaunch.runtime import PLACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from safelaunch.launchers import Launch
    from safelaunch.model import Job, Word

TORCH = Gate("torch", ">=2.4,<2.14", BUILT_IN)
RENDEZVOUS_FLAGS = frozenset({
    "master_addr", "master_port", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "standalone",
})  # fmt: skip
# no ranks are started again without a new attempt, and nothing is polled
IGNORED_FLAGS = frozenset({"max_restarts", "monitor_interval"})
_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"  # the default of --signals-to-handle


def reason(job: Job, flags: Mapping[str, str], allowed: Iterable[str]) -> str:
    """Return why the launcher has to start the ranks of a job itself; "" where it need not."""
    topology = job.topology
    other = sorted(flags.keys() - {*allowed, *IGNORED_FLAGS})
    if other:
        return f"`--{other[0]}` works in the launcher only"
    if flags.get("max_restarts", "0") != "0":
        return "`--max_restarts` works in the launcher only; `recovery:` restarts a direct start"
    if topology.processes is None and topology.nodes > 1:
        return "the GPUs of the other nodes are not counted here; `processes: N` gives their number"
    return ""


def rendezvous(job: Job, flags: Mapping[str, str]) -> tuple[Word, Word] | str:
    """Return where ranks meet: address and port of rank 0's store; or why only the agent knows."""
    backend, is_alone = flags.get("rdzv_backend", "static"), job.topology.nodes == 1
    if is_alone and ("standalone" in flags or backend == "c10d"):
        return "127.0.0.1", text(Slot.PORT)
    if backend != "static":
        return f"`--rdzv_backend {backend}` needs the launcher" + " on several nodes" * (
            not is_alone
        )
    endpoint = flags.get("rdzv_endpoint", "")
    host, colon, port = endpoint.rpartition(":")
    if endpoint and not (colon and host and common.port_number(port)):
        return f"`--rdzv_endpoint {endpoint}` has no address with a port"
    address: Word = flags.get("master_addr") or common.master_addr(job)
    number: Word = flags.get("master_port") or common.master_port(job)
    if endpoint:
        address, number = host, port
    if not isinstance(number, str) or common.port_number(number):
        return address, number
    return f"`--master_port {number}` is no port"


def start(
    launch: Launch,
    meeting: tuple[Word, Word],
    *,
    python: tuple[Word, ...],
    variables: tuple[RankVariable, ...] = (),
    tested: tuple[Gate, ...] = (),
    role: str = "default",
    run_id: str = "none",
    has_local_rank: bool = False,
    program: tuple[Word, ...] = (),
    replaced: int = 0,
    package: str = "",
) -> DirectStart:
    """Return the start of the ranks of one node, in the environment that torchrun gives them."""
    job, topology = launch.job, launch.job.topology
    world, local = topology.count(topology.nodes), topology.count()
    elastic: dict[str, Word] = {
        "GROUP_RANK": str(launch.node_rank),
        "ROLE_NAME": role,
        "LOCAL_WORLD_SIZE": local,
        "WORLD_SIZE": world,
        "GROUP_WORLD_SIZE": str(topology.nodes),
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": meeting[0],
        "MASTER_PORT": meeting[1],
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": run_id,
        # there is no agent: rank 0 opens the store itself
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
    gate = Gate("torch", ">=2.10", BUILT_IN)
    return DirectStart(
        starter=text(Slot.RUN_DIR, f"/{PLACE}/ranks/start_ranks.py"),
        python=python,
        count=local,
        first=launch.node_rank * (topology.processes or 0),
        variables=(
            *variables,
            *(RankVariable(name, value) for name, value in elastic.items()),
            RankVariable("TORCHELASTIC_SIGNALS_TO_HANDLE", _SIGNALS, gate),
            RankVariable("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", soft=True),
        ),
        tested=(TORCH, *tested),
        grace=job.peer_grace,
        preload=job.preload if python else (),
        has_local_rank=has_local_rank,
        program=program,
        replaced=replaced,
        package=package,
    )
