"""Ranks without their launcher: what torchrun sets for each, as a table, and where it is fixed.

torch's elastic agent adds the variables below to its own environment
(torch/distributed/elastic/agent/server/local_elastic_agent.py, LocalElasticAgent._start_workers;
torch/distributed/launcher/api.py). Read in the sources of torch 2.4.1, 2.5.1, 2.6.0, 2.7.1, 2.8.0,
2.9.1, 2.10.0, 2.11.0, 2.12.0 and 2.13.0, and compared with real starts of 2.13.0: the same in all
of them but for those with a gate. So are the words that the agent changes (elastic/utils/api.py,
macros), how an endpoint is read (elastic/rendezvous/utils.py) and how a process is started
(elastic/multiprocessing/subprocess_handler). What flags mean (run.py, launch.py) was compared by
running those two files of each version (tests/support/direct_start). Three more variables, and
TORCHELASTIC_ERROR_FILE, differ by rank: runtime/ranks/start_ranks.py sets them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.launchers import common
from safelaunch.model import BUILT_IN, DirectStart, Gate, RankVariable, Slot, text
from safelaunch.runtime import PLACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from safelaunch.launchers import Launch
    from safelaunch.launchers.flag_table import FlagTable
    from safelaunch.model import EnvVar, Job, Word

TORCH = Gate("torch", ">=2.4,<2.14", BUILT_IN)
RENDEZVOUS_FLAGS = frozenset({
    "master_addr", "master_port", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "standalone",
})  # fmt: skip
# no ranks are started again without a new attempt, and nothing is polled
IGNORED_FLAGS = frozenset({"max_restarts", "monitor_interval"})
_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"  # the default of --signals-to-handle
_C10D_PORT = "29400"  # that of an endpoint without one
# variables that change what torchrun does for its ranks: each of its flags is one of the first
_READ = ("PET_", "TORCHELASTIC_")
# of a job: its ranks insist on a store that none of them opens (torch/distributed/rendezvous.py)
_AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
_THREADS = "OMP_NUM_THREADS"
# what changes the search path of Python, beside PYTHONPATH: variables, options, lines of setup
_PACKAGES = frozenset({
    "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONPLATLIBDIR", "PYTHONSAFEPATH",
})  # fmt: skip
_OF_PACKAGES = re.compile(r"-[a-zA-Z]*[EIPSs][a-zA-Z]*")
# a script that is sourced may do anything; those of virtual environments do not
_OTHER_PACKAGES = re.compile(
    r"PYTHON(PATH|HOME|USERBASE|NOUSERSITE|PLATLIBDIR|SAFEPATH)"
    r"|^\s*(eval|module|ml|spack|(source|\.)\s+(?!\S*/(activate|conda\.sh)\s*$))",
    re.MULTILINE,
)


def reason(
    job: Job, table: FlagTable | None, flags: Mapping[str, str], allowed: Iterable[str]
) -> str:
    """Return why the launcher has to start the ranks of a job itself; "" where it need not."""
    return next(_reasons(job, table, flags, allowed), "")


def _reasons(
    job: Job, table: FlagTable | None, flags: Mapping[str, str], allowed: Iterable[str]
) -> Iterator[str]:
    unclear = _unclear_word(job.launcher_args.words, table) if table is not None else ""
    others = [f"--{name}" for name in sorted(flags.keys() - {*allowed, *IGNORED_FLAGS})]
    for word in (*others, *([unclear] if unclear else [])):
        yield f"`{word}` works in the launcher only"
    if flags.get("max_restarts", "0") != "0":
        yield "`--max_restarts` works in the launcher only; `recovery:` restarts a direct start"
    if not _is_number(flags.get("monitor_interval", "0")):
        yield f"`--monitor_interval {flags['monitor_interval']}` is no number"
    if "no_python" in flags and (job.module is not None or job.version == "launch"):
        yield "the launcher refuses `--no_python` here"
    if job.args.words[:1] == ("--",):
        yield "the launcher itself reads a `--` in front of the program's arguments"
    if job.topology.processes is None and job.topology.nodes > 1:
        yield "the GPUs of the other nodes are not counted here; `processes: N` gives their number"


def environment_reason(job: Job, env: Mapping[str, EnvVar], setup: Iterable[str]) -> str:
    """Return which setting of a node the launcher itself has to read; "" for none.

    Or which makes unknown where the packages come from, of which the start looks at the versions.
    """
    own = [name for name, var in env.items() if var.value is not None or var.computed]
    patterns = job.inherit if isinstance(job.inherit, tuple) else ()
    decided = {_AGENT_STORE} if _agent_store(job) else set()
    for name in (*own, *patterns):
        if name.startswith(_READ) and name not in decided:
            return f"the launcher reads {name}"
    unknown = [name for name in own if name in _PACKAGES]
    unknown += [word for word in job.python_options if _OF_PACKAGES.fullmatch(word)]
    lines = "\n".join(setup)
    unknown += ["setup"] if _OTHER_PACKAGES.search(lines) else []
    if unknown:
        return f"`{unknown[0]}` may choose other packages than the start looks at"
    shown = next((begin for begin in _READ if begin in lines), None)
    if shown is not None:
        return f"the launcher reads {shown}*, which `setup` has"
    threads = env.get(_THREADS)
    if threads is None or (threads.value is None and not threads.computed):
        return f"the launcher sets {_THREADS}, which the job removes"
    value, is_plain = threads.value, re.compile(r"[1-9][0-9]*")
    if job.launcher == "accelerate" and isinstance(value, str) and not is_plain.fullmatch(value):
        return f"accelerate reads {_THREADS}={value} in its own way"
    return ""


def _agent_store(job: Job) -> str:
    """Return what the job says of the agent's store, True or False; "" for nothing."""
    values = [var.value for var in job.env if var.name == _AGENT_STORE]
    return next((str(value) for value in values[-1:] if value in {"True", "False"}), "")


def _unclear_word(words: tuple[str, ...], table: FlagTable) -> str:
    """Return a word that argparse may take in another way than `flag_values`; "" for none."""
    is_awaited = False
    for word in words:
        name = word.partition("=")[0]
        if is_awaited:
            is_awaited = False
            if word.startswith("-"):  # for a flag
                return word
        elif name in table.short or name.startswith("--"):
            is_awaited = name == word and table.name(word) in table.valued
            if "-" in name[2:] and "_" in name:  # the parsers know each name in two spellings
                return name
        else:
            return word
    return ""


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def rendezvous(job: Job, flags: Mapping[str, str]) -> tuple[Word, Word] | str:
    """Return where ranks meet: address and port of rank 0's store; or why only the agent knows."""
    backend, is_alone = flags.get("rdzv_backend", "static"), job.topology.nodes == 1
    endpoint = flags.get("rdzv_endpoint")
    if is_alone and (backend == "c10d" or "standalone" in flags):
        is_known = "standalone" in flags or not endpoint or _endpoint(endpoint, _C10D_PORT)
        local = "127.0.0.1", text(Slot.PORT)
        return local if is_known else f"`--rdzv_endpoint {endpoint}` is no address with a port"
    if backend != "static":
        where = "" if is_alone else " on several nodes"
        return f"`--rdzv_backend {backend}` needs the launcher{where}"
    address: Word = flags.get("master_addr", common.master_addr(job))
    port: Word = flags.get("master_port", common.master_port(job))
    if endpoint is not None:
        return _meeting(endpoint) or f"`--rdzv_endpoint {endpoint}` is no address with a port"
    # torch puts both together; a slot has nothing that it would change
    as_known = address if isinstance(address, str) else "localhost"
    pair = _meeting(f"{as_known}:{port if isinstance(port, str) else _C10D_PORT}")
    if pair is None:
        return f"`{address}:{port}` is no address with a port"
    own = pair[0] if isinstance(address, str) else address
    return own, pair[1] if isinstance(port, str) else port


def _meeting(endpoint: str) -> tuple[str, str] | None:
    pair = _endpoint(endpoint)
    return None if pair is None or pair[1] == "0" else pair  # 0: any port


def _endpoint(endpoint: str, port: str = "") -> tuple[str, str] | None:
    """Return host and port as torch reads them (parse_rendezvous_endpoint); None: it refuses."""
    endpoint = endpoint.strip()
    host, colon, digits = endpoint.rpartition(":")
    if not colon or (endpoint[0] == "[" and endpoint[-1] == "]"):
        host, digits = endpoint, port
    if len(host) > 1 and host[0] == "[" and host[-1] == "]":
        host = host[1:-1]
    if not re.fullmatch(r"[0-9]{1,5}", digits) or not re.fullmatch(r"[\w.:-]+", host):
        return None
    return (host, str(int(digits))) if int(digits) < 1 << 16 else None


def start(
    launch: Launch,
    meeting: tuple[Word, Word],
    *,
    flags: Mapping[str, str],
    variables: tuple[RankVariable, ...] = (),
    tested: tuple[Gate, ...] = (),
    run_id: str = "none",
    options: tuple[str, ...] = (),
    program: tuple[Word, ...] = (),
    replaced: int = 0,
    package: str = "",
) -> DirectStart:
    """Return the start of the ranks of one node, in the environment that torchrun gives them."""
    job, topology = launch.job, launch.job.topology
    world, local = topology.count(topology.nodes), topology.count()
    elastic: dict[str, Word] = {
        "GROUP_RANK": str(launch.node_rank),
        "ROLE_NAME": flags.get("role", "default"),
        "LOCAL_WORLD_SIZE": local,
        "WORLD_SIZE": world,
        "GROUP_WORLD_SIZE": str(topology.nodes),
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": meeting[0],
        "MASTER_PORT": meeting[1],
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        # there is no agent: rank 0 opens the store itself, unless the job wants the agent's
        _AGENT_STORE: _agent_store(job) or "False",
    }
    if run_id:
        elastic["TORCHELASTIC_RUN_ID"] = run_id
    else:
        options = (*options, "--new-run-id")
    runs_python = "no_python" not in flags
    preload = job.preload if runs_python else ()
    if preload and job.supervision.recovery is not None:
        options = (*options, "--fork-server")
    if elastic[_AGENT_STORE] == "True" and launch.node_rank == 0:
        options = (*options, "--store")
    gate = Gate("torch", ">=2.10", BUILT_IN)
    return DirectStart(
        starter=text(Slot.RUN_DIR, f"/{PLACE}/ranks/start_ranks.py"),
        python=(job.interpreter.word, "-u") if runs_python else (),
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
        preload=preload,
        options=("--python", *options) if runs_python else options,
        program=program,
        replaced=replaced,
        package=package,
    )
