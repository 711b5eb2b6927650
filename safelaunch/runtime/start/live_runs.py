"""The live runs of this machine, and the lock under which a start looks at them and joins them.

A check looks without the lock, long before the start where a project is sent in between. The start
looks again: where another run has come since, it is refused or goes on by what the check says then.
"""

# ruff: noqa: PLC0415 - fcntl is missing on Windows, where a client imports this module

from __future__ import annotations

import contextlib
import os
import time

from safelaunch.runtime import run_state
from safelaunch.runtime.records import EngineJob, PlanRecord, Record, RunRecord, Status
from safelaunch.runtime.start import run_dir
from safelaunch.runtime.start.accelerators import DEVICE_VARIABLES
from safelaunch.runtime.start.hashes import blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from safelaunch.runtime.records import PlannedNode

LOCK = "starts.lock"  # in safelaunch's folder; holds who has it
PATIENCE = 30.0  # seconds for the starts that are before this one: each has the lock some 10 ms
_PAUSE = 0.005  # seconds between tries
_SHARED = (*DEVICE_VARIABLES, "OUTPUT_DIR")  # variables that two runs may both use


class StartLocked(RuntimeError):  # noqa: N818 - reads as what happened
    """Another start has the lock for too long; str says which."""


class LiveRuns(Record):
    """The live runs of a machine at one moment."""

    live: Sequence[object] = ()  # id, name, and of the plan argv, GPUs, folders
    cards: Sequence[object] = ()  # cards that other runs of the machine have: run, user, words
    digest: str = ""  # of the ids of all runs that were looked at, live or not


@contextlib.contextmanager
def lock(home: str, run_id: str, patience: float = PATIENCE) -> Iterator[None]:
    """Be the only start of this home until the block ends, or this process does.

    Raises StartLocked, and OSError where there can be no lock file.
    """
    path = os.path.join(home, LOCK)
    try:
        os.makedirs(home, 0o700, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as e:
        raise run_dir.unwritable(e) from e
    try:
        deadline = time.monotonic() + patience
        while not _try_lock(fd):
            if time.monotonic() > deadline:
                holder = os.pread(fd, 300, 0).decode("utf-8", "replace").strip()
                raise StartLocked(
                    f"{path} has been locked for {patience:g} s by {holder or 'another start'}; "
                    "end that process if it hangs, and start again"
                )
            time.sleep(_PAUSE)
        holder = f"pid {os.getpid()} on {os.uname().nodename}, which starts {run_id}\n"
        with contextlib.suppress(OSError):  # a full disk: the lock itself is what counts
            os.ftruncate(fd, 0)
            os.pwrite(fd, holder.encode(), 0)
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    """Lock a file; False where another process has it. Where nobody can lock, everybody may go."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # the file system has no locks
    return True


def run_of_key(home: str, key: str, but: str = "") -> str:
    """Return the id of the run of this machine that a key has started, "" for none.

    One that never started, as where its client was cut off, does not count.
    """
    folder = os.path.join(home, "runs")
    for run_id in _folders(folder):
        for node in _folders(f"{folder}/{run_id}") if run_id != but else ():
            node_dir = os.path.join(folder, run_id, node)
            if (RunRecord.read(node_dir) or RunRecord()).key != key:
                continue
            status = run_state.current_status(node_dir)
            if status.state != "lost" or status.started_at is not None or status.alive:
                return run_id
    return ""


def digest(home: str, but: str) -> str:
    """Return the digest of the ids of all runs without one. Only for who has the lock."""
    return _digest(run_id for run_id in _folders(os.path.join(home, "runs")) if run_id != but)


def look(home: str, but: str = "", *, is_locked: bool = False) -> LiveRuns:
    """Return the live runs of this machine without one.

    The values of other variables are private. A run whose supervisor is gone lives on in its ranks.
    Without the lock a run may be one whose start is about to write its plan: it counts as not seen.
    """
    live: list[object] = []
    run_ids = []
    folder = os.path.join(home, "runs")
    for run_id in _folders(folder):
        if run_id == but:
            continue
        nodes = [os.path.join(folder, run_id, node) for node in _folders(f"{folder}/{run_id}")]
        if any(os.path.exists(os.path.join(node, EngineJob.FILE)) for node in nodes):
            continue  # on machines that an engine has chosen
        if is_locked or (nodes and all(map(_is_complete, nodes))):
            run_ids.append(run_id)
        for node_dir in nodes:
            status = Status.read(node_dir)
            if status is not None and status.state in run_state.ENDED:
                continue  # only for runs that have not ended are processes looked up
            now = run_state.current_status(node_dir)
            if now.state in ("running", "pending") or now.alive:
                live.append(_brief(run_id, node_dir, None if status is None else status.name))
    return LiveRuns(live=live, cards=_cards({*run_ids, but}), digest=_digest(run_ids))


def _cards(own: set[str]) -> list[object]:
    """Return the cards of runs that are none of this home's: of other users, mostly."""
    from safelaunch.runtime.card_claims import claims, folder_path, users

    try:
        live = claims.live(folder_path(os.environ), with_queue=False)
    except OSError:
        return []
    others = [claim for claim in live if claim.file.run not in own]
    return [
        {"run": c.file.run, "user": users.user_name(c.uid), "words": list(c.record.words)}
        for c in others
    ]


def _folders(path: str) -> list[str]:
    """Return the names of the folders in a folder, sorted; none where it cannot be read."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return []


def _digest(run_ids: Iterator[str] | list[str]) -> str:
    return blake2b("/".join(run_ids).encode("utf-8", "replace"), digest_size=12).hexdigest()


def _is_complete(node_dir: str) -> bool:
    """Whether a start has written all of a node's files: run.json is the last one."""
    return any(
        os.path.exists(os.path.join(node_dir, file)) for file in (RunRecord.FILE, Status.FILE)
    )


def _brief(run_id: str, node_dir: str, name: str | None) -> dict[str, Any]:
    """Return what other jobs need of a live run on a node."""
    plan = PlanRecord.read(node_dir) or PlanRecord()
    record = RunRecord.read(node_dir) or RunRecord()

    def in_place(text: str) -> str:
        """Return a path in the project's folder, where the outputs of a copy of it are too."""
        return text.replace(record.tree, record.place) if record.tree and record.place else text

    def brief(node: PlannedNode) -> dict[str, Any]:
        env = {name: node.env[name].to_json() for name in _SHARED if name in node.env}
        argv, cwd = [in_place(word) for word in node.argv], in_place(node.cwd)
        outputs = [value.get("value") for name, value in env.items() if name == "OUTPUT_DIR"]
        real = _links(cwd, [*argv, *map(str, outputs)])
        return {"argv": argv, "cwd": cwd, "node_rank": node.node_rank, "env": env, "real": real}

    checkpoint = record.recovery.checkpoint if record.recovery else None
    log = in_place(record.log) if record.log else None
    return {
        "id": run_id,
        "node": os.path.basename(node_dir),
        "name": name,
        "plan": {"nodes": [brief(node) for node in plan.nodes], "checkpoint": checkpoint},
        "cards_of_services": [card for spec in record.services for card in spec.gpus],
        "log": log,
        "place": record.place,
        "checkout": record.checkout,
        "after": [earlier.run for earlier in record.after],
    }


def _links(cwd: str, words: Sequence[str]) -> dict[str, str]:
    """Return {path: where it leads} of the paths that words may name, where links are in them."""
    texts = {text for word in words for text in (word, word.partition("=")[2])}
    paths = {
        os.path.normpath(os.path.join(cwd, os.path.expanduser(text)))
        for text in texts
        if text and not text.startswith("-") and "\0" not in text
    }
    leads = {path: os.path.realpath(path) for path in paths}
    return {path: real for path, real in leads.items() if real != path}
