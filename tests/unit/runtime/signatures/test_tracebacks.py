"""Where the message of an exception ends in a log."""

from __future__ import annotations

import pytest

from safelaunch.runtime.signatures import tracebacks

FIRST = "ValueError: bad batch 17"


def message(below: str) -> str:
    lines = [FIRST, *below.split("\n")]
    return "\n".join(lines[1 : tracebacks.message_lines(lines)])


@pytest.mark.parametrize(
    "below",
    [
        "Done.",
        "Finished at Sun Nov 22 20:00:00 UTC 2026",
        "wandb: Run summary:",
        "E1122 10:00:00.123 77 torch/distributed/elastic/api.py:869] failed (exitcode: 1)",
        "./run.sh: line 12: module: command not found",
        "srun: error: node1: task 0: Exited with exit code 1",
        "+ echo over",
        "\nreal 0m12s",
        "\nJob over",
        "/usr/lib/python3.11/tempfile.py:904: ResourceWarning: Implicitly cleaning up",
        "11/22/2026 20:00:00 - INFO - __main__ - over",
        "ValueError: bad batch 17 in another thread",
        " 45%|####5     | 45/100 [01:02<01:15,  7.2it/s]",
    ],
)
def test_what_others_print_below_an_exception_is_not_its_message(below: str) -> None:
    assert message(below) == ""


@pytest.mark.parametrize(
    "below",
    [
        "second line",
        "- a\n- b",
        "['a', 'b']",
        "\n    indented: 1",
        "\nSet `packing=False`.",
        "a\n\n* b",
    ],
)
def test_further_lines_of_a_message_belong_to_it(below: str) -> None:
    assert message(below) == below


def test_a_message_that_is_too_long_keeps_its_end() -> None:
    short = tracebacks.shorten("x" * 9000 + " set packing=False")
    assert len(short) <= tracebacks.MESSAGE
    assert short.endswith("set packing=False")
