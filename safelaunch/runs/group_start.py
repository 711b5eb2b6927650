"""The record of a group whose start is not complete: all its steps, and the plan of each.

It is written before the first step is started and removed once all have been. Where the command
that starts them is killed in between, it says which steps were never started, and what they are.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.file_lock import is_locked, try_lock
from safelaunch.runs import store
from safelaunch.runtime import json_files
from safelaunch.runtime.records import EarlierRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FOLDER = "groups"  # below safelaunch's folder
_PATIENCE = 0.5  # seconds of trying to take the lock


class StepStartRecord(NamedTuple):
    """A step as it is to be started."""

    step: str
    run: str  # id of the run that it has, or will have
    plan: object  # not bound, as plan/serialize.py writes it
    hosts: tuple[str, ...] = ()  # of its nodes, each once; none for this machine
    after: tuple[tuple[EarlierRun, ...], ...] = ()  # of each node, what must have ended before
    files: Mapping[str, str] = {}  # further ones of its run directory, as base64
    again: str | None = None  # the run that it starts again, on the hosts of that

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        after = [[earlier.to_json() for earlier in node] for node in self.after]
        return {**self._asdict(), "after": after}


class GroupStart(NamedTuple):
    """The start of a group: its steps in their order, each after those that it waits for."""

    id: str
    steps: tuple[StepStartRecord, ...]
    local_time: str = ""  # of its start, as names of logs have it
    command: Mapping[str, Any] = {}  # file, folder and flags of a start on hosts
    is_stopped: bool = False  # nobody wants what was not started

    def write(self, home: str) -> None:
        """Record it."""
        os.makedirs(os.path.join(home, _FOLDER), 0o700, exist_ok=True)
        steps = [step.to_json() for step in self.steps]
        data = {**self._asdict(), "steps": steps, "command": dict(self.command)}
        json_files.write_json(_path(home, self.id), {"version": 1, **data})


def read(home: str, group: str) -> GroupStart | None:
    """Return the start of a group that is not complete; None where it is, or is not known."""
    data = json_files.read_json(_path(home, group)) if store.is_run_id(group) else None
    try:
        return None if data is None else _start(data)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _start(data: Mapping[str, Any]) -> GroupStart:
    steps = tuple(
        StepStartRecord(
            str(step["step"]),
            str(step["run"]),
            step["plan"],
            tuple(map(str, step["hosts"])),
            tuple(tuple(EarlierRun.from_json(end) for end in node) for node in step["after"]),
            dict(step["files"]),
            step["again"],
        )
        for step in data["steps"]
    )
    if not all(store.is_run_id(step.run) for step in steps):
        raise ValueError("not the id of a run")
    return GroupStart(
        *(str(data["id"]), steps, str(data["local_time"])),
        *(dict(data["command"]), bool(data["is_stopped"])),
    )


def all_starts(home: str) -> list[GroupStart]:
    """Return all starts that are not complete, the newest last."""
    try:
        names = os.listdir(os.path.join(home, _FOLDER))
    except OSError:
        return []
    groups = [name.removesuffix(".json") for name in names if name.endswith(".json")]
    starts = [read(home, group) for group in groups]
    return sorted((start for start in starts if start), key=lambda start: start.id[-20:])


def remove(home: str, group: str) -> None:
    """Remove the record: all steps were started, or nothing is left of them."""
    json_files.remove(_path(home, group))


def _path(home: str, group: str) -> str:
    return os.path.join(home, _FOLDER, f"{group}.json")


def _lock_path(home: str, group: str) -> str:
    return os.path.join(home, _FOLDER, f"{group}.lock")


@contextlib.contextmanager
def start_lock(home: str, group: str) -> Iterator[bool]:
    """Mark a group as being started until the block ends, or this process does.

    Yields False where another process is starting it.
    """
    os.makedirs(os.path.join(home, _FOLDER), 0o700, exist_ok=True)
    fd = os.open(_lock_path(home, group), os.O_RDWR | os.O_CREAT, 0o600)
    is_own, deadline = False, time.monotonic() + _PATIENCE
    try:
        while not (is_own := try_lock(fd)) and time.monotonic() < deadline:
            time.sleep(0.01)  # somebody may just ask whether it is locked
        yield is_own
    finally:
        os.close(fd)
        if is_own and not os.path.exists(_path(home, group)):
            json_files.remove(_lock_path(home, group))


def is_starting(home: str, group: str) -> bool:
    """Whether a command of this machine is starting the steps of a group."""
    try:
        fd = os.open(_lock_path(home, group), os.O_RDWR)
    except OSError:
        return False
    try:
        return is_locked(fd)
    finally:
        os.close(fd)
