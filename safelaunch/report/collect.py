"""Collects a run: the data of its files, node by node, and what is missing."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from safelaunch.errors import HostError
from safelaunch.report import timeline
from safelaunch.report.diff.model import NodeSnapshot, RunSnapshot
from safelaunch.runs import store
from safelaunch.runs.node_files import LocalFiles
from safelaunch.runtime.agent import wire
from safelaunch.runtime.code import manifest
from safelaunch.runtime.code.store import ContentStore
from safelaunch.runtime.records import (
    CodeRecord,
    Failure,
    PlanRecord,
    Provenance,
    Record,
    RunRecord,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from safelaunch.runs.access import RunAccess
    from safelaunch.runs.node_files import NodeFiles

MAX_JSON_BYTES = 8 << 20  # of a JSON file; plans have some tens of KiB
MAX_EVENTS_BYTES = 2 << 20  # of each end of the events
_NAMES = (
    PlanRecord.FILE,
    RunRecord.FILE,
    Provenance.FILE,
    Status.FILE,
    Failure.FILE,
    CodeRecord.FILE,
)
R = TypeVar("R", bound=Record)
MAX_EARLIER_RUNS = 10  # in the report


class CollectedNode(NamedTuple):
    """One node of a run."""

    number: int
    host: str
    files: NodeFiles
    sizes: Mapping[str, int]
    data: Mapping[str, dict[str, Any]]  # {file name: content} of readable files
    script: str
    events: timeline.Events
    facts: Mapping[str, Any]
    clock_offset: float = 0.0  # seconds by which its clock is ahead of the local one

    def file_data(self, name: str) -> dict[str, Any]:
        """Return the data of a file, empty if there is none."""
        return self.data.get(name, {})

    def record(self, record_type: type[R]) -> R | None:
        """Return a record of a type, None if there is none."""
        data = self.data.get(record_type.FILE)
        return None if data is None else record_type.from_json(data)


class CollectedRun(NamedTuple):
    """A run: its status, failure, nodes, earlier runs, and what is missing."""

    id: str
    name: str
    status: Status
    failure: Failure | None
    nodes: tuple[CollectedNode, ...]
    earlier_runs: tuple[RunSnapshot, ...]  # earlier runs of the job, the newest last
    missing: tuple[str, ...]
    code_files: Mapping[str, str] | None = None  # {path: hash} of all files it was launched with

    @property
    def snapshot(self) -> RunSnapshot:
        """The run as input of `compare.compare`."""
        nodes = [
            NodeSnapshot(
                p.record(PlanRecord),
                p.record(RunRecord),
                p.record(Provenance),
                p.facts,
                p.record(CodeRecord),
            )
            for p in self.nodes
        ]
        return RunSnapshot(self.id, self.status, self.failure, tuple(nodes), self.code_files)


def collect_run(
    run: RunAccess, home: str, facts_of: Callable[[str | None], Mapping[str, Any] | None]
) -> CollectedRun:
    """Return a run, with the files of the hosts that answer.

    `facts_of` returns the recorded facts of a host, of this machine for None.
    """
    status = run.status()
    hosts = {place.node: place.host for place in run.places()}
    nodes, missing = [], []
    for number in store.node_numbers(run.record):
        local = LocalFiles(os.path.join(run.record.folder, f"node-{number}"))
        host_name = hosts.get(number) or _hostname(local.folder)
        files: NodeFiles = local
        try:
            files = run.files(number)
        except HostError as e:
            missing.append(f"{host_name} does not answer ({e.message}): its logs are missing")
        node, node_missing = collect_node(
            number, host_name, files, facts_of(hosts.get(number)), local
        )
        mirror = store.mirror_record(run.record, number)
        nodes.append(node._replace(clock_offset=mirror.ahead or 0.0))
        missing += [f"{host_name}: {line}" for line in node_missing]
    earlier_runs = tuple(read_snapshot(record) for record in runs_before(home, run.record))
    return CollectedRun(
        run.id,
        run.record.name,
        status,
        run.failure(status),
        tuple(nodes),
        earlier_runs,
        tuple(missing),
        _code_files(run.record, CodeRecord.read(run.record.node_dir)),
    )


def _code_files(run: store.Run, code: CodeRecord | None) -> Mapping[str, str] | None:
    """Return {path: hash} of the files that a run was launched with; None where unknown here."""
    home = os.path.dirname(os.path.dirname(run.folder))
    text = None if code is None else ContentStore(home).get(code.manifest)
    try:
        files = [] if text is None else manifest.from_bytes(text)
    except (ValueError, TypeError):
        return None
    return {file.path: file.content for file in files} or None


def _hostname(folder: str) -> str:
    run, status = RunRecord.read(folder) or RunRecord(), Status.read(folder) or Status()
    return run.hostname or status.hostname or "localhost"


def collect_node(
    number: int,
    host: str,
    files: NodeFiles,
    facts: Mapping[str, Any] | None,
    local_files: NodeFiles,
) -> tuple[CollectedNode, list[str]]:
    """Return a node and what is missing of it; `local_files` are the local copies."""
    missing = []
    try:
        sizes = files.sizes()
        reader = _NodeReader(files, sizes)
        events = timeline.parse_events(reader.head_and_tail("events.jsonl"))
        script = reader.text("launch.sh")
        data = {name: content for name in _NAMES if (content := reader.json(name)) is not None}
    except (HostError, wire.Broken, ValueError) as e:
        missing.append(f"its files cannot be read ({e}): the local copies are used")
        files, sizes, data = local_files, local_files.sizes(), {}
        reader = _NodeReader(files, sizes)
        events = timeline.parse_events(reader.head_and_tail("events.jsonl"))
        script = reader.text("launch.sh")
    local_reader = _NodeReader(local_files, local_files.sizes())
    for name in _NAMES:
        local_data = local_reader.json(name) if name not in data else None
        if local_data is not None:
            data[name] = local_data
    missing += [f"{name} cannot be read" for name in reader.unreadable if name not in data]
    for name in (*_NAMES[:4], "events.jsonl", "launch.sh"):
        if name not in sizes and name not in data:
            missing.append(f"there is no {name}")
    if events.unparsable:
        missing.append(f"events.jsonl: {events.unparsable} unreadable lines")
    return CollectedNode(number, host, files, sizes, data, script, events, facts or {}), missing


class _NodeReader:
    """Reads the small files of a node."""

    def __init__(self, files: NodeFiles, sizes: Mapping[str, int]) -> None:
        self._files = files
        self._sizes = sizes
        self.unreadable: list[str] = []

    def json(self, name: str) -> dict[str, Any] | None:
        """Return the object in a JSON file, None if there is none."""
        if name not in self._sizes:
            return None
        try:
            content = json.loads(self.text(name))
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            self.unreadable.append(name)
            return None
        return content

    def text(self, name: str) -> str:
        """Return the text of a file, empty if there is none."""
        data = self._files.read(name, 0, MAX_JSON_BYTES) if name in self._sizes else b""
        return data.decode("utf-8", "replace")

    def head_and_tail(self, name: str) -> bytes:
        """Return a file; of a very large one its start and end."""
        size = self._sizes.get(name, 0)
        if size <= 2 * MAX_EVENTS_BYTES:
            return self._files.read(name, 0, size) if size else b""
        head = self._files.read(name, 0, MAX_EVENTS_BYTES)
        tail = self._files.read(name, size - MAX_EVENTS_BYTES, MAX_EVENTS_BYTES)
        return head[: head.rfind(b"\n") + 1] + tail[tail.find(b"\n") + 1 :]


def read_snapshot(run: store.Run, facts: Sequence[Mapping[str, Any]] = ()) -> RunSnapshot:
    """Return a run as recorded on this machine, without connecting to hosts."""
    nodes, statuses = [], []
    for index, number in enumerate(store.node_numbers(run)):
        folder = store.node_dir(run, number)
        host_facts = facts[index] if index < len(facts) else {}
        records = PlanRecord.read(folder), RunRecord.read(folder), Provenance.read(folder)
        nodes.append(NodeSnapshot(*records, host_facts, CodeRecord.read(folder)))
        statuses.append(store.last_status(run, number))
    status = next((status for status in statuses if status.state == "failed"), statuses[0])
    code_files = _code_files(run, nodes[0].code)
    return RunSnapshot(run.id, status, store.failure(run, status), tuple(nodes), code_files)


def runs_before(base: str, run: store.Run) -> list[store.Run]:
    """Return the runs of the same job before a run, the newest last."""
    same = (r for r in store.all_runs(base) if r.name == run.name and r.id != run.id)
    sort_key = (run.id[-20:-5], run.start_order)
    return [r for r in same if (r.id[-20:-5], r.start_order) < sort_key][-MAX_EARLIER_RUNS:]
