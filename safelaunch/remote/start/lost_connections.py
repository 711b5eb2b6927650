"""Requests that a host fulfils once, made again where the connection is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from safelaunch.errors import HostError
from safelaunch.remote.agent_client import AgentError, Lost
from safelaunch.remote.host_pool import RETRY_DELAYS
from safelaunch.ssh.errors import Unreachable

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from safelaunch.remote.host_pool import Machine

Answer = TypeVar("Answer")


def over_lost_connections(
    machine: Machine,
    run_id: str,
    request: Callable[[], Answer],
    is_cancelled: threading.Event,
) -> Answer:
    """Return the answer to a request that a host fulfils once, made again over a new connection.

    Raises Lost where the host may have started the run, and HostError.
    """
    pauses, is_lost = iter(RETRY_DELAYS), False
    while True:
        try:
            return request()
        except AgentError:  # noqa: PERF203 - each try is another connection
            raise
        except HostError as e:
            is_cut = isinstance(e, (Lost, Unreachable))
            if not (is_lost or is_cut):
                raise
            machine.pool.discard(machine.name)
            # it may run there also where the host now reports another error, as a refused login
            pause = next(pauses, None) if is_cut else None
            if pause is None or is_cancelled.is_set():
                raise Lost(
                    f"the connection was lost during the start of {run_id}: {e.message}",
                    where=machine.name,
                    hint=f"see whether it is running there: safelaunch show {run_id}",
                ) from e
            if not is_lost:
                machine.pool.report(f"[{machine.name} does not answer; trying again]")
            is_lost = True
            is_cancelled.wait(pause)
