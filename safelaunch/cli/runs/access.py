"""How a run is now, here or on its hosts: what all commands look through."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from safelaunch.cli.output import say
from safelaunch.runs import combine_nodes, mirror, store
from safelaunch.runtime import backends, run_state
from safelaunch.runtime.agent import runs as agent_runs
from safelaunch.runtime.logs import reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from safelaunch.remote.host_pool import Looker
    from safelaunch.remote.session import Way
    from safelaunch.runs.mirror import Pointer
    from safelaunch.runs.store import Run

_LINE = re.compile(rb"(\r?\n|\r(?!\n|$))")  # a progress bar is a line too
_SETTLED = re.compile(rb"(\n)")
_LONGEST = 1 << 16  # bytes of a line that is held back
_lookers: dict[str | None, Looker] = {}


class Log(NamedTuple):
    """What of a log is wanted: `which` is None (combined), `launcher` or `rank-3`."""

    attempt: int
    which: str | None = None
    tail: int | None = None  # lines to begin with, instead of all
    follow: bool = False
    node: int | None = None  # None: of all nodes
    settled: bool = False  # of a line that overwrites itself only the last state is wanted

    def request(self) -> dict[str, Any]:
        """Return what a host is asked for it."""
        return {key: getattr(self, key) for key in ("which", "attempt", "tail", "follow")}


def is_remote(run: Run) -> bool:
    """Whether a run is on other machines."""
    return os.path.exists(os.path.join(run.folder, mirror.POINTER))


def judge(run: Run) -> dict[str, Any]:
    """Return a run's status as it is now. A host that does not answer makes it `unknown`."""
    at = mirror.pointer(run) if is_remote(run) else None
    return run_state.judge(run.node_dir) if at is None else looker(at.hosts_file).judge(run, at)


def judge_all(found: Sequence[Run]) -> list[tuple[Run, dict[str, Any]]]:
    """Return each run with its status as it is now; hosts are asked beside each other."""
    known = {run.id: kept(run) for run in found}
    away: dict[str | None, list[tuple[Run, Pointer]]] = {}
    for run in found:
        at = mirror.pointer(run) if is_remote(run) else None
        if at is not None and known[run.id].get("state") not in run_state.ENDED:
            away.setdefault(at.hosts_file, []).append((run, at))
    for hosts_path, several in away.items():
        # a list asks for no passwords
        known.update(looker(hosts_path, asks=False).judge_all(several, brief=True))
    return [(run, known[run.id]) for run in found]


def runs_of(hosts: Sequence[str], hosts_path: str | None) -> set[str]:
    """Write down each run of hosts or groups, whoever started it; return their ids.

    Raises HostError.
    """
    one, home = looker(hosts_path), store.home(os.environ)
    return {run_id for host in one.expand(hosts) for run_id in one.runs(home, host)}


def kept(run: Run) -> dict[str, Any]:
    """Return a run's status; of one on other machines without asking there, as last seen."""
    at = mirror.pointer(run) if is_remote(run) else None
    if at is None:
        return run_state.judge(run.node_dir)
    return combine_nodes.status(
        [combine_nodes.Node(p.node, p.host, store.kept(run, p.node)) for p in at.places]
    )


def is_live(run: Run) -> bool:
    """Whether something of the run may still be there, as far as is known here."""
    return kept(run).get("state") not in run_state.ENDED


def attempts(run: Run) -> list[int]:
    """Return the numbers of the attempts that have logs, the newest last."""
    seen = store.mirrored(run)
    return reader.attempts(run.node_dir) if seen is None else list(seen.get("attempts") or [])


def log(run: Run, wanted: Log, is_done: Callable[[], bool] = lambda: True) -> Iterator[bytes]:
    """Yield a log's bytes: to its end, or live to the run's end (`is_done`, asked here only)."""
    at = mirror.pointer(run) if is_remote(run) else None
    if at is not None and len(at.places) > 1 and wanted.node is None:
        yield from _of_all(run, at, wanted)
        return
    number, last = wanted.attempt, b"\n"
    for attempt, _, data in _here(run, wanted, is_done) if at is None else _there(run, at, wanted):
        if attempt != number:
            end = b"" if last.endswith((b"\r", b"\n")) else b"\n"
            number, last = attempt, b"\n"
            yield end + b"[safelaunch] attempt %d\n" % attempt
        if data:
            last = data
            yield data


def _here(run: Run, wanted: Log, is_done: Callable[[], bool]) -> Iterator[tuple[int, int, bytes]]:
    begin, attempt = 0, wanted.attempt
    if wanted.tail is not None:
        path = reader.log_path(run.node_dir, wanted.which, attempt)
        begin = reader.last_lines(path, wanted.tail)
    return reader.following(run.node_dir, wanted.which, (attempt, begin), is_done, on=wanted.follow)


def _there(run: Run, at: Pointer, wanted: Log) -> Iterator[tuple[int, int, bytes]]:
    place = at.places[0] if wanted.node is None else at.of(wanted.node)
    return looker(at.hosts_file).log(run, place, **wanted.request())


def _of_all(run: Run, at: Pointer, wanted: Log) -> Iterator[bytes]:
    """Yield the lines of all nodes as they come, each behind the name of its host."""
    width = max(len(place.host) for place in at.places)
    heads = {place.node: f"{place.host:<{width}} | ".encode() for place in at.places}
    rest = dict.fromkeys(heads, b"")
    attempts = dict.fromkeys(heads, wanted.attempt)
    ends = _SETTLED if wanted.settled else _LINE
    bar = None  # the node whose progress bar is the last line, if one is
    for node, attempt, data in looker(at.hosts_file).logs(run, at, **wanted.request()):
        if attempt != attempts[node]:
            attempts[node] = attempt
            end = b"\n" if rest[node] else b""
            data = end + b"[safelaunch] attempt %d\n" % attempt + data  # noqa: PLW2901
        *lines, rest[node] = ends.split(rest[node] + data)
        if wanted.settled:  # a bar may go on for days
            rest[node] = b"\r".join(rest[node].split(b"\r")[-2:])
        whole = [text + end for text, end in zip(lines[::2], lines[1::2], strict=True)]
        if len(rest[node]) > _LONGEST:
            whole, rest[node] = [*whole, rest[node] + b"\n"], b""
        if whole:
            begin = b"\n" if bar not in (None, node) else b""
            bar = node if whole[-1].endswith(b"\r") else None
            yield begin + b"".join(heads[node] + line for line in whole)
    for node, left in rest.items():
        if left:
            yield heads[node] + left + b"\n"


def stop(run: Run, grace: float) -> tuple[dict[str, Any], bool]:
    """Stop a run; return its status, and whether it had ended already. Raises HostError."""
    at = mirror.pointer(run) if is_remote(run) else None
    if at is not None:
        return looker(at.hosts_file).stop(run, at, grace)
    ended = run_state.judge(run.node_dir).get("state") in run_state.ENDED
    return run_state.stop(run.node_dir, grace), ended


def has_terminal(run: Run, status: Mapping[str, Any], node: int | None = None) -> bool:
    """Whether the terminal of a run's node is there to attach to."""
    seen = store.mirrored(run, node)
    if seen is not None:
        return bool(seen.get("served"))
    backend, handle = backends.from_record(status)
    return backend.serves(handle)


def notes(run: Run) -> list[str]:
    """Return what the samples of a run say."""
    seen = store.mirrored(run)
    return agent_runs.notes(run.node_dir) if seen is None else list(seen.get("notes") or [])


# -- hosts -----------------------------------------------------------------------------------------


def way(hosts_path: str | None, *, asks: bool) -> Way:
    """Return how this command reaches hosts: it may ask at the terminal, and tells on stderr."""
    from safelaunch.remote.session import Way  # noqa: PLC0415 - runs here do without
    from safelaunch.ssh.prompt import asker  # noqa: PLC0415 - as above

    home = store.home(os.environ)
    return Way(home, os.environ, hosts_path=hosts_path, ask=asker() if asks else None, say=say)


def looker(hosts_path: str | None, *, asks: bool = True) -> Looker:
    """Return this command's looker, closed at its end."""
    if hosts_path not in _lookers:
        from safelaunch.remote.host_pool import Looker  # noqa: PLC0415 - runs here do without

        made = _lookers[hosts_path] = Looker(way(hosts_path, asks=asks))
        click.get_current_context().call_on_close(lambda: _close(hosts_path, made))
    return _lookers[hosts_path]


def _close(hosts_path: str | None, made: Looker) -> None:
    _lookers.pop(hosts_path, None)
    made.__exit__()
