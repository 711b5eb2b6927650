"""Awkward values as arguments, variables and paths, sent through real starts."""

from __future__ import annotations

import pytest
from support.inputs import hostile_values

from safelaunch.config.yaml_io.reader import parse

VALUES = 100
SEED = 2  # the same values each time; `scripts/bench hostile` takes others, and more


def test_values_arrive_unchanged_at_a_plain_process() -> None:
    assert hostile_values.run(VALUES, size=50, seed=SEED) == (VALUES, [])


@pytest.mark.train
def test_values_arrive_unchanged_at_two_ranks() -> None:
    """Under accelerate, which starts torchrun's agent; the bench has torchrun by itself too."""
    assert hostile_values.run(VALUES, size=VALUES, seed=SEED, launcher="accelerate") == (VALUES, [])


@pytest.mark.parametrize("text", ["\\", '"', "\n", "\t", "\x7f", "\u2028", "🚀", "\ufeff", "\x85"])
def test_the_values_of_this_suite_are_written_as_yaml_reads_them(text: str) -> None:
    node = parse(f"v: {hostile_values.yaml_text(text)}", "job.yaml").get("v")
    assert node is not None
    assert node.text == text
