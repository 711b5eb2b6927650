"""The line by which a job says that it has come further, in a log as it is merged."""

from __future__ import annotations

import time

import pytest

from safelaunch.runtime.progress import flood_filter
from safelaunch.runtime.progress.checkpoint_line import ProgressPattern

SAVED = "^Saved checkpoint"
LINES = {
    "one rank": (SAVED, [b"Saved checkpoint 3\n"]),
    "two ranks": (SAVED, [b"[1] step 3\n[1] Saved checkpoint 3\n"]),
    "a line in two pieces": (SAVED, [b"step 3\nSaved check", b"point 3\n"]),
    "a line in three pieces": (SAVED, [b"Saved ", b"check", b"point 3\n"]),
    "torchrun's own prefix": (SAVED, [b"[rank0]: Saved checkpoint 3\n"]),
    "a file of `logs:`": (SAVED, [b"[trainer.log] Saved checkpoint 3\n"]),
    "as the merged log has it": (r"^\[1\] Saved", [b"[1] Saved checkpoint 3\n"]),
    "a line that begins with a bracket": (r"^\[INFO\] Saved", [b"[0] [INFO] Saved checkpoint\n"]),
    "behind a bar": (SAVED, [b" 10%|#  | 1/10\rSaved checkpoint 3\n"]),
    "the end of a line": ("to disk$", [b"Saved checkpoint to disk\r\n"]),
    "in a flood": (SAVED, [b"x" * 99 + b"\n", b"x" * 99 + b"\nSaved", b" checkpoint\n"]),
    "colours within": (SAVED, [b"Saved \x1b[32mcheckpoint\x1b[0m\n"]),
    "colours": (SAVED, [b"\x1b[32mSaved checkpoint\x1b[0m\n"]),
}
NOT_SEEN = {
    "in the middle": (SAVED, [b"[0] not Saved checkpoint\n"]),
    "over two lines": ("Saved.*point", [b"Saved\npoint\n"]),
    "beyond what is looked at": ("point", [b"x" * flood_filter.MAX_LINE + b"point\n"]),
    "no pattern": (None, [b"Saved checkpoint\n"]),
    "a pattern that this Python does not know": ("(?P<a", [b"(?P<a\n"]),
}


def is_match(pattern: str | None, pieces: list[bytes]) -> bool:
    progress = ProgressPattern(pattern)
    for piece in pieces:
        progress.feed(piece)
    return progress.is_found


@pytest.mark.parametrize(("pattern", "pieces"), LINES.values(), ids=LINES)
def test_the_line_is_found(pattern: str, pieces: list[bytes]) -> None:
    assert is_match(pattern, pieces)


@pytest.mark.parametrize(("pattern", "pieces"), NOT_SEEN.values(), ids=NOT_SEEN)
def test_no_other_line_is_taken_for_it(pattern: str | None, pieces: list[bytes]) -> None:
    assert not is_match(pattern, pieces)


def test_a_last_line_without_an_end_counts_at_the_end() -> None:
    progress = ProgressPattern("3$")
    progress.feed(b"Saved checkpoint 3")
    assert not progress.is_found
    progress.close()
    assert progress.is_found


def test_another_attempt_begins_anew() -> None:
    progress = ProgressPattern(SAVED)
    progress.feed(b"Saved checkpoint 1\nSaved che")
    progress.reset()
    progress.feed(b"ckpoint 2\n")
    assert not progress.is_found


def test_text_that_is_not_there_is_not_looked_for_line_by_line() -> None:
    chunk, plain, pattern = (
        (b"[3] " + b"x" * 95 + b"\n") * 600,
        ProgressPattern(SAVED),
        ProgressPattern("^Saved ."),
    )

    def seconds(progress: ProgressPattern) -> float:
        reset = time.process_time()
        progress.feed(chunk)
        return time.process_time() - reset

    # the least of many: other load on the machine makes single ones longer, and none shorter
    assert min(seconds(plain) for _ in range(20)) < min(seconds(pattern) for _ in range(20)) / 3


def test_a_line_that_never_ends_takes_no_memory() -> None:
    progress = ProgressPattern(SAVED)
    for _ in range(100):
        progress.feed(b"x" * 10000)
    assert len(progress.partial) <= flood_filter.MAX_LINE
