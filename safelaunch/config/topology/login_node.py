"""The login node of a cluster: the host of a job over SSH whose engine chooses the machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch import engines
from safelaunch.errors import ConfigError
from safelaunch.model import Host

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.model import Origin


def read_engine(
    values: dict[str, Any],
    origins: dict[str, Origin],
    machines: Mapping[str, Host],
    engine: str | None,
) -> tuple[str | None, Host | None]:
    """Return the engine of a job over SSH, and its login node; of one without an engine None.

    `engine` is that of `--on`; else an entry of the hosts file with `slurm` or `ray` makes the host
    a login node. That host is no longer one of the job's `hosts`, which run its ranks.

    Raises ConfigError.
    """
    names: tuple[str, ...] = values.get("hosts", ())
    hosts = [machines.get(name) or Host(name) for name in names]
    clusters = [host for host in hosts if _names(host)]
    if not hosts or not (clusters or engine):
        return None, None
    if len(hosts) > 1:
        nodes = f"nodes: {values.get('nodes', len(hosts))}"
        first = (clusters or hosts)[0]
        title = engines.load(engine or _names(first)[0]).TITLE
        raise ConfigError(
            f"{len(hosts)} hosts, where {first.name} is the login node of a {title}",
            where=origins["hosts"],
            hint=f"name that one alone; `{nodes}` says how many machines {title} is asked for",
        )
    names_of_host = _names(hosts[0])
    if engine is None and len(names_of_host) > 1:
        raise ConfigError(
            f"{hosts[0].name} has a Slurm and a Ray",
            where=origins["hosts"],
            hint=" or ".join(f"--on {name}" for name in names_of_host),
        )
    del values["hosts"], origins["hosts"]
    return engine or names_of_host[0], hosts[0]


def _names(host: Host) -> list[str]:
    """Return the engines that a host submits jobs to."""
    return [name for name in host.requests if not engines.load(name).HOW_TO_SUBMIT]
