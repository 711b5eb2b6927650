"""What a client sees of the runs of this machine: lists, states, logs, and their end."""

from __future__ import annotations

import os
import struct
import time

from safelaunch.runtime import backends, json_files, run_state
from safelaunch.runtime.home import home
from safelaunch.runtime.logs import reader
from safelaunch.runtime.records import (
    Failure,
    Provenance,
    Record,
    RunRecord,
    Status,
    StatusSummary,
)
from safelaunch.runtime.start import run_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from safelaunch.runtime.agent.wire import Link

MIRROR = "mirror"  # a file that stands in a node's folder where the run is on another machine
FILES = (RunRecord.FILE, Provenance.FILE, Failure.FILE)
SIGN_OF_LIFE = 15.0  # seconds
AT = struct.Struct(">IQ")  # before a piece of a log: its attempt, and the position behind it


class NodeView(Record):
    """What an agent says of a run's node."""

    run_dir: str = ""  # directory of the node
    status: Status = Status()  # its status as it is now
    files: Mapping[str, object] = {}  # name -> JSON object, null where there is none
    ranks: Mapping[str, int] = {}  # rank -> pid of its newest start
    attempts: Sequence[int] = ()  # numbers of the attempts that have logs
    served: bool = False  # whether its tmux server answers
    notes: Sequence[str] = ()  # what the samples say


def runs(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Return {run id: {node: view}} of the runs here, of all or of those that `ids` names."""
    del link
    found: dict[str, Any] = {}
    folder = os.path.join(home(), "runs")
    try:
        ids = request.get("ids") or os.listdir(folder)
    except OSError:
        ids = []
    for run_id in ids:
        try:
            nodes = [n for n in os.listdir(os.path.join(folder, run_id)) if n.startswith("node-")]
        except OSError:
            continue
        # a pointer to a run of another machine has no run.json of its own
        views = {n[5:]: view(os.path.join(folder, run_id, n), request) for n in nodes}
        found[run_id] = {n: seen.to_json() for n, seen in views.items() if seen is not None}
    return {"runs": {run_id: nodes for run_id, nodes in found.items() if nodes}}


def view(node_dir: str, request: dict[str, Any]) -> NodeView | None:
    """Return a node's status as it is now, what explains it, and `files` that were asked for."""
    if not os.path.isdir(node_dir) or os.path.exists(os.path.join(node_dir, MIRROR)):
        return None
    status = run_state.current_status(node_dir)
    seen = NodeView(run_dir=node_dir, status=status)
    if request.get("brief"):
        return seen
    names = (*FILES, *(request.get("files") or ()))
    seen.files = {name: json_files.read_json(os.path.join(node_dir, name)) for name in names}
    seen.ranks, seen.attempts = ranks(node_dir), reader.attempts(node_dir)
    backend, handle = backends.from_record(status)
    seen.served = backend.serves(handle)
    seen.notes = notes(node_dir)
    return seen


def notes(node_dir: str) -> list[str]:
    """Return what the samples of a run say."""
    from safelaunch.runtime.monitor import trends  # noqa: PLC0415 - only for one run at a time

    return list(trends.warnings(os.path.join(node_dir, "samples.csv")))


def ranks(node_dir: str) -> dict[str, int]:
    """Return {rank: pid} of the newest start of each rank, as the ranks themselves noted it."""
    folder = os.path.join(node_dir, "ranks")
    found: dict[int, tuple[tuple[int, ...], int]] = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    for name in names:
        parts = name.replace("rank-", "", 1).split(".")
        if len(parts) != 3 or not all(part.isdigit() for part in parts):  # noqa: PLR2004
            continue
        rank, first, second = (int(part) for part in parts)
        start = (first, second)
        try:
            with open(os.path.join(folder, name), "rb") as file:
                pid = file.read(64).strip()
        except OSError:
            continue
        if pid.isdigit() and found.get(rank, ((), 0))[0] < start:
            found[rank] = (start, int(pid))
    return {str(rank): found[rank][1] for rank in sorted(found)}


def log(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Send a log as data, each piece behind its attempt and position (AT); to its end, or live.

    `which` is null or `rank-3` or `launcher`; `tail` begins so many lines before the end; `brief`
    as `runs`. The answer is the run's view when nothing more comes.
    """
    place = run_dir.node_dir(str(request["id"]), int(request["node"]))
    which, follow = request.get("which"), bool(request.get("follow"))
    attempt = request.get("attempt") or max(reader.attempts(place), default=1)
    position = int(request.get("position") or 0)
    if request.get("tail") is not None:
        position = reader.last_lines(reader.log_path(place, which, attempt), request["tail"])

    def is_done() -> bool:
        return is_over(run_state.current_status(place))

    sent = time.monotonic()
    for number, at, data in reader.follow_attempts(
        place, which, (attempt, position), is_done, on=follow
    ):
        if data or time.monotonic() - sent > SIGN_OF_LIFE:
            sent = time.monotonic()
            link.data(AT.pack(number, at) + data)
        elif not data and link.is_closed():
            raise BrokenPipeError
    seen = view(place, request)
    return {"view": None if seen is None else seen.to_json()}


def is_over(status: StatusSummary) -> bool:
    """Whether nothing more will come: the run has ended, or nobody is left to write."""
    if status.state == "lost":
        return not status.alive
    return status.state not in ("pending", "running")


def stop(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Stop a run: TERM, the grace, KILL. Returns its status."""
    del link
    place = run_dir.node_dir(str(request["id"]), int(request["node"]))
    ended = run_state.current_status(place).state in run_state.ENDED
    status = run_state.stop(place, float(request["grace"]))
    return {"status": status.to_json(), "ended": ended}


VERBS = {"runs": runs, "log": log, "stop": stop}
