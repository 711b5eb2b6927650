"""`safelaunch diagnose` as a user types it: logs of all kinds, what is shown, and bad input."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.cli_process import CLI

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workspace import Place

LIMIT = 60.0  # seconds that no command here may take
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
TRACEBACK = f"""\
Traceback (most recent call last):
  File "/home/user/project/train.py", line 12, in main
    loss = model(batch)
  File "/usr/lib/python3/site-packages/torch/nn/modules/module.py", line 1553, in _call_impl
    return forward_call(*args, **kwargs)
{OOM}
"""
PROGRESS = "step 1 loss 0.5 lr 1e-5\nstep 2 loss 0.4 lr 1e-5\n"
FAILED = PROGRESS + TRACEBACK
KEYS = {
    *("id", "class", "role", "file", "line", "line_number", "rank", "host", "cause", "remedy"),
    *("restart", "confidence", "source"),
}
OWN = """\
- id: our-scheduler
  class: scheduler-cancelled
  role: root
  patterns: ['ourqueue: job \\d+ was taken off']
  cause: The queue of our own took the job off.
  remedy: [Ask for more time with `ourqueue --time`.]
  source: https://example.com/ourqueue
  samples: ['ourqueue: job 17 was taken off']
  near_misses: ['ourqueue: job 17 was begun']
"""


def diagnose(place: Place, *words: str | Path, code: int = 1, **options: Any) -> dict[str, Any]:
    arguments = [str(word) for word in words]
    return place.json("diagnose", *arguments, code=code, timeout=LIMIT, **options)


def shown(place: Place, *words: str | Path, code: int = 1, **options: Any) -> str:
    arguments = [str(word) for word in words]
    return place.cli("diagnose", *arguments, code=code, timeout=LIMIT, **options).stdout


def fed(place: Place, data: bytes, *words: str) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of the command with data as standard input."""
    done = subprocess.run(
        [*CLI, "diagnose", *words],
        input=data,
        capture_output=True,
        env=place.env,
        cwd=place.project,
        timeout=LIMIT,
        check=False,
    )
    stderr = done.stderr.decode()
    assert "Traceback" not in stderr, stderr
    assert done.returncode != 5, stderr
    return done.returncode, done.stdout.decode(), stderr


# -- what is read ----------------------------------------------------------------------------------


def test_a_file_gives_the_class_the_line_and_the_users_frame(place: Place) -> None:
    (finding,) = diagnose(place, place.write("train.log", FAILED))["findings"]
    assert (finding["class"], finding["line_number"], finding["line"]) == ("cuda-oom", 8, OOM)
    assert (finding["frame"]["file"], finding["frame"]["line"]) == (
        "/home/user/project/train.py",
        12,
    )


def test_json_has_the_keys_that_others_build_on(place: Place) -> None:
    result = diagnose(place, place.write("train.log", FAILED))
    assert result["version"] == 1
    assert result["findings"][0].keys() >= KEYS


def test_a_log_without_a_failure_is_exit_code_0(place: Place) -> None:
    path = place.write("train.log", PROGRESS)
    assert diagnose(place, path, code=0)["findings"] == []
    assert shown(place, path, code=0) == "no failure found in 2 lines\n"


def test_a_packed_log_is_read(place: Place) -> None:
    path = place.write("train.log.gz", gzip.compress(FAILED.encode()))
    assert diagnose(place, path)["findings"][0]["line_number"] == 8


def test_standard_input_is_read_with_and_without_its_name(place: Place) -> None:
    for words in ([], ["-"]):
        code, out, _ = fed(place, FAILED.encode(), *words)
        assert code == 1
        assert "standard input:8" in out


def test_of_all_ranks_the_one_that_failed_first_is_named(place: Place) -> None:
    peer = "torch.distributed.DistBackendError: [2] is setting up NCCL communicator: peer closed\n"
    for rank in range(4):
        text = f"2025-01-01 10:00:0{rank} INFO start\n"
        place.write(f"out/rank-{rank}.log", text + (TRACEBACK if rank == 2 else peer))
    (finding, *_) = diagnose(place, "out")["findings"]
    assert (finding["class"], finding["rank"], finding["file"]) == ("cuda-oom", 2, "out/rank-2.log")


def test_of_all_nodes_the_one_that_failed_is_named(place: Place) -> None:
    place.write("runs/node-0/rank-0.log", PROGRESS)
    place.write("runs/node-1/rank-1.log", FAILED)
    (finding,) = diagnose(place, "runs")["findings"]
    assert (finding["host"], finding["rank"]) == ("node-1", 1)


def test_several_logs_are_read_together(place: Place) -> None:
    good, bad = place.write("a.log", PROGRESS), place.write("b.log", FAILED)
    assert diagnose(place, good, bad)["findings"][0]["file"] == str(bad)


def test_a_run_of_ours_is_read_by_name_and_as_the_newest(place: Place, terminal: int) -> None:
    program = "print('step 1 loss 0.5', flush=True)\nraise RuntimeError('CUDA out of memory.')"
    run = place.start(place.job(program, name="sft"))
    place.ended(run)
    for words in ([], ["sft"], [run]):
        (finding, *_) = diagnose(place, *words, stdin=terminal)["findings"]
        assert finding["class"] == "cuda-oom"


@pytest.fixture
def terminal() -> Iterator[int]:
    """Yield a terminal, as a person has it as standard input."""
    import pty  # noqa: PLC0415 - POSIX

    ours, theirs = pty.openpty()
    yield theirs
    os.close(theirs)
    os.close(ours)


def test_all_lists_the_consequences_too(place: Place) -> None:
    launcher = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    killed = "torch.distributed.DistBackendError: NCCL error: remote process exited\n"
    path = place.write("train.log", FAILED + killed + launcher)
    brief, full = (diagnose(place, path, *words)["findings"] for words in ([], ["--all"]))
    assert len(full) > len(brief)
    assert full[: len(brief)] == brief


# -- what is shown ---------------------------------------------------------------------------------


def test_the_first_screen_says_what_where_why_and_what_to_do(place: Place) -> None:
    place.write("train.log", FAILED)
    out = shown(place, "train.log")
    labels = ["failure", "class", "in", "at", "proof", "next", "restart"]
    places = [out.index(f"\n{label} ") if label != "failure" else 0 for label in labels]
    assert places == sorted(places)
    assert "train.log:8" in out
    assert "8 > torch.OutOfMemoryError" in out


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_lines_are_no_wider_than_the_terminal(place: Place, columns: int) -> None:
    wide = f"RuntimeError: CUDA out of memory. {'x' * 5000}\n"
    place.write("train.log", FAILED + wide)
    env = {**place.env, "COLUMNS": str(columns)}
    out = shown(place, "train.log", "--all", env=env)
    wider = [line for line in out.splitlines() if len(line) > columns and "://" not in line]
    assert wider == []


@pytest.mark.parametrize("log", [FAILED, ""], ids=["beside", "alone"])
def test_what_logs_hold_cannot_write_to_the_terminal(place: Place, log: str) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m\x08\x08\x00"
    bad = f"{evil}RuntimeError: {evil}CUDA out of memory. {evil}\x1b\n"
    path = place.write("train.log", log + bad)
    out = shown(place, path, "--all")
    assert re.findall(r"[^\n -~\u00a0-\uffff]", out) == []


# -- signatures of one's own -----------------------------------------------------------------------


def test_own_signatures_come_before_ours(place: Place) -> None:
    place.write("own.yaml", OWN)
    log = place.write("train.log", PROGRESS + "ourqueue: job 17 was taken off\n")
    assert diagnose(place, log, code=0)["findings"] == []
    for path in ("own.yaml", "."):
        (finding,) = diagnose(place, log, "--signatures", path)["findings"]
        assert (finding["id"], finding["class"]) == ("our-scheduler", "scheduler-cancelled")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (OWN.replace("scheduler-cancelled", "scheduler-canceled"), "our-scheduler: class"),
        (OWN.replace("\\d+", "(a+)+"), "our-scheduler: "),
        (OWN.replace("cause:", "causes:"), "our-scheduler: cause missing"),
        (OWN.replace("patterns: [", "patterns: {"), "own.yaml: "),
        ("- just a text", "own.yaml: a signature is a mapping"),
        ("\x00\x01", "own.yaml: "),
        ("[" * 50_000, "own.yaml: "),
        ("a: &a [*a]", "own.yaml: "),
        ("", "own.yaml: "),
    ],
    ids=["class", "pattern", "key", "yaml", "text", "binary", "deep", "endless", "empty"],
)
def test_a_wrong_signature_is_told_with_its_file(place: Place, text: str, message: str) -> None:
    place.write("own.yaml", text)
    log = place.write("train.log", FAILED)
    done = place.cli("diagnose", str(log), "--signatures", "own.yaml", code=2, timeout=LIMIT)
    assert done.stderr.startswith("error: ")
    assert message in done.stderr.replace(":1:", ":")


@pytest.mark.parametrize("name", ["absent.yaml", "empty"])
def test_signatures_that_are_not_there_are_told(place: Place, name: str) -> None:
    (place.project / "empty").mkdir()
    log = place.write("train.log", FAILED)
    done = place.cli("diagnose", str(log), "--signatures", name, code=2, timeout=LIMIT)
    assert name in done.stderr


# -- its start -------------------------------------------------------------------------------------


def test_help_loads_neither_the_signatures_nor_the_search(place: Place) -> None:
    code = (
        "import sys, safelaunch.cli.main as c\nsys.argv = ['safelaunch', 'diagnose', '--help']\n"
        "try: c.main()\nexcept SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith(('ahocorasick', 'safelaunch.diagnose'))"
        " or m == 'yaml'])\n"
        "table = sys.modules.get('safelaunch.runtime.signatures.table')\n"
        "print(table.load.cache_info().currsize if table else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=place.env, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-2:] == ["[]", "0"]
