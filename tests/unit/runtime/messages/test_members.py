"""The nodes of a run as its supervisors know them."""

from __future__ import annotations

from typing import Any

import pytest

from safelaunch.runtime.messages.members import Introduction, ManualNodes, PlannedNodes
from safelaunch.runtime.records import ManualNode, RunRecord


def manual(number: int | None, run: str, size: int = 3) -> ManualNodes:
    return ManualNodes(RunRecord(id=run), ManualNode(node=number, nodes=size))


def introduced(run: str, **changes: Any) -> Introduction:
    message = manual(1, run).introduction(1)
    for key, value in changes.items():
        setattr(message, key, value)
    return message


def test_two_nodes_know_each_other_after_one_exchange() -> None:
    first, second = manual(0, "a"), manual(1, "b")
    node = first.admit(second.introduction(1), 1)
    second.accept(first.answer(node, 1))
    assert (first.runs, second.runs) == ({0: "a", 1: "b"}, {1: "b", 0: "a"})
    assert abs(second.ahead[0]) < 5.0


def test_a_node_that_comes_again_is_the_same() -> None:
    first, second = manual(0, "a"), manual(1, "b")
    first.admit(second.introduction(1), 1)
    assert first.admit(second.introduction(0), 0) == 1


def test_node_0_numbers_nodes_whose_launcher_does() -> None:
    first, others = manual(None, "a"), [manual(None, run) for run in "bc"]
    for other in others:
        other.accept(first.answer(first.admit(other.introduction(1), 1), 1))
    assert [other.own for other in others] == [1, 2]
    assert others[1].runs == {0: "a", 2: "c"}


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": 2},
        {"id": None},
        {"id": "x" * 1000},
        {"id": "x; curl evil | sh"},
        {"id": "x\x1b[2J"},
        {"node": 0},
        {"node": 3},
        {"node": None},
        {"attempt": 0},
        {"attempt": None},
    ],
)
def test_what_is_no_node_of_the_run_is_refused(changes: dict[str, Any]) -> None:
    first = manual(0, "a")
    with pytest.raises(ValueError, match=r"no node|another run|no attempt"):
        first.admit(introduced("b", **changes), 1)
    assert list(first.hosts) == [0]


def test_a_second_run_is_not_the_same_node() -> None:
    first = manual(0, "a")
    first.admit(introduced("b"), 1)
    with pytest.raises(ValueError, match="another run is that node"):
        first.admit(introduced("c"), 1)


def test_nobody_joins_between_two_attempts() -> None:
    with pytest.raises(ValueError, match="no attempt is running"):
        manual(0, "a").admit(introduced("b"), 0)


def test_more_nodes_than_the_launcher_waits_for_are_refused() -> None:
    first = manual(None, "a", size=2)
    first.admit(manual(None, "b", size=2).introduction(1), 1)
    with pytest.raises(ValueError, match="another run"):
        first.admit(manual(None, "c", size=2).introduction(1), 1)


def test_a_later_run_of_node_0_is_refused() -> None:
    second = manual(1, "b")
    second.accept(manual(0, "a").answer(1, 1))
    with pytest.raises(ValueError, match="another run is node 0 now"):
        second.accept(manual(0, "later").answer(1, 1))


def test_a_third_node_comes_with_its_clock() -> None:
    first, second = manual(0, "a"), manual(1, "b")
    second.accept(first.answer(first.admit(second.introduction(1), 1), 1))
    third = manual(2, "c").introduction(1)
    third.clock = (third.clock or 0.0) + 100.0
    first.admit(third, 1)
    second.add(first.introduce(2))
    assert second.runs[2] == "c"
    assert 95.0 < second.ahead[2] < 105.0


def test_a_host_name_moves_no_cursor() -> None:
    first = manual(0, "a")
    first.admit(introduced("b", host="gpu\x1b[2J"), 1)
    assert first.hosts[1] == "gpu\\x1b[2J"


def test_a_host_name_of_any_length_is_cut() -> None:
    first = manual(0, "a")
    first.admit(introduced("b", host="x" * 5000), 1)
    assert len(first.hosts[1]) == 64


@pytest.mark.parametrize("node", [0, 3, None])
def test_a_number_that_is_not_planned_is_refused(node: int | None) -> None:
    nodes = PlannedNodes(RunRecord(hosts=["a", "b", "c"], node=0))
    with pytest.raises(ValueError, match="no node of this run"):
        nodes.admit(Introduction(node=node), 1)
