"""The command of a node whose job wants a Ray of its own: `ray_cluster: true`.

The program runs on node 0 alone; the other nodes lend it their cores and GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch import engines
from safelaunch.errors import ConfigError
from safelaunch.launchers import load as load_launcher
from safelaunch.launchers.common import master_addr
from safelaunch.model import EnvVar, Slot, join_words, text
from safelaunch.runtime import PLACE

if TYPE_CHECKING:
    from safelaunch.launchers import Command, Launch
    from safelaunch.model import Job, Word

_WHY = "programs find the Ray that safelaunch starts"


def command(launch: Launch, own: Command) -> Command:
    """Return the command that brings up Ray, runs the program, and takes Ray down.

    Raises ConfigError for a job that cannot have one.
    """
    job, start = launch.job, len(launch.job.prefix)
    _check(job, own)
    address = master_addr(job)
    words: list[Word] = [job.interpreter.word, "-I", "-S", "-B"]
    words += [text(Slot.RUN_DIR, f"/{PLACE}/ray_cluster/start_cluster.py")]
    words += [f"--node={launch.node_rank}", f"--nodes={job.topology.nodes}"]
    words += [join_words("--address=", ("", address)), text("--port=", Slot.PORT)]
    words += [text("--cpus=", Slot.THREADS)]
    place = join_words(":", (address, text(Slot.PORT)))
    variable = EnvVar("RAY_ADDRESS", place, job.origin("ray_cluster"), why=_WHY)
    required = (*own.required, variable)
    head = (*own.argv[:start], *words)
    own = own._replace(required=required, ray_cluster=len(words))
    if launch.node_rank:  # it has no rank, whose end would be that of the program
        return own._replace(argv=head, program=len(head), single=None)
    argv = (*head, "--", *own.argv[start:])
    return own._replace(argv=argv, program=own.program + len(words) + 1)


def _check(job: Job, own: Command) -> None:
    """Refuse a job to which a Ray of its own is of no use. Raises ConfigError."""
    where = job.origin("ray_cluster")
    launcher = load_launcher(job.launcher)
    if launcher.PLACES_RANKS or (launcher.STARTS_RANKS and own.single is None):
        raise ConfigError(
            f"`ray_cluster` with launcher `{job.launcher}`, which starts ranks on each node",
            where=where,
            hint="a program that calls ray.init() runs once: launcher ray, python, areal, command",
        )
    if job.starts_one_node:
        raise ConfigError(
            "`ray_cluster` on nodes that are started by hand",
            where=where,
            hint="hosts: [gpu1, gpu2] and `safelaunch remote`, or `run --on slurm`",
        )
    if job.engine is not None and not engines.load(job.engine).RAY_CLUSTER:
        title = engines.load(job.engine).TITLE
        raise ConfigError(
            f"`ray_cluster` on {title}, where safelaunch starts no Ray",
            where=where,
            hint="--on slurm, or `safelaunch remote` on several hosts",
        )
