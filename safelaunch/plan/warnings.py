"""What a plan tells its user: warnings, and the notes that each start repeats."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.model import PlanWarning
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.config.resolve import Resolved
    from safelaunch.model import EnvVar, Host, Job, NodePlan, Profile
    from safelaunch.plan.gates import Selection

_LOOKS_EXPANDED = re.compile(r"(?<!\\)\$(\w|\{|\()|^~(/|$)|/~/|`[^`]+`")
# at the beginning of a word or of a value in it; an address such as s3://x has a longer scheme
_OF_THE_LAPTOP = re.compile(r"(?:^|[=,;])(?:[A-Za-z]:[\\/](?!/)|(?P<wsl>/mnt/[a-z](?:/|$)))")
# cards and files of one machine
_OWN = ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_TOPO_FILE")
_SHOWN = 60  # characters of a value in a message


def unexpanded(job: Job) -> Iterator[PlanWarning]:
    """Warn about values that look as if a shell should expand them: nothing ever does."""
    for key, word, where in _words(job):
        if _LOOKS_EXPANDED.search(word):
            what = "is taken literally: `$` and `~` are never expanded"
            yield PlanWarning("not-expanded", f"`{_shown(word)}` in `{key}` {what}", where)


def of_the_laptop(job: Job) -> Iterator[PlanWarning]:
    """Warn about values of a job on a host that look like paths of a Windows machine."""
    found = [
        *_words(job),
        *(("pythonpath", str(p), str(job.origin("pythonpath"))) for p in job.pythonpath),
    ]
    for key, word, where in found:
        match = _OF_THE_LAPTOP.search(word)
        if match is not None:
            what = "is a Windows path"
            if match["wsl"]:
                what = "is where WSL shows a drive of Windows"
            message = f"`{_shown(word)}` in `{key}` {what}; the job runs on a host"
            yield PlanWarning("laptop-path", message, where)


def of_nodes(nodes: Sequence[NodePlan]) -> Iterator[PlanWarning]:
    """Warn about NCCL variables on which nodes differ, but for those that name a machine's own."""
    names = dict.fromkeys(n for node in nodes for n in node.env if n.startswith("NCCL_"))
    for name in names:
        if name.startswith(_OWN):
            continue
        values = [node.env[name].value if name in node.env else None for node in nodes]
        if len(set(map(str, values))) > 1:
            pairs = zip(nodes, values, strict=True)
            said = ", ".join(f"{node.host} {'none' if v is None else v}" for node, v in pairs)
            message = f"{name} differs between the nodes: {said}; their ranks may not agree"
            yield PlanWarning("nodes-differ", message)


def _words(job: Job) -> Iterator[tuple[str, str, str]]:
    """Yield key, text and place of what a user may have meant as a path."""
    places = [("args", word) for word in job.args.words]
    places += [("launcher_args", word) for word in job.launcher_args.words]
    places += [("command", word) for word in job.command]
    places += [("workdir", str(job.workdir)), ("script", job.script or ""), ("log", job.log or "")]
    places += [("python", str(job.interpreter.path or ""))]
    yield from ((key, word, str(job.origin(key))) for key, word in places)
    for var in job.env:
        if isinstance(var.value, str):
            yield var.name, var.value, str(var.origin)


def _shown(word: str) -> str:
    return word if len(word) <= _SHOWN else word[: _SHOWN - 3] + "..."


def of_profile(
    profile: Profile, chosen: Selection, env: Mapping[str, EnvVar], host: Host
) -> Iterator[PlanWarning]:
    """Warn about variables that are on for want of a fact, and about those only a site knows."""
    where = f"profile {profile.name}"
    for fact, names in _standing(chosen, env).items():
        message = f"{', '.join(names)} set because `{fact}` of {host.name} is not declared"
        yield PlanWarning("undeclared-fact", message, where)
    missing = [entry for entry in chosen.missing if entry.var.name not in env]
    if missing:
        wanted = ", ".join(
            f"{entry.var.name} (such as {entry.example})" if entry.example else entry.var.name
            for entry in missing
        )
        message = f"{host.name}: only your site knows {wanted}; put it into the hosts file or `env`"
        yield PlanWarning("site-variable", message, where)


def of_variables(
    job: Job,
    profile: Profile | None,
    chosen: Selection | None,
    env: Mapping[str, EnvVar],
    host: Host,
) -> Iterator[PlanWarning]:
    """Warn about variables of the job or its host as lint does: unread names, values, pairs.

    `env` is what the ranks get. What the profile itself says there is the profile's to answer for.
    """
    said = {var.name: str(var.origin) for var in (*host.env, *job.env) if var.value is not None}
    said |= dict.fromkeys(job.env_from, str(job.origin("env_from")))
    own = {name: where for name, where in said.items() if where == str(env[name].origin)}
    if not own:
        return
    from safelaunch.lint.env import model  # noqa: PLC0415
    from safelaunch.lint.env import names as env_names  # noqa: PLC0415 - with its table: 10 ms
    from safelaunch.lint.finding import NOTE  # noqa: PLC0415 - as above

    known = model.Facts(
        launcher=job.launcher,
        nodes=job.topology.nodes,
        nccl=host.facts.get("nccl"),
        torch=host.facts.get("torch"),
        nvlink=_has_nvlink(profile),
        rdma=_has_rdma(profile),
        machine=host.name,
    )
    of_profile = {var.name: var.value for var in chosen.env} if chosen else {}
    asked = {entry.var.name for entry in chosen.missing} if chosen else set()
    is_set = {name for name, var in env.items() if var.value is not None or var.computed}
    judged = {name: _stated(env[name]) for name in env if name in is_set & {*own, *of_profile}}
    for problem in env_names.check(judged, known):
        name = problem.name
        if name not in own or problem.severity == NOTE:
            continue
        is_answered = name in asked or of_profile.get(name, "") == env[name].value
        if is_answered and problem.id in ("env-together", "env-machine"):
            continue
        fix = f"; {problem.fix}" if problem.fix else ""
        yield PlanWarning(problem.id, f"{problem.message}{fix}", own[name])


def _stated(var: EnvVar) -> str | None:
    """Return the value that a variable will have; None where only the start or the target knows."""
    return var.value if isinstance(var.value, str) and not (var.computed or var.prepend) else None


def _has_nvlink(profile: Profile | None) -> bool | None:
    """Whether NVLink joins all cards of a platform; None where bridges or nothing are told of."""
    said = profile.facts.get("nvlink", "") if profile else ""
    if said.startswith("none"):
        return False
    return True if "NVSwitch" in said and "bridge" not in said else None


def _has_rdma(profile: Profile | None) -> bool | None:
    """Whether a platform's nodes are joined by RDMA; None where nothing is told of it."""
    said = profile.facts.get("network", "") if profile else ""
    return True if re.search(r"RoCE|InfiniBand", said) else None


def workarounds(
    resolved: Resolved, profile: Profile, chosen: Selection, env: Mapping[str, EnvVar]
) -> Iterator[str]:
    """Say which workarounds are on for want of a fact, and the command that lifts them."""
    for fact, names in _standing(chosen, env).items():
        on = [name for name in names if name in chosen.workarounds]
        if not on:
            continue
        what = "NCCL version" if fact == "nccl" else f"`{fact}`"
        cost = ": slower, GPU traffic goes over TCP" if "NCCL_SHM_DISABLE" in on else ""
        yield (
            f"workarounds of {profile.name} are on ({', '.join(on)}{cost}) because the {what} is "
            f"not declared; to lift them: {_again(resolved)}"
        )


def _standing(chosen: Selection, env: Mapping[str, EnvVar]) -> dict[str, list[str]]:
    """Return {undeclared fact: variables that it keeps on}, without those that the job replaced."""
    profile_vars = {var.name: var.origin for var in chosen.env}
    standing = {
        fact: [name for name in names if env[name].origin == profile_vars[name]]
        for fact, names in chosen.undeclared.items()
    }
    return {fact: names for fact, names in standing.items() if names}


def _again(resolved: Resolved) -> str:
    flags = resolved.flags
    words = ["safelaunch", "run", "--no-workarounds"]
    words += ["--smoke"] if flags.smoke else []
    words += ["--profile", flags.profile] if flags.profile else []
    words += ["--hosts", flags.hosts_file] if flags.hosts_file else []
    words += [word for setting in flags.sets for word in ("--set", setting)]
    words += [resolved.job_file] if resolved.job_file else ["--", *resolved.line]
    return " ".join(quote(word) for word in words)
