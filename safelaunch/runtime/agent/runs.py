"""Verbs for the runs of this machine: their states, their logs, and stopping them."""

# ruff: noqa: PLC0415 - trends: only for one run at a time

# ruff: noqa: ARG001 - all verbs have one signature

from __future__ import annotations

import os
import struct
import time

from safelaunch.runtime import backends, json_files
from safelaunch.runtime.engines import current
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

    from safelaunch.runtime.agent.wire import Link, Message

MIRROR = "mirror"  # a file in the folder of a node that is on another machine
FILES = (RunRecord.FILE, Provenance.FILE, Failure.FILE)
SIGN_OF_LIFE = 15.0  # seconds between two messages without more of a log
AT = struct.Struct(">IQ")  # before a piece of a log: its attempt, and the position after it


class NodeView(Record):
    """A node of a run, as its agent reports it."""

    run_dir: str = ""  # directory of the node
    nodes: int = 1  # number of nodes of the run
    client: str | None = None  # user@machine that started it
    job_file: str | None = None  # path of the job file there
    status: Status = Status()  # its status as it is now
    now: float | None = None  # time of its machine's clock, seconds since 1970
    ahead: float | None = None  # seconds that clock was ahead of the client's, as the client found
    files: Mapping[str, object] = {}  # name -> JSON object, null where there is none
    ranks: Mapping[str, int] = {}  # rank -> pid of its newest start
    attempts: Sequence[int] = ()  # numbers of the attempts that have logs
    served: bool = False  # whether its tmux server answers
    notes: Sequence[str] = ()  # warnings from the samples


def runs(request: Message, link: Link) -> Message:
    """Return {run id: {node: view}} of the runs of this machine, or of those in `ids`."""
    result: Message = {}
    folder = os.path.join(home(), "runs")
    try:
        ids = request.get("ids") or os.listdir(folder)
    except OSError:
        ids = []
    for run_id in ids:
        try:
            names = [n for n in os.listdir(os.path.join(folder, run_id)) if n.startswith("node-")]
        except OSError:
            continue
        views = {name[5:]: view(os.path.join(folder, run_id, name), request) for name in names}
        # a pointer to a run of another machine has no view
        nodes = {number: node.to_json() for number, node in views.items() if node is not None}
        if nodes:
            result[run_id] = nodes
    return {"runs": result}


def view(node_dir: str, request: Message) -> NodeView | None:
    """Return a node's view: its status as it is now, and unless `brief` also its `files`."""
    if not os.path.isdir(node_dir) or os.path.exists(os.path.join(node_dir, MIRROR)):
        return None
    status = current.status(node_dir)
    run = RunRecord.read(node_dir) or RunRecord()
    node = NodeView(run_dir=node_dir, status=status, nodes=max(1, len(run.hosts)), now=time.time())
    node.client, node.job_file = run.client, run.job_file
    if request.get("brief"):
        return node
    names = (*FILES, *(request.get("files") or ()))
    node.files = {name: json_files.read_json(os.path.join(node_dir, name)) for name in names}
    node.ranks, node.attempts = ranks(node_dir), reader.attempts(node_dir)
    backend, handle = backends.from_record(status)
    node.served = backend.serves(handle)
    node.notes = notes(node_dir)
    return node


def notes(node_dir: str) -> list[str]:
    """Return the warnings from the samples of a run."""
    from safelaunch.runtime.monitor import trends

    return list(trends.warnings(os.path.join(node_dir, "samples.csv")))


def ranks(node_dir: str) -> dict[str, int]:
    """Return {rank: pid} of the newest start of each rank, from the markers of the ranks."""
    folder = os.path.join(node_dir, "ranks")
    newest: dict[int, tuple[tuple[int, int], int]] = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    for name in names:
        parts = name.replace("rank-", "", 1).split(".")
        if len(parts) != 3 or not all(part.isdigit() for part in parts):  # noqa: PLR2004
            continue
        rank, attempt, number = (int(part) for part in parts)
        try:
            with open(os.path.join(folder, name), "rb") as file:
                pid = file.read(64).strip()
        except OSError:
            continue
        if pid.isdigit():
            start = (attempt, number), int(pid)
            newest[rank] = max(start, newest.get(rank, start))
    return {str(rank): newest[rank][1] for rank in sorted(newest)}


def log(request: Message, link: Link) -> Message:
    """Send a log as data, each piece after its attempt and position (AT); to its end, or live.

    `which` is null or `rank-3` or `launcher`; `tail` starts so many lines before the end; `brief`
    is that of `view`. The answer is the node's view when nothing more comes, and whether the log
    `exists`.
    """
    node_dir = run_dir.node_dir(str(request["id"]), int(request["node"]))
    which = request.get("which")
    attempt = request.get("attempt") or max(reader.attempts(node_dir), default=1)
    position = int(request.get("position") or 0)
    if request.get("tail") is not None:
        position = reader.last_lines(reader.log_path(node_dir, which, attempt), request["tail"])
    pieces = reader.follow_attempts(
        node_dir,
        which,
        (attempt, position),
        lambda: is_over(current.status(node_dir)),
        on=bool(request.get("follow")),
    )
    sent = time.monotonic()
    for number, at, data in pieces:
        if data or time.monotonic() - sent > SIGN_OF_LIFE:
            sent = time.monotonic()
            link.data(AT.pack(number, at) + data)
        elif link.is_closed():
            raise BrokenPipeError
    node = view(node_dir, request)
    path = reader.log_path(node_dir, which, attempt)
    return {"view": None if node is None else node.to_json(), "exists": os.path.isfile(path)}


def is_over(status: StatusSummary) -> bool:
    """Whether nothing more will come: the run has ended, or no process is left to write."""
    if status.state == "lost":
        return not status.alive
    return status.state not in ("pending", "running")


def stop(request: Message, link: Link) -> Message:
    """Stop a run: TERM, the grace, KILL. Returns its status, and whether it had `ended` before."""
    node_dir = run_dir.node_dir(str(request["id"]), int(request["node"]))
    status, ended = current.stop(node_dir, float(request["grace"]))
    return {"status": status.to_json(), "ended": ended}


VERBS = {"runs": runs, "log": log, "stop": stop}
