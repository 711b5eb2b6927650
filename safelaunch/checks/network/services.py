"""Checks the ports of the services of a job: fixed ones are free, others are passed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.checks.answers import Answer, Question, fail, ok
from safelaunch.checks.network.ports import usage
from safelaunch.checks.registry import check
from safelaunch.plan.members.words import late_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.checks.context import HostContext
    from safelaunch.model import Service


def _services(host: HostContext) -> Sequence[Service]:
    """Return the services that run on a host."""
    plan, node = host.context.plan, host.node
    if plan is None or node is None:
        return ()
    return [service for service in plan.services if service.node == node.node_rank]


def _questions(host: HostContext) -> list[Question]:
    return [("port", service.port) for service in _services(host) if service.port is not None]


@check("service-ports", asks=_questions, quick=True)
def service_ports(host: HostContext) -> Iterator[Answer]:
    """Whether the fixed ports of services are free, and each program gets the port of its service.

    One that chooses a port by itself is never ready.
    """
    services = _services(host)
    free = []
    for service in services:
        name = service.plan.name
        if service.port is None:
            if _listens(service) and not _has_port(service):
                word = f"{{services.{name}.port}}"
                what = f"service `{name}` has to listen on a free port, and is given none"
                hint = (
                    f'`args: {{port: "{word}"}}` in the service; or `port: N`, that of its program'
                )
                yield fail(what, hint)
            continue
        state = host.answer("port", service.port)
        if state["free"]:
            free.append(str(service.port))
        elif state.get("listens") is not False:  # one that is closing may be free in time
            what = f"port {service.port} of service `{name}` is {usage(state)}"
            yield fail(what, "leave `port` out: it gets a free one; or end what uses this one")
    if free:
        yield ok(f"port {', '.join(free)} of services can be bound")


def _listens(service: Service) -> bool:
    """Whether a service is ready only once it answers on its port."""
    return service.ready.http is not None or not (service.ready.log or service.ready.command)


def _has_port(service: Service) -> bool:
    """Whether the words of a service's program have its port."""
    own = {f"services.{service.plan.name}.{field}" for field in ("port", "url")}
    return any(late.value in own for late in late_values(service.plan))
