"""Hands a job to the jobs interface of a Ray, once, and ends one."""

from __future__ import annotations

import json
import time

from safelaunch.runtime.engines.errors import SubmitError, UnclearSubmitError, UnreachableEngine
from safelaunch.runtime.engines.ray import http, jobs
from safelaunch.runtime.engines.ray.query import token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from safelaunch.runtime.engines.ray.http import RayAnswer
    from safelaunch.runtime.engines.ray.jobs import RayJob
    from safelaunch.runtime.records import EngineJob

CHECK_LIMIT = 10.0  # seconds for a Ray to say that it is one
END_PATIENCE = 20.0  # seconds for a job to end; Ray itself kills its driver after 3 s
PENDING_PATIENCE = 5.0  # seconds after which a job that waits will not be ended by Ray
POLL = 0.5
OK, MISSING, FORBIDDEN = 200, 404, (401, 403)
LATE = (502, 504)  # of a proxy that may have passed the request on


def check(request: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Raise UnreachableEngine where no jobs interface of a Ray answers."""
    address = str(request["cluster"])
    secret = _secret(request, environ)
    answer = http.ask(address, "/api/jobs/", token=secret, limit=CHECK_LIMIT)
    if isinstance(answer.data, list):
        return
    if not answer.code:
        raise UnreachableEngine(f"no Ray answers at {address}: {answer.words}")
    words = f"{address} answers: {answer.words}"
    if answer.code in FORBIDDEN:
        what = "does not accept the token" if secret else "wants a token"
        raise UnreachableEngine(f"{what}; {words}")
    raise UnreachableEngine(f"no jobs interface of a Ray; {words}")


def capacity(request: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return `machines`, {address: {resource: count}}, and the `problem` of a Ray that is silent.

    Ray does not describe what its dashboard shows of machines: what has another form has none.
    """
    try:
        check(request, environ)
    except UnreachableEngine as e:
        return {"problem": str(e), "machines": {}}
    secret = _secret(request, environ)
    answer = http.ask(str(request["cluster"]), "/nodes?view=summary", token=secret)
    machines = {}
    try:
        for entry in answer.data["data"]["summary"]:
            if entry["raylet"]["state"] == "ALIVE":
                machines[str(entry["ip"])] = dict(entry["raylet"]["resourcesTotal"])
    except (TypeError, KeyError, ValueError):
        machines = {}
    return {"problem": "", "machines": machines}


def _secret(request: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    name = request.get("token_from") or ""
    return (request.get("env") or {}).get(name) or environ.get(name) or "" if name else ""


def submit(request: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[str, str]:
    """Post the job of a request; return its id and the address.

    A job of this id that is there already is ours: the id is that of the run. Raises SubmitError,
    and UnclearSubmitError where Ray did not answer.
    """
    address, secret = str(request["cluster"]), _secret(request, environ)
    body = json.loads(request["script"][1])
    name = str(body["submission_id"])
    answer = http.ask(address, "/api/jobs/", method="POST", body=body, token=secret)
    if answer.code == OK and isinstance(answer.data, dict):
        return name, address
    if answer.is_late or answer.code in LATE:
        raise UnclearSubmitError(answer.words)
    if answer.code and "already exists" in answer.text and _entry(address, name, secret):
        return name, address
    raise SubmitError(answer.words)


def _get(address: str, name: str, secret: str) -> RayAnswer:
    return http.ask(address, f"/api/jobs/{name}", token=secret)


def _entry(address: str, name: str, secret: str) -> RayJob | None:
    return jobs.parse(_get(address, name, secret).data)


def find(job: EngineJob, folder: str) -> tuple[str, str] | None:
    """Return id and address of a job; two empty texts: there is none. None: Ray does not say."""
    answer = _get(job.cluster, job.comment, token(job, folder))
    if answer.code == MISSING:
        return "", ""
    return (job.comment, job.cluster) if jobs.parse(answer.data) is not None else None


def state(job: EngineJob, folder: str) -> str:
    """Return the state of a job now, "" of one that is not there, `unknown` if Ray is silent."""
    answer = _get(job.cluster, job.job, token(job, folder))
    entry = jobs.parse(answer.data)
    if entry is not None:
        return entry.state
    return "" if answer.code == MISSING else "unknown"


def end(job: EngineJob, folder: str) -> tuple[bool, str]:
    """Stop a job: whether nothing of it is left, and what the user should know of it.

    Ray does not end a job that waits for resources, nor lets it be deleted (2.60): the driver ends
    by itself once it starts.
    """
    path = f"/api/jobs/{job.job}/stop"
    begun_at = time.monotonic()
    http.ask(job.cluster, path, method="POST", token=token(job, folder))
    while (now := state(job, folder)) not in ("", *jobs.ENDS):
        age = time.monotonic() - begun_at
        if now == jobs.PENDING and age > PENDING_PATIENCE:
            return True, "Ray keeps its job as PENDING: it ends itself as soon as it starts"
        if age > END_PATIENCE:
            return False, ""
        time.sleep(POLL)
    return True, ""


def withdraw(job: EngineJob, folder: str) -> None:
    """Stop a job that was just submitted, or may have been. Raises SubmitError."""
    accepted = find(job, folder)
    if accepted is None:
        raise SubmitError(f"{job.cluster} does not say whether it has the job")
    if accepted[0]:
        job.job = accepted[0]
        if not end(job, folder)[0]:
            raise SubmitError(f"{job.cluster} does not end the job")
