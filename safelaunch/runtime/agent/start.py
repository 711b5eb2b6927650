"""Verbs for a start: the state of this machine, and runtime/start."""

# ruff: noqa: ARG001 - all verbs have one signature

# ruff: noqa: PLC0415 - what asks an engine: few machines have one

from __future__ import annotations

import os
import shutil
import sys
import time

from safelaunch.runtime import commands
from safelaunch.runtime.home import home
from safelaunch.runtime.start import live_runs, runtime_copy, starter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.agent.wire import Link, Message


def machine_state(request: Message, link: Link) -> Message:
    """Return what a start needs to know of this machine, and the results of `commands`.

    A command is a list of words; the first may be null for the agent's own interpreter, or begin
    with `~/`. With `until_success` those behind the first that exits with 0 do not run. `environ`
    has names of variables, with a final `*` for all that begin so.
    """
    results = []
    for command in request.get("commands") or []:
        program, *words = (word or sys.executable for word in command)
        result = commands.run([os.path.expanduser(program), *words])
        results.append(result.to_json())
        if result.code == 0 and request.get("until_success"):
            break
    names = request.get("environ") or []
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    return {
        "home": os.path.expanduser("~"),
        "base": home(),
        "hostname": os.uname().nodename,
        "user": os.getuid(),
        "environ": {n: v for n, v in os.environ.items() if n in names or n.startswith(prefixes)},
        "python": sys.executable,
        "bash": shutil.which("bash"),
        "results": results,
    }


def clock(request: Message, link: Link) -> Message:
    """Return the time of this machine's clock."""
    return {"now": time.time()}


def start(request: Message, link: Link) -> Message:
    """Start a run, its files as data behind the request. Raises OSError, StartFailed."""
    return starter.start(request, b"".join(link.pieces()), os.environ, home()).to_json()


def undo(request: Message, link: Link) -> Message:
    """Remove what a start has made so far."""
    starter.undo(str(request["id"]), int(request["node"]))
    return {}


def submit(request: Message, link: Link) -> Message:
    """Submit a run to the engine of this machine, its files as data behind the request.

    Raises OSError, StartFailed and SubmitError.
    """
    from safelaunch.runtime.engines import submission

    answer = submission.submit(request, b"".join(link.pieces()), os.environ, home())
    return answer.to_json()


def partitions(request: Message, link: Link) -> Message:
    """Return the `names` of the engine's partitions, or with `with_limits` what they have."""
    from safelaunch.runtime.engines.slurm import submit as slurm

    names = slurm.partitions(
        request.get("prefix") or (), os.environ, with_limits=bool(request.get("with_limits"))
    )
    return {"names": names}


def trial(request: Message, link: Link) -> Message:
    """Return what the `engine` says to a job that is not submitted."""
    from safelaunch.runtime.engines import table

    return table.load(str(request["engine"])).trial(request, os.environ)


def withdraw(request: Message, link: Link) -> Message:
    """Cancel a submission, and remove what it has made. Raises SubmitError."""
    from safelaunch.runtime.engines import submission

    submission.undo(str(request["id"]), os.environ, home())
    return {}


def sweep(request: Message, link: Link) -> Message:
    """Remove copies of the runtime that nobody uses, with `dry_run` none; return their folders."""
    places = runtime_copy.unused(home(), 0.0)
    if not request.get("dry_run"):
        runtime_copy.sweep(home(), 0.0)
    return {"copies": places}


def key(request: Message, link: Link) -> Message:
    """Return the `id` of the run that a `key` has started on this machine, "" for none."""
    return {"id": live_runs.run_of_key(home(), str(request["key"]))}


VERBS = {
    "key": key,
    "look": machine_state,
    "start": start,
    "undo": undo,
    "submit": submit,
    "withdraw": withdraw,
    "partitions": partitions,
    "trial": trial,
    "clock": clock,
    "sweep": sweep,
}
