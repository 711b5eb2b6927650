from __future__ import annotations

import json
from typing import Any

import pytest
from support import DATA

from safelaunch.cli.runs.progress import lines, short
from safelaunch.runtime.progress import flood_filter
from safelaunch.runtime.progress.flood_filter import FloodFilter
from safelaunch.runtime.progress.tracker import Progress
from safelaunch.runtime.records import ProgressReport

FOLDER = DATA / "progress"
RECORDED = [json.loads(line) for line in (FOLDER / "lines.jsonl").read_text("utf-8").splitlines()]
BAR = "\r{0:3d}%|#  | {0}/100 [00:10<00:{1:02d},  1.00it/s{2}]"


def fed(*chunks: str, every: float = 1.0, patterns: tuple[str, ...] = ()) -> Progress:
    """Feed chunks, one each `every` seconds."""
    progress = Progress(list(patterns))
    for turn, chunk in enumerate(chunks):
        progress.feed(chunk.encode(), 100.0 + turn * every)
    return progress


@pytest.mark.parametrize("record", RECORDED, ids=lambda record: record["name"])
def test_a_recorded_line_is_read(record: dict[str, Any]) -> None:
    progress = Progress([])
    events = progress.feed("".join(line + "\n" for line in record["lines"]).encode(), 1.0)
    report = progress.snapshot()
    values = {} if report is None else report.to_json()
    values.update(values.get("metrics") or {})
    values["event"] = events[0]["event"] if events else None
    expected = record["expected"]
    shown = {name: values.get(name) for name in expected}
    assert shown == expected


def test_a_healthy_trainer_run_is_followed_to_its_end() -> None:
    log = (FOLDER / "trainer.log").read_bytes()
    progress = Progress([])
    counts, events = [], []
    for turn, piece in enumerate(log.split(b"\r")):
        events += progress.feed(piece + b"\r", float(turn))
        if progress.step is not None:
            counts.append((progress.step, progress.total, progress.scope))
    assert events == []
    assert {(total, scope) for _, total, scope in counts} == {(40, "run")}
    assert counts[-1][0] == 40
    assert progress.loss == 1.3
    assert progress.metrics["eval_loss"] == 1.7


def test_bars_of_other_work_are_no_steps() -> None:
    progress = fed(
        "Map: 100%|####| 1000/1000 [00:00<00:00, 12345.67 examples/s]\n",
        "Tokenizing train dataset:  50%|##  | 5/10 [00:01<00:01,  5.00it/s]\n",
        "Validation DataLoader 0:  50%|##  | 5/10 [00:01<00:01,  5.00it/s]\n",
        "model.safetensors:  45%|##  | 450M/1.00G [00:10<00:12, 45.0MB/s]\n",
    )
    assert progress.snapshot() is None


def test_a_bar_without_a_name_counts_once_a_loss_explains_it() -> None:
    bar = BAR.format(7, 30, "")
    assert fed(bar).step is None
    assert fed(bar, "\nLoss: 0.5\n").step == 7


def test_of_several_ranks_the_lowest_tells_the_step() -> None:
    bars = "".join(
        f"[{rank}] Training Progress:  3%|# | {step}/61 [00:10<05:23,  3.00s/it]\r"
        for rank, step in ((2, 33), (0, 30), (1, 31), (2, 34), (1, 32))
    )
    assert fed(bars).step == 30


def test_a_nested_bar_counts_over_all_epochs() -> None:
    progress = fed(
        "Epoch:  33%|### | 1/3 [01:00<02:00, 60.0s/it]\n",
        "Iteration:  10%|# | 10/100 [00:06<00:54,  1.66it/s]\n",
    )
    assert (progress.step, progress.total, progress.scope) == (110, 300, "run")


def test_a_bar_that_begins_anew_was_a_part_and_has_no_time_left() -> None:
    bars = [BAR.format(n, 100 - n, ", loss=1") for n in (98, 99, 1)]
    assert fed(*bars[:2]).eta == 1.0
    progress = fed(*bars)
    assert (progress.scope, progress.eta, progress.done) == ("epoch", None, 100)


def test_a_restart_from_a_checkpoint_is_no_new_epoch() -> None:
    progress = fed(*(f"step {n}/100 loss 0.5\n" for n in (67, 68, 69, 60, 61)))
    assert (progress.step, progress.scope) == (61, "run")


def test_the_time_left_is_computed_from_the_median_pace() -> None:
    progress = fed(*(f"step {n}/800 loss 0.41\n" for n in (117, 118, 119, 120)), every=2.0)
    assert progress.eta == 680 * 2.0
    assert (progress.steps_seen, list(progress.step_times)) == (4, [2.0, 2.0, 2.0])


def test_the_same_step_told_twice_is_no_step() -> None:
    progress = fed("step 3/9 loss 1\n", "step 3/9 loss 1\n")
    assert not progress.changed
    assert progress.steps_seen == 1


def test_a_users_pattern_beats_what_is_built_in() -> None:
    pattern = r"i=(?P<step>\d+) of (?P<total>\d+) cost (?P<loss>\S+) rest (?P<eta>\S+)"
    text = ("i=7 of 9 cost 3.5 rest 00:20\n", BAR.format(30, 10, ", loss=0.41") + "\n")
    progress = fed(*text, patterns=(pattern,))
    assert (progress.step, progress.total, progress.eta, progress.loss) == (7, 9, 20.0, 3.5)


def test_a_loss_that_is_nan_is_told_once_per_spell() -> None:
    progress = Progress([])
    losses = ("0.5", "nan", "nan", "0.4", "inf")
    events = [progress.feed(b"step 1 loss %s\n" % loss.encode(), 1.0) for loss in losses]
    assert [len(batch) for batch in events] == [0, 1, 0, 0, 1]


def test_the_snapshot_is_json_also_with_nan() -> None:
    report = fed("step 1/2 loss nan\n").snapshot()
    assert report is not None
    assert json.loads(json.dumps(report.to_json(), allow_nan=False))["loss"] == "nan"


def test_source_code_in_a_traceback_is_no_loss() -> None:
    assert fed("    loss = 0.5 * loss\n", "Step 2/5: build the image\n").snapshot() is None


def test_a_line_that_is_cut_between_two_chunks_is_read_whole() -> None:
    assert fed("step 1", "20/800 loss 0.5\n").step == 120


def test_in_a_flood_of_all_ranks_the_last_step_of_rank_0_is_found() -> None:
    flood = b"[1] " + b"x" * 76 + b"\n"
    data = b"[0] " + b"x" * 80 + b"\n[0] step 5/9 loss 1\n" + flood * 20000
    progress = Progress([])
    progress.feed(data, 1.0)
    assert progress.step == 5


CHATTER = b"x" * 109 + b"\n"


def chatty(steps: int, chatter: bytes, ranks: int, epochs: int = 1) -> tuple[Progress, float]:
    """Feed what ranks say that write some lines and then a step, every 30 ms."""
    progress, now = Progress([]), 100.0
    for _ in range(epochs):
        for step in range(1, steps + 1):
            now += 0.03
            for rank in range(ranks):
                mark = b"[%d] " % rank
                printed = chatter + b"step %d/%d loss 0.5\n" % (step, steps)
                progress.feed(mark + printed.replace(b"\n", b"\n" + mark)[: -len(mark)], now)
    return progress, now


@pytest.mark.parametrize(("lines", "ranks"), [(60, 1), (180, 1), (180, 2), (180, 3)])
def test_each_step_of_a_chatty_log_is_counted(lines: int, ranks: int) -> None:
    progress, _ = chatty(100, CHATTER * lines, ranks)
    assert (progress.step, progress.done, progress.steps_seen) == (100, 100, 100)


def test_the_steps_of_all_epochs_of_a_chatty_log_are_counted() -> None:
    progress, _ = chatty(50, CHATTER * 180, ranks=2, epochs=4)
    assert progress.done == 200


def test_where_all_lines_seem_to_tell_a_step_the_last_one_is_found() -> None:
    progress, _ = chatty(100, b"the batch loader is at its next step: " + CHATTER * 20, ranks=2)
    assert progress.step == 100


def test_what_is_read_of_a_flood_is_bounded() -> None:
    flood, read = FloodFilter(), 0
    printed = (b"[0] loss of words " + CHATTER) * 450
    for turn in range(1000):
        read += sum(map(len, flood.select(printed, 100.0 + turn / 100)))
    assert read < flood_filter.BURST + 10 * flood_filter.RATE + 2 * flood_filter.MAX_LINE
    assert sum(map(len, flood.last())) < 2 * flood_filter.MAX_WAITING


def test_the_last_lines_of_each_rank_in_a_flood_are_read_at_the_end() -> None:
    flood = FloodFilter()
    for turn in range(100):
        for rank in range(20):
            mark = b"[%d] " % rank
            flood.select((mark + CHATTER) * 500 + mark + b"i=%d\n" % turn, 100.0)
    last = b"".join(flood.last())
    assert [rank for rank in range(20) if b"[%d] i=99\n" % rank not in last] == []
    assert len(last) <= flood_filter.MAX_LAST
    assert flood.last() == []


def test_what_has_waited_is_read_once_the_flood_is_over_in_its_order() -> None:
    flood = FloodFilter()
    for turn in range(100):
        flood.select(CHATTER * 500 + b"i=%d\n" % turn, 100.0)
    read = b"".join(flood.select(b"i=100\n", 110.0))
    assert read.endswith(b"i=99\ni=100\n")
    assert flood.last() == []


def test_a_last_line_without_an_end_is_read_at_the_end() -> None:
    flood = FloodFilter()
    flood.select(b"step 1/2 loss 1\nstep 2/2 lo", 1.0)
    flood.select(b"ss 1", 1.0)
    assert flood.last() == [b"step 2/2 loss 1"]


def test_the_last_step_counts_where_the_job_ends_in_a_flood_or_within_a_line() -> None:
    progress = Progress([])
    for step in range(1, 41):
        progress.feed(CHATTER * 5000 + b"step %d/41 loss 1\n" % step, 100.0)
    progress.feed(b"step 41/41 loss 1", 100.0)
    assert progress.step != 41
    progress.close(100.0)
    assert (progress.step, progress.done) == (41, 41)


def test_a_loss_that_is_no_number_in_the_last_line_is_told() -> None:
    progress = Progress([])
    progress.feed(b"step 1/2 loss 1\nstep 2/2 loss nan", 1.0)
    assert [event["event"] for event in progress.close(2.0)] == ["nan-loss"]


def test_no_bytes_make_it_raise() -> None:
    progress = Progress(["(", r"(?P<step>\w+) (?P<total>\w+)"])
    for data in (
        b"\xff\x00] step\n",
        b"9" * 5000 + b" step a b\n",
        b"step x y loss nan\n",
        b"%|/[",
    ):
        progress.feed(data, 1.0)
    assert progress.step is None


# -- words -----------------------------------------------------------------------------------------

NOW = 1_800_000_000.0
REPORT: dict[str, Any] = {
    "step": 120,
    "total": 800,
    "scope": "run",
    "eta": 720.0,
    "loss": 0.4123,
    "step_time": 1.0,
    "last_step_time": NOW,
}


def report(**more: object) -> ProgressReport:
    return ProgressReport.from_json({**REPORT, **more})


def test_ps_tells_step_time_left_and_loss() -> None:
    assert short(report(), "running", NOW) == "120/800, 12 min left, loss 0.4123"


def test_ps_tells_no_time_left_of_a_run_that_has_ended() -> None:
    assert short(report(), "failed", NOW) == "120/800, loss 0.4123"


def test_ps_tells_no_time_left_when_the_steps_are_late() -> None:
    assert short(report(), "running", NOW + 600) == "120/800, loss 0.4123"


def test_of_a_run_that_seems_to_hang_no_time_left_is_told() -> None:
    assert short(report(), "running", NOW, late=True) == "120/800, loss 0.4123"
    assert "left" not in lines(report(), "running", NOW, late=True)[0]


def test_where_there_is_less_room_the_time_left_goes_first() -> None:
    assert short(report(), "running", NOW, width=22) == "120/800, loss 0.4123"
    assert short(report(), "running", NOW, width=8) == "120/800"


def test_ps_calls_the_end_of_a_bar_by_its_name() -> None:
    assert short(report(scope="bar"), "running", NOW) == "120/800, bar 12 min, loss 0.4123"


def test_what_ps_tells_stays_within_its_column() -> None:
    long = report(step=702_668_999, total=702_669_000, loss=-1.2345e-07)
    assert short(long, "running", NOW) == "702668999/702669000"


def test_nothing_is_told_of_a_run_without_progress() -> None:
    assert (short(None, "running"), lines(ProgressReport(), "running")) == ("", [])


def test_show_names_a_loss_that_is_no_number() -> None:
    text = lines(ProgressReport(loss="nan", metrics={"loss": "nan"}), "running", NOW)
    assert text == [
        "loss nan",
        "loss is not finite (NaN or infinite): weights trained from here on are useless",
    ]


def test_of_a_trainer_without_steps_the_epoch_is_shown() -> None:
    logs = report(scope="log", step=7, total=None, epoch=0.25, eta=None)
    assert short(logs, "running", NOW) == "epoch 0.25, loss 0.4123"
    assert lines(logs, "running", NOW)[0].startswith("epoch 0.25, ")


def test_show_says_that_a_long_log_has_no_step() -> None:
    (text,) = lines(ProgressReport(lines_without_step=4000), "running", NOW)
    assert text.startswith("no step seen in 4,000 lines: ")
    assert "`progress:`" in text
