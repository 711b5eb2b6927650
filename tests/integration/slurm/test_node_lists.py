"""The expansion of node lists against Slurm's own."""

from __future__ import annotations

import random
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.engines.slurm.node_list import expand

if TYPE_CHECKING:
    from pathlib import Path

LISTS = 200
END = "end-of-list"  # stands between two lists as if it were a node


def random_list(rng: random.Random) -> str:
    """Return a list of one to four words, each with up to three pairs of brackets."""
    return ",".join(random_word(rng) for _ in range(rng.randint(1, 4)))


def random_word(rng: random.Random) -> str:
    pairs = (rng.choice(("n", "gpu-", "a.b", "Rack_", "x0")) + ranges(rng) for _ in range(3))
    word = "".join(text for text, _ in zip(pairs, range(rng.randint(0, 4)), strict=False))
    return word or rng.choice(("login", "n7", "n007", "a-1-b"))


def ranges(rng: random.Random) -> str:
    parts = []
    for _ in range(rng.randint(1, 2)):
        low = rng.randint(0, 120)
        high = low + rng.randint(0, 7)
        width = rng.randint(1, 5)
        parts.append(rng.choice((f"{low:0{width}}", f"{low:0{width}}-{high:0{width}}")))
    return f"[{','.join(parts)}]"


@pytest.mark.skipif(not shutil.which("scontrol"), reason="no Slurm here: apt-get install slurm-wlm")
def test_lists_of_nodes_expand_as_scontrol_does(tmp_path: Path) -> None:
    rng = random.Random(18)  # noqa: S311 - a sample that can be repeated
    lists = [random_list(rng) for _ in range(LISTS)]
    config = tmp_path / "slurm.conf"  # without one scontrol answers nothing
    config.write_text("ClusterName=none\nSlurmctldHost=localhost\n")
    answer = subprocess.run(
        ["scontrol", "show", "hostnames", f",{END},".join(lists)],
        env={"SLURM_CONF": str(config), "PATH": "/usr/bin:/bin:/usr/local/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    expected = [block.split() for block in answer.stdout.split(END)]
    assert len(expected) == LISTS
    assert [expand(text) for text in lists] == expected
