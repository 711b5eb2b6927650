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
from safelaunch.model import Plan
from safelaunch.plan.serialize import plan_json
from safelaunch.runs import groups, store
from safelaunch.runtime import json_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from safelaunch.runs.access import RunAccess

_LONGEST = 200  # characters of a key
_POLL = 0.05  # seconds between two tries to take the lock
_PATIENCE = 1.0  # seconds of waiting before the user is told
_SHOWN = 3  # differences in a message
_MAX_VALUE = 60  # characters of a value there
_OF_GROUP = "plans"  # key of a record: the plans of the steps of a group
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

    def group_of(self, plans: Mapping[str, Plan], home: str) -> groups.RunGroup | None:
        """Return the group of steps that this key has started, maybe not to its last step.

        None where it has none, or its start failed. Raises Refused where a plan is another one.
        """
        record = json_files.read_json(self._path) or {}
        group = groups.find(home, str(record.get("id") or ""))
        if _OF_GROUP not in record:
            self._refuse_other_kind(record, home, "a single job")
            return None
        if group is not None:
            now = {name: compared(plan) for name, plan in plans.items()}
            self._refuse_differences(group.id, record[_OF_GROUP], now)
        return group

    def _refuse_other_kind(self, record: Mapping[str, Any], home: str, kind: str) -> None:
        """Raise Refused where the key has started something else than it is to start now."""
        name = str(record.get("id") or "")
        is_run = os.path.isdir(os.path.join(store.folder(home), name)) and store.is_run_id(name)
        if is_run or groups.find(home, name) is not None:
            raise Refused(
                f"the key `{self.key}` has started {name}, {kind}",
                where="--id",
                hint="use another key",
            )

    def run_of(
        self, plan: Plan, home: str, open_run: Callable[[store.Run], RunAccess]
    ) -> RunAccess | None:
        """Return the run that this key has started; None where it has none, or its start failed.

        Raises Refused where its plan is another one, HostError where nobody knows whether it was
        started.
        """
        record = json_files.read_json(self._path) or {}
        run_id = str(record.get("id"))
        if _OF_GROUP in record:
            self._refuse_other_kind(record, home, "a file with steps")
            return None
        run = store.Run(run_id, os.path.join(store.folder(home), run_id))
        if not store.is_run_id(run_id) or not os.path.isdir(run.folder):
            return None
        access = open_run(run)
        status = access.status()
        has_begun = groups.has_begun(status)
        if has_begun is None:
            reason = status.reason or "its host does not answer"
            raise HostError(
                f"whether `{run_id}` was started is not known: {reason}", hint="try again"
            )
        if not has_begun:
            return None
        self._refuse_differences(run_id, record.get("plan"), compared(plan))
        return access

    def _refuse_differences(self, name: str, before: object, now: object) -> None:
        differences = list(plan_differences(before, now))
        if differences:
            raise Refused(
                f"the key `{self.key}` has started {name} with another plan: {some(differences)}",
                where="--id",
                hint="use another key for another plan",
            )

    def record(self, name: str, plan: Plan | Mapping[str, Plan]) -> None:
        """Record the run that is about to be started, or the group with the plans of its steps."""
        data: dict[str, Any] = {"version": 1, "key": self.key, "id": name}
        if isinstance(plan, Plan):
            data["plan"] = compared(plan)
        else:
            data[_OF_GROUP] = {step: compared(own) for step, own in plan.items()}
        json_files.write_json(self._path, data)

    def forget(self) -> None:
        """Let the key start anew: nothing is left of its start."""
        json_files.remove(self._path)


def compared(plan: Plan) -> Any:
    """Return what of a plan must be the same, as JSON reads it back."""
    data = {key: value for key, value in plan_json(plan).items() if key not in _IGNORED}
    return json.loads(json.dumps(data))


def plan_differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """Yield `nodes[0].argv[3]: 1 -> 2` for each value that differs."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*before, *now]):
            below = f"{path}.{key}" if path else str(key)
            yield from plan_differences(before.get(key), now.get(key), below)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, pair in enumerate(zip(before, now, strict=True)):
            yield from plan_differences(*pair, f"{path}[{index}]")
    elif before != now:
        yield f"{path}: {_short(before)} -> {_short(now)}"


def some(differences: Sequence[str]) -> str:
    """Return the first of them, as a text."""
    shown = "; ".join(differences[:_SHOWN])
    more = f"; and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
    return shown + more


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 3] + "..."
