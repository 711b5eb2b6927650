"""Verbs for the runs of this machine: their states, their logs, and stopping them."""

# ruff: noqa: PLC0415 - trends: only for one run at a time

# ruff: noqa: ARG001 - all verbs have one signature

from __future__ import annotations

import os
import struct
import time

from safelaunch.runtime import backends, json_files, members, run_state
from safelaunch.runtime.engines import current
from safelaunch.runtime.home import home
from safelaunch.runtime.logs import reader
from safelaunch.runtime.logs.selection import LogPart, select
from safelaunch.runtime.parts import PartsError, expand, manifest
from safelaunch.runtime.records import (
    Failure,
    FanOutSpec,
    Provenance,
    PulledFiles,
    Record,
    RunRecord,
    Status,
    StatusSummary,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from safelaunch.runtime.agent.wire import Link, Message
    from safelaunch.runtime.engines.nodes import EngineNode

    Piece: TypeAlias = tuple[int, int, bytes]  # attempt, position behind it, bytes
    NodePiece: TypeAlias = tuple[int, int, int, bytes]  # the same behind the number of a node

MIRROR = run_state.MIRROR
FILES = (RunRecord.FILE, Provenance.FILE, Failure.FILE)
SIGN_OF_LIFE = 15.0  # seconds between two messages without more of a log
AT = struct.Struct(">IQ")  # before a piece of a log: its attempt, and the position after it
NODE_AT = struct.Struct(">IIQ")  # the same behind the number of a node
PARTS_LIMIT = 1 << 18  # bytes of parts.jsonl of a run in one answer, some thousand parts


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
    shell: Sequence[str] = ()  # command that opens a shell within the job of an engine
    notes: Sequence[str] = ()  # warnings from the samples
    part_count: int | None = None  # how many parts it has; missing: none
    parts_done: int = 0  # how many of them have succeeded
    parts_size: int = 0  # bytes of parts.jsonl
    parts_from: int = 0  # position in parts.jsonl of what follows
    parts: str = ""  # lines of parts.jsonl from there on, at most PARTS_LIMIT


def runs(request: Message, link: Link) -> Message:
    """Return {run id: {node: view}} of the runs of this machine, or of those in `ids`.

    An id may be RUN/NAME, that of a member. `parts` has for ids the position in parts.jsonl from
    which on it is sent.
    """
    folder = os.path.join(home(), "runs")
    try:
        ids = request.get("ids") or os.listdir(folder)
    except OSError:
        ids = []
    return {"runs": views(ids, request)}


def folder_of(run_id: str) -> str:
    """Return the folder of a run; that of RUN/NAME is that of a member: a service or a part."""
    run, _, member = run_id.partition("/")
    folder = os.path.join(home(), "runs", run)
    if not member:
        return folder
    return next(
        (path for path in _member_folders(folder, member) if os.path.isdir(path)),
        members.folder(os.path.join(folder, "node-0"), member),
    )


def _member_folders(folder: str, member: str) -> Iterator[str]:
    """Yield where a member may be: a service or a part is on one of the nodes of its run."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith("node-"))
    except OSError:
        names = []
    for name in names:
        yield members.folder(os.path.join(folder, name), member)


def _node_dir(run_id: object, node: int) -> str:
    return os.path.join(folder_of(str(run_id)), f"node-{node}")


def views(ids: Sequence[str], request: Message) -> Message:
    """Return {run id: {node: view}} of runs of this machine; `request` is that of `view`."""
    result: Message = {}
    folders = {run_id: folder_of(run_id) for run_id in ids}
    current.watch(list(folders.values()))
    positions = request.get("parts") or {}
    for run_id, folder in folders.items():
        try:
            names = [n for n in os.listdir(folder) if n.startswith("node-")]
        except OSError:
            continue
        own = current.engine_nodes(folder)
        at = positions.get(run_id)
        shown = {
            name[5:]: view(os.path.join(folder, name), request, own.get(name), at) for name in names
        }
        # a pointer to a run of another machine has no view
        nodes = {number: node.to_json() for number, node in shown.items() if node is not None}
        if nodes:
            result[run_id] = nodes
    return result


def view(
    node_dir: str, request: Message, own: EngineNode | None = None, parts_from: int | None = None
) -> NodeView | None:
    """Return a node's view: its status as it is now, and unless `brief` also its `files`.

    `own` is the node as its engine has it; `parts_from` the position from which on parts.jsonl is
    sent, None for nothing of it.
    """
    if not os.path.isdir(node_dir) or os.path.exists(os.path.join(node_dir, MIRROR)):
        return None
    status = current.status(node_dir) if own is None else own.status
    run = RunRecord.read(node_dir) or RunRecord()
    node = NodeView(run_dir=node_dir, status=status, nodes=max(1, len(run.hosts)), now=time.time())
    node.client, node.job_file = run.client, run.job_file
    _add_parts(node, node_dir, parts_from)
    if request.get("brief"):
        return node
    names = (*FILES, *(request.get("files") or ()))
    files = {name: json_files.read_json(os.path.join(node_dir, name)) for name in names}
    if own is not None and own.failure is not None and files[Failure.FILE] is None:
        files[Failure.FILE] = own.failure.to_json()
    node.files, node.shell = files, current.shell(node_dir)
    node.ranks, node.attempts = ranks(node_dir), reader.attempts(node_dir)
    backend, handle = backends.from_record(status)
    node.served = backend.serves(handle)
    node.notes = notes(node_dir)
    return node


def _add_parts(node: NodeView, node_dir: str, position: int | None) -> None:
    """Add how many parts a run has and how many are done, and those that have ended."""
    spec = FanOutSpec.read(node_dir)
    if spec is None:
        return
    try:
        node.part_count = expand.part_count(spec)
    except PartsError:
        return
    lines = manifest.read_lines(node_dir)
    node.parts_done = manifest.count_done(lines)
    node.parts_size = len(lines)
    if position is not None:
        node.parts_from = position
        part = manifest.whole_lines(lines[position : position + PARTS_LIMIT])
        node.parts = part.decode("latin-1")


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

    `which` is null or `rank-3` or `launcher`; `tail`, `text` and `max_bytes` are those of a
    LogPart; `brief` is that of `view`. The answer is the node's view when nothing more comes, and
    whether the log `exists`.
    """
    node_dir = _node_dir(request["id"], int(request["node"]))
    pieces = ((0, *piece) for piece in _log_pieces(node_dir, request))
    _send_log(pieces, link, lambda _, attempt, at: AT.pack(attempt, at))
    return _log_answer(node_dir, request, exists=_has_log(node_dir, request))


def logs(request: Message, link: Link) -> Message:
    """Send the logs of several `nodes` as they come, each piece after node, attempt and position.

    `nodes` has for each number what `log` is asked for it beside the rest of the request. The
    answer is the first node's, and whether any log `exists`.
    """
    parts = {int(node): {**request, **own} for node, own in request["nodes"].items()}
    node_dirs = {node: _node_dir(request["id"], node) for node in parts}
    logs = {node: _log_pieces(node_dirs[node], parts[node]) for node in parts}
    _send_log(_in_turns(logs), link, NODE_AT.pack)
    exists = any(_has_log(node_dirs[node], parts[node]) for node in parts)
    first = min(parts)
    return _log_answer(node_dirs[first], parts[first], exists=exists)


def _in_turns(logs: dict[int, Iterator[Piece]]) -> Iterator[NodePiece]:
    """Yield pieces of several logs with their nodes, one of each in turn."""
    while logs:
        for node, pieces in list(logs.items()):
            piece = next(pieces, None)
            if piece is None:
                del logs[node]
            else:
                yield (node, *piece)


def _log_pieces(node_dir: str, request: Message) -> Iterator[Piece]:
    """Yield attempt, position after the piece, and bytes of a log; no bytes at a pause."""
    which = request.get("which")
    attempt = request.get("attempt") or max(reader.attempts(node_dir), default=1)
    position = int(request.get("position") or 0)

    def read(position: int) -> Iterator[Piece]:
        return reader.follow_attempts(
            node_dir,
            which,
            (attempt, position),
            lambda: is_log_complete(node_dir),
            on=bool(request.get("follow")),
        )

    path, follows = reader.log_path(node_dir, which, attempt), bool(request.get("follow"))
    yield from select(path, _selection(request), (attempt, position), read, follows=follows)
    yield from _batch_log(node_dir, request)


def _selection(request: Message) -> LogPart:
    return LogPart(*(request.get(key) for key in LogPart._fields))


def _send_log(
    pieces: Iterator[NodePiece], link: Link, head: Callable[[int, int, int], bytes]
) -> None:
    """Send pieces behind their heads; raise BrokenPipeError where the client is gone."""
    sent = time.monotonic()
    for node, attempt, at, data in pieces:
        if data or time.monotonic() - sent > SIGN_OF_LIFE:
            sent = time.monotonic()
            link.data(head(node, attempt, at) + data)
        elif link.is_closed():
            raise BrokenPipeError


def _log_answer(node_dir: str, request: Message, *, exists: bool) -> Message:
    node = view(node_dir, request)
    return {"view": None if node is None else node.to_json(), "exists": exists}


def _has_log(node_dir: str, request: Message) -> bool:
    attempt = request.get("attempt") or max(reader.attempts(node_dir), default=1)
    path = reader.log_path(node_dir, request.get("which"), attempt)
    return os.path.isfile(path) or _has_batch_log(node_dir, request)


def is_log_complete(node_dir: str) -> bool:
    """Whether nothing more will come: an engine that does not answer has ended nothing.

    An engine queues all nodes of a run again at once: none is complete while another one may go on.
    """
    nodes = current.engine_nodes(os.path.dirname(node_dir)).values()
    if not nodes:
        return is_over(current.status(node_dir))
    return all(is_over(node.status) and node.status.state != "unknown" for node in nodes)


def _has_batch_log(node_dir: str, request: Message) -> bool:
    """Whether a request for a node's log is answered by that of its batch script: there is none."""
    is_first = os.path.basename(node_dir) == "node-0" and request.get("which") is None
    return is_first and current.batch_log_alone(os.path.dirname(node_dir)) is not None


def _batch_log(node_dir: str, request: Message) -> Iterator[tuple[int, int, bytes]]:
    """Yield the log of the batch script, which says why no supervisor wrote one."""
    if _has_batch_log(node_dir, request):
        path = current.batch_log_alone(os.path.dirname(node_dir)) or ""
        start = 1, int(request.get("position") or 0)
        yield from select(path, _selection(request), start, reader.whole_file(path))


def is_over(status: StatusSummary) -> bool:
    """Whether nothing more will come: the run has ended, or no process is left to write."""
    if status.state == "lost":
        return not status.alive
    return status.state not in ("pending", "running") and not status.is_ending


def stop(request: Message, link: Link) -> Message:
    """Stop a run: TERM, the grace, KILL. Returns its status, and whether it had `ended` before."""
    node_dir = _node_dir(request["id"], int(request["node"]))
    status, ended = current.stop(node_dir, float(request["grace"]))
    return {"status": status.to_json(), "ended": ended}


def pulled(request: Message, link: Link) -> Message:
    """Record that a client has fetched the results of a run: its machine may be turned off."""
    del link
    node_dir = _node_dir(request["id"], int(request["node"]))
    record = PulledFiles(client=str(request["client"]), files=int(request["files"]))
    record.time = time.time()
    record.write(node_dir)
    return {}


VERBS = {"runs": runs, "log": log, "logs": logs, "stop": stop, "pulled": pulled}
