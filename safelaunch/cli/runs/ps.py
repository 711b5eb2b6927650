"""`safelaunch ps`: the runs of this machine, and those that it started on hosts."""

from __future__ import annotations

import itertools
import math
import os
import re
import sys
import time
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from safelaunch.cli.connections import catalog
from safelaunch.cli.output import print_json, report, say, table, terminal_width
from safelaunch.cli.runs.follow import is_hang_suspected, is_waiting
from safelaunch.cli.runs.progress import WIDTH, short
from safelaunch.runs import groups, store
from safelaunch.runs.access import HostAnswer
from safelaunch.runtime.records import RunRecord, Status
from safelaunch.runtime.supervise.ending import words as end_words
from safelaunch.runtime.units import duration, quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from safelaunch.errors import HostError

_MAX_ENDED = 20
_GAP = "  "
_FOLDERS = 2  # of a path, which tell two checkouts of one name apart
_DAY = 86400.0  # seconds
_MIN_PROGRESS = 8  # columns
_MIN_ORIGIN = 8  # columns
_HEAD: tuple[str, ...] = ("RUN", "HOST", "STATE", "TIME", "FROM")
_LIVE = ("pending", "running", "lost", "unknown")


@click.command("ps")
@click.option("--all", "-a", "show_all", is_flag=True, help="All ended runs, not only the newest.")
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="Runs on this host, of all clients."
)
@click.option("--hosts", "hosts_path", metavar="FILE", help="Hosts file instead of your own.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(hosts: tuple[str, ...], hosts_path: str | None, show_all: bool, as_json: bool) -> int:
    """List runs: those that are running, and the newest that have ended.

    The state of runs on hosts is queried there, on all hosts at once; rows appear as they answer.
    Exit code 4: a host does not answer; its runs are `unknown`.
    """
    runs = catalog()
    names = runs.expand(hosts, hosts_path) if hosts else []
    expected: list[_RunRow] = []
    unstarted: list[tuple[groups.StepRun, Status]] = []
    if hosts:
        answers = runs.on_hosts(names, hosts_path)
    else:
        local, live = runs.last_statuses(store.all_runs(runs.home))
        unstarted = groups.unstarted(runs.home)
        local += [(member.run, status) for member, status in unstarted]
        expected = [_RunRow(*pair) for pair in live]
        responses = runs.statuses([run for run, _ in live])
        answers = itertools.chain([HostAnswer(None, None, local)], responses)
    steps = {member.run.id: member.record for member, _ in unstarted}
    most = sys.maxsize if show_all else max(1, _MAX_ENDED // max(1, len(names)))
    if as_json:
        errors = _print_json(answers, most, steps)
    else:
        width = terminal_width() if sys.stdout.isatty() else None
        has_more = bool(expected) or len(names) > 1
        rows = _Table(width, expected, has_more=has_more, has_origin=bool(names))
        errors = _print_rows(answers, most, rows, names)
    return max((error.exit_code for error in errors), default=0)


def _print_json(
    answers: Iterable[HostAnswer],
    most: int,
    steps: Mapping[str, RunRecord] = MappingProxyType({}),
) -> list[HostError]:
    """Print what hosts have answered; return the errors of those that have not.

    `steps` are those without a run, by its id.
    """
    rows: list[_RunRow] = []
    errors = []
    for answer in answers:
        rows += _newest(answer, most)[0]
        errors += [answer.error] if answer.error is not None and not _may_be_off(answer) else []
    shown = [store.show(row.run, row.status, {}) for row in sorted(rows, key=_start_time)]
    for run in shown:
        if run.id in steps:
            run.group, run.step = steps[run.id].group, steps[run.id].step
    reasons = [{"host": e.where, "reason": e.message, "hint": e.hint} for e in errors]
    print_json({"version": 1, "runs": [run.to_json() for run in shown], "errors": reasons})
    return errors


def _print_rows(
    answers: Iterable[HostAnswer], most: int, table: _Table, names: Sequence[str]
) -> list[HostError]:
    """Print what hosts answer as it comes; return the errors of those that do not answer."""
    count, hidden = 0, 0
    errors = []
    hints: set[str | None] = set()
    for answer in answers:
        rows, old = _newest(answer, most)
        count, hidden = count + len(rows), hidden + old
        if answer.error is not None and names and not rows:
            rows = [_RunRow(store.Run("-", os.devnull), Status(state="unknown"), answer.host)]
        for line in table.lines(rows):
            click.echo(line)
        if answer.error is not None and (names or not _may_be_off(answer)):
            errors.append(answer.error)
            report(answer.error, with_hint=answer.error.hint not in hints)
            hints.add(answer.error.hint)
    silent = [name for name in names if name not in [error.where for error in errors]]
    if not count and silent:
        say(f"no runs on {', '.join(silent)}")
    elif not count and not names:
        say("no runs yet; start one: safelaunch run JOB.yaml")
    if hidden:
        say(f"{hidden} older runs are not shown; safelaunch ps --all shows them")
    if errors and len(names) > 1:
        say(f"{len(silent)} of {len(names)} hosts have answered")
    return errors


def _may_be_off(answer: HostAnswer) -> bool:
    """Whether all that a host is asked for is the end of runs after which it is turned off."""
    return bool(answer.runs) and all(status.has_live_end for _, status in answer.runs)


def _newest(answer: HostAnswer, most: int) -> tuple[list[_RunRow], int]:
    """Return the rows of an answer without the oldest ended runs, and the number of those."""
    rows = sorted((_RunRow(*pair) for pair in answer.runs), key=_start_time)
    ended = [row for row in rows if row.status.state not in _LIVE]
    old = {row.id for row in ended[: max(0, len(ended) - most)]}
    return [row for row in rows if row.id not in old], len(old)


def _start_time(row: _RunRow) -> tuple[str, float]:
    """Sort by time; the steps of one file, which have the same one in their ids, in their order."""
    return row.id[-20:-5], row.made_at


class _RunRow:
    """The columns of a run, which are shorter in a narrow terminal."""

    def __init__(self, run: store.Run, status: Status, host: str | None = None) -> None:
        self.id = run.id
        self.run = run
        self.made_at = _made_at(run.folder)
        hosts = [host] if host else [_host(run, number) for number in store.node_numbers(run)]
        hosts = list(dict.fromkeys(hosts))  # all nodes of a cluster are behind one login node
        self.host = hosts[0] if len(hosts) == 1 else f"{hosts[0]} +{len(hosts) - 1}"
        self.status = status
        self.clock_offset = store.clock_offset(run)
        self.now = time.time() + self.clock_offset  # by the clock of the status's times
        self.age = _age(status, self.now)

    def cells(self, *, brief: bool) -> tuple[str, ...]:
        """Return the columns of `_HEAD`."""
        return (self.id, self.host, self.state(brief=brief), self.age, self.origin())

    def origin(self) -> str:
        """Return who started a run on a host, and the end of the path of the job's folder there."""
        record = store.mirror_record(self.run)
        folders = re.split(r"[/\\]", record.job_file or "")[:-1]
        tail = "/".join(folders[-_FOLDERS:])
        return ":".join(filter(None, (record.client, tail))) if record.client else ""

    def state(self, *, brief: bool) -> str:
        """Return `running, hangs?` or `failed (SIGKILL), attempt 3`; without attempt if `brief`."""
        status = self.status
        shown = status.state
        by_command = (status.stop_origin or "").startswith("`safelaunch stop`")
        if shown == "lost" and status.reason == groups.NEVER_STARTED and not status.alive:
            shown = "never started"
        elif shown == "lost":
            shown = f"lost, {status.alive or 0} alive"
        elif shown == "failed" and status.exit_code is not None:
            shown = f"failed ({status.signal or status.exit_code})"
        elif shown == "stopped" and status.stopped_by and not by_command:
            shown = f"stopped ({'Ctrl-C' if status.stopped_by == 'SIGINT' else status.stopped_by})"
        elif is_hang_suspected(status):
            shown += ", hangs?"
        elif status.leftovers:
            shown += f", {quantity(status.leftovers, 'leftover')}"
        elif status.leftover_processes and shown == "running":
            shown += ", launcher ended"
        parts = store.part_counts(self.run)
        if parts is not None:
            shown += f", {parts[0]}/{parts[1]}"
        ending = end_words.short(status, self.now)
        shown = f"{shown}, {ending}" if ending else shown
        attempts = len(status.attempts)
        return shown if brief or attempts <= 1 else f"{shown}, attempt {attempts}"

    def progress(self, width: int) -> str:
        """Return the progress; without a supervisor with the time of its last report."""
        status = self.status
        if status.waits_for:
            text = f"waits for {status.waits_for}"
            return text if len(text) <= width else text[: width - 3] + "..."
        state = "waiting" if is_waiting(status) else status.state
        if status.as_of is None:
            is_late = is_hang_suspected(status)
            return short(status.progress, state, self.now, late=is_late, width=width)
        is_old = self.now - status.as_of > _DAY
        moment = time.localtime(status.as_of - self.clock_offset)
        when = time.strftime(" on %m-%d" if is_old else " at %H:%M", moment)
        text = short(status.progress, state, late=True, width=width - len(when))
        return text + when if text else ""


def _made_at(folder: str) -> float:
    """Return when a run's first folder was made; later files do not change it.

    A step that has none yet comes behind those of its group that were started.
    """
    try:
        return os.stat(folder).st_mtime
    except OSError:
        return math.inf


def _age(status: Status, now: float) -> str:
    """Return `for 5 min 2 s` or `ran 12.0 s`; `ran 12.0 s+` if it may have run longer."""
    started, ended = status.started_at, status.ended_at
    if status.elapsed is not None:
        return f"ran {duration(status.elapsed)}"
    if started is None:
        return ""
    unsure = "+" if status.last_sign_at is not None else ""
    if status.state == "lost" and not status.alive:
        ended, unsure = status.as_of, "+"
    if ended is not None:
        return f"ran {duration(max(0.0, ended - started))}{unsure}"
    return f"for {duration(max(0.0, now - started))}"


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 2] + ".."


def _host(run: store.Run, node: int) -> str:
    login = store.mirror_record(run, node).host
    if login:
        return login
    record = RunRecord.read(store.node_dir(run, node))
    engine = record.engine.name if record is not None and record.engine is not None else ""
    return store.host_of(run, node) or engine


class _Table:
    """Formats rows that come one after the other into the same columns."""

    def __init__(
        self,
        width: int | None,
        expected: Sequence[_RunRow] = (),
        *,
        has_more: bool = False,
        has_origin: bool = False,
    ) -> None:
        """`expected` are rows that may come later, and need room; `has_more`: others may come.

        `has_origin`: the runs may be those of several people.
        """
        self._width = width
        self._expected = expected
        self._has_more = has_more
        self._has_origin = has_origin
        self._columns = [0, 1, 2, 3, *([4] if has_origin else [])]  # of _HEAD
        self._widths: Sequence[int] = ()  # of the columns so far

    def lines(self, rows: Sequence[_RunRow]) -> list[str]:
        """Return the lines; to fit the width, first the progress is shortened, then the state."""
        if not rows:
            return []
        is_first, sample = not self._widths, [*rows, *self._expected]
        if is_first and not any(row.host for row in sample):
            self._columns.remove(1)
        for brief in (False, True):
            cells = [_HEAD, *(row.cells(brief=brief) for row in sample)]
            cells = [tuple(row[column] for column in self._columns) for row in cells]
            longest = [max(map(len, column)) for column in zip(*cells, strict=True)]
            widths = [
                max(pair) for pair in itertools.zip_longest(longest, self._widths, fillvalue=0)
            ]
            room = WIDTH
            if self._width is not None:
                if self._has_origin:
                    spare = self._width - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
                    widths[-1] = min(widths[-1], max(_MIN_ORIGIN, spare))
                    cells = [(*others, _clip(origin, widths[-1])) for *others, origin in cells]
                room = min(WIDTH, self._width - sum(widths) - len(_GAP) * len(widths))
            if room >= _MIN_PROGRESS:
                break
        self._widths, self._expected = widths, ()
        progress = [row.progress(room) if room >= _MIN_PROGRESS else "" for row in rows]
        if any(progress) or self._has_more:
            texts = ["PROGRESS", *progress]
            cells = [(*row, text) for row, text in zip(cells[: len(texts)], texts, strict=True)]
        else:
            cells = cells[: 1 + len(rows)]
        return table(cells if is_first else cells[1:], min_widths=widths)
