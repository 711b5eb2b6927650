"""Warnings of a plan, and the notes that each start repeats."""
# ruff: noqa: PLC0415 - lint's table of variables (10 ms) is imported only for jobs that set some

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from safelaunch import engines
from safelaunch.model import BUILT_IN, PlanWarning, Template
from safelaunch.plan.gates import LABELS, describe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.model import EnvVar, Host, Job, NodePlan, Profile
    from safelaunch.plan.gates import SelectedVariables

_SHELL_SYNTAX = re.compile(r"(?<!\\)\$(\w|\{|\()|^~(/|$)|/~/|`[^`]+`")
# what OmegaConf resolves and no shell can: ${model.lr}, ${.lr}, ${now:%Y-%m-%d}, ${oc.env:HOME}
# https://omegaconf.readthedocs.io/en/latest/usage.html#variable-interpolation
_INTERPOLATION = re.compile(r"\$\{(?:\w*\.[\w.]+|[\w.]+:(?![-=+?\s\d])[^{}]*)\}")
_SHELLS = ("bash", "sh", "dash", "zsh")
_SHELL_TEXT = re.compile(r"-[a-z]*c")
# at the beginning of a word or of a value in it; an address such as s3://x has a longer scheme
_WINDOWS_PATH = re.compile(r"(?:^|[=,;])(?:[A-Za-z]:[\\/](?!/)|(?P<wsl>/mnt/[a-z](?:/|$)))")
# network cards and files of one machine: their values may differ between nodes
_PER_MACHINE = ("NCCL_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX",
                "NCCL_TOPO_FILE")  # fmt: skip
_MAX_SHOWN = 60  # characters of a value in a message


def unexpanded(job: Job, project: str) -> Iterator[PlanWarning]:
    """Warn about values that look as if a shell should expand them, which nothing does.

    `project` is the folder of the project: a `$` in its path is one that nobody has written.
    """
    shell_texts = _shell_texts(job.command)
    for key, word, where in _words(job):
        # a variable may have the text, or a part of it, for the script that starts the shell
        if word and any(word in text for text in shell_texts):
            continue
        text = _INTERPOLATION.sub("", word.removeprefix(project))
        if _SHELL_SYNTAX.search(text) and where != str(BUILT_IN):
            what = "is taken literally: `$` and `~` are never expanded"
            yield PlanWarning("not-expanded", f"`{_shorten(word)}` in `{key}` {what}", where)


def _shell_texts(command: Sequence[str]) -> list[str]:
    """Return the texts that a shell of the command runs, which expands them itself.

    A wrapper may start the shell: `srun --jobid 7 bash -c TEXT`.
    """
    names = [word.rpartition("/")[2] for word in command]
    first = next((at for at, name in enumerate(names) if name in _SHELLS), len(names))
    pairs = itertools.pairwise(command[first:])
    return [text for option, text in pairs if _SHELL_TEXT.fullmatch(option)]


def windows_paths(job: Job) -> Iterator[PlanWarning]:
    """Warn about values of a job on a host that look like paths of a Windows machine."""
    where = str(job.origin("pythonpath"))
    for key, word, origin in (
        *_words(job),
        *(("pythonpath", str(path), where) for path in job.pythonpath),
    ):
        match = _WINDOWS_PATH.search(word)
        if match is not None:
            what = "is where WSL mounts a Windows drive" if match["wsl"] else "is a Windows path"
            message = f"`{_shorten(word)}` in `{key}` {what}; the job runs on a host"
            yield PlanWarning("laptop-path", message, origin)


def differing_variables(nodes: Sequence[NodePlan]) -> Iterator[PlanWarning]:
    """Warn about NCCL variables that differ between nodes, except those about one machine."""
    names = dict.fromkeys(n for node in nodes for n in node.env if n.startswith("NCCL_"))
    for name in names:
        values = [node.env[name].value if name in node.env else None for node in nodes]
        if len(set(map(str, values))) > 1 and not name.startswith(_PER_MACHINE):
            pairs = zip(nodes, values, strict=True)
            shown = ", ".join(f"{node.host} {'none' if v is None else v}" for node, v in pairs)
            message = f"{name} differs between the nodes: {shown}; their ranks may not agree"
            yield PlanWarning("nodes-differ", message)


def unused_blocks(job: Job, hosts: Sequence[Host]) -> Iterator[str]:
    """Note the blocks of engines that have no part in a start."""
    for name in engines.NAMES:
        requests = (job.requests, *(host.requests for host in hosts))
        blocks = [own[name] for own in requests if name in own]
        places = ", ".join(dict.fromkeys(str(block.origin) for block in blocks))
        if places and name != job.engine:
            title = engines.load(name).TITLE
            yield f"`{name}:` ({places}) has no effect: {title} does not start this job"


def _words(job: Job) -> Iterator[tuple[str, str, str]]:
    """Yield key, text and origin of the values that may be meant as paths."""
    words = [("args", word) for word in job.args.words]
    words += [("launcher_args", word) for word in job.launcher_args.words]
    words += [("command", word) for word in job.command]
    words += [("prefix", word) for word in job.prefix]
    words += [("workdir", str(job.workdir)), ("script", job.script or ""), ("log", job.log or "")]
    words += [("python", str(job.interpreter.path or ""))]
    yield from ((key, word, str(job.origin(key))) for key, word in words)
    for var in job.env:
        if isinstance(var.value, str):
            yield var.name, var.value, str(var.origin)


def _shorten(word: str) -> str:
    return word if len(word) <= _MAX_SHOWN else word[: _MAX_SHOWN - 3] + "..."


def profile_variables(
    profile: Profile, selection: SelectedVariables, env: Mapping[str, EnvVar], host: Host
) -> Iterator[PlanWarning]:
    """Warn about variables set for want of a fact, and missing ones that only a site knows."""
    where, open_gates = f"profile {profile.name}", selection.open_gates
    explained: set[str] = set()
    for fact, names in _set_for_undeclared(selection, env).items():
        if explained.issuperset(names):
            continue  # a start may not even ask for this fact
        explained.update(names)
        needed = {describe(g.condition) for n in names for g in open_gates[n] if g.key == fact}
        message = (
            f"{', '.join(names)}: needed for {LABELS.get(fact, fact)} {' or '.join(sorted(needed))}"
            f"; a start on {host.name} reads its version and decides, here they are set"
        )
        yield PlanWarning("undeclared-fact", message, where)
    missing = ", ".join(
        f"{entry.var.name} (such as {entry.example})" if entry.example else entry.var.name
        for entry in selection.missing
        if entry.var.name not in env
    )
    if missing:
        message = f"{host.name}: only your site knows {missing}"
        yield PlanWarning("site-variable", message, where, "put it into the hosts file or `env`")


def job_variables(
    job: Job,
    profile: Profile | None,
    selection: SelectedVariables | None,
    env: Mapping[str, EnvVar],
    host: Host,
) -> Iterator[PlanWarning]:
    """Warn about variables of the job or its host as lint does: unread names, values, pairs.

    `env` is what the ranks get. Variables that the profile sets are not checked.
    """
    origins = {var.name: str(var.origin) for var in (*host.env, *job.env) if var.value is not None}
    origins |= dict.fromkeys(job.env_from, str(job.origin("env_from")))
    own = {name: where for name, where in origins.items() if where == str(env[name].origin)}
    if not own:
        return
    from safelaunch.lint.env import model
    from safelaunch.lint.env import names as env_names
    from safelaunch.lint.finding import NOTE

    network = profile.fact("network") if profile else ""
    facts = model.Facts(
        launcher=job.launcher,
        nodes=job.topology.nodes,
        nccl=host.facts.get("nccl"),
        torch=host.facts.get("torch"),
        nvlink=_has_nvlink(profile),
        rdma=True if re.search(r"RoCE|InfiniBand", network) else None,
        machine=host.name,
    )
    by_profile = {var.name: var.value for var in selection.env} if selection else {}
    missing = {entry.var.name for entry in selection.missing} if selection else set()
    values = {
        # None: only the start or the target knows the value
        name: None if var.computed or var.prepend or isinstance(var.value, Template) else var.value
        for name, var in env.items()
        if (var.value is not None or var.computed) and (name in own or name in by_profile)
    }
    for problem in env_names.check(values, facts):
        name = problem.name
        if name not in own or problem.severity == NOTE:
            continue
        is_expected = name in missing or by_profile.get(name, "") == env[name].value
        if is_expected and problem.id in ("env-together", "env-machine"):
            continue
        yield PlanWarning(problem.id, problem.message, own[name], problem.fix or "")


def _has_nvlink(profile: Profile | None) -> bool | None:
    """Whether NVLink joins all GPUs of a platform; None with bridges, or if unknown."""
    nvlink = profile.fact("nvlink") if profile else ""
    if nvlink.startswith("none"):
        return False
    return True if "NVSwitch" in nvlink and "bridge" not in nvlink else None


def _set_for_undeclared(
    selection: SelectedVariables, env: Mapping[str, EnvVar]
) -> dict[str, list[str]]:
    """Return {undeclared fact: variables set for want of it}, without those that the job sets."""
    origins = {var.name: var.origin for var in selection.env}
    by_fact = {
        fact: [name for name in names if env[name].origin == origins[name]]
        for fact, names in selection.undeclared.items()
    }
    return {fact: names for fact, names in by_fact.items() if names}
