"""What follows the end of a run: the keys of the job over those of its host's entry."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.model import Ending, EndKeys, MaxCost, Preemption

if TYPE_CHECKING:
    from safelaunch.model import Host, Job, Supervision


def for_host(job: Job, host: Host) -> Supervision:
    """Return how the job is watched on its first machine. Raises ConfigError.

    Commands of both run, the job's first; any other key of the job is instead of the host's.
    """
    own, keys = job.supervision, host.end_keys or EndKeys()
    ending = _merge(own.ending, keys.ending)
    cost = _cost(job, own.max_cost, keys.max_cost)
    preemption = own.preemption or keys.preemption
    if job.engine is not None:
        _check_engine(job)
        preemption = None
        ending = replace(ending, shutdown=None) if ending is not None else None
    return replace(
        own,
        ending=ending,
        max_cost=cost,
        preemption=None if preemption == Preemption() else preemption,
    )


def _merge(own: Ending | None, host: Ending) -> Ending | None:
    own = own or Ending()
    shutdown = own.shutdown or host.shutdown
    merged = replace(
        own,
        on_success=(*own.on_success, *host.on_success),
        on_failure=(*own.on_failure, *host.on_failure),
        on_end=(*own.on_end, *host.on_end),
        upload=own.upload or host.upload,
        shutdown=shutdown if shutdown is not None and shutdown.command else None,
    )
    return None if merged == Ending(timeout=merged.timeout) else merged


def _cost(job: Job, own: MaxCost | None, host: MaxCost | None) -> MaxCost | None:
    both = [block for block in (own, host) if block is not None]
    total = next((block.total for block in both if block.total is not None), None)
    price = next((block.per_hour for block in both if block.per_hour is not None), None)
    if own is not None and own.total is not None and price is None:
        raise ConfigError(
            "`max_cost` without `per_hour`",
            where=job.origin("max_cost"),
            hint="say the price in the job, or in the entry of the hosts file",
        )
    return MaxCost(total, price) if price is not None else None


def _check_engine(job: Job) -> None:
    """Refuse what a run cannot do to machines that an engine has chosen. Raises ConfigError."""
    for key in ("shutdown", "preemption"):
        if key in job.origins:
            raise ConfigError(
                f"`{key}` of a job whose machines are chosen by {job.engine}",
                where=job.origin(key),
                hint="the machines are the engine's, which turns them off and says so itself",
            )
