"""A cursor: what of which runs was reported. It is a text that a later command goes on from."""

from __future__ import annotations

import base64
import binascii
import calendar
import json
import time
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.runs import store

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSION = "1."
_MAX_BYTES = 16 << 20  # of a cursor's content: ten thousand runs that have not ended have 2 MB
# Seconds for which a run that has ended stays in the cursor of all runs: the id of a run has the
# time at which its start began, and another run may be recorded before it that began later.
_OVERLAP = 60
_FIRST = "0"  # a time before all runs


class Mark(NamedTuple):
    """What was reported of a run."""

    state: str = ""
    starts: int = 0  # attempts whose begin was reported
    ends: int = 0  # attempts whose end was
    progress: tuple[Any, ...] = ()  # attempt, steps and epoch
    warning: tuple[int, int] = (0, 0)  # length of the text, and its checksum
    is_hang: bool = False  # whether a hang is suspected
    positions: tuple[tuple[int, int], ...] = ()  # node, and the position in its events
    is_failed: bool = False  # whether the failure was reported
    is_over: bool = False  # whether its end was reported

    def position(self, node: int) -> int:
        """Return up to where the events of a node were reported."""
        return dict(self.positions).get(node, 0)

    def at(self, node: int, position: int) -> Mark:
        """Return the same with the events of a node reported up to there."""
        return self._replace(
            positions=tuple(sorted({**dict(self.positions), node: position}.items()))
        )


class Cursor(NamedTuple):
    """What was reported of runs.

    `horizon` is a time, as ids have it: of a run that is not among `runs` and is older, all was
    reported until it ended. "" where only the runs named are reported.
    """

    runs: Mapping[str, Mark]
    horizon: str = ""

    def text(self) -> str:
        """Return the cursor as a word without spaces."""
        runs = {name: _packed(mark) for name, mark in self.runs.items()}
        data = json.dumps([self.horizon, runs], separators=(",", ":")).encode()
        return _VERSION + base64.urlsafe_b64encode(zlib.compress(data)).decode().rstrip("=")

    def with_horizon(self, newest: str) -> Cursor:
        """Return it with a `horizon` before the newest run, without older runs that have ended."""
        horizon = max(self.horizon, _earlier(newest) or _FIRST)
        runs = {
            name: mark
            for name, mark in self.runs.items()
            if not mark.is_over or start_time(name) >= horizon
        }
        return Cursor(runs, horizon)


def start_time(run_id: str) -> str:
    """Return when the start of a run began, as its id has it: texts that sort by time."""
    return run_id[-20:-5]


def _earlier(moment: str) -> str:
    try:
        seconds = calendar.timegm(time.strptime(moment, "%Y%m%d-%H%M%S"))
    except ValueError:
        return moment  # an id with an hour 25
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds - _OVERLAP))


def _packed(mark: Mark) -> list[Any]:
    return [True] if mark.is_over else list(mark[:-1])


def _unpacked(packed: list[Any]) -> Mark:
    if packed == [True]:
        return Mark(is_over=True)
    state, starts, ends, progress, warning, is_hang, positions, is_failed = packed
    length, checksum = warning
    return Mark(
        str(state),
        int(starts),
        int(ends),
        tuple(progress),
        (int(length), int(checksum)),
        bool(is_hang),
        tuple((int(node), int(position)) for node, position in positions),
        bool(is_failed),
    )


def read(text: str) -> Cursor:
    """Return the cursor that a text is. Raises ConfigError."""
    # of another version nothing is read
    body = text.removeprefix(_VERSION).encode("utf-8", "replace") if text[:2] == _VERSION else b""
    try:
        data = base64.b64decode(body + b"=" * (-len(body) % 4), b"-_", validate=True)
        content = zlib.decompressobj().decompress(data, _MAX_BYTES)
        horizon, packed = json.loads(content)
        runs = {str(name): _unpacked(list(value)) for name, value in packed.items()}
    except (ValueError, TypeError, AttributeError, binascii.Error, zlib.error, RecursionError):
        shown = text if len(text) <= 40 else text[:37] + "..."  # noqa: PLR2004 - of a line
        raise ConfigError(
            f"`{shown}` is no cursor of events",
            hint="give the `cursor` of the last line that was read, whole and unchanged",
        ) from None
    return Cursor(
        {name: mark for name, mark in runs.items() if store.is_run_id(name)}, str(horizon)
    )
