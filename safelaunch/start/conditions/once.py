"""The key of a start: the same key starts one run for each home, however often it is asked for.

A file in safelaunch's folder has the run's id, before the start, and the plan. Its lock is held
while the run is started, so that a second start waits for the first and returns its run.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import TYPE_CHECKING, Any

from safelaunch.errors import ConfigError, HostError, Refused
from safelaunch.file_lock import try_lock
from safelaunch.plan.serialize import plan_json
from safelaunch.runs import store
from safelaunch.runtime import json_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from safelaunch.model import Plan
    from safelaunch.runs.access import RunAccess

_LONGEST = 200  # characters of a key
_POLL = 0.05  # seconds between two tries to take the lock
_PATIENCE = 1.0  # seconds of waiting before the user is told
_SHOWN = 3  # differences in a message
_MAX_VALUE = 60  # characters of a value there
_IGNORED = ("version", "warnings")  # of a plan: they change nothing of the run


class StartKey:
    """A key that is locked until `release`, or the end of the process."""

    def __init__(self, home: str, key: str, say: Callable[[str], object] = lambda _: None) -> None:
        """Wait for a start with this key that is under way. Raises ConfigError."""
        if not key.strip() or len(key) > _LONGEST or not key.isprintable():
            raise ConfigError(
                "a key has 1 to 200 printable characters",
                where="--id",
                hint="such as a CI job's id",
            )
        self.key = key
        folder = os.path.join(home, "keys")
        os.makedirs(folder, 0o700, exist_ok=True)
        name = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self._path = os.path.join(folder, name + ".json")
        self._fd = os.open(os.path.join(folder, name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        due = time.monotonic() + _PATIENCE
        while not try_lock(self._fd):
            time.sleep(_POLL)
            if due and time.monotonic() > due:
                due = 0.0
                say(f"waiting for the start with the key `{key}` that is under way")

    def release(self) -> None:
        """Let others use the key."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def run_of(
        self, plan: Plan, home: str, open_run: Callable[[store.Run], RunAccess]
    ) -> RunAccess | None:
        """Return the run that this key has started; None where it has none, or its start failed.

        Raises Refused where its plan is another one, HostError where nobody knows whether it was
        started.
        """
        record = json_files.read_json(self._path) or {}
        run_id = str(record.get("id"))
        run = store.Run(run_id, os.path.join(store.folder(home), run_id))
        if not store.is_run_id(run_id) or not os.path.isdir(run.folder):
            return None
        access = open_run(run)
        status = access.status()
        has_started = bool(status.attempts) or status.started_at is not None
        if status.state == "lost" and not has_started and not status.alive:
            return None
        if status.state == "unknown" and not has_started:
            reason = status.reason or "its host does not answer"
            raise HostError(
                f"whether `{run_id}` was started is not known: {reason}", hint="try again"
            )
        differences = list(_differences(record.get("plan"), _compared(plan)))
        if differences:
            shown = "; ".join(differences[:_SHOWN])
            more = f"; and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
            raise Refused(
                f"the key `{self.key}` has started {run_id} with another plan: {shown}{more}",
                where="--id",
                hint="use another key for another plan",
            )
        return access

    def record(self, run_id: str, plan: Plan) -> None:
        """Record the run that is about to be started."""
        data = {"version": 1, "key": self.key, "id": run_id, "plan": _compared(plan)}
        json_files.write_json(self._path, data)


def _compared(plan: Plan) -> Any:
    """Return what of a plan must be the same, as JSON reads it back."""
    data = {key: value for key, value in plan_json(plan).items() if key not in _IGNORED}
    return json.loads(json.dumps(data))


def _differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """Yield `nodes[0].argv[3]: 1 -> 2` for each value that differs."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*before, *now]):
            below = f"{path}.{key}" if path else str(key)
            yield from _differences(before.get(key), now.get(key), below)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, pair in enumerate(zip(before, now, strict=True)):
            yield from _differences(*pair, f"{path}[{index}]")
    elif before != now:
        yield f"{path}: {_short(before)} -> {_short(now)}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 3] + "..."
