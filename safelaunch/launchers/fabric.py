"""Lightning Fabric's `fabric run train.py`, earlier `lightning run model`: it starts torchrun.

It finds its flags behind the script as well, and gives the program what it does not know
(lightning/fabric/cli.py). Behind `--` everything is the program's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.launchers import Command, Launch, Rendezvous, common
from safelaunch.launchers.flag_table import FlagTable, check_flags, flag_values
from safelaunch.model import Slot, Word, text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from safelaunch.model import EnvVar, Job

SUMMARY = "Lightning Fabric: fabric run, one process per device through torchrun"
TARGETS = ("script",)
VERSIONS = ("lightning", "lightning_fabric")
STARTS_RANKS = True
COUNT_REQUIRED = True
RUNS_PYTHON = True
SETS_THREADS = True
PROGRAMS = ("fabric run", "lightning run model")
MODULES = ("lightning.fabric.cli", "lightning_fabric.cli")
NODE_0 = "--main-address ADDRESS --main-port PORT, in a job file under `launcher_args`"
TIMEOUT = "`timeout` of `DDPStrategy`, `FSDPStrategy` ..."

_DEFAULT_PORT = "29400"  # Fabric's own, by which nodes that are started by hand meet
_DEVICES = re.compile(r"\[?\s*(\d+\s*(?:,\s*\d+\s*)*),?\s*\]?")


def _numbers(devices: str) -> list[str]:
    """Return the devices that a value names by their numbers; none where it counts them."""
    match = _DEVICES.fullmatch(devices) if re.search(r"[,\[]", devices) else None
    return re.findall(r"\d+", match[1]) if match else []


def _is_one_process(flags: Mapping[str, str]) -> bool:
    """Whether one process drives all devices (torch's DataParallel)."""
    return flags.get("strategy") == "dp"


def _keep_flags(flags: Mapping[str, str]) -> Collection[str]:
    """Return the flag for devices where it says more than how many processes there are."""
    devices = flags.get("devices", "")
    says_more = _is_one_process(flags) or devices == "auto" or _numbers(devices)
    return ("devices",) if devices and says_more else ()


def _count_processes(values: Mapping[str, str], flags: Mapping[str, str]) -> dict[str, str]:
    """Return the counts of a pasted line: one process without a number, and for `auto`."""
    devices = flags.get("devices", "1")
    if devices == "-1" and not _is_one_process(flags):
        return {**values, "gpus": "auto"}
    count = str(len(_numbers(devices))) if _numbers(devices) else devices
    is_one = _is_one_process(flags) or devices == "auto"
    return {**values, "processes": "1" if is_one else count}


# The options of lightning 2.6.6.
FLAGS = FlagTable(
    valued=frozenset((
        "accelerator", "strategy", "devices", "num_nodes", "node_rank", "main_address",
        "main_port", "precision",
    )),
    switches=frozenset(("help",)),
    owned={
        "devices": "`processes:`",
        "num_nodes": "`nodes:`",
        "node_rank": "`node_rank:` or `hosts:`",
    },
    short={},
    keys={"num_nodes": "nodes", "node_rank": "node_rank"},
    implied=frozenset({"devices"}),
    one_node=frozenset({"main_address"}),
    count_processes=_count_processes,
    parser="",  # click, imported with torch and Lightning
    keep=_keep_flags,
    mixes_flags=True,
)  # fmt: skip
MODULE_FLAGS = {
    MODULES[1]: FLAGS._replace(
        count_processes=lambda values, flags: {
            "version": VERSIONS[1],
            **_count_processes(values, flags),
        }
    )
}

ranks_per_node = common.planned_ranks


def command(launch: Launch) -> Command:
    """Return `python -m lightning.fabric.cli ...` for one node. Raises ConfigError."""
    job, topology = launch.job, launch.job.topology
    flags = flag_values(job.launcher_args, FLAGS)
    direct = _keep_flags(flags)
    owned = {flag: key for flag, key in FLAGS.owned.items() if flag not in direct}
    warnings = check_flags(job, FLAGS._replace(owned=owned))
    if job.version not in (None, *VERSIONS):
        raise ConfigError(
            f"fabric has no version `{job.version}`",
            where=job.origin("version"),
            hint="`version: lightning_fabric` is the package of that name; else leave it out",
        )
    if direct and _count_processes({}, flags)["processes"] != topology.count():
        raise ConfigError(
            f"`--devices {flags['devices']}` and `processes: {topology.processes or 'auto'}`",
            where=job.origin("launcher_args"),
            hint="leave `--devices` out: it follows from `processes:` or `gpus:`",
        )
    module = MODULES[VERSIONS.index(job.version or VERSIONS[0])]
    words: list[Word] = [job.interpreter.word, "-m", module]
    if not direct:
        words += ["--devices", topology.count()]
    if launch.accelerator == "cpu" and "accelerator" not in flags:
        words += ["--accelerator", "cpu"]
    if topology.nodes > 1:
        words += ["--num-nodes", str(topology.nodes), "--node-rank", launch.node]
    if "main_address" not in flags:
        words += ["--main-address", common.master_addr(job)]
    if "main_port" not in flags:
        words += ["--main-port", _DEFAULT_PORT if job.starts_one_node else text(Slot.PORT)]
    words += [*job.launcher_args.words, "--"]
    program = common.for_elastic((*common.module_or_script(job, "-m"), *job.args.words))
    return Command((*words, *program), program=len(words), warnings=warnings)


def imports(job: Job) -> dict[str, str]:
    """Return Lightning, and torch, which it imports."""
    if job.version == VERSIONS[1]:
        return {"lightning_fabric": "lightning-fabric", "torch": "torch"}
    return {"lightning": "lightning", "torch": "torch"}


def binds_gpus(job: Job) -> bool:
    """Whether each rank takes a GPU: not on the CPU, nor where one process takes several."""
    flags = flag_values(job.launcher_args, FLAGS)
    return flags.get("accelerator") != "cpu" and not _is_one_process(flags)


def rendezvous(job: Job, _env: Mapping[str, EnvVar]) -> Rendezvous:
    """Return the port and the address that flags fix."""
    flags = flag_values(job.launcher_args, FLAGS)
    default = _DEFAULT_PORT if job.starts_one_node else None
    port = common.port_number(flags.get("main_port", default))
    host = flags.get("main_address")
    return Rendezvous(
        (common.flag_port("main_port", port),) if port is not None else (),
        ((host, "launcher_args: main_address"),) if host else (),
    )
