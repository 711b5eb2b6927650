"""What a job uses of an environment, as far as its plan and its arguments show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.checks import visible_gpus

if TYPE_CHECKING:
    from safelaunch.checks.context import HostContext
    from safelaunch.model import Job


def runs_python(host: HostContext) -> bool:
    """Whether the job's interpreter runs it: `launcher: command` may start any other program."""
    return host.plan.argv[0] == host.plan.interpreter.word


def installed(host: HostContext) -> dict[str, str] | None:
    """Return {package: version}; None where another program runs the job. Raises NotKnown."""
    if not runs_python(host):
        return None
    packages: dict[str, str] = host.fact("python", "packages")
    torch = host.get("torch", "version")  # with the build: metadata may leave `+cu128` out
    return {**packages, "torch": torch} if torch and "torch" in packages else packages


def has_ranks(host: HostContext) -> bool:
    """Whether the job has more than one rank."""
    return host.job.topology.nodes > 1 or (host.ranks or 0) > 1


def has_nccl(host: HostContext) -> bool:
    """Whether ranks communicate over NCCL; without a job: whether they may."""
    if visible_gpus.needs_gpu(host) is False:
        return False
    if host.node is None:
        return len(host.get("gpus", "cards") or ()) > 1
    return runs_python(host) and has_ranks(host)


def program(job: Job) -> str:
    """Return the job's words as a line: its program, its arguments, the launcher's."""
    named = [word for word in (job.script, job.module) if word]
    return " ".join((*named, *job.command, *job.args.words, *job.launcher_args.words))
