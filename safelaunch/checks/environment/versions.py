"""Checks for versions that do not work together, in one environment or on several hosts.

Each record of pairs.json has

    packages  normalised name: PEP 440 specifiers; all must match what is installed
    python    specifiers of the interpreter, where only some are affected
    words     regular expression, searched in the job's words (program, arguments, launcher's)
    ranks     `several`: only with more than one process
    what      what happens
    fix       requirements that fix it, for one command of pip
    checked   where the boundaries of the versions were verified
    source    where it is reported
    fires, silent   samples that must match, and must not: packages, python, words, ranks
"""

# ruff: noqa: PLC0415 - json, and packaging (15 ms): only where all checks run

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from safelaunch.checks import visible_gpus
from safelaunch.checks.answers import Answer, NotKnown, ok, warn
from safelaunch.checks.environment import pip_commands
from safelaunch.checks.environment.packages import installed_packages
from safelaunch.checks.environment.torch_nccl import has_nccl
from safelaunch.checks.registry import check
from safelaunch.runtime.packages import SAME_EVERYWHERE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.checks.context import CheckContext, HostContext


@check("package-pairs", needs=("python",))
def package_pairs(host: HostContext) -> list[Answer] | Answer | None:
    """Whether no packages are installed that are known not to work together."""
    installed = installed_packages(host)
    if installed is None:
        return None
    job = host.job
    named = [word for word in (job.script, job.module) if word]
    words = " ".join((*named, *job.command, *job.args.words, *job.launcher_args.words))
    version = str(host.fact("python", "version"))
    warnings = [
        warn(
            f"{' with '.join(f'{name} {installed[name]}' for name in pair['packages'])}: "
            f"{pair['what']}",
            pip_commands.install(host, pair["fix"]),
            pair["source"],
        )
        for pair in pairs()
        if matches(pair, installed, version, words, has_ranks=host.has_several_ranks)
    ]
    return warnings or ok(f"none of {len(pairs())} known bad pairs is installed")


@lru_cache(maxsize=1)
def pairs() -> list[dict[str, Any]]:
    """Return the records of pairs.json."""
    import json

    with open(os.path.join(os.path.dirname(__file__), "pairs.json"), encoding="utf-8") as file:
        records: list[dict[str, Any]] = json.load(file)
    return records


def matches(
    pair: Mapping[str, Any],
    installed: Mapping[str, str],
    python: str,
    words: str,
    *,
    has_ranks: bool,
) -> bool:
    """Whether a record is about these packages, this interpreter and this job."""
    return (
        (has_ranks or pair.get("ranks") != "several")
        and re.search(pair.get("words", ""), words) is not None
        and _is_within(python, pair.get("python", ""))
        and all(
            name in installed and _is_within(installed[name], specifiers)
            for name, specifiers in pair["packages"].items()
        )
    )


def _is_within(version: str, specifiers: str) -> bool:
    """Whether a version meets specifiers; an invalid version meets only empty ones."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(specifiers).contains(Version(version).public, prereleases=True)
    except InvalidVersion:
        return not specifiers


_NCCL_GUIDE = "NCCL user guide, Troubleshooting: the same version on all nodes"


def _host_versions(host: HostContext) -> dict[str, str]:
    """Return the versions of a host that must be the same on the others."""
    torch, build = host.get("torch", "version"), host.get("torch", "cuda")
    if torch and build and "+" not in torch:  # conda's version does not include the CUDA build
        torch = f"{torch}+cu{str(build).replace('.', '')}"
    nccl = host.get("torch", "nccl") or {}
    cuda = f"+cuda{nccl['cuda']}" if nccl.get("cuda") else ""
    python = str(host.get("python", "version") or "")
    packages = host.get("python", "packages") or {}
    versions = {
        "torch": torch,
        "NCCL": f"{nccl['version']}{cuda}" if nccl.get("version") else None,
        "Python": ".".join(python.split(".")[:2]),
        **{name: packages.get(name) for name in SAME_EVERYWHERE},
        "driver": host.get("gpus", "driver"),
    }
    if not has_nccl(host):
        del versions["NCCL"]
    if visible_gpus.needs_gpu(host) is False:
        del versions["driver"]
    return {name: str(version) for name, version in versions.items() if version}


@check("same-versions", once=True, source=_NCCL_GUIDE)
def same_versions(context: CheckContext) -> list[Answer] | Answer | None:
    """Whether all machines have the same versions; ranks that differ may hang."""
    if len(context.hosts) < 2 or not all(host.runs_python for host in context.hosts):  # noqa: PLR2004
        return None
    hosts = {host.name: host for host in context.hosts if host.get("python")}
    if len(hosts) < 2:  # noqa: PLR2004 - nothing to compare with
        raise NotKnown("the versions of fewer than two machines are known")
    by_host = {name: _host_versions(host) for name, host in hosts.items()}
    different, same = [], []
    for what in ("torch", "NCCL", "Python", *SAME_EVERYWHERE, "driver"):
        versions = {
            name: host_versions[what]
            for name, host_versions in by_host.items()
            if what in host_versions
        }
        if len(set(versions.values())) > 1:
            different.append(_differs(what, versions, hosts))
        elif versions:
            same.append(f"{what} {next(iter(versions.values()))}")
    return different or ok(", ".join(same))


def _differs(what: str, versions: dict[str, str], hosts: dict[str, HostContext]) -> Answer:
    listed = ", ".join(f"{version} on {name}" for name, version in versions.items())
    first, version = next(iter(versions.items()))
    other = hosts[next(name for name, other in versions.items() if other != version)]
    if what == "driver":
        hint = f"install driver {version}, that of {first}, on {other.name}"
    elif what == "Python":
        hint = f"name a Python {version} for {other.name} with `python:` in the hosts file"
    elif what == "NCCL":
        hint = f"install the torch of {first} on {other.name} too: NCCL comes with it"
    elif what == "torch":
        public, _, build = version.partition("+")
        index = ["--index-url", pip_commands.INDEX + build] if build else []
        hint = pip_commands.install(other, [f"torch=={public}"], *index)
    else:
        hint = pip_commands.install(other, [f"{what}=={version}"])
    return warn(f"{what} differs: {listed}", hint)
