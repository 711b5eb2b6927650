"""Stores the latest facts of machines, in files below safelaunch's home."""

# ruff: noqa: PLC0415 - urllib.parse (4 ms) is imported only to read or write facts, not before a
# start

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.hostfacts import assemble

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = "facts"


class ProbeOptions(NamedTuple):
    """Options of a probe; facts that were probed with other options are not reused."""

    python: str | None = None
    deep: bool = False


class SavedFacts:
    """The stored facts of all machines; `report` receives a message if saving fails."""

    def __init__(self, home: str, report: Callable[[str], object] = lambda _: None) -> None:
        self._folder = os.path.join(home, FOLDER)
        self._report = report

    def _path(self, host: str) -> str:
        from urllib.parse import quote

        return os.path.join(self._folder, quote(host, safe="") + ".json")

    def save(self, host: str, options: ProbeOptions, facts: dict[str, Any]) -> None:
        """Write the facts of a host atomically: on a full disk the old ones remain."""
        path = self._path(host)
        part = f"{path}.{os.getpid()}.part"
        try:
            os.makedirs(self._folder, 0o700, exist_ok=True)
            with open(part, "w", encoding="utf-8") as file:
                json.dump({"asked": options._asdict(), "at": time.time(), "facts": facts}, file)
            os.replace(part, path)
        except OSError as e:
            with contextlib.suppress(OSError):
                os.unlink(part)
            self._report(f"cannot save the facts of {host}: {e.strerror or e}")

    def load(
        self, host: str, options: ProbeOptions | None = None, max_age: float | None = None
    ) -> dict[str, Any] | None:
        """Return the facts of a host, with their time in `kept_at`; None if absent or too old.

        With `options` only facts that were probed with these; `max_age` is in seconds.
        """
        try:
            with open(self._path(host), encoding="utf-8") as file:
                record = json.load(file)
            age = time.time() - record["at"]
            is_same = options is None or record["asked"] == options._asdict()
            facts: dict[str, Any] = {**record["facts"], "kept_at": record["at"]}
            is_readable = facts["version"] == assemble.VERSION
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        is_old = age < 0 or (max_age is not None and age >= max_age)
        return facts if is_same and is_readable and not is_old else None


def with_age(facts: dict[str, Any]) -> dict[str, Any]:
    """Return facts with their age in seconds, by the local clock, instead of `kept_at`."""
    rest = dict(facts)
    at = rest.pop("kept_at", None)
    return {**rest, "age": 0.0 if at is None else round(max(0.0, time.time() - at), 1)}
