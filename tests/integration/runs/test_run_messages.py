"""What a person is told while a job runs and at its end, in the log and within 80 columns."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.workspace import wait_for

if TYPE_CHECKING:
    from support.workspace import Place

STEPS = "import time\nfor n in range(1, 4): print(f'step {n}/9 loss 0.5', flush=True)\n"
FOREVER = STEPS + "while True: time.sleep(60)\n"
STUCK = (
    "def stuck():\n    while True: time.sleep(60)\n"
    + STEPS.replace("flush=True)", "flush=True); time.sleep(0.1)")
    + "stuck()\n"
)
SOON = {
    "first_progress": "60s",
    "floor": "1s",
    "factor": 1,
}  # its steps are known: the floor counts


def on_terminal(place: Place, *words: str) -> list[str]:
    """Return the lines that a command shows on a terminal of 80 columns."""
    ours, its = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "safelaunch", *words],
        env={**place.env, "COLUMNS": "80"},
        cwd=place.project,
        stdin=its,
        stdout=its,
        stderr=its,
    ):
        os.close(its)
        shown = b""
        while True:
            try:
                data = os.read(ours, 4096)
            except OSError:  # EIO: nobody has the other end any more
                break
            if not data:
                break
            shown += data
    os.close(ours)
    return shown.decode().splitlines()


def test_a_suspected_hang_is_seen_everywhere_and_kept(place: Place) -> None:
    run = place.start(place.ranks(STUCK, hang=SOON))
    wait_for(lambda: (place.status(run).get("hang") or {}).get("summary"), "verdict")
    assert "running, hangs?" in place.cli("ps").stdout
    log = place.wait_for_text(run, "[safelaunch] hang suspected: no output and no step for ")
    assert log.count("hang suspected") == 1
    shown = place.cli("show", run).stdout
    assert "running, hang suspected" in shown
    assert " left" not in shown
    place.cli("stop", run)
    after = place.cli("show", run).stdout
    assert "suspected: no output and no step for" in after
    assert "stuck" in after


def test_the_end_of_a_hang_is_announced(place: Place) -> None:
    place.failed(place.ranks(STUCK, hang={**SOON, "action": "stop"}))
    assert "[safelaunch] it hangs (hang.action is stop): stopping" in place.cli("logs").stdout


def test_the_end_at_max_duration_is_announced(place: Place) -> None:
    place.cli("run", "-f", place.job(FOREVER, max_duration="1s"), code=1)
    assert "[safelaunch] max_duration of 1s reached: stopping" in place.cli("logs").stdout


def test_the_end_of_a_smoke_run_is_announced(place: Place) -> None:
    place.cli("run", "-f", "--smoke", place.job(FOREVER, smoke={"success": {"min_steps": 2}}))
    assert "[safelaunch] smoke run, min_steps of 2 reached: stopping" in place.cli("logs").stdout


def test_what_outlives_the_launcher_is_ended_with_a_word(place: Place) -> None:
    place.cli("run", "-f", place.shell("setsid sleep 12345 & kill -9 $$"), code=1)
    log = place.cli("logs").stdout
    assert re.fullmatch(r"\[safelaunch\] 1 process outlived .* s, .+ \(pid \d+\): stopping\n", log)


def test_a_training_whose_loss_was_nan_to_the_end_does_not_just_succeed(place: Place) -> None:
    losses = "for n in range(1, 9): print(f'step {n}/8 loss', 0.5 if n < 4 else float('nan'))\n"
    stderr = " ".join(place.cli("run", "-f", place.job(losses)).stderr.split())
    assert "loss was not finite" in stderr
    assert "not finite" in place.json("show")["warning"]
    assert place.cli("show").stdout.count("not finite") == 1


@pytest.mark.parametrize("losses", ["'nan' if n == 4 else 0.5", "0.5"])
def test_a_loss_that_was_finite_at_the_end_brings_no_warning(place: Place, losses: str) -> None:
    program = f"for n in range(1, 9): print(f'step {{n}}/8 loss', {losses}, flush=True)\n"
    place.cli("run", "-f", place.job(program))
    assert "warning" not in place.json("show")


def test_many_ranks_are_not_all_named(place: Place) -> None:
    run = place.start(place.ranks(FOREVER, count=12))
    wait_for(lambda: len(place.json("show", run)["pids"].get("ranks", {})) == 12, "ranks")
    shown = " ".join(place.cli("show", run).stdout.split())
    assert "rank 7 " in shown
    assert "rank 8 " not in shown
    assert "and 4 more ranks" in shown


def test_the_screen_is_80_columns_wide(place: Place) -> None:
    fails = STEPS + "raise SystemExit(0)\n"
    unmet = {"artifacts": ["out/a-rather-long-name/*/model.safetensors"], "min_steps": 100}
    jobs = [
        place.ranks(fails, name="unmet", success=unmet, recovery={}),
        place.shell("setsid sleep 12345 & kill -9 $$", name="killed"),
        place.ranks(FOREVER, count=6, name="a-long-name-of-a-job"),
    ]
    runs = [place.start(job) for job in jobs]
    for run in runs[:2]:
        place.ended(run)
    wait_for(lambda: len(place.json("show", runs[2])["pids"].get("ranks", {})) == 6, "ranks")
    commands = [("show", run) for run in runs] + [("ps",), ("wait", runs[0]), ("stop", runs[2])]
    for command in commands:
        lines = on_terminal(place, *command)
        assert lines
        # paths stay whole: they are there to be copied
        assert [line for line in lines if len(line) > 80 and " /" not in line] == [], command


# half an emoji, as tokenizers print it; a terminal's title, its bell, its clipboard
ODD = "\\ud83d \\udc80 \\x1b]0;title\\x07 \\x1b]52;c;aGk=\\x1b\\\\ \\x9b31m"


@pytest.mark.parametrize("errors", ["", "utf-8:strict", "ascii"])
def test_any_text_of_an_exception_can_be_shown_and_none_reaches_the_terminal(
    place: Place, errors: str
) -> None:
    if errors:
        place.env["PYTHONIOENCODING"] = errors
    job = place.job(f"raise ValueError('cannot read {ODD}')")
    screens = [place.cli("run", "--follow", job, code=1).stderr.partition("ValueError: ")[2]]
    shown = place.cli("show").stdout
    screens += [shown, place.cli("wait", code=1).stderr, place.cli("ps").stdout]
    screens += [place.cli("diagnose", code=None).stdout]
    assert "cannot read \\ud83d" in shown
    for screen in screens:
        plain = re.sub(r"\x1b\[[0-9;]*m", "", screen)  # our own colours
        assert [c for c in plain if not c.isprintable() and c not in "\n\t"] == [], screen
    for words in (("show",), ("wait",), ("ps",)):
        place.json(*words, code=None)
    assert "\ud83d" in place.json("show")["failure"]["what"]
