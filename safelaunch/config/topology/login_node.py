"""The login node of a cluster: the host of a job over SSH whose engine chooses the machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

    `engine` is that of `--on`; else an entry of the hosts file with `slurm` makes the host a login
    node. That host is no longer one of the job's `hosts`, which run its ranks. Raises ConfigError.
    """
    names: tuple[str, ...] = values.get("hosts", ())
    hosts = [machines.get(name) or Host(name) for name in names]
    clusters = [host for host in hosts if host.slurm is not None]
    if not hosts or not (clusters or engine):
        return None, None
    if len(hosts) > 1:
        nodes = f"nodes: {values.get('nodes', len(hosts))}"
        name = (clusters or hosts)[0].name
        raise ConfigError(
            f"{len(hosts)} hosts, where {name} is the login node of a Slurm",
            where=origins["hosts"],
            hint=f"name that one alone; `{nodes}` says how many machines Slurm is asked for",
        )
    del values["hosts"], origins["hosts"]
    return engine or "slurm", hosts[0]
