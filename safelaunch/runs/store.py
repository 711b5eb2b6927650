"""The runs of this machine: where they are, their ids, and finding one by what the user typed.

The directory is the truth; nothing about a run's state is kept anywhere else.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.errors import ConfigError, RunNotFound
from safelaunch.runs import combine_nodes
from safelaunch.runtime import run_state
from safelaunch.runtime.agent import runs as agent_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ID = re.compile(r"(?P<name>.+)-(?P<time>[0-9]{8}-[0-9]{6})-[0-9a-f]{4}")


class Run(NamedTuple):
    """A recorded run: its id and its folder."""

    id: str
    folder: str

    @property
    def node_dir(self) -> str:
        """The part of node 0, where a local run lives; of another one where that is not known."""
        first = os.path.join(self.folder, "node-0")
        if os.path.isdir(first):
            return first
        return os.path.join(self.folder, f"node-{node_numbers(self)[0]}")

    @property
    def name(self) -> str:
        """The job's name."""
        found = _ID.fullmatch(self.id)
        return found["name"] if found else self.id

    @property
    def age_key(self) -> tuple[str, int]:
        """Sorts runs by their start."""
        found = _ID.fullmatch(self.id)
        try:
            changed = os.stat(os.path.join(self.node_dir, "launch.sh")).st_mtime_ns
        except OSError:
            changed = 0
        return (found["time"] if found else "", changed)


def home(environ: Mapping[str, str]) -> str:
    """Return safelaunch's folder: SAFELAUNCH_HOME, or ~/.safelaunch. Raises ConfigError."""
    given = environ.get("SAFELAUNCH_HOME")
    if given:
        if not os.path.isabs(given):
            raise ConfigError(f"SAFELAUNCH_HOME is not absolute: {given}")
        return given
    base = environ.get("HOME") or _passwd_home()
    if not os.path.isabs(base):
        raise ConfigError(
            "HOME is not set and this user has no home folder",
            hint="export SAFELAUNCH_HOME=/some/folder",
        )
    return os.path.join(base, ".safelaunch")


def _passwd_home() -> str:
    """Return the home folder that the system knows, or nothing: in containers many have none."""
    if sys.platform == "win32":
        return os.path.expanduser("~")
    try:
        import pwd  # noqa: PLC0415 - rarely needed

        return pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        return ""


def new_id(name: str, utc: str, random: bytes) -> str:
    """Return a run id: name, UTC time (yyyymmdd-hhmmss) and 4 hex digits."""
    return f"{name}-{utc}-{random[:2].hex()}"


def folder(base: str) -> str:
    """Return the folder that holds the runs."""
    return os.path.join(base, "runs")


def all_runs(base: str) -> list[Run]:
    """Return all recorded runs, the newest last."""
    try:
        names = os.listdir(folder(base))
    except OSError:
        return []
    runs = [Run(name, os.path.join(folder(base), name)) for name in names if _ID.fullmatch(name)]
    return sorted(runs, key=lambda run: run.id[-20:-5])


def find(base: str, wanted: str | None) -> Run:
    """Return the run that is meant: an id, a prefix, a job's name, or nothing (the newest)."""
    runs = all_runs(base)
    if not runs:
        raise RunNotFound("there are no runs yet", hint="start one: safelaunch run JOB.yaml")
    if wanted is None:
        return _newest(runs)
    exact = [run for run in runs if run.id == wanted]
    named = [run for run in runs if run.name == wanted]
    if exact or named:
        return _newest(exact or named)
    begun = [run for run in runs if run.id.startswith(wanted)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        shown = ", ".join(run.id for run in begun[-3:])
        raise RunNotFound(f"`{wanted}` begins {len(begun)} runs", hint=f"for example {shown}")
    raise RunNotFound(f"no run `{wanted}`", hint="safelaunch ps --all lists them")


def find_live(base: str, wanted: str | None, is_live: Callable[[Run], bool]) -> Run:
    """As `find`, but where several runs are meant, the newest of those that live."""
    found = find(base, wanted)
    if wanted == found.id:
        return found
    meant = [run for run in all_runs(base) if wanted is None or run.name == wanted]
    live = [run for run in meant if is_live(run)]
    return _newest(live) if live else found


def _newest(runs: list[Run]) -> Run:
    last = max(run.id[-20:-5] for run in runs)
    return max((run for run in runs if run.id[-20:-5] == last), key=lambda run: run.age_key)


def mirrored(run: Run, node: int | None = None) -> dict[str, Any] | None:
    """Return what is known of a run on a host: `host`, `run_dir`, `at`...; None for one here.

    Without a number of the first node that is known.
    """
    folder = run.node_dir if node is None else os.path.join(run.folder, f"node-{node}")
    return run_state.read_json(os.path.join(folder, agent_runs.MIRROR))


def node_numbers(run: Run) -> list[int]:
    """Return the numbers of the nodes of a run, as far as they are known here."""
    try:
        names = os.listdir(run.folder)
    except OSError:
        return [0]
    parts = [name.rpartition("-") for name in names]
    return sorted(int(n) for head, _, n in parts if head == "node" and n.isdigit()) or [0]


def node_number(run: Run, wanted: int | None) -> int:
    """Return the node that is meant; the first one where none is named. Raises RunNotFound."""
    known = node_numbers(run)
    if wanted is not None and wanted not in known:
        raise RunNotFound(
            f"{run.id} has no node {wanted}", hint=f"nodes: {', '.join(map(str, known))}"
        )
    return known[0] if wanted is None else wanted


def kept(run: Run, node: int = 0) -> dict[str, Any]:
    """Return a node's status as it was last written down here."""
    found = run_state.read_json(os.path.join(run.folder, f"node-{node}", "status.json"))
    return found or {"id": run.id}


def node_of(run: Run, rank: int) -> int:
    """Return on which node a rank is, or is planned."""
    numbers, first = node_numbers(run), 0
    for node in numbers:
        if str(rank) in ((mirrored(run, node) or {}).get("ranks") or {}):
            return node
    for node in numbers:
        spec = run_state.read_json(os.path.join(run.folder, f"node-{node}", "run.json")) or {}
        first += int(str(spec.get("ranks") or 0))
        if rank < first:
            return node
    return numbers[0]


def failure(run: Run, status: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return failure.json of a run whose last attempt failed; None for any other.

    Of a run of several nodes: the first cause on any of them, and what all others then did.
    """
    numbers = node_numbers(run)
    if len(numbers) == 1:
        return _failure(run, numbers[0], status)
    found = []
    told = {node["node"]: node for node in status.get("nodes") or ()}  # as it is now
    for number in numbers:
        seen, own = mirrored(run, number) or {}, {**kept(run, number), **told.get(number, {})}
        ahead = seen.get("ahead")
        node = combine_nodes.Node(number, str(seen.get("host")), own)
        offset = float(ahead) if isinstance(ahead, (int, float)) else 0.0
        found.append(combine_nodes.Failed(node, _failure(run, number, own), offset))
    return combine_nodes.failure(found)


def _failure(run: Run, node: int, status: Mapping[str, Any]) -> dict[str, Any] | None:
    attempts = status.get("attempts")
    last = attempts[-1] if isinstance(attempts, list) and attempts else {}
    if status.get("state") != "failed" and last.get("state") != "failed":
        return None
    return run_state.read_json(os.path.join(run.folder, f"node-{node}", "failure.json"))


def show_json(run: Run, status: Mapping[str, Any], ranks: Mapping[str, int]) -> dict[str, Any]:
    """Return a run in the shape of `show --json`."""
    seen = mirrored(run) or {}
    shown: dict[str, Any] = {
        "version": 1,
        "id": run.id,
        "name": run.name,
        "state": status.get("state"),
        "exit_code": status.get("exit_code"),
        "attempts": status.get("attempts") or [],
        "host": seen.get("host", "localhost"),
        "run_dir": seen.get("run_dir", run.node_dir),
        "pids": _pids(status, ranks),
        "failure": failure(run, status),
    }
    for key in (
        "created_at", "started_at", "ended_at", "elapsed", "signal", "reason", "alive", "leftovers",
        "unkillable", "warning", "backend", "socket", "stopped_by", "progress", "hang", "waiting",
        "recovery", "advice", "as_of", "last_sign_at", "nodes",
    ):  # fmt: skip
        if status.get(key) is not None:
            shown[key] = status[key]
    for node in shown.get("nodes", ()):
        seen, own = mirrored(run, node["node"]) or {}, kept(run, node["node"])
        node["run_dir"] = seen.get("run_dir")
        node["pids"] = _pids(own, seen.get("ranks") or {})
    return shown


def _pids(status: Mapping[str, Any], ranks: Mapping[str, int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in ("supervisor", "launcher"):
        who = status.get(key)
        if isinstance(who, dict):
            found[key] = who.get("pid")
    if ranks:
        found["ranks"] = dict(ranks)
    return found
