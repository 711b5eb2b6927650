"""Checks whether the job's profile is for the GPUs of a host, and what facts it lacks of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.checks import job_options, visible_gpus
from safelaunch.checks.answers import Answer, ok, warn
from safelaunch.checks.registry import check
from safelaunch.config import profiles
from safelaunch.hostfacts import profile_detection
from safelaunch.model import BUILT_IN
from safelaunch.plan import gates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.checks.context import HostContext
    from safelaunch.checks.visible_gpus import Gpu
    from safelaunch.model import Profile


@check("profile-fits", job=False, needs=("gpus",), quick=True)
def profile_fits(host: HostContext) -> Answer | None:
    """Whether the profile is for the GPUs that the job uses; else names the right one."""
    profile = host.profile
    is_cuda = visible_gpus.kind_name(host) == "cuda"
    if (is_cuda and visible_gpus.is_other_vendor(host)) or not visible_gpus.has_devices(host):
        return None
    gpus = [gpu for gpu in visible_gpus.visible(host).gpus if gpu["name"]]
    if profile is None and gpus:
        return _no_profile(host, gpus)
    if profile is None or not gpus or not profile.gpu_names:
        return None
    fitting = [gpu for gpu in gpus if re.fullmatch(profile.gpu_names, gpu["name"])]
    if len(fitting) == len(gpus):
        return ok(f"profile {profile.name} is for {visible_gpus.names(gpus)}")
    right = _matching_profile(gpus)
    if right is not None:
        hint = f"`--profile {right}`"
    elif fitting and host.node is not None:
        hint = f"`gpus: {visible_gpus.indices(fitting)}` uses only the GPUs that it is for"
    else:
        resolved = host.context.resolved
        where = "its entry" if resolved is None else resolved.profile_origin
        hint = f"no built-in profile is for them: remove `profile` ({where})"
    return warn(
        f"profile `{profile.name}` is for {profile.description or profile.gpu_names}; "
        f"the GPUs are {visible_gpus.names(gpus)}",
        hint,
        ", ".join(profile.files),
    )


def _matching_profile(gpus: Sequence[Gpu]) -> str | None:
    built_in = profiles.of_gpus({str(gpu["name"]) for gpu in gpus})
    return profile_detection.match_profile({"gpus": {"cards": gpus}}, built_in).profile


def _no_profile(host: HostContext, gpus: Sequence[Gpu]) -> Answer | None:
    """Return which profile fits; a missing one only matters where it would set variables."""
    right = _matching_profile(gpus)
    if right is None:
        return None
    if host.node is None:
        return ok(f"{visible_gpus.names(gpus)}: profile {right} is for them")
    facts = {**profile_detection.gate_facts(host.facts), **host.entry.facts}
    profile = profiles.load(right, BUILT_IN, ".")
    selected = select(host, profile, facts, len(gpus))
    names = [var.name for var in selected.env if var.name not in host.plan.env]
    if not names:
        return ok(f"profile {right} fits, and would set nothing here")
    return warn(
        f"no profile: {right} is for {visible_gpus.names(gpus)}, and sets {', '.join(names)}",
        f"`--profile {right}`; `safelaunch profiles {right}` explains it",
    )


def select(
    host: HostContext, profile: Profile, facts: dict[str, str], count: int
) -> gates.SelectedVariables:
    """Return what a profile sets for the job if these facts are declared."""
    gpus = len(host.job.gpus) or host.job.topology.processes or count
    conditions = gates.DeclaredFacts(gpus, host.job.topology.nodes, facts)
    return gates.select(profile, conditions, ladder=None, workarounds=True)


@check("profile-facts")
def profile_facts(host: HostContext) -> Answer | None:
    """Whether no variable is set only because the hosts file declares no facts."""
    profile, real = host.profile, profile_detection.gate_facts(host.facts)
    if profile is None or profile.accelerator != "cuda" or not real:
        return None
    count = visible_gpus.ranks(host, visible_gpus.visible(host))
    before = select(host, profile, dict(host.entry.facts), count)
    after = select(host, profile, {**real, **host.entry.facts}, count)
    needed, env = {var.name for var in after.env}, host.plan.env
    unneeded = [
        var.name
        for var in before.env
        if var.name not in needed and var.name in env and env[var.name].origin == var.origin
    ]
    if not unneeded:
        is_known = real.keys() >= before.undeclared.keys()
        return ok("the profile's conditions agree with the host's facts") if is_known else None
    closed = {
        gate.key: real[gate.key]
        for name in unneeded
        for gate in before.open_gates.get(name, ())
        if gate.key in real and not gates.holds(real[gate.key], gate.condition, gate.origin)
    }
    facts = ", ".join(f"{fact} is {value}" for fact, value in closed.items())
    job = job_options.command_line(host)
    hint = f"`safelaunch check --host {host.name} --save {job}` writes it into the hosts file"
    if host.is_local:
        hint = f"`safelaunch check --save {job}` writes it into a hosts file, and prints how `run` "
        hint += "reads that"
    return warn(
        f"{', '.join(unneeded)} set only because the hosts file lacks facts: {facts}, which does "
        "not need them",
        hint,
        "docs/job-file.md, Profile",
    )
