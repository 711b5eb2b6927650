"""The runs recorded on this machine: their folders and ids, and finding one by what the user typed.

A run's directory is the only record of its state.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import ConfigError, RunNotFound
from safelaunch.runtime import home as runtime_home
from safelaunch.runtime import members
from safelaunch.runtime.agent import runs as agent_runs
from safelaunch.runtime.nodes import combine_nodes
from safelaunch.runtime.parts import expand, manifest
from safelaunch.runtime.records import (
    CodeRecord,
    Failure,
    FanOutSpec,
    NodeSummary,
    PartEnd,
    Provenance,
    Record,
    RunRecord,
    Status,
    StatusSummary,
)
from safelaunch.runtime.signatures import classes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from safelaunch.runtime.records import Nullable

# letters, digits, `_`, `.`, `-`: an id that a host states becomes the name of a folder
_ID = re.compile(r"([\w.-]{1,200})-[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")


class Run(NamedTuple):
    """A recorded run: its id and its folder."""

    id: str
    folder: str

    @property
    def node_dir(self) -> str:
        """The folder of node 0, that of a local run; of the first recorded node without one."""
        first = node_dir(self, 0)
        return first if os.path.isdir(first) else node_dir(self, node_numbers(self)[0])

    @property
    def name(self) -> str:
        """The job's name."""
        match = _ID.fullmatch(self.id)
        return match[1] if match else self.id

    @property
    def start_order(self) -> int:
        """Sorts runs that were started within one second."""
        try:
            return os.stat(os.path.join(self.node_dir, "launch.sh")).st_mtime_ns
        except OSError:
            return 0


def home(environ: Mapping[str, str]) -> str:
    """Return safelaunch's folder: SAFELAUNCH_HOME, or ~/.safelaunch. Raises ConfigError."""
    try:
        return runtime_home.home(environ)
    except ValueError as e:
        raise ConfigError(str(e), hint="export SAFELAUNCH_HOME=/some/folder") from None


def folder(base: str) -> str:
    """Return the folder of all runs."""
    return os.path.join(base, "runs")


def is_run_id(text: str) -> bool:
    """Whether a text is the id of a run, and thus the name of its folder."""
    return _ID.fullmatch(text) is not None


def all_runs(base: str) -> list[Run]:
    """Return all recorded runs, the newest last."""
    try:
        names = os.listdir(folder(base))
    except OSError:
        return []
    runs = [Run(name, os.path.join(folder(base), name)) for name in names if is_run_id(name)]
    return sorted(runs, key=lambda run: run.id[-20:-5])


def find(base: str, name: str | None, among: Sequence[Run] | None = None) -> Run:
    """Return the run of an id, a prefix or a job's name; by default the newest.

    Of all recorded runs, or of those `among`. Raises RunNotFound.
    """
    runs = all_runs(base) if among is None else among
    if not runs and among is not None:
        raise RunNotFound("there are no runs on these hosts")
    if not runs:
        raise RunNotFound("there are no runs yet", hint="start one: safelaunch run JOB.yaml")
    if name is None:
        return _newest(runs)
    exact = [run for run in runs if run.id == name] or [run for run in runs if run.name == name]
    if exact:
        return _newest(exact)
    matches = [run for run in runs if run.id.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        shown = ", ".join(run.id for run in matches[-3:])
        raise RunNotFound(f"`{name}` begins {len(matches)} runs", hint=f"for example {shown}")
    raise RunNotFound(f"no run `{name}`", hint="safelaunch ps --all lists them")


def find_live(
    base: str,
    name: str | None,
    is_live: Callable[[Run], bool],
    *,
    unique: bool = False,
    among: Sequence[Run] | None = None,
) -> Run:
    """Return the run that `find` returns; of several runs the newest that is running.

    With `unique`, several that are running raise RunNotFound: the caller would end one.
    """
    run = find(base, name, among)
    if name == run.id:
        return run
    runs = all_runs(base) if among is None else among
    matches = [run for run in runs if name is None or run.name == name]
    live = [run for run in matches if is_live(run)]
    if unique and len(live) > 1:
        of_name = "" if name is None else f" of `{name}`"
        raise RunNotFound(
            f"{len(live)} runs{of_name} are running: say which one",
            hint=f"for example {', '.join(run.id for run in live[-3:])}",
        )
    return _newest(live) if live else run


def _newest(runs: Sequence[Run]) -> Run:
    last = max(run.id[-20:-5] for run in runs)
    return max((run for run in runs if run.id[-20:-5] == last), key=lambda run: run.start_order)


class Mirror(Record):
    """What this machine records of a run's node on a host."""

    FILE = agent_runs.MIRROR

    host: str = ""  # the host, as the user names it
    run_dir: str = ""  # directory of the node there
    client: str | None = None  # user@machine that started it
    job_file: str | None = None  # path of its job file on that machine
    at: float | None = None  # when it was last seen, seconds since 1970
    ahead: float | None = None  # seconds that its clock is ahead of this one, as measured
    clock: float | None = None  # the same, but for the way of an answer: for what is shown
    ranks: Mapping[str, int] = {}  # rank -> pid of its newest start
    attempts: Sequence[int] = ()  # numbers of the attempts that have logs
    served: bool = False  # whether its tmux server answers
    shell: Sequence[str] = ()  # command that opens a shell within the job of an engine
    notes: Sequence[str] = ()  # what the samples say
    part_count: int | None = None  # how many parts it has; missing: none
    parts_done: int = 0  # how many of them have succeeded
    parts_size: int = 0  # bytes of its parts.jsonl, of which this machine may have fewer


def mirror_record(run: Run, node: int | None = None) -> Mirror:
    """Return what is recorded of a run's node on a host, by default of the first node.

    Empty for a run of this machine.
    """
    return Mirror.read(run.node_dir if node is None else node_dir(run, node)) or Mirror()


def host_of(run: Run, node: int) -> str:
    """Return the machine of a node as its user knows it.

    "" for this machine, and for one that an engine has not chosen yet.
    """
    record = RunRecord.read(node_dir(run, node))
    if record is None or record.engine is None or node >= len(record.hosts):
        return mirror_record(run, node).host
    return record.hosts[node] if record.engine.is_joined else ""


def is_on_engine(run: Run) -> bool:
    """Whether an engine chooses the machines of a run, of this machine or behind a login node."""
    record = RunRecord.read(node_dir(run, 0))
    return record is not None and record.engine is not None


def status_of_nodes(run: Run, nodes: Sequence[tuple[int, str, Status]]) -> Status:
    """Return the status of a run from number, host and status of its nodes.

    An engine's machines have names of their own; all wait for the same ones before.
    """
    if is_on_engine(run):
        named = [(number, host_of(run, number), status) for number, _, status in nodes]
        if not any(name for _, name, _ in named):
            return nodes[0][2].copy()
        nodes = [(number, name or f"node-{number}", status) for number, name, status in named]
    return combine_nodes.status([combine_nodes.NodeState(*node) for node in nodes])


def member(run: Run, name: str, run_id: str | None = None) -> Run:
    """Return a member of a run, a service or a part, which has the files of a run.

    `run_id` is the run that it is a member of where that is an earlier one.
    """
    return Run(f"{run_id or run.id}/{name}", members.folder(run.node_dir, name))


def node_of_service(run: Run, name: str) -> int:
    """Return the node of a run that has one of its services."""
    services = (RunRecord.read(run.node_dir) or RunRecord()).services
    return next((service.node for service in services if service.name == name), 0)


def part_counts(run: Run) -> tuple[int, int] | None:
    """Return how many parts of a run are done, and how many it has; None: it has none.

    Of a run on a host as it was when last seen.
    """
    mirrors = [mirror_record(run, node) for node in node_numbers(run)]
    counts = [mirror.part_count for mirror in mirrors if mirror.part_count is not None]
    if counts:
        return sum(mirror.parts_done for mirror in mirrors), max(counts)
    spec = FanOutSpec.read(run.node_dir)
    if spec is None:
        return None
    return manifest.count_done(manifest.read_lines(run.node_dir)), expand.part_count(spec)


def clock_offset(run: Run) -> float:
    """Return the seconds that the clock of a run's host is ahead of this machine's."""
    mirror = mirror_record(run)
    return (mirror.clock if mirror.ahead is None else mirror.ahead) or 0.0


def node_dir(run: Run, node: int) -> str:
    """Return the folder of a run's node."""
    return os.path.join(run.folder, f"node-{node}")


def node_numbers(run: Run) -> list[int]:
    """Return the numbers of the nodes of a run that are recorded on this machine."""
    try:
        names = os.listdir(run.folder)
    except OSError:
        return [0]
    parts = [name.rpartition("-") for name in names]
    return sorted(int(n) for head, _, n in parts if head == "node" and n.isdigit()) or [0]


def node_number(run: Run, node: int | None) -> int:
    """Return the number of a node that the run has; None is the first. Raises RunNotFound."""
    numbers = node_numbers(run)
    if node is not None and node not in numbers:
        hint = f"nodes: {', '.join(map(str, numbers))}"
        raise RunNotFound(f"{run.id} has no node {node}", hint=hint)
    return numbers[0] if node is None else node


def last_status(run: Run, node: int = 0) -> Status:
    """Return a node's status as it was last recorded on this machine."""
    return Status.read(node_dir(run, node)) or Status(id=run.id)


def node_of(run: Run, rank: int) -> int:
    """Return the node on which a rank runs, or is planned to."""
    numbers, first = node_numbers(run), 0
    for node in numbers:
        if str(rank) in mirror_record(run, node).ranks:
            return node
    for node in numbers:
        first += (RunRecord.read(node_dir(run, node)) or RunRecord()).ranks or 0
        if rank < first:
            return node
    return numbers[0]


def failure(run: Run, status: StatusSummary) -> Failure | None:
    """Return failure.json of a run whose last attempt failed; None for any other.

    Of a run of several nodes: the first cause on any of them, and what all others then did.
    """
    numbers = node_numbers(run)
    if len(numbers) == 1:
        return _failure(run, numbers[0], status)
    failures = []
    now = {node.node: node for node in status.nodes}
    for number in numbers:
        mirror, own = mirror_record(run, number), last_status(run, number)
        if number in now:
            own.state, own.reason = now[number].state, now[number].reason
        node = combine_nodes.NodeState(number, host_of(run, number), own)
        failure = _failure(run, number, own)
        failures.append(combine_nodes.NodeFailure(node, failure, mirror.ahead or 0.0))
    return combine_nodes.failure(failures)


def _failure(run: Run, node: int, status: StatusSummary) -> Failure | None:
    last = status.attempts[-1].state if status.attempts else None
    if "failed" not in (status.state, last):
        return None
    failure = Failure.read(node_dir(run, node))
    if failure is not None and failure.class_name and failure.meaning is None:
        # the supervisor of an earlier version did not write it
        failure.meaning = classes.meaning(failure.class_name, failure.signal or "") or None
    return failure


class Pids(Record):
    """The processes of a run."""

    supervisor: int | None = None  # pid of the supervisor
    launcher: int | None = None  # pid of the launcher
    ranks: Mapping[str, int] = {}  # rank -> pid of its newest start


class ShownNode(NodeSummary):
    """How one of several nodes is, in `show --json`."""

    run_dir: Nullable[str] = None  # directory of the node on its host
    place: str | None = None  # the project's folder there
    tree: str | None = None  # the run's own copy of that folder; missing: it has none
    pids: Pids = Pids()  # its processes


class ShownRun(StatusSummary):
    """A run, as `show --json` prints it."""

    version: int = 1  # version of the format, 1
    id: str = ""  # run id
    name: str = ""  # name of the job
    host: str = "localhost"  # host that it runs on, `localhost` for this machine
    client: str | None = None  # user@machine that started it on that host
    run_dir: str = ""  # directory of the run on its host, of several nodes that of the first
    place: str | None = None  # the project's folder there
    tree: str | None = None  # the run's own copy of that folder; missing: it has none
    pids: Pids = Pids()  # its processes
    nodes: Sequence[ShownNode] = ()
    failure: Nullable[Failure] = None  # why it failed
    code: CodeRecord | None = None  # the code that it was launched with, where that is recorded
    group: str | None = None  # id of the group that it is one step of
    step: str | None = None  # which step of its file
    part_count: int | None = None  # how many parts it has; missing: none
    parts: Sequence[PartEnd] = ()  # those that have ended


def show(
    run: Run, status: Status, ranks: Mapping[str, int], why: Failure | None = None
) -> ShownRun:
    """Return a run as `show --json` prints it.

    `why` is the failure that only the engine of the run tells of.
    """
    mirror = mirror_record(run)
    shown = ShownRun(
        version=1,
        id=run.id,
        name=run.name,
        state=status.state,
        exit_code=status.exit_code,
        attempts=status.attempts,
        host=mirror.host or "localhost",
        run_dir=mirror.run_dir or run.node_dir,
        pids=_pids(status, ranks),
        failure=failure(run, status) or why,
    )
    code = CodeRecord.read(run.node_dir)
    if code is None:
        git = (Provenance.read(run.node_dir) or Provenance()).git
        code = None if git is None else CodeRecord(git=git)
    if code is not None:
        shown.code = code
    if mirror.client is not None:
        shown.client = mirror.client
    for field in StatusSummary.fields().values():
        value = getattr(status, field.name)
        if field.name in status and value is not None:
            setattr(shown, field.name, value)
    _add_project(shown, run.node_dir)
    if "nodes" in status:
        shown.nodes = [
            _shown_node(run, node, ranks if node.run == run.id else {}) for node in status.nodes
        ]
    _add_parts(shown, run)
    return shown


def _add_parts(shown: ShownRun, run: Run) -> None:
    """Add the parts of a run that has some, and how those have ended that have."""
    counts = part_counts(run)
    if counts is not None:
        ends = part_ends(run)
        shown.part_count = counts[1]
        for node in shown.nodes:
            for number in _parts_without_end(run, node, ends):
                state = "unknown" if node.state == "unknown" else "lost"
                cause = node.reason or f"its run ended there, {node.state}, before the part had"
                end = PartEnd(part=number, state=state, host=node.host, cause=cause)
                ends[number] = end
        shown.parts = [ends[number] for number in sorted(ends)]


def part_ends(run: Run) -> dict[int, PartEnd]:
    """Return the newest end of each part that has ended, by its number; on each of several hosts.

    Of a run on a host as it was when last seen.
    """
    numbers = node_numbers(run)
    ends: dict[int, PartEnd] = {}
    for number in numbers:
        own = manifest.read(node_dir(run, number))
        for end in own.values() if len(numbers) > 1 else ():
            end.host = host_of(run, number)
        ends |= own
    return ends


def node_of_part(run: Run, part: int) -> int:
    """Return the node that runs a part of a run, or is to."""
    for number in node_numbers(run):
        spec = FanOutSpec.read(node_dir(run, number))
        if spec is not None and spec.hosts > 1 and part in spec.share:
            return number
    return 0


def _parts_without_end(run: Run, node: NodeSummary, ends: Mapping[int, PartEnd]) -> list[int]:
    """Return the parts of a node of which no end will come, or none that can be seen now."""
    spec = FanOutSpec.read(node_dir(run, node.node))
    if node.state not in ("lost", "failed", "unknown") or spec is None or spec.hosts <= 1:
        return []
    return [number for number in spec.share if number not in ends]


def _shown_node(run: Run, node: NodeSummary, ranks: Mapping[str, int]) -> ShownNode:
    shown = ShownNode()
    shown.update(node)
    if node.run is not None and node.run != run.id:  # started by hand: it is recorded there alone
        return shown
    number = node_numbers(run)[0] if node.run else node.node
    mirror, own = mirror_record(run, number), last_status(run, number)
    shown.run_dir, shown.pids = mirror.run_dir or None, _pids(own, ranks or mirror.ranks)
    _add_project(shown, node_dir(run, number))
    return shown


def _add_project(shown: ShownRun | ShownNode, node_dir: str) -> None:
    """Add where the project of a node is on its host."""
    record = RunRecord.read(node_dir)
    if record is None:
        return
    if record.place:
        shown.place, shown.tree = record.place, record.tree
    if isinstance(shown, ShownRun) and record.group:
        shown.group, shown.step = record.group, record.step


def _pids(status: Status, ranks: Mapping[str, int]) -> Pids:
    pids = Pids(
        supervisor=status.supervisor.pid if status.supervisor else None,
        launcher=status.launcher.pid if status.launcher else None,
    )
    if status.state == "running" and status.leftover_processes:
        pids.launcher = None  # it has ended
    if ranks:
        pids.ranks = dict(ranks)
    return pids
