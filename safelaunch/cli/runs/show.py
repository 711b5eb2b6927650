"""`safelaunch show`: everything about one run."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog
from safelaunch.cli.output import print_json, terminal_width
from safelaunch.cli.runs import follow, groups, progress
from safelaunch.cli.runs.failure_block import labelled, with_label
from safelaunch.cli.runs.parts import part_rows
from safelaunch.runs import brief as short
from safelaunch.runs import store
from safelaunch.runtime import backends, run_state
from safelaunch.runtime.engines import current
from safelaunch.runtime.plain_text import printable, shortened
from safelaunch.runtime.records import (
    CodeRecord,
    EngineJob,
    PlanRecord,
    Provenance,
    RunRecord,
)
from safelaunch.runtime.units import duration, quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.runs.access import RunAccess
    from safelaunch.runtime.records import CostLimit, Status, StatusSummary

    Row = tuple[str, str, int]  # label, text, maximum of lines; 0: never wrapped, to be pasted

_MAX_RANKS = 8  # shown with their pids
_MAX_WARNINGS = 3  # of NCCL


@click.command("show")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--brief", is_flag=True, help="How it is, in a few lines; with --json under 10 KB.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, brief: bool, as_json: bool) -> int:
    """Show one run: state, exit code, processes, progress, failure, versions, files."""
    group = groups.find_group(run)
    if group is not None:
        return groups.show(group, as_json=as_json, is_brief=brief)
    access = catalog().find(run)
    record, status = access.record, access.status()
    shown = store.show(record, status, access.ranks(), access.failure(status))
    if as_json:
        print_json(short.brief(shown) if brief else shown.to_json())
        return 0
    click.echo(follow.headline(access, follow.without_repeats(access, status)))
    lines = follow.reasons(access, status)
    rows = (
        [*_progress(access, status)]
        if brief
        else [
            *_nodes(record, status),
            *_services(status, store.mirror_record(record).host),
            *part_rows(shown),
            *_attempts(status),
            *_progress(access, status),
            *_job(record, status),
            *_processes(shown, follow.is_waiting(status)),
            *_trees(shown),
            *_nccl(status),
            *_ending(record, status),
            *_provenance(record),
            *_files(access, status, has_log=any(line.startswith("log ") for line in lines)),
        ]
    )
    width = terminal_width() - 2  # the lines are indented
    previous = ""
    for label, text, max_lines in rows:
        name = "" if label == previous else label
        lines += labelled(name, text, width, max_lines) if max_lines else with_label(name, [text])
        previous = label
    for line in lines:
        click.echo(f"  {line}")
    return 0


def _nodes(run: store.Run, status: Status) -> Iterator[Row]:
    """Yield the state of each of several nodes, and how many of them are not known here."""
    record, numbers = RunRecord.read(run.node_dir), store.node_numbers(run)
    manual = None if record is None else record.manual_node
    for node in status.nodes:
        reason = f", {node.reason}" if node.reason else ""
        number = "" if manual is not None and manual.node is None else f"{node.node} "
        text = f"{number}{node.host}: {follow.short_state(node)}{reason}"
        if node.run is not None and node.run != run.id:  # started by hand there
            text += f"; run {node.run}"
        yield "nodes", text, 3
    hosts = () if record is None else record.hosts
    missing = [host for number, host in enumerate(hosts) if number not in numbers]
    if missing:
        text = f"{len(numbers)} of {len(hosts)} known here; for more: safelaunch ps --host "
        text += f"{missing[0]} (the host's name on the machine that started the run)"
        yield "nodes", text, 3


def _services(status: Status, host: str) -> Iterator[Row]:
    """Yield the state of each service of the job; `host` is that of node 0, "" for this machine."""
    for service in status.services:
        is_late = service.state == "pending" and status.state in run_state.ENDED
        state = "never started" if is_late else service.state
        if state in ("starting", "ready") and status.state in (*run_state.ENDED, "lost"):
            state = "lost, its supervisor is gone"
        text = f"{service.name}: {state}"
        if service.exit_code:
            text += f" ({service.exit_code})"
        if service.url is not None and state in ("starting", "ready"):
            where = service.host or host
            text += f", {service.url}" + (f" on {where}" if where else "")
        if service.missing and state == "starting":
            text += f" ({service.missing})"
        yield "services", text, 2


def _attempts(status: Status) -> Iterator[Row]:
    """Yield each attempt of a run that was restarted."""
    for attempt in status.attempts if len(status.attempts) > 1 else ():
        text = attempt.state or "running"
        if attempt.resume_checkpoint is not None:
            text += f" from {attempt.resume_checkpoint}"
        if attempt.elapsed is not None:
            text += f" after {duration(attempt.elapsed)}"
        why = [part for part in (attempt.class_name, attempt.what) if part]
        text += f", {': '.join(why)}" if why else ""
        if attempt.changed_files:
            text += f"; code changed since the start: {shortened(attempt.changed_files)}"
        yield f"attempt {attempt.attempt}", text, 3


def _progress(run: RunAccess, status: Status) -> Iterator[Row]:
    state = "waiting" if follow.is_waiting(status) else status.state
    ahead = store.clock_offset(run.record)
    is_late, now = follow.is_hang_suspected(status), time.time() + ahead
    shown = progress.lines(status.progress, state, now, late=is_late)
    # the run's own warning has the step too
    has_warning = "not finite" in (status.warning or "")
    shown = [line for line in shown if not (has_warning and "not finite" in line)]
    if shown and status.as_of is not None:
        shown.append(f"as of {_local_time(status.as_of - ahead)}, when the supervisor died")
    elif shown and follow.is_waiting(status):
        shown.append(f"of attempt {len(status.attempts)}, which has ended")
    yield from (("progress", line, 3) for line in shown)
    yield from (("note", note, 3) for note in run.notes())


def _job(run: store.Run, status: Status) -> Iterator[Row]:
    plan = PlanRecord.read(run.node_dir) or PlanRecord()
    record = RunRecord.read(run.node_dir)
    yield "job", (record is not None and record.job_file) or "a pasted line", 0
    yield "launcher", f"{plan.launcher or 'unknown'}, profile {plan.profile or 'none'}", 0
    job = EngineJob.read(run.node_dir)
    if job is not None:
        log = current.job_log(run.folder)
        yield job.name, f"job {job.key}{job.place}; what it prints itself: {log}", 0
    container = None if record is None else record.container
    if container is not None:
        digest = container.image_id.partition(":")[2][:12] or container.image_id[:12]
        yield "container", f"{container.engine}, {container.image} ({digest})", 0
    elif record is not None and record.engine is not None and record.engine.image:
        yield "container", record.engine.image, 0
    if status.start is not None:
        yield "launcher", "the ranks were started without it (`start: direct`)", 0
    if plan.manual_node is not None:
        joined = "" if status.nodes else "; no other node that safelaunch started has joined"
        yield "node", f"{plan.manual_node}{joined}", 3
    for decision in () if record is None else record.decisions:
        yield "settings", decision, 3
    client = store.mirror_record(run).client
    if client is not None:
        yield "from", client, 0
    if status.started_at is not None:
        started_at = status.started_at - store.clock_offset(run)
        ago = duration(max(0.0, time.time() - started_at))
        yield "started", f"{_local_time(started_at)}, {ago} ago", 0


def _nccl(status: Status) -> Iterator[Row]:
    """Yield what NCCL chose in the newest attempt, and its first warnings."""
    if status.nccl is None:
        return
    from safelaunch.runtime.collectives import nccl_log  # noqa: PLC0415 - few runs have one

    yield from (("nccl", line, 3) for line in nccl_log.lines(status.nccl))
    yield from (("nccl", f"warning: {text}", 2) for text in status.nccl.warnings[:_MAX_WARNINGS])


def _local_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _processes(shown: store.ShownRun, waits: bool) -> Iterator[Row]:
    """Yield the running processes of each node: between two attempts only the supervisor."""
    nodes: Sequence[store.ShownNode | store.ShownRun] = shown.nodes or [shown]
    kind = "launcher" if shown.start is None else "starter"
    for node in nodes if shown.state == "running" else ():
        pids = node.pids
        ranks = {} if waits else pids.ranks
        if not (pids.supervisor or pids.launcher or ranks):
            continue  # it was started by hand elsewhere
        parts = [] if pids.supervisor is None else [f"supervisor {pids.supervisor}"]
        parts += [] if waits or pids.launcher is None else [f"{kind} {pids.launcher}"]
        parts += [f"rank {rank} {pid}" for rank, pid in list(ranks.items())[:_MAX_RANKS]]
        if len(ranks) > _MAX_RANKS:
            parts.append(f"and {len(ranks) - _MAX_RANKS} more ranks (--json has them)")
        host = f"{node.host}: " if shown.nodes else ""
        yield "processes", host + ", ".join(parts), 4


def _trees(shown: store.ShownRun) -> Iterator[Row]:
    """Yield where the run has its own copy of the project."""
    nodes: Sequence[store.ShownNode | store.ShownRun] = shown.nodes or [shown]
    for node in nodes:
        if node.tree:
            text = f"{node.tree}, a copy of {node.place}, which another run used"
            yield "project", f"{node.host}: {text}" if shown.nodes else text, 0


def _provenance(run: store.Run) -> Iterator[Row]:
    record, code = Provenance.read(run.node_dir) or Provenance(), CodeRecord.read(run.node_dir)
    git = record.git if code is None else code.git
    if git is not None and git.commit:
        changed = len(git.changed or ()) + git.more_changed
        branch = f" on {printable(git.branch)}" if git.branch else ""
        more = f", changed files: {changed}" if changed else ""
        yield "commit", f"{git.commit[:12]}{branch}{more}", 0
    elif code is None and record.files is not None:
        yield "code", f"{quantity(len(record.files), 'file')} by hash (no commit)", 0
    if code is not None and code.manifest:
        count = quantity(code.files, "file")
        yield "code", f"{count}, tree {code.manifest[:12]}", 0
        yield "code", f"safelaunch pull --code {run.id}", 0
        if code.project is not None:
            yield "project", f"{code.root}, a copy of {code.project} as it was", 0
        if code.not_stored:
            files = shortened(list(code.not_stored))
            yield "code", f"not stored, and lost when they change: {files}", 3
    if record.packages is not None:
        names = dict.fromkeys([*(n for n in record.uses if n in record.packages), *record.packages])
        versions = [f"{name} {record.packages[name]}" for name in names]
        yield "versions", ", ".join([f"Python {record.python}", *versions[:6]]), 2
        yield "python", shlex.quote(str(record.interpreter)), 0


def _ending(run: store.Run, status: StatusSummary) -> Iterator[Row]:
    """Yield what the run costs, and what has followed its end."""
    record = RunRecord.read(run.node_dir)
    if record is not None and record.max_cost is not None:
        now = time.time() + store.clock_offset(run)
        yield "cost", _cost(record.max_cost, status, now), 1
    steps = status.ending.steps if status.ending is not None else ()
    for step in steps:
        took = "" if step.elapsed is None else f" after {duration(step.elapsed)}"
        why = f", {step.what}" if step.what and step.state != "succeeded" else ""
        yield "its end", f"{step.name} {step.state}{took}{why}: {printable(step.command)}", 2
    if steps:
        yield "its end", f"safelaunch logs --end {run.id}", 0


def _cost(limit: CostLimit, status: StatusSummary, now: float) -> str:
    """Return what a run has cost so far, by the price of its machines and its time."""
    started = status.started_at
    seconds = status.elapsed
    if seconds is None:
        seconds = 0.0 if started is None else max(0.0, (status.ended_at or now) - started)
    spent = seconds / 3600 * (limit.per_hour or 0.0)
    budget = "" if limit.total is None else f" of {limit.total:g}"
    return f"{spent:.2f}{budget}, at {limit.per_hour:g} an hour"


def _files(run: RunAccess, status: Status, *, has_log: bool) -> Iterator[Row]:
    """Yield the commands and paths for looking at a run."""
    if not has_log:
        yield "log", f"safelaunch logs {run.id}", 0
    places = run.places()
    if not places:
        yield "files", shlex.quote(run.record.node_dir), 0
    elif len(places) == 1:
        yield "host", places[0].host, 0
    for place in places:
        yield "files", f"{place.host}:{shlex.quote(place.run_dir)}", 0
    backend, handle = backends.from_record(status)
    command = backend.attach(handle)
    if status.state == "running" and command:
        line = f"safelaunch attach {run.id}" if places else shlex.join(command)
        note = "not possible: its tmux server is gone; the job keeps running"
        yield "attach", line if run.has_terminal(status) else note, 0
