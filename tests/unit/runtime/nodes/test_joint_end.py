"""How a run has ended whose nodes were started by hand."""

from __future__ import annotations

from typing import Any

from safelaunch.runtime.messages.ends import NodeEnd
from safelaunch.runtime.messages.members import ManualNodes
from safelaunch.runtime.nodes import joint_end
from safelaunch.runtime.records import AttemptRecord, Failure, ManualNode, RunRecord, Status

OWN = Failure(class_name="peer-lost", role="cascade", rank=0, time=10.0, what="closed by peer")
CAUSE = Failure(class_name="cuda-oom", role="root", rank=2, time=11.0, what="out of memory")


def nodes(*hosts: str) -> ManualNodes:
    """Return the nodes as node 0 knows them."""
    members = ManualNodes(RunRecord(id="run-0"), ManualNode(node=0, nodes=len(hosts)))
    for number, host in enumerate(hosts):
        members.hosts[number], members.runs[number] = host, f"run-{number}"
        members.ahead[number] = 0.0
    return members


def status(state: str, **more: Any) -> Status:
    own = Status(state=state, attempts=[AttemptRecord(state=state)])
    for key, value in more.items():
        setattr(own, key, value)
    return own


def test_all_nodes_have_succeeded() -> None:
    own, ends = status("succeeded", exit_code=0), {0: NodeEnd(), 1: NodeEnd(state="succeeded")}
    assert joint_end.complete(own, None, nodes("gpu1", "gpu2"), ends) is None
    assert (own.state, own.exit_code, own.warning) == ("succeeded", 0, None)


def test_the_failure_of_another_node_is_that_of_the_run() -> None:
    own = status("stopped", stopped_by="node")
    end = NodeEnd(node=1, state="failed", exit_code=1, failure=CAUSE)
    failure = joint_end.complete(own, None, nodes("gpu1", "gpu2"), {0: NodeEnd(), 1: end})
    assert failure is not None
    assert (failure.host, failure.node, failure.run) == ("gpu2", 1, "run-1")
    assert (own.state, own.exit_code, own.stopped_by, own.reason) == ("failed", 1, None, None)


def test_a_cause_comes_before_its_earlier_consequence_here() -> None:
    own, end = status("failed", exit_code=1), NodeEnd(node=1, state="failed", failure=CAUSE)
    failure = joint_end.complete(own, OWN.copy(), nodes("gpu1", "gpu2"), {0: NodeEnd(), 1: end})
    assert failure is not None
    assert (failure.what, [other.what for other in failure.others]) == (
        "out of memory",
        ["closed by peer"],
    )


def test_a_failure_of_this_node_stays_its_own() -> None:
    own = status("failed", exit_code=1)
    end = NodeEnd(node=1, state="stopped", stopped_by="node")
    failure = joint_end.complete(own, CAUSE.copy(), nodes("gpu1", "gpu2"), {0: NodeEnd(), 1: end})
    assert failure is not None
    assert (failure.host, failure.run) == ("gpu1", None)


def test_a_failure_whose_record_was_too_long_still_names_rank_and_cause() -> None:
    own = status("stopped", stopped_by="node")
    end = NodeEnd(node=1, state="failed", rank=3, what="ValueError: bad", role="root", time=1.0)
    failure = joint_end.complete(own, None, nodes("gpu1", "gpu2"), {0: NodeEnd(), 1: end})
    assert failure is not None
    assert (failure.rank, failure.what) == (3, "ValueError: bad")


def test_a_stop_of_another_node_is_no_failure() -> None:
    own = status("failed", exit_code=1)
    own.attempts[-1].class_name = "peer-lost"
    end = NodeEnd(node=1, state="stopped", stopped_by="SIGTERM")
    assert (
        joint_end.complete(own, OWN.copy(), nodes("gpu1", "gpu2"), {0: NodeEnd(), 1: end}) is None
    )
    assert (own.state, own.reason) == ("stopped", "gpu2 (node 1) was stopped")


def test_a_node_without_an_end_changes_nothing_but_is_named() -> None:
    own = status("succeeded")
    joint_end.complete(own, None, nodes("gpu1", "gpu2"), {0: NodeEnd()})
    assert own.state == "succeeded"
    assert own.warning == (
        "it is not known how gpu2 (node 1) ended: no message came until this node's end"
    )
