"""What a run of several nodes is, from what each node is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.flight_dumps import recorders

from safelaunch.runtime.collectives import dumps, verdict
from safelaunch.runtime.nodes import combine_nodes
from safelaunch.runtime.nodes.combine_nodes import NodeFailure, NodeState
from safelaunch.runtime.records import Failure, Status

if TYPE_CHECKING:
    from pathlib import Path


def node(number: int, state: str, **more: object) -> NodeState:
    return NodeState(number, f"gpu{number + 1}", Status.from_json({"state": state, **more}))


def attempt(name: str) -> list[dict[str, str]]:
    return [{"class": name, "state": "failed"}]


@pytest.mark.parametrize(
    ("states", "whole"),
    [
        (("succeeded", "succeeded"), "succeeded"),
        (("running", "succeeded"), "running"),
        (("pending", "pending"), "pending"),
        (("pending", "running"), "running"),
        (("running", "failed"), "running"),
        (("failed", "unknown"), "failed"),
        (("succeeded", "unknown"), "unknown"),
        (("running", "unknown"), "running"),
        (("stopped", "stopped"), "stopped"),
        (("lost", "succeeded"), "lost"),
    ],
)
def test_the_state_of_all(states: tuple[str, str], whole: str) -> None:
    status = combine_nodes.status([node(number, state) for number, state in enumerate(states)])
    assert status.state == whole
    assert [each.state for each in status.nodes] == list(states)


def test_while_one_runs_the_failure_of_the_other_is_told() -> None:
    whole = combine_nodes.status([node(0, "running"), node(1, "failed", exit_code=1)])
    assert whole.exit_code is None
    assert whole.reason == "gpu2 (node 1): failed"


def test_a_node_that_missed_a_stopped_one_has_not_failed_the_run() -> None:
    followed = node(0, "failed", attempts=attempt("peer-lost"))
    stopped = node(1, "stopped", stopped_by="SIGTERM")
    assert combine_nodes.status([followed, stopped]).state == "stopped"


def test_a_node_of_its_own_failure_has_failed_the_run() -> None:
    own = node(0, "failed", attempts=attempt("cuda-oom"))
    stopped = node(1, "stopped", stopped_by="SIGTERM")
    assert combine_nodes.status([own, stopped]).state == "failed"


def test_one_node_is_told_as_it_is() -> None:
    assert combine_nodes.status([node(0, "failed", exit_code=3)]).to_json() == {
        "state": "failed",
        "exit_code": 3,
    }


def test_warnings_have_the_names_of_their_hosts() -> None:
    whole = combine_nodes.status(
        [node(0, "running"), node(1, "running", warning="the disk is full")]
    )
    assert whole.warning == "gpu2 (node 1): the disk is full"


def test_logs_that_lack_output_have_the_names_of_their_hosts() -> None:
    dropped = [{"file": "/runs/x/rank-8.log", "bytes": 5, "why": "full"}]
    whole = combine_nodes.status([node(0, "running"), node(1, "running", dropped=dropped)])
    assert [log.to_json() for log in whole.dropped] == [{**dropped[0], "host": "gpu2"}]


def failed(number: int, role: str, at: float, ahead: float = 0.0, **more: Any) -> NodeFailure:
    data = {"role": role, "time": at, "rank": number, "what": f"failure {number}", **more}
    return NodeFailure(node(number, "failed"), Failure.from_json(data), ahead)


def test_a_root_comes_before_what_it_caused_whatever_the_clocks_say() -> None:
    failure = combine_nodes.failure([failed(0, "cascade", 100.0), failed(1, "root", 900.0)])
    assert failure is not None
    assert (failure.rank, failure.host, failure.node) == (1, "gpu2", 1)
    assert [(other.rank, other.host) for other in failure.others] == [(0, "gpu1")]


def test_of_two_roots_the_first_is_the_cause_by_one_clock() -> None:
    # the second host's clock is an hour ahead
    failure = combine_nodes.failure(
        [failed(0, "root", 100.5), failed(1, "root", 3700.0, ahead=3600.0)]
    )
    assert failure is not None
    assert failure.rank == 1
    assert failure.others[0].after == 0.5


def test_what_other_ranks_of_both_hosts_did_is_kept() -> None:
    others = [{"rank": 7, "what": "peer lost", "after": 0.25}]
    failure = combine_nodes.failure(
        [failed(0, "root", 10.0), failed(1, "cascade", 11.0, others=others)]
    )
    assert failure is not None
    assert [(other.rank, other.after) for other in failure.others] == [(1, 1.0), (7, 1.25)]


@pytest.mark.parametrize(
    ("state", "what"),
    [("lost", "gpu2 (node 1) is lost: why"), ("unknown", "why")],
)
def test_a_node_that_vanished_comes_before_those_that_missed_it(state: str, what: str) -> None:
    vanished = NodeFailure(node(1, state, reason="why"), None)
    failure = combine_nodes.failure([failed(0, "cascade", 10.0), vanished])
    assert failure is not None
    assert failure.what == what
    assert failure.others[0].rank == 0


def test_a_node_that_vanished_comes_behind_a_cause_that_is_known() -> None:
    vanished = NodeFailure(node(1, "unknown"), None)
    failure = combine_nodes.failure([failed(0, "root", 10.0), vanished])
    assert failure is not None
    assert failure.rank == 0


def test_a_host_that_does_not_answer_is_no_failure() -> None:
    assert (
        combine_nodes.failure(
            [NodeFailure(node(0, "succeeded"), None), NodeFailure(node(1, "unknown"), None)]
        )
        is None
    )


def test_the_progress_is_that_of_the_node_that_prints_steps() -> None:
    silent = node(0, "running", progress={"lines_without_step": 4000})
    whole = combine_nodes.status([silent, node(1, "running", progress={"step": 5})])
    assert whole.progress is not None
    assert whole.progress.step == 5


def test_the_dumps_of_all_nodes_explain_a_timeout(tmp_path: Path) -> None:
    ranks = [rank.call() for rank in recorders(4)]
    for rank in (0, 1, 2):
        ranks[rank].waits()
    failures = []
    for number in (0, 1):
        folder = tmp_path / str(number)
        for recorder in ranks[2 * number : 2 * number + 2]:
            recorder.write(folder)
        states = dumps.read_all(dumps.paths(str(folder)), lambda _: None)
        own = Failure(class_name="nccl-timeout", role="unknown", time=100.0 + number)
        verdict.explain(own, verdict.report(states))
        failures.append(NodeFailure(node(number, "failed"), own))
    first = failures[0].failure
    assert first is not None
    assert (first.why or "").startswith("unknown: ")
    combined = combine_nodes.failure(failures)
    assert combined is not None
    assert (combined.why or "").startswith(
        "slow-rank: rank 3 has not come: ranks 0-2 wait in all_reduce 2"
    )
    assert len(combined.remedy) == 1  # that of the one node is gone


def test_what_nccl_chose_is_that_of_all_nodes() -> None:
    first = {"versions": ["2.27.3"], "transports": ["P2P/CUMEM", "NET/IB"], "channels": 8}
    second = {"versions": ["2.26.2"], "transports": ["SHM/direct", "NET/IB"], "channels": 4}
    nodes = [node(0, "running", nccl=first), node(1, "running", nccl=second)]
    whole = combine_nodes.status(nodes).nccl
    assert whole is not None
    assert whole.versions == ["2.27.3", "2.26.2"]
    assert whole.transports == ["P2P/CUMEM", "SHM/direct", "NET/IB"]
    assert whole.channels == 8
