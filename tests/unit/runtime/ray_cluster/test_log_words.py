"""What is quoted of Ray's output and logs: the texts are those of Ray 2.60."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.ray_cluster import log_words

if TYPE_CHECKING:
    from pathlib import Path

INFO = "[2026-11-28 16:22:35,454 I 3371 3371] (raylet) worker_pool.cc:811: Job 02000000 already"
ERROR = "[2026-11-28 16:22:36,084 E 3371 3371] (raylet) node_manager.cc:9: The node is marked dead"
SIGTERM = "[2026-11-28 16:22:36,084 I 3371 3371] (raylet) main.cc:1174: received SIGTERM. Existing"
EXITED = """\
2026-11-28 16:22:14,881\tERR scripts.py:1307 -- \x1b[31mSome Ray subprocesses exited:\x1b[39m
2026-11-28 16:22:14,881\tERR scripts.py:89 --   \x1b[1mraylet\x1b[22m\x1b[2m [exit code=-9]\x1b[22m
2026-11-28 16:22:14,882\tERR scripts.py:1314 -- Remaining processes will be killed.
"""


def read(folder: Path, text: str) -> list[str]:
    path = folder / "log"
    path.write_text(text)
    return log_words.read(str(path))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([INFO, ERROR, INFO], "node_manager.cc:9: The node is marked dead"),
        ([INFO, SIGTERM, INFO], "main.cc:1174: received SIGTERM. Existing"),
        ([INFO, '    reason_message: "received SIGTERM"', INFO], ""),
        ([INFO], ""),
        ([], ""),
    ],
)
def test_the_last_error_of_a_log_is_quoted_or_the_signal_that_ended_it(
    lines: list[str], words: str
) -> None:
    assert log_words.last_error(lines) == words


def test_the_code_of_a_process_is_read_from_what_ray_start_prints(tmp_path: Path) -> None:
    lines = read(tmp_path, EXITED)
    assert log_words.exit_code(lines, "raylet") == -9
    assert log_words.exit_code(lines, "gcs_server") is None


def test_the_last_words_are_those_of_the_exception_without_stamps_and_frames(
    tmp_path: Path,
) -> None:
    text = (
        "2026-11-28 16:15:13,322\tINFO scripts.py:1043 -- \x1b[37mLocal node IP\x1b[39m: 10.0.0.1\n"
        "Traceback (most recent call last):\n"
        '  File "scripts.py", line 1, in start\n'
        "ConnectionError: Ray is trying to start at 10.0.0.1:6379, but is already running\n\n"
    )
    words = "ConnectionError: Ray is trying to start at 10.0.0.1:6379, but is already running"
    assert log_words.last_words(read(tmp_path, text)) == words
    assert log_words.last_words(read(tmp_path, EXITED)) == "raylet [exit code=-9]"


def test_of_two_nodes_with_one_folder_each_quotes_its_own_log(tmp_path: Path) -> None:
    (tmp_path / "raylet.out").write_text(INFO + "\n")
    (tmp_path / "raylet.1.out").write_text(INFO.replace("3371", "42") + "\n")
    assert log_words.log_of(str(tmp_path), "raylet", 42) == "raylet.1.out"
    assert log_words.log_of(str(tmp_path), "raylet", 3371) == "raylet.out"
    assert log_words.log_of(str(tmp_path / "none"), "raylet", 1) == "raylet.out"


def test_logs_with_words_are_kept_and_those_of_workers_own_making_are_not(tmp_path: Path) -> None:
    logs, evidence = tmp_path / "logs", tmp_path / "node" / "ray"
    logs.mkdir()
    for name, text in [("raylet.out", INFO), ("raylet.err", ""), ("python-core-1.log", INFO)]:
        (logs / name).write_text(text)
    log_words.keep_logs(str(logs), str(tmp_path / "ray-start.log"), str(evidence))
    assert [path.name for path in evidence.iterdir()] == ["raylet.out"]
