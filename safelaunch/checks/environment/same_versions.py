"""Checks: whether the machines of a job have the same versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.checks import job_needs, visible_gpus
from safelaunch.checks.answers import Answer, NotKnown, ok, warn
from safelaunch.checks.environment import pip_commands
from safelaunch.checks.registry import check
from safelaunch.runtime.packages import SAME_EVERYWHERE

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.checks.context import CheckContext, HostContext

_SOURCE = "NCCL user guide, Troubleshooting: the same version on all nodes"


def _python(host: HostContext) -> str | None:
    version = host.get("python", "version")
    return ".".join(str(version).split(".")[:2]) if version else None


def _torch(host: HostContext) -> str | None:
    """Return torch's version with the CUDA that it was built for: conda's does not tell it."""
    found, built = host.get("torch", "version"), host.get("torch", "cuda")
    if found is None or built is None or "+" in found:
        return None if found is None else str(found)
    return f"{found}+cu{str(built).replace('.', '')}"


def _nccl(host: HostContext) -> str | None:
    found = host.get("torch", "nccl") or {}
    if not job_needs.has_nccl(host) or not found.get("version"):
        return None
    built = found.get("cuda")
    return f"{found['version']}+cuda{built}" if built else str(found["version"])


def _package(name: str) -> Callable[[HostContext], str | None]:
    def version(host: HostContext) -> str | None:
        found = (host.get("python", "packages") or {}).get(name)
        return None if found is None else str(found)

    return version


def _driver(host: HostContext) -> str | None:
    found = host.get("gpus", "driver")
    return None if found is None or visible_gpus.needs_gpu(host) is False else str(found)


_COMPARED: tuple[tuple[str, Callable[[HostContext], str | None]], ...] = (
    ("torch", _torch),
    ("NCCL", _nccl),
    ("Python", _python),
    *((name, _package(name)) for name in SAME_EVERYWHERE),
    ("driver", _driver),
)


@check("same-versions", "environment", once=True, source=_SOURCE)
def same_versions(context: CheckContext) -> list[Answer] | Answer | None:
    """Whether all machines have the same versions; ranks that differ may hang."""
    if len(context.hosts) < 2 or not all(job_needs.runs_python(host) for host in context.hosts):  # noqa: PLR2004
        return None
    known = [host for host in context.hosts if host.get("python")]
    if len(known) < 2:  # noqa: PLR2004 - nothing to compare with
        raise NotKnown("fewer than two of the machines tell their versions")
    found, same = [], []
    for what, of in _COMPARED:
        versions = {host.name: version for host in known if (version := of(host))}
        if len(set(versions.values())) > 1:
            found.append(_differs(what, versions, known))
        elif versions:
            same.append(f"{what} {next(iter(versions.values()))}")
    return found or ok(", ".join(same))


def _differs(what: str, versions: dict[str, str], hosts: list[HostContext]) -> Answer:
    listed = ", ".join(f"{version} on {name}" for name, version in versions.items())
    first, wanted = next(iter(versions.items()))
    other = next(host for host in hosts if versions.get(host.name, wanted) != wanted)
    if what == "driver":
        hint = f"install driver {wanted}, that of {first}, on {other.name}"
    elif what == "Python":
        hint = f"name a Python {wanted} for {other.name} with `python:` in the hosts file"
    elif what == "NCCL":
        hint = f"install the torch of {first} on {other.name} too: NCCL comes with it"
    elif what == "torch":
        public, _, build = wanted.partition("+")
        index = ["--index-url", pip_commands.INDEX + build] if build else []
        hint = pip_commands.install(other, [f"torch=={public}"], *index)
    else:
        hint = pip_commands.install(other, [f"{what}=={wanted}"])
    return warn(f"{what} differs: {listed}", hint)
