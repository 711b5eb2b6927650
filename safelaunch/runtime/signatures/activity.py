"""What shows that a process continued after an alarm: later steps, and that it ended well.

Only a process that is alive prints a further step. The words of an end (`Done`) prove less: a
shell, an experiment tracker or a server print them behind a crash as well.
"""

from __future__ import annotations

from itertools import islice
from math import isfinite

from safelaunch.runtime.signatures.match import EXCEPTION, compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

# each line with a step has one of these
_HINTS = (
    *("%|", "% ", "it/s", "s/it", "/s]", "/s,", "loss", "ppl", "tep", "iter", "poch", "reward"),
    *("pdate", "POST", "exitcode", "━"),
)
# a server has answered: its step; W&B's hook at the exit tells how its own process ended
_ALIVE = r"\"POST [^\"]{1,500}\" 200 OK\s*$|_atexit_cleanup\(\):\d+\] got exitcode: 0$"
# a summary of an experiment tracker repeats the last step behind a crash
_TRACKER = r"^\s*(?:wandb|swanlab|trackio|clearml|mlflow|neptune|COMET \w+)\b[\w.]{0,20}\s?:"
_BARE_LOSS = r"\b(?:loss|ppl)[ =:]{1,4}-?\d{1,9}\.\d"
# `best loss: 0.5 at epoch 3` may stand behind a crash; `epoch 3 loss 0.5 (best 0.4)` is a step
_SUMMARY = (
    r"(?i)^(?:(?!epoch|step|iter)[^=]){0,80}"
    r"\b(?:best|final|mean|average|avg|min|max|total|lowest|last|summary)\b"
)
MAX_UNORDERED = 50  # steps among which the last one is: a bar waits for its state before
MIN_BARE_LOSSES = 3  # lines with a loss and no step: a single one may be a summary
# seconds between two states of a bar, in tqdm's default (`maxinterval`): a bar that an exception
# closes is drawn once more, at most so much later
MAX_BAR_SECONDS = 10
# how a program says that all of its work is done
_GOOD_ENDS = (
    r"^ *\*{3,} .* metrics \*{3,}",
    r"'train_runtime': ",
    r"\bEXIT_?(?:CODE|STATUS)[ =:]{1,3}0\b",
    r"\bSuccessfully (?:installed|built)\b",
    r"\bready to roll\b|\b[Ss]tartup complete\b",
    r"^(?:\W{0,9}|.{0,60}[ :.])PASS(?:ED)?\W{0,3}$",
    r"^=*\s?\d{1,6} passed\b(?!.*\b(?:failed|error))",
    r"(?:[Tt]raining|[Ff]ine-?tuning|[Ee]valuation) (?:is |has )?(?:completed?|finished|done)\b",
)
# words that a shell script, a tracker or a server prints, however its program ended
_GOODBYES = (
    r"\bexit(?:ed with)? ?(?:code|status)[ =:]{1,3}0\b",
    r"^\W*(?:Success|SUCCESS|Done|DONE|Finished|Completed)\b",
    r"shutdown (?:is )?complete",
)
_GOOD_END_HINTS = (
    *("***", "train_runtime", "EXIT", "Successfully", "ready to", "omplete", "PASS", "passed"),
    *("raining", "uning", "valuation"),
)
_GOODBYE_HINTS = ("xit", "uccess", "SUCCESS", "one", "DONE", "inished", "omplete")
_LOSSES = (r"'loss': '?-?\d", r"\b(?:loss|ppl)[ =:]+-?\d+\.\d")


class Activity:
    """The numbers (from 1; 0 for none) of the last lines that show a process at work."""

    def __init__(self, lines: list[str]) -> None:
        self.step = last_step(lines)
        self.good_end = _last(lines, _GOOD_ENDS, _GOOD_END_HINTS)
        self.goodbye = _last(lines, _GOODBYES, _GOODBYE_HINTS)
        self.finite_loss = last_finite_loss(lines)

    def update(self, other: Activity, numbers: Sequence[int] | None = None) -> None:
        """Take later lines; `numbers` are those of the other's lines in the log of this one."""
        for name in ("step", "good_end", "goodbye", "finite_loss"):
            line = getattr(other, name)
            number = numbers[line - 1] if line and numbers is not None else line
            setattr(self, name, max(getattr(self, name), number))


def last_step(lines: list[str]) -> int:
    """Return the number (from 1) of the last line that shows a step; 0 if none does."""
    return max(islice(steps(lines), MAX_UNORDERED), default=0)


def steps(lines: list[str]) -> Iterator[int]:
    """Yield the numbers (from 1) of the lines that show a step, from the last line upwards.

    A state of a bar is a step if it stood elsewhere before, so it comes after lines above it.
    """
    hints = _present(lines, _HINTS)
    bars: dict[int | None, _Bar] = {}
    bare: list[int] = []
    for index in range(len(lines) - 1 if hints else -1, -1, -1):
        line = lines[index]
        if "%" not in line and _stops(line):
            for below in bars.values():
                below.is_below_exception = True
        if not any(hint in line for hint in hints) or compiled(_TRACKER).match(line):
            continue
        is_step, bar = _read(line)
        if bar is not None:
            later = bars.get(bar.total)
            bars[bar.total] = bar
            bar.number = index + 1
            bar.is_first_below_exception = index > 0 and _stops(lines[index - 1])
            if later is not None and later.has_moved_since(bar):
                yield later.number
        elif is_step:
            yield index + 1
        elif compiled(_BARE_LOSS).search(line) and not compiled(_SUMMARY).search(line):
            bare.append(index + 1)
            if len(bare) >= MIN_BARE_LOSSES:
                yield from bare if len(bare) == MIN_BARE_LOSSES else bare[-1:]
    yield from (bar.number for bar in bars.values() if bar.has_moved_since(None))


def _stops(line: str) -> bool:
    """Whether a line may end a program, at which its bars are drawn once more."""
    if line.startswith("Traceback (") or "KeyboardInterrupt" in line:
        return True
    return compiled(EXCEPTION).match(line) is not None


class _Bar:
    """One state of a progress bar; bars are told apart by their totals."""

    def __init__(self, count: int, total: int | None, seconds: float | None) -> None:
        self.count = count
        self.total = total
        self.seconds = seconds
        self.number = 0
        self.is_below_exception = False  # its state before stands above an exception
        self.is_first_below_exception = False  # directly below one

    def has_moved_since(self, before: _Bar | None) -> bool:
        """Whether the program counted on since a state, and not only drew the bar once more.

        An exception closes a bar, which is drawn a last time, a little later than before.
        """
        if self.count == self.total and (before is None or before.count != self.count):
            return True
        if before is None:
            return self.count > 0 and not self.is_first_below_exception
        if self.count == before.count or not self.is_below_exception:
            return self.count != before.count
        seconds = (self.seconds or 0) - (before.seconds or 0)
        return seconds > MAX_BAR_SECONDS and abs(self.count - before.count) > 1


def _read(line: str) -> tuple[bool, _Bar | None]:
    """Return whether a line shows a step, and the state of a bar in it."""
    if compiled(_ALIVE).search(line):
        return True, None
    record, is_bar = _record(line)
    if not is_bar:
        is_step = bool(record) and compiled(_SUMMARY).search(line) is None
        return is_step and all(map(isfinite, record["metrics"].values())), None
    if "elapsed" in record and not line.rstrip().endswith("]"):  # an error has run into it
        return False, None
    return False, _Bar(record["step"], record.get("total"), record.get("elapsed"))


def step_count(line: str) -> tuple[int, int | None] | None:
    """Return the step that a line names, and the total or None; None if it names no step."""
    if not any(hint in line for hint in _HINTS) or compiled(_TRACKER).match(line):
        return None
    record, _ = _record(line)
    return (record["step"], record.get("total")) if "step" in record else None


def _record(line: str) -> tuple[dict[str, Any], bool]:
    """Return what the formats of progress read in a line, and whether it is a bar's state.

    It is empty where the line shows no step; a bare `Step 2/5` alone shows none.
    """
    from safelaunch.runtime.progress import bars, step_lines  # noqa: PLC0415 - patterns take time

    data = line.encode("utf-8", "replace")
    bar = bars.bar(data)
    if bar:
        return bar, True
    record = step_lines.step_line(data)
    if record is None or not record["sure"]:
        record = step_lines.loss_line(data)
    return record or {}, False


def _present(lines: list[str], hints: Sequence[str]) -> list[str]:
    """Return the hints that stand in any line: one search of all text is fast."""
    text = "\n".join(lines)
    return [hint for hint in hints if hint in text]


def last_finite_loss(lines: list[str]) -> int:
    """Return the number (from 1) of the last line with a loss that is a number; 0 if none is."""
    return _last(lines, _LOSSES, ("loss", "ppl"), unless="nan")


def _last(
    lines: list[str], patterns: Sequence[str], hints: Sequence[str], unless: str = "\n"
) -> int:
    pattern, hints = compiled("|".join(patterns)), _present(lines, hints)
    if not hints:
        return 0
    for index in range(len(lines) - 1, -1, -1):
        line = lines[index]
        if any(hint in line for hint in hints) and unless not in line and pattern.search(line):
            return index + 1
    return 0
