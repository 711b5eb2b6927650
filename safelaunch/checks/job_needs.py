"""What a job uses of an environment, as far as its plan and its words tell. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.checks import job_options, visible_gpus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.checks.context import Site
    from safelaunch.model import Job

_OFF = ("false", "no", "0", "none", "off")


def runs_python(site: Site) -> bool:
    """Whether the job's interpreter runs it: `launcher: command` may start any other."""
    return site.plan.argv[0] == site.plan.interpreter.word


def installed(site: Site) -> dict[str, str] | None:
    """Return {package: version}; None where another program runs the job. Raises NotKnown."""
    if not runs_python(site):
        return None
    found: dict[str, str] = site.fact("python", "packages")
    torch = site.known("torch", "version")  # with the build: metadata may leave `+cu128` out
    return {**found, "torch": torch} if torch and "torch" in found else found


def has_several(site: Site) -> bool:
    """Whether the job has more than one rank."""
    topology = site.case.job.topology
    return topology.nodes > 1 or (site.ranks or 0) > 1


def has_nccl(site: Site) -> bool:
    """Whether ranks will talk to each other over NCCL; of a machine alone: whether they may."""
    if visible_gpus.wants(site) is False:
        return False
    if site.node is None:
        return len(site.known("gpus", "cards") or ()) > 1
    return runs_python(site) and has_several(site)


def is_given(site: Site, name: str) -> bool:
    """Whether the job will have a variable, also one whose value is not known here."""
    return name in site.plan.secrets or bool(job_options.variable(site, name))


def program(job: Job) -> str:
    """Return the job's own words as a line: its program, its arguments, the launcher's."""
    named = [word for word in (job.script, job.module) if word]
    return " ".join((*named, *job.command, *job.args.words, *job.launcher_args.words))


def options(job: Job) -> Mapping[str, Sequence[str]]:
    """Return the options of the job's program and of its launcher."""
    return {**job_options.of_args(job.launcher_args), **job_options.options(job)}


def listed(values: Sequence[str]) -> list[str]:
    """Return the values of an option, also of one that is a list: `[a,'b']`, `a,b`."""
    return [part.strip(" '\"") for value in values for part in value.strip("[]").split(",")]


def is_asked(given: Mapping[str, Sequence[str]], name: str) -> bool:
    """Whether an option is given and not switched off."""
    values = given.get(name)
    return values is not None and not any(value.lower() in _OFF for value in values)
