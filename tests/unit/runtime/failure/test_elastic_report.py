"""torchrun's ChildFailedError block, as real launchers have written it."""

from __future__ import annotations

import os
import textwrap

import pytest
from support import DATA

from safelaunch.runtime.failure.elastic_report import parse, signalled_pids

LOGS = DATA / "logs"


def recorded(name: str) -> str:
    with open(os.path.join(LOGS, name), encoding="utf-8") as file:
        return file.read()


@pytest.mark.parametrize(
    ("name", "code", "signal", "pid"),
    [
        ("torchrun-exception.txt", 1, "", 5685),
        ("torchrun-exit.txt", 3, "", 5691),
        ("torchrun-segfault.txt", 139, "SIGSEGV", 5697),
        ("torchrun-killed.txt", 137, "SIGKILL", 5703),
        ("torchrun-tee.txt", 1, "", 25120),
        ("accelerate-rich.txt", 3, "", 24931),
    ],
)
def test_a_recorded_block_tells_code_signal_and_pid(
    name: str, code: int, signal: str, pid: int
) -> None:
    failures = parse(recorded(name))
    assert sorted(failures) == [0, 1]
    assert (failures[1].code, failures[1].signal, failures[1].pid) == (code, signal, pid)
    assert (failures[0].signal, failures[0].first, failures[1].first) == ("SIGTERM", False, True)


def test_the_traceback_of_a_recorded_error_is_whole() -> None:
    text = parse(recorded("torchrun-record.txt"))[1].traceback
    assert text.startswith("Traceback (most recent call last):\n  File ")
    assert text.endswith("\nValueError: bad batch 17")


def test_an_absent_traceback_is_empty() -> None:
    assert parse(recorded("accelerate-rich.txt"))[1].traceback == ""


@pytest.mark.parametrize("prefix", ["[rank0]: ", "[default0]:", "(main pid=7) ", "\x1b[36m"])
def test_a_prefix_before_each_line_is_no_hindrance(prefix: str) -> None:
    text = textwrap.indent(recorded("torchrun-killed.txt"), prefix, lambda _: True)
    assert parse(text)[1].signal == "SIGKILL"


def test_the_agent_tells_which_processes_it_has_ended() -> None:
    assert signalled_pids(recorded("torchrun-killed.txt")) == {5702}
    assert signalled_pids("Sending process x closing signal SIGTERM") == set()


def test_of_two_blocks_the_last_one_counts() -> None:
    text = recorded("torchrun-segfault.txt") + recorded("torchrun-exit.txt")
    assert parse(text)[1].code == 3


def test_the_first_wording_is_read_too() -> None:
    # torch 1.9: torch/distributed/elastic/multiprocessing/errors/__init__.py at v1.9.0
    text = """
        **************************************************
                         train.py FAILED
        ==================================================
        Root Cause:
        [0]:
          time: 2021-07-01_10:00:00
          rank: 3 (local_rank: 3)
          exitcode: -9 (pid: 77)
          error_file: <N/A>
          msg: "Signal 9 (SIGKILL) received by PID 77"
        ==================================================
        Other Failures:
        [1]:
          time: 2021-07-01_10:00:00
          rank: 0 (local_rank: 0)
          exitcode: 1 (pid: 70)
          error_file: <N/A>
          msg: "Process failed with exitcode 1"
        **************************************************
    """
    failures = parse(textwrap.dedent(text))
    assert (failures[3].signal, failures[3].first) == ("SIGKILL", True)
    assert (failures[0].code, failures[0].first) == (1, False)


def test_without_a_block_the_agents_line_tells() -> None:
    line = "E1121 14:38 5699 x/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 5703) of x"
    assert parse(line)[1].signal == "SIGKILL"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Root Cause (first observed failure):",
        "Root Cause\n rank : x\n exitcode : y",
        "\x00" * 9,
    ],
)
def test_no_block_is_nothing(text: str) -> None:
    assert parse(text) == {}
