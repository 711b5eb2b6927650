"""The files of the members of a run, in the request of its start: each has those of a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from safelaunch.runtime.members import FOLDER
from safelaunch.runtime.records import ReadyCheck, RunRecord, ServiceSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.model import Service, Slot


def member_files(
    name: str,
    run: RunRecord,
    files: Mapping[str, bytes],
    late: Mapping[Slot, str],
) -> tuple[tuple[str, bytes], ...]:
    """Return the files of a member, whose scripts wait for the values of `late`."""
    run.placeholders = {slot.value: text for slot, text in late.items()}
    folder = f"{FOLDER}/{name}/node-0"
    record = json.dumps(run.to_json(), ensure_ascii=False).encode()
    return (
        *((f"{folder}/{file}", body) for file, body in files.items()),
        (f"{folder}/{RunRecord.FILE}", record),
    )


def service_spec(service: Service, cwd: str, address: str) -> ServiceSpec:
    """Return what the supervisors have to know of a service; `address` is that of its node."""
    ready = service.ready
    check: dict[str, Any] = {
        "http": ready.http,
        "status": ready.status,
        "json": dict(ready.json),
        "log": ready.log,
        "command": list(ready.command),
        "limit": ready.limit,
    }
    return ServiceSpec(
        name=service.plan.name,
        needs=list(service.needs),
        ready=ReadyCheck(**check),
        port=service.port,
        cwd=cwd,
        on_exit=service.on_exit,
        node=service.node,
        address=address,
        queued=0 if service.plan.queue is None else service.plan.queue.count,
    )
