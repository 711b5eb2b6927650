"""Reads a job's progress from its log: step, time left, loss. It never raises.

bars.py and step_lines.py parse single lines; this module decides which of them are the job's
progress, among several ranks, nested bars, and steps of other work. A wrong time left is worse than
none, and a wrong step worse than none seen: it starts the clock by which a job counts as hung.
"""

# ruff: noqa: PLC0415 - the parsers are imported late: compiling patterns delays a start

from __future__ import annotations

import math
import re
import time
from collections import deque

from safelaunch.runtime.progress import flood_filter
from safelaunch.runtime.records import ProgressReport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any, TypeAlias

    from safelaunch.runtime.progress.metrics import Metrics

    LogRecord: TypeAlias = dict[str, Any]
    Key: TypeAlias = tuple[Any, ...]


MAX_STEP_TIMES = 20  # step times: an evaluation or a checkpoint does not move a median of so many
MIN_STEP_TIMES = 3  # step times that an ETA needs
MAX_BARS = 100  # a description may change with each step
# lines with the same words and a growing number that make a bare `step 5` one of training: an
# installer's `Step 2: ...` has other words each time
MIN_REPEATS = 3
# lines without a step after which `show` says so: a start of eight ranks prints some hundreds of
# each; in thousands, so that status.json is not rewritten for each
MUCH_OUTPUT, OUTPUT_UNIT = 4000, 1000
MAX_OUTPUT = 10**6  # and no more are counted: in a flood that costs more than to merge them
# each line with progress or a metric contains one of these (in lower case)
HINTS = (
    *(b"step", b"loss", b"epoch", b"iter", b"]", b"/s", b"s/", b"reward", b"recover info", b"="),
    *(b"it ", b"it:", b"batch", b"update", b"episode", b"\xe2\x94\x81"),  # Rich's bar
)
CHECKPOINTS = (
    b"dumped recover info to file",  # AReaL
    b"saving model checkpoint to ",  # Hugging Face
    b"successfully saved checkpoint",  # Megatron
)
BARE = 5  # formats.BARE, which is not imported yet: kinds from here on are weak evidence
PARTS = (2, 3, BARE)  # formats.BAR, LINE, BARE: their totals may count one epoch of many
# seconds and steps without progress after which another source may take over
SILENT_SECONDS, SILENT_STEPS = 60.0, 20


class Progress:
    """The progress of one attempt; times are the monotonic seconds that `feed` gets.

    `patterns` are the user's regular expressions with named groups step, total, loss, eta: a group
    that one of them names is never read by the built-in formats.
    """

    def __init__(self, patterns: list[str]) -> None:
        self.step: int | None = None
        self.total: int | None = None
        self.scope = ""  # what `total` counts: "run", "epoch", or "bar" (perhaps part of the run)
        self.epoch: int | None = None
        self.epochs: int | None = None
        self.eta: float | None = None  # seconds after `last_step_at`; never those of an epoch
        # seconds between two changes of the step
        self.step_times: deque[float] = deque(maxlen=MAX_STEP_TIMES)
        self.steps_seen = 0
        self.done = 0  # steps over all epochs
        self.last_step_at: float | None = None
        self.last_checkpoint_at: float | None = None
        self.changed = False  # whether the last feed() brought another step
        self._paces: deque[float] = deque(maxlen=MAX_STEP_TIMES)  # seconds per step
        # the same moments as seconds since 1970, for other processes
        self._checkpoint_time: float | None = None
        self._step_time: float | None = None
        self._flood = flood_filter.FloodFilter()
        self._patterns = _compile(patterns)
        self._reserved = {group for pattern in self._patterns for group in pattern.groupindex}
        self._source: Key | None = None
        self._at: tuple[int | None, int] | None = None  # epoch and step as the source prints them
        self._pending: dict[Key, LogRecord] = {}  # newest step of each source in this feed
        self._bars: dict[int, tuple[Key, LogRecord]] = {}  # rank -> its last bar
        self._proven: dict[Key, str] = {}  # bars of training -> their scope
        self._sure: set[Key] = set()  # sources of lines that are of training
        # source and words of other lines -> how often its number has grown, and the newest
        self._candidates: dict[Key, tuple[int, LogRecord]] = {}
        self._trainer_logs: dict[int, tuple[float, int]] = {}  # rank -> epoch, lines so far
        self._lines = 0  # while no step was seen
        self._headers: dict[int, tuple[int, int | None]] = {}  # rank -> epoch, epochs
        self._zero_based = False
        self._metrics: Metrics | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """The last values of the metrics."""
        return {} if self._metrics is None else self._metrics.values

    @property
    def loss(self) -> float | None:
        """The last loss; for AReaL the actor's."""
        return self.metrics.get("loss", self.metrics.get("actor_loss"))

    # -- reading -------------------------------------------------------------------------------

    def feed(self, data: bytes, now: float) -> list[dict[str, object]]:
        """Read new bytes; return events: `nan-loss` once per spell, `checkpoint`."""
        if self.step is None and self._lines < MAX_OUTPUT:
            self._lines = min(MAX_OUTPUT, self._lines + data.count(b"\n"))
        return self._process(lambda: self._flood.select(data, now), now) if data else []

    def close(self, now: float) -> list[dict[str, object]]:
        """Read the waiting lines and a partial last one; return events as `feed` does.

        At the end a bare step counts also where it did not come often enough: no hang is suspected
        any more, and a short run shall not lack its `min_steps`.
        """
        events = self._process(self._flood.last, now)
        if self._source is None:
            for (key, _), (repeats, record) in self._candidates.items():
                if repeats > 1 or (record["total"] and not record["template"]):
                    self._pending[key] = record
            self._process(list, now)
        return events

    def _process(self, select: Callable[[], list[bytes]], now: float) -> list[dict[str, object]]:
        self.changed = False
        events: list[dict[str, object]] = []
        try:
            for piece in select():
                self._read(piece, now, events)
            for key in sorted(self._pending, key=lambda key: key[:2]):
                self._offer(key, self._pending[key], now)
        except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
            pass  # a job must not end for a line that cannot be parsed
        self._pending.clear()
        return events

    def _read(self, piece: bytes, now: float, events: list[dict[str, object]]) -> None:
        low = piece.lower()
        if not self._patterns and not any(hint in low for hint in HINTS):
            return
        from safelaunch.runtime.progress import formats

        for raw_line in piece.splitlines():
            line = raw_line[: flood_filter.MAX_LINE]
            low = line.lower()
            if not self._patterns and not any(hint in low for hint in HINTS):
                continue
            if any(text in low for text in CHECKPOINTS):
                self._checkpoint(line, now, events)
            rank, line = formats.origin(line)
            bad = self._line(formats, rank, line)
            if bad:
                shown = line[:300].decode("utf-8", "replace")
                events.append({"event": "nan-loss", "what": bad, "step": self.step, "line": shown})

    def _line(self, formats: ModuleType, rank: int, line: bytes) -> str:
        """Read one line; return the name of a loss that has become nan or inf."""
        record = self._values(formats, rank, line)
        if "loss" in self._reserved and not any(
            pattern.search(line) for pattern in self._patterns if "loss" in pattern.groupindex
        ):
            record.pop("loss", None)
        if not record:
            return ""
        if self._metrics is None:
            from safelaunch.runtime.progress.metrics import Metrics

            self._metrics = Metrics()
        return self._metrics.update(record, rank)

    def _values(self, formats: ModuleType, rank: int, line: bytes) -> dict[str, float]:
        """Read the steps of one line; return its metrics."""
        from safelaunch.runtime.progress import bars, step_lines
        from safelaunch.runtime.progress.metrics import metrics

        record = self._user_values(formats, rank, line)
        header = step_lines.HEADER.match(line)
        if header is not None:
            self._headers[rank] = (int(header.group(1)), int(header.group(2)))
        bar = bars.bar(line)
        step = step_lines.step_line(line) if bar is None else None
        if step is not None:
            self._add_step(formats, step, rank)
        if step is not None and step["sure"]:
            record = dict(step["metrics"], **record)
        elif bar is None or bar["sure"] is not False:
            values = metrics(line, loose=False)
            trainer = step_lines.TRAINER.search(line) is not None
            if bar is not None:
                self._add_bar(formats, bar, rank)
                values = dict(values if trainer else {}, **bar["metrics"])
            elif trainer and "epoch" in values and rank not in self._bars:
                self._add_trainer_log(formats, values["epoch"], rank)
            if trainer or "loss" in values:
                self._prove(rank, "run" if trainer else "bar")
            record = dict(values, **record)
        return record

    def _checkpoint(self, line: bytes, now: float, events: list[dict[str, object]]) -> None:
        self.last_checkpoint_at = now
        self._checkpoint_time = time.time()
        if not any(event["event"] == "checkpoint" for event in events):
            text = line[:300].decode("utf-8", "replace")
            events.append({"event": "checkpoint", "step": self.step, "line": text})

    def _user_values(self, formats: ModuleType, rank: int, line: bytes) -> dict[str, float]:
        """Apply the user's patterns; return the loss that they match."""
        record: dict[str, float] = {}
        for pattern in self._patterns:
            match = pattern.search(line)
            if match is None:
                continue
            groups = match.groupdict()
            if groups.get("loss"):
                record["loss"] = float(groups["loss"])
            if groups.get("step"):
                total, eta = groups.get("total"), groups.get("eta")
                self._pending[(formats.USER, rank, b"user", None)] = {
                    "step": int(groups["step"]),
                    "total": int(total) if total else None,
                    "eta": formats.clock(eta) if eta else None,
                    "scope": "run",
                }
        return record

    # -- lines ---------------------------------------------------------------------------------

    def _add_step(self, formats: ModuleType, step: LogRecord, rank: int) -> None:
        """Use the step of a line once it, or others of its form, are known to be of training."""
        key = (step["kind"], rank, step["name"], step["total"])
        if step["sure"]:
            if len(self._sure) < MAX_BARS:
                self._sure.add(key)
            self._pending[key] = step
            return
        if key in self._sure:
            self._pending[key] = step
            return
        key = (max(step["kind"], formats.BARE), *key[1:])
        form = (key, step["template"])
        repeats, last = self._candidates.get(form, (0, step))
        if repeats == 0 and len(self._candidates) >= MAX_BARS:
            return
        has_grown = repeats == 0 or step["step"] > last["step"] or repeats >= MIN_REPEATS
        repeats = repeats + (step["step"] != last["step"] or repeats == 0) if has_grown else 1
        self._candidates[form] = (repeats, step)
        if repeats >= MIN_REPEATS:
            self._pending[key] = step

    def _add_trainer_log(self, formats: ModuleType, epoch: float, rank: int) -> None:
        """Count a trainer's line without a step, where it prints no bar: each is at least one."""
        before, lines = self._trainer_logs.get(rank, (-1.0, 0))
        if epoch > before:
            lines += 1
        self._trainer_logs[rank] = (epoch, lines)
        if lines > 1:  # the bar may come with the first one
            record = {"step": lines, "total": None, "eta": None, "scope": "log", "epoch": epoch}
            self._pending[(formats.LOG, rank, b"trainer", None)] = record

    # -- bars ----------------------------------------------------------------------------------

    def _add_bar(self, formats: ModuleType, bar: LogRecord, rank: int) -> None:
        key = (bar["kind"], rank, bar["name"], bar.get("total"))
        self._bars[rank] = (key, bar)
        if bar["kind"] == formats.EPOCH and bar.get("total"):
            self._headers[rank] = (min(bar["step"] + 1, bar["total"]), bar["total"])
        if bar["sure"]:
            self._prove(rank, bar["scope"])
        if key in self._proven:
            self._pending[key] = bar

    def _prove(self, rank: int, scope: str) -> None:
        """Mark the last bar of this rank as one of training."""
        key, bar = self._bars.get(rank, ((), {}))
        if not key or (key not in self._proven and len(self._proven) >= MAX_BARS):
            return
        proven = self._proven.get(key)
        if proven is None or (proven == "bar" and scope == "run"):
            self._proven[key] = bar["scope"] if bar["scope"] != "bar" else scope
            self._pending[key] = bar

    # -- choosing ------------------------------------------------------------------------------

    def _offer(self, key: Key, record: LogRecord, now: float) -> None:
        """Use a step of a source, unless a better source reports the steps."""
        if "step" in self._reserved and key[0] != 0:
            return
        if key != self._source:
            if not self._may_take_over(key, now):
                return
            if self._source is not None and key[0] < self._source[0] >= BARE:
                self.done = 0  # its steps may have been those of a preparation, or epochs
            self._source = key
            self.step_times.clear()
            self._paces.clear()
            self._at = None
        self._set_epochs(key, record)
        self._advance(key, record, now)
        self._set_scope(key, record)

    def _may_take_over(self, key: Key, now: float) -> bool:
        if self._source is None or key[:2] < self._source[:2]:
            return True
        if key[2:] == self._source[2:] and key[0] == self._source[0]:
            return False  # the same line of another rank
        if self.total and self.step is not None and self.step >= self.total:
            return True
        if self.last_step_at is None:
            return True
        patience = max(SILENT_SECONDS, SILENT_STEPS * (_median(self.step_times) or 0.0))
        return now - self.last_step_at > patience

    def _set_epochs(self, key: Key, record: LogRecord) -> None:
        """Add the epochs that other lines report: headers, an outer bar, a restarted count."""
        epoch, epochs = record.get("epoch"), record.get("epochs")
        may_be_part = key[0] in PARTS and self._proven.get(key) != "run"
        if may_be_part and epoch is None and key[1] in self._headers:
            epoch, epochs = self._headers[key[1]]
            record["guessed"] = record["scope"] == "run"
            record["scope"] = "epoch"
        if may_be_part and self._proven.get(key) == "epoch":
            record["scope"] = "epoch"
        elif record.get("guessed"):
            epochs = None  # does `epoch 1/3 step 20/300` count 300 steps or 900?
        record.update(epoch=epoch, epochs=epochs)
        if epoch == 0 or record.get("zero_based"):
            self._zero_based = True

    def _advance(self, key: Key, record: LogRecord, now: float) -> None:
        raw, total = int(record["step"]), record.get("total")
        before, self._at = self._at, (record["epoch"], raw)
        is_restart = before is not None and raw <= before[1] and self._at != before
        # it had nearly ended: a part of the run; else this is a restart from a checkpoint
        is_part = is_restart and before is not None and before[1] * 10 >= (total or 0) * 9 > 0
        if is_part and self._proven.get(key) != "run":
            self._proven[key] = "epoch"
        self.step, self.total = self._whole_run(record), self._total(record)
        if before == self._at or (before is None and raw == 0):
            return
        self.changed = True
        self.steps_seen += 1
        delta = raw if before is None or is_restart else raw - before[1]
        is_new = before is None or (is_restart and not is_part)
        self.done = max(self.step, self.done + (0 if is_new else delta))
        if before is not None and self.last_step_at is not None:
            self.step_times.append(now - self.last_step_at)
            self._paces.append((now - self.last_step_at) / max(1, delta))
        self.last_step_at = now
        self._step_time = time.time()

    def _whole_run(self, record: LogRecord) -> int:
        """Return the step over all epochs where their number is known."""
        step, total = int(record["step"]), record.get("total")
        if record["scope"] != "epoch" or not total or not record.get("epochs"):
            return step
        past = max(0, record["epoch"] - (0 if self._zero_based else 1))
        return int(past * total + step)

    def _total(self, record: LogRecord) -> int | None:
        total = record.get("total")
        if not total or (record["scope"] == "epoch" and not record.get("epochs")):
            return total or None
        return int(total * record["epochs"]) if record["scope"] == "epoch" else int(total)

    def _set_scope(self, key: Key, record: LogRecord) -> None:
        scope = record["scope"]
        if scope == "epoch" and record.get("epochs") and record.get("total"):
            scope = "run"
        elif scope == "bar":
            scope = self._proven.get(key, "bar")
        self.scope, self.epoch, self.epochs = scope, record.get("epoch"), record.get("epochs")
        left = record.get("eta") if record["scope"] in (scope, "bar") else None
        has_pace = left is None and len(self._paces) >= MIN_STEP_TIMES
        if has_pace and self.total and self.step is not None:
            left = max(0, self.total - self.step) * (_median(self._paces) or 0.0)
        is_unsure = scope == "epoch" or ("eta" in self._reserved and key[0] != 0)
        self.eta = None if is_unsure else left

    # -- reporting -----------------------------------------------------------------------------

    def snapshot(self) -> ProgressReport | None:
        """Return the report for status.json; None while there is no progress."""
        report = ProgressReport()
        if self.step is not None:
            report.step, report.total = self.step, self.total
            report.scope, report.eta = self.scope, self.eta
            report.epoch, report.epochs = self.epoch, self.epochs
            report.steps_seen, report.done = self.steps_seen, self.done
            report.step_time = _median(self.step_times)
        elif self._lines >= MUCH_OUTPUT:
            report.lines_without_step = self._lines // OUTPUT_UNIT * OUTPUT_UNIT
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


def _compile(patterns: list[str]) -> list[re.Pattern[bytes]]:
    compiled = []
    for pattern in patterns:
        try:
            compiled.append(re.compile(pattern.encode()))
        except (re.error, OverflowError, RecursionError):
            continue  # the client refuses such; an older run.json may have one
    return compiled
