"""What is there of a run: its files read as data, node by node, and what is missing."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from safelaunch.errors import HostError
from safelaunch.report import timeline
from safelaunch.report.diff.model import Node, Side
from safelaunch.runs import store
from safelaunch.runs.node_files import LocalFiles
from safelaunch.runtime import json_files
from safelaunch.runtime.agent import wire
from safelaunch.runtime.records import Failure, Provenance, Record, RunRecord, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from safelaunch.runs.access import RunAccess
    from safelaunch.runs.node_files import NodeFiles

_JSON = 8 << 20  # bytes of a file of data; plans have some tens of KiB
_EVENTS = 2 << 20  # bytes of events at each end
_NAMES = ("plan.json", RunRecord.FILE, Provenance.FILE, Status.FILE, Failure.FILE)
R = TypeVar("R", bound=Record)
TRIED = 10  # earlier runs that are told


class Part(NamedTuple):
    """One node of a run."""

    number: int
    host: str
    files: NodeFiles
    sizes: Mapping[str, int]
    data: Mapping[str, dict[str, Any]]  # {name: what it holds}, of those that can be read
    script: str
    events: timeline.Events
    facts: Mapping[str, Any]
    ahead: float = 0.0  # seconds that its clock is before this one

    def of(self, name: str) -> dict[str, Any]:
        """Return the data of a file, empty where there is none."""
        return self.data.get(name, {})

    def record(self, kind: type[R]) -> R | None:
        """Return one of the declared records; None where there is none."""
        data = self.data.get(kind.FILE)
        return None if data is None else kind.from_json(data)


class Case(NamedTuple):
    """A run with all that can be told of it."""

    id: str
    name: str
    status: Status
    failure: Failure | None
    parts: tuple[Part, ...]
    tried: tuple[Side, ...]  # earlier runs of the job, the newest last
    missing: tuple[str, ...]

    @property
    def side(self) -> Side:
        """The run as `differences.compare` takes it."""
        nodes = [
            Node(p.of("plan.json"), p.record(RunRecord), p.record(Provenance), p.facts)
            for p in self.parts
        ]
        return Side(self.id, self.status, self.failure, tuple(nodes))


def collect_run(
    run: RunAccess, home: str, facts_of: Callable[[str | None], Mapping[str, Any] | None]
) -> Case:
    """Return a run, from its hosts where they answer.

    `facts_of` returns the recorded facts of a host, of this machine for None.
    """
    status = run.status()
    parts, missing = _parts(run, facts_of)
    earlier_runs = tuple(recorded(record) for record in earlier(home, run.record))
    return Case(
        run.id,
        run.record.name,
        status,
        run.failure(status),
        tuple(parts),
        earlier_runs,
        tuple(missing),
    )


def _parts(
    run: RunAccess, facts_of: Callable[[str | None], Mapping[str, Any] | None]
) -> tuple[list[Part], list[str]]:
    hosts = {place.node: place.host for place in run.places()}
    parts, missing = [], []
    for number in store.node_numbers(run.record):
        local = LocalFiles(os.path.join(run.record.folder, f"node-{number}"))
        host = hosts.get(number) or _hostname(local.folder)
        files: NodeFiles = local
        try:
            files = run.files(number)
        except HostError as e:
            missing.append(f"{host} does not answer ({e.message}): its logs are missing")
        node, less = part(number, host, files, facts_of(hosts.get(number)), local)
        mirror = store.mirrored(run.record, number) or store.Mirror()
        parts.append(node._replace(ahead=mirror.ahead or 0.0))
        missing += [f"{host}: {line}" for line in less]
    return parts, missing


def _hostname(folder: str) -> str:
    run, status = RunRecord.read(folder) or RunRecord(), Status.read(folder) or Status()
    return run.hostname or status.hostname or "localhost"


def part(
    number: int, host: str, files: NodeFiles, facts: Mapping[str, Any] | None, known: NodeFiles
) -> tuple[Part, list[str]]:
    """Return a node and what is missing of it; `known` is what is known of it here."""
    missing = []
    try:
        sizes = files.sizes()
        read = _Read(files, sizes)
        events = timeline.read(read.ends("events.jsonl"))
        script = read.text("launch.sh")
        data = {name: found for name in _NAMES if (found := read.json(name)) is not None}
    except (HostError, wire.Broken, ValueError) as e:
        missing.append(f"{host} did not give its files ({e}): what was known here is told")
        files, sizes = known, known.sizes()
        read = _Read(files, sizes)
        events, script, data = timeline.read(read.ends("events.jsonl")), read.text("launch.sh"), {}
    here = _Read(known, known.sizes())
    for name in _NAMES:
        kept = here.json(name) if name not in data else None
        if kept is not None:
            data[name] = kept
    missing += [f"{name} cannot be read" for name in read.broken if name not in data]
    for name in (*_NAMES[:4], "events.jsonl", "launch.sh"):
        if name not in sizes and name not in data:
            missing.append(f"there is no {name}")
    if events.torn:
        missing.append(f"events.jsonl: {events.torn} torn lines")
    return Part(number, host, files, sizes, data, script, events, facts or {}), missing


class _Read:
    """The small files of a node."""

    def __init__(self, files: NodeFiles, sizes: Mapping[str, int]) -> None:
        self._files = files
        self._sizes = sizes
        self.broken: list[str] = []

    def json(self, name: str) -> dict[str, Any] | None:
        """Return the object in a file of JSON, None where there is none."""
        if name not in self._sizes:
            return None
        try:
            found = json.loads(self._files.read(name, 0, _JSON).decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self.broken.append(name)
            return None
        return found

    def text(self, name: str) -> str:
        """Return a script."""
        data = self._files.read(name, 0, _JSON) if name in self._sizes else b""
        return data.decode("utf-8", "replace")

    def ends(self, name: str) -> bytes:
        """Return a file, of a very large one its ends."""
        size = self._sizes.get(name, 0)
        if size <= 2 * _EVENTS:
            return self._files.read(name, 0, size) if size else b""
        head, tail = (
            self._files.read(name, 0, _EVENTS),
            self._files.read(name, size - _EVENTS, _EVENTS),
        )
        return head[: head.rfind(b"\n") + 1] + tail[tail.find(b"\n") + 1 :]


def recorded(run: store.Run, facts: Sequence[Mapping[str, Any]] = ()) -> Side:
    """Return a run as it is recorded here, without asking any host."""
    nodes, statuses = [], []
    for at, number in enumerate(store.node_numbers(run)):
        folder = store.node_dir(run, number)
        plan = json_files.read_json(os.path.join(folder, "plan.json")) or {}
        known = facts[at] if at < len(facts) else {}
        nodes.append(Node(plan, RunRecord.read(folder), Provenance.read(folder), known))
        statuses.append(store.kept(run, number))
    status = next((one for one in statuses if one.state == "failed"), statuses[0])
    return Side(run.id, status, store.failure(run, status), tuple(nodes))


def earlier(base: str, run: store.Run) -> list[store.Run]:
    """Return the runs of the same job before a run, the newest last."""
    same = [one for one in store.all_runs(base) if one.name == run.name and one.id != run.id]
    mine = (run.id[-20:-5], run.age_key)
    return [one for one in same if (one.id[-20:-5], one.age_key) < mine][-TRIED:]
