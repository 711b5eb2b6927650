"""Several starts in one instant into one folder, log or checkpoint folder: one of them happens."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.ssh import sshd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.ssh.sshd import Sshd
    from support.workspace import Place

FOREVER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(60)\n"
COUNT = 5


def start_at_once(place: Place, commands: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Run commands at once; return {exit code: what each of them printed, as one line}."""
    ended: dict[str, list[str]] = {}
    for process in [place.popen(*words) for words in commands]:
        out, err = process.communicate(timeout=90)
        text = (err + out).decode()
        assert "Traceback" not in text
        ended.setdefault(str(process.returncode), []).append(" ".join(text.split()))
    place.note()
    return ended


def check_that_one_started(ended: dict[str, list[str]], runs: Sequence[str], shared: str) -> None:
    (run,) = runs
    assert {code: len(texts) for code, texts in ended.items()} == {"0": 1, "3": COUNT - 1}
    for text in ended["3"]:
        assert f"run {run} is still running, and {shared}" in text
        assert f"safelaunch stop {run}" in text


def test_one_of_several_starts_into_one_folder_happens(place: Place) -> None:
    job = place.job(FOREVER, args={"output_dir": "out"})
    ended = start_at_once(place, [("run", job)] * COUNT)
    shared = f"writes to {place.project}/out as well"
    check_that_one_started(ended, os.listdir(place.home / "runs"), shared)


@pytest.mark.parametrize(("keys", "shared"), [
    ({"log": "train.log"}, "writes its log to train.log as well"),
    (
        {"recovery": {"checkpoint": "ckpt/step-*", "max_restarts": 1}},
        "has its checkpoints in ckpt/step-* as well",
    ),
], ids=["log", "checkpoints"])  # fmt: skip
def test_one_of_several_jobs_with_one_log_or_one_folder_of_checkpoints_starts(
    place: Place, keys: dict[str, object], shared: str
) -> None:
    jobs = [place.job(FOREVER, f"job{number}", **keys) for number in range(COUNT)]
    ended = start_at_once(place, [("run", job) for job in jobs])
    check_that_one_started(ended, os.listdir(place.home / "runs"), shared)


def test_without_checks_all_of_them_start(place: Place) -> None:
    job = place.job(FOREVER, args={"output_dir": "out"})
    ended = start_at_once(place, [("run", "--no-check", job)] * COUNT)
    assert list(ended) == ["0"]
    assert len(os.listdir(place.home / "runs")) == COUNT


def test_starts_that_share_nothing_all_happen(place: Place) -> None:
    jobs = [
        place.job(FOREVER, f"job{number}", args={"output_dir": f"out{number}"})
        for number in range(COUNT)
    ]
    ended = start_at_once(place, [("run", job) for job in jobs])
    assert list(ended) == ["0"]
    assert len(os.listdir(place.home / "runs")) == COUNT


@pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
def test_one_of_several_starts_on_a_host_happens(place: Place, server: Sshd) -> None:
    user = "alice" if sshd.ROOT else None
    place.ssh_config(server.ssh_config("gpu1", user))
    python = {"python": "/usr/bin/python3"} if sshd.ROOT else {}
    job = place.job(FOREVER, args={"output_dir": "out"}, **python)
    ended = start_at_once(place, [("remote", "--host", "gpu1", job)] * COUNT)
    home = server.home(user)
    (run,) = os.listdir(home / ".safelaunch" / "runs")
    check_that_one_started(ended, [run], f"writes to {home}/safelaunch/project/out as well")
    assert os.listdir(place.home / "runs") == [run]
    place.cli("stop", run)
