"""How far a job has got, told from its log: step, time left, loss. It never raises.

formats.py knows what the lines look like; this decides which of them are the job's progress, among
several ranks, nested bars, and bars of other work. A wrong time left is worse than none.
"""

from __future__ import annotations

import math
import time
from collections import deque

from safelaunch.runtime.progress import flood_filter
from safelaunch.runtime.records import ProgressReport

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any, TypeAlias

    Found: TypeAlias = dict[str, Any]
    Key: TypeAlias = tuple[Any, ...]


KEPT = 20  # step times: a median of so many is not moved by an evaluation or a checkpoint
KNOWN = 3  # paces after which an ETA may be computed
MOST_BARS = 100  # a description may change with each step
# each line that can tell anything has one of these in it (in lower case)
HINTS = (b"step", b"loss", b"epoch", b"iter", b"] ", b"/s", b"s/", b"reward", b"recover info", b"=")
CHECKPOINTS = (
    b"dumped recover info to file",  # AReaL
    b"saving model checkpoint to ",  # Hugging Face
    b"successfully saved checkpoint",  # Megatron
)
PARTS = (2, 3)  # formats.BAR, LINE: their totals may count one epoch of many
SILENT, SILENT_STEPS = 60.0, 20  # seconds and steps after which another source may take over


class Progress(object):
    """What the log of one attempt tells; times are monotonic seconds as `feed` is given them.

    `patterns` are the user's regular expressions with named groups step, total, loss, eta: a group
    that one of them names is never taken from what is built in.
    """

    def __init__(self, patterns: list[str]) -> None:
        self.step: int | None = None
        self.total: int | None = None
        self.scope = ""  # what `total` counts: "run", "epoch", or "bar" (perhaps part of the run)
        self.epoch: int | None = None
        self.epochs: int | None = None
        self.eta: float | None = None  # seconds from `last_step_at` on; never one of an epoch
        self.step_times: deque[float] = deque(maxlen=KEPT)  # between two changes of the step
        self.steps_seen = 0
        self.done = 0  # steps over all epochs
        self.last_step_at: float | None = None
        self.last_checkpoint_at: float | None = None
        self.changed = False  # whether the last feed() brought another step
        self._paces: deque[float] = deque(maxlen=KEPT)  # seconds per step
        # the same moments by the clock, for other processes
        self._checkpoint_time: float | None = None
        self._step_time: float | None = None
        self._windows = flood_filter.Windows()
        self._patterns = _compiled(patterns)
        self._reserved = {group for pattern in self._patterns for group in pattern.groupindex}
        self._source: Key | None = None
        self._at: tuple[int | None, int] | None = None  # epoch and step as the source tells them
        self._pending: dict[Key, Found] = {}  # the newest of each source in this feed
        self._bars: dict[int, tuple[Key, Found]] = {}  # rank -> the bar that it showed last
        self._proven: dict[Key, str] = {}  # bars of training -> their scope
        self._headers: dict[int, tuple[int, int | None]] = {}  # rank -> epoch, epochs
        self._zero_based = False
        self._metrics: Any = None

    @property
    def metrics(self) -> dict[str, float]:
        """The last values of what is printed beside the steps."""
        return {} if self._metrics is None else self._metrics.values

    @property
    def loss(self) -> float | None:
        """The last loss; of AReaL's the actor's."""
        return self.metrics.get("loss", self.metrics.get("actor_loss"))

    # -- reading -------------------------------------------------------------------------------

    def feed(self, data: bytes, now: float) -> list[dict[str, object]]:
        """Take what has come; return events: `nan-loss` once per spell, `checkpoint`."""
        return self._take_in(lambda: self._windows.cut(data, now), now) if data else []

    def close(self, now: float) -> list[dict[str, object]]:
        """Read what still waits, also a last line without an end; return events as `feed` does."""
        return self._take_in(self._windows.last, now)

    def _take_in(self, cut: Callable[[], list[bytes]], now: float) -> list[dict[str, object]]:
        self.changed = False
        events: list[dict[str, object]] = []
        try:
            for piece in cut():
                self._read(piece, now, events)
            for key in sorted(self._pending, key=lambda key: key[:2]):
                self._offer(key, self._pending[key], now)
        except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
            pass  # a job must not end for a line that nobody understands
        self._pending.clear()
        return events

    def _read(self, piece: bytes, now: float, events: list[dict[str, object]]) -> None:
        low = piece.lower()
        if not self._patterns and not any(hint in low for hint in HINTS):
            return
        formats = _formats()
        for whole in piece.splitlines():
            line = whole[: flood_filter.LONGEST]
            low = line.lower()
            if not self._patterns and not any(hint in low for hint in HINTS):
                continue
            if any(said in low for said in CHECKPOINTS):
                self._checkpoint(line, now, events)
            rank, line = formats.origin(line)
            bad = self._line(formats, rank, line)
            if bad:
                shown = line[:300].decode("utf-8", "replace")
                events.append({"event": "nan-loss", "what": bad, "step": self.step, "line": shown})

    def _line(self, formats: ModuleType, rank: int, line: bytes) -> str:
        """Read one line; return the name of a loss that has become nan or inf."""
        found = self._user(formats, rank, line)
        header = formats.HEADER.match(line)
        if header is not None:
            self._headers[rank] = (int(header.group(1)), int(header.group(2)))
            return ""
        bar = formats.bar(line)
        told = formats.told(line) if bar is None else None
        if told is not None:
            self._pending[(told["kind"], rank, told["name"], told["total"])] = told
            found = dict(told["metrics"], **found)
        elif bar is None or bar["sure"] is not False:
            values = dict(formats.metrics(line, loose=False))
            trainer = formats.is_trainer(line)
            if bar is not None:
                self._take_bar(formats, bar, rank)
                values = dict(values if trainer else {}, **bar["metrics"])
            if trainer or "loss" in values:
                self._prove(rank, "run" if trainer else "bar")
            found = dict(values, **found)
        if "loss" in self._reserved and not self._is_users(line):
            found.pop("loss", None)
        return self._take(found, rank)

    def _is_users(self, line: bytes) -> bool:
        return any(p.search(line) for p in self._patterns if "loss" in p.groupindex)

    def _take(self, found: dict[str, float], rank: int) -> str:
        if not found:
            return ""
        if self._metrics is None:
            self._metrics = _formats().numbers()
        return str(self._metrics.take(found, rank))

    def _checkpoint(self, line: bytes, now: float, events: list[dict[str, object]]) -> None:
        self.last_checkpoint_at = now
        self._checkpoint_time = time.time()
        if not any(event["event"] == "checkpoint" for event in events):
            said = line[:300].decode("utf-8", "replace")
            events.append({"event": "checkpoint", "step": self.step, "line": said})

    def _user(self, formats: ModuleType, rank: int, line: bytes) -> dict[str, float]:
        """Apply the user's patterns; return the loss that they found."""
        found: dict[str, float] = {}
        for pattern in self._patterns:
            match = pattern.search(line)
            if match is None:
                continue
            groups = match.groupdict()
            if groups.get("loss"):
                found["loss"] = float(groups["loss"])
            if groups.get("step"):
                total, eta = groups.get("total"), groups.get("eta")
                self._pending[(formats.USER, rank, b"user", None)] = {
                    "step": int(groups["step"]),
                    "total": int(total) if total else None,
                    "eta": formats.clock(eta) if eta else None,
                    "scope": "run",
                }
        return found

    # -- bars ----------------------------------------------------------------------------------

    def _take_bar(self, formats: ModuleType, bar: Found, rank: int) -> None:
        key = (bar["kind"], rank, bar["name"], bar.get("total"))
        self._bars[rank] = (key, bar)
        if bar["kind"] == formats.EPOCH and bar.get("total"):
            self._headers[rank] = (min(bar["step"] + 1, bar["total"]), bar["total"])
        if bar["sure"]:
            self._prove(rank, bar["scope"])
        if key in self._proven:
            self._pending[key] = bar

    def _prove(self, rank: int, scope: str) -> None:
        """Take the bar that this rank showed last for one of training."""
        key, bar = self._bars.get(rank, ((), {}))
        if not key or (key not in self._proven and len(self._proven) >= MOST_BARS):
            return
        known = self._proven.get(key)
        if known is None or (known == "bar" and scope == "run"):
            self._proven[key] = bar["scope"] if bar["scope"] != "bar" else scope
            self._pending[key] = bar

    # -- deciding ------------------------------------------------------------------------------

    def _offer(self, key: Key, found: Found, now: float) -> None:
        """Take a step from a source, unless a better one tells the steps."""
        if "step" in self._reserved and key[0] != 0:
            return
        if key != self._source:
            if not self._may_take_over(key, now):
                return
            self._source = key
            self.step_times.clear()
            self._paces.clear()
            self._at = None
        self._set_epochs(key, found)
        self._advance(key, found, now)
        self._set_scope(key, found)

    def _may_take_over(self, key: Key, now: float) -> bool:
        if self._source is None or key[:2] < self._source[:2]:
            return True
        if key[2:] == self._source[2:] and key[0] == self._source[0]:
            return False  # the same by another rank
        if self.total and self.step is not None and self.step >= self.total:
            return True
        if self.last_step_at is None:
            return True
        patience = max(SILENT, SILENT_STEPS * (_median(self.step_times) or 0.0))
        return now - self.last_step_at > patience

    def _set_epochs(self, key: Key, found: Found) -> None:
        """Fill in what is known of epochs from elsewhere: headers, an outer bar, new beginnings."""
        epoch, epochs = found.get("epoch"), found.get("epochs")
        may_be_part = key[0] in PARTS and self._proven.get(key) != "run"
        if may_be_part and epoch is None and key[1] in self._headers:
            epoch, epochs = self._headers[key[1]]
            found["guessed"] = found["scope"] == "run"
            found["scope"] = "epoch"
        if may_be_part and self._proven.get(key) == "epoch":
            found["scope"] = "epoch"
        elif found.get("guessed"):
            epochs = None  # does `epoch 1/3 step 20/300` count 300 steps or 900?
        found.update(epoch=epoch, epochs=epochs)
        if epoch == 0:
            self._zero_based = True

    def _advance(self, key: Key, found: Found, now: float) -> None:
        raw, total = int(found["step"]), found.get("total")
        before, self._at = self._at, (found["epoch"], raw)
        anew = before is not None and raw <= before[1] and self._at != before
        # it had all but ended: a part of the run; else this is a restart from a checkpoint
        part = anew and before is not None and before[1] * 10 >= (total or 0) * 9 > 0
        if part and self._proven.get(key) != "run":
            self._proven[key] = "epoch"
        self.step, self.total = self._whole_run(found), self._total(found)
        if before == self._at or (before is None and raw == 0):
            return
        self.changed = True
        self.steps_seen += 1
        delta = raw if before is None or anew else raw - before[1]
        self.done = max(
            self.step, self.done + (0 if before is None or (anew and not part) else delta)
        )
        if before is not None and self.last_step_at is not None:
            self.step_times.append(now - self.last_step_at)
            self._paces.append((now - self.last_step_at) / max(1, delta))
        self.last_step_at = now
        self._step_time = time.time()

    def _whole_run(self, found: Found) -> int:
        """Return the step over all epochs where their number is known."""
        step, total = int(found["step"]), found.get("total")
        if found["scope"] != "epoch" or not total or not found.get("epochs"):
            return step
        past = max(0, found["epoch"] - (0 if self._zero_based else 1))
        return int(past * total + step)

    def _total(self, found: Found) -> int | None:
        total = found.get("total")
        if not total or (found["scope"] == "epoch" and not found.get("epochs")):
            return total or None
        return int(total * found["epochs"]) if found["scope"] == "epoch" else int(total)

    def _set_scope(self, key: Key, found: Found) -> None:
        scope = found["scope"]
        if scope == "epoch" and found.get("epochs") and found.get("total"):
            scope = "run"
        elif scope == "bar":
            scope = self._proven.get(key, "bar")
        self.scope, self.epoch, self.epochs = scope, found.get("epoch"), found.get("epochs")
        left = found.get("eta") if found["scope"] in (scope, "bar") else None
        if scope == "epoch":
            left = None
        elif left is None and len(self._paces) >= KNOWN and self.total and self.step is not None:
            left = max(0, self.total - self.step) * (_median(self._paces) or 0.0)
        if "eta" in self._reserved and key[0] != 0:
            left = None
        self.eta = left

    # -- telling -------------------------------------------------------------------------------

    def snapshot(self) -> ProgressReport | None:
        """Return the report for status.json; None as long as nothing is known."""
        report = ProgressReport()
        if self.step is not None:
            report.step, report.total = self.step, self.total
            report.scope, report.eta = self.scope, self.eta
            report.epoch, report.epochs = self.epoch, self.epochs
            report.steps_seen, report.done = self.steps_seen, self.done
            report.step_time = _median(self.step_times)
        if self.metrics:
            report.loss = _safe(self.loss)
            report.metrics = {name: _safe(value) for name, value in self.metrics.items()}
        report.last_checkpoint_time = self._checkpoint_time
        report.last_step_time = self._step_time
        return report if report.to_json() else None


def _median(values: deque[float]) -> float | None:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None


def _safe(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)


def _formats() -> ModuleType:
    """Return the module of patterns; compiling them is not for the start of a run."""
    from safelaunch.runtime.progress import formats  # noqa: PLC0415

    return formats


def _compiled(patterns: list[str]) -> list[re.Pattern[bytes]]:
    if not patterns:
        return []
    import re  # noqa: PLC0415 - not for the start of a run

    found = []
    for pattern in patterns:
        try:
            found.append(re.compile(pattern.encode()))
        except (re.error, OverflowError, RecursionError):
            continue  # the client refuses such; an older run.json may hold one
    return found
