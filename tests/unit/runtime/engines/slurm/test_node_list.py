"""What Slurm's lists of nodes stand for; tests/integration/slurm compares with scontrol itself."""

from __future__ import annotations

import pytest

from safelaunch.runtime.engines.slurm.node_list import MOST, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ""),
        ("n1", "n1"),
        ("n1,n1", "n1 n1"),
        ("n[1-3,07-10]", "n1 n2 n3 n07 n08 n09 n10"),
        ("n[9-011]", "n9 n10 n11"),
        ("gpu-a[1-2]b[3-4]", "gpu-a1b3 gpu-a1b4 gpu-a2b3 gpu-a2b4"),
        ("x[1-2]y[3-4]z[5-6]", "x1y3z5 x1y3z6 x2y3z5 x2y3z6 x1y4z5 x1y4z6 x2y4z5 x2y4z6"),
        ("n[1-2],login,m3", "n1 n2 login m3"),
        ("n[1-2]-ib", "n1-ib n2-ib"),  # Slurm 22.05 itself refuses it, 23.11 and newer do not
        (" n1,, n2\n", "n1 n2"),
    ],
)
def test_a_list_stands_for_its_nodes_in_order(text: str, names: str) -> None:
    assert expand(text) == names.split()


def test_a_thousand_nodes_are_named() -> None:
    names = expand("n[0001-1000]")
    assert (len(names), names[0], names[-1]) == (1000, "n0001", "n1000")


@pytest.mark.parametrize(
    "text",
    [
        "n[1", "n1]", "n[[1]]", "n[]", "n[1,]", "n[,1]", "n[a]", "n[3-1]", "n[-1]", "n[1-]",
        "n[1--3]", "n[1-2-3]", "n[+1]", "n[ 1]", "n[\N{SUPERSCRIPT TWO}]", "n[1.5]",
        f"n[0-{MOST}]", "n[0-65535],m", "n[0-65535]x[0-65535]", "n[0-9999999999999999999999]",
        "n[" + "9" * 5000 + "]", "[1-300]" * 3,
    ],
)  # fmt: skip
def test_a_bad_list_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="node"):
        expand(text)
