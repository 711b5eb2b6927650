"""Forms in which programs print steps, and forms of other work that must not count as steps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support import DATA

from safelaunch.runtime.progress.tracker import MAX_OUTPUT, MUCH_OUTPUT, Progress

BLOCK = "━" * 20
RICH = f"{BLOCK}╸{'━' * 19}"


def read(name: str) -> dict[str, dict[str, Any]]:
    lines = (DATA / "progress" / name).read_text("utf-8").splitlines()
    return {row["name"]: row for row in map(json.loads, lines)}


FORMS = read("forms.jsonl")  # `<n>` in a line stands for its step, as does 12 where none is named
OTHER_WORK = read("other_work.jsonl")


def after(*lines: str, closed: bool = False) -> Progress:
    """Feed lines, one a second."""
    progress = Progress([])
    for number, line in enumerate(lines):
        progress.feed((line + "\n").encode(), 100.0 + number)
    if closed:
        progress.close(100.0 + len(lines))
    return progress


def training(form: str, steps: range) -> Progress:
    """Feed a form with each of these steps."""
    return after(*(FORMS[form]["line"].replace("<n>", str(n)) for n in steps))


@pytest.mark.parametrize("form", FORMS)
def test_steps_are_read_and_the_times_between_them(form: str) -> None:
    progress = training(form, range(7, 13))
    expected = (FORMS[form].get("step", 12), FORMS[form]["total"])
    assert (progress.step, progress.total, len(progress.step_times) >= 3) == (*expected, True)


@pytest.mark.parametrize("work", OTHER_WORK)
def test_other_work_makes_no_steps_and_hides_none(work: str) -> None:
    lines = OTHER_WORK[work]["lines"]
    assert after(*lines, closed=True).step is None
    steps = [f"step {n}/100" for n in range(1, 6)]
    progress = after(*lines, *steps[:4], *lines, *steps[4:])
    assert (progress.step, progress.total) == (5, 100)


def test_bare_steps_count_from_the_third_on() -> None:
    lines = [f"step {n}/100" for n in range(1, 4)]
    assert after(*lines[:2]).step is None
    assert after(*lines).step == 3


@pytest.mark.parametrize("lines", [["step 1/1"], ["step 1", "step 2"], ["Epoch 1/2", "Epoch 2/2"]])
def test_a_short_run_has_made_its_bare_steps_at_its_end(lines: list[str]) -> None:
    assert after(*lines, closed=True).step == len(lines)


def test_bare_steps_among_lines_with_a_loss_are_steps_of_the_same_loop() -> None:
    lines = [f"step {n}/100" + (" loss 0.5" if n % 10 == 0 else "") for n in range(1, 34)]
    assert (after(*lines).step, after(*lines).steps_seen) == (33, 31)


def test_steps_of_a_preparation_do_not_count_once_the_training_shows_better_ones() -> None:
    preparation = [f"batch {n}/50" for n in range(1, 51)]
    progress = after(*preparation, *(f"step {n}/100 loss 0.5" for n in range(1, 4)))
    assert (progress.step, progress.total, progress.done) == (3, 100, 3)


def test_lightnings_rich_bar_counts_over_all_epochs_from_zero() -> None:
    bar = f"Epoch {{}}/2 {BLOCK} 125/125 0:00:03 • 0:00:00 52.1it/s v_num: 0 train_loss: 0.06"
    progress = after(*(bar.format(epoch) for epoch in range(3)))
    assert (progress.step, progress.total, progress.scope, progress.loss) == (375, 375, "run", 0.06)


def test_a_trainer_without_bar_and_steps_shows_that_it_goes_on() -> None:
    lines = [f"{{'loss': 0.5, 'learning_rate': 1e-05, 'epoch': {n / 100}}}" for n in range(1, 9)]
    progress = after(*lines)
    assert (progress.scope, progress.epoch, progress.steps_seen) == ("log", 0.08, 7)


def test_a_bar_beats_the_lines_of_a_trainer() -> None:
    logs = [f"{{'loss': 0.5, 'learning_rate': 1e-05, 'epoch': 0.{n}}}" for n in range(1, 9)]
    bars = [f"  {n}%|#  | {n}/100 [00:10<00:20,  1.00it/s]" for n in range(1, 9)]
    progress = after(*logs, *(line for pair in zip(bars, logs, strict=True) for line in pair))
    assert (progress.step, progress.total, progress.scope) == (8, 100, "run")


@pytest.mark.parametrize(
    ("line", "metric"),
    [
        ("step 5: val_loss 0.4", "eval_loss"),
        ("step 5: train_loss 0.4", "loss"),
        ("step 5: eval_loss=0.4", "eval_loss"),
        ("step 5: {'val/loss': 0.4}", "eval_loss"),
        ("step 5, train/loss: 0.4", "loss"),
        ("step 5 | Train Loss: 0.4", "loss"),
    ],
)
def test_losses_of_training_and_evaluation_are_told_apart(line: str, metric: str) -> None:
    assert after(line).metrics == {metric: 0.4}


def test_days_of_a_time_left_count() -> None:
    assert after("eta: 1 day, 0:00:10  iter: 19  total_loss: 3.2").eta == 86410.0


def test_a_long_log_without_a_step_says_so() -> None:
    progress = after(*["loading"] * (MUCH_OUTPUT + 10))
    report = progress.snapshot()
    assert report is not None
    assert report.lines_without_step == MUCH_OUTPUT
    progress.feed(b"step 1/9 loss 0.4\n", 9000.0)
    report = progress.snapshot()
    assert report is not None
    assert "lines_without_step" not in report


def test_lines_without_a_step_are_counted_up_to_a_limit() -> None:
    progress = Progress([])
    for now in range(3):
        progress.feed(b"\n" * (MAX_OUTPUT // 2 + 1), float(now))
    report = progress.snapshot()
    assert report is not None
    assert report.lines_without_step == MAX_OUTPUT
