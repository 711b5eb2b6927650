"""The status and the failure of a run of several nodes, combined from those of its nodes."""

# ruff: noqa: PLC0415 - blame, 7 ms: only for a run of several nodes that has failed

from __future__ import annotations

from typing import NamedTuple

from safelaunch.runtime.records import Failure, NodeSummary, RankFailure
from safelaunch.runtime.signatures import classes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.runtime.records import DroppedOutput, NcclReport, Status

LIVE = ("pending", "running")
# of a run whose nodes have ended, or may have: where one has failed, the run has
_WORST = ("failed", "unknown", "lost", "stopped", "succeeded")


class NodeState(NamedTuple):
    """A node of a run as it was last seen: its number, its host as the user names it."""

    number: int
    host: str
    status: Status

    @property
    def state(self) -> str:
        """Its state."""
        return self.status.state

    @property
    def name(self) -> str:
        """Return `gpu2 (node 1)`."""
        return f"{self.host} (node {self.number})"


def status(nodes: Sequence[NodeState]) -> Status:
    """Return the status of the whole run; `nodes` in it says how each is.

    While one node runs, the run does: a node that has failed ends the others.
    """
    if len(nodes) == 1:
        return nodes[0].status.copy()
    first, worst = nodes[0], worst_node(nodes)
    whole = worst.status.copy()
    whole.ending = first.status.ending  # node 0 runs what follows the end
    whole.backend, whole.socket = first.status.backend, first.status.socket
    whole.state = _state(nodes, worst)
    if whole.state in LIVE and worst.state not in LIVE:
        whole.exit_code, whole.reason = None, f"{worst.name}: {worst.state}"
        whole.ended_at = whole.elapsed = None
    elif worst.status.reason and worst.state in ("unknown", "lost"):
        whole.reason = f"{worst.name}: {worst.status.reason}"
    progress = [n.status.progress for n in nodes if n.status.progress]
    if progress:  # often only one node prints steps
        whole.progress = min(progress, key=lambda report: report.step is None)
    warnings = [f"{n.name}: {n.status.warning}" for n in nodes if n.status.warning]
    if warnings:
        whole.warning = "; ".join(warnings)
    if any(n.status.dropped for n in nodes):
        whole.dropped = [_with_host(log, n.host) for n in nodes for log in n.status.dropped]
    whole.nccl = _nccl(nodes)
    if any(n.status.alive for n in nodes):
        whole.alive = sum(n.status.alive or 0 for n in nodes)
    if any(n.status.leftovers for n in nodes):
        whole.leftovers = sum(n.status.leftovers or 0 for n in nodes)
    _join_lists(whole, nodes)
    whole.proof = worst.status.proof if all(node.status.proof for node in nodes) else None
    whole.nodes = [_summary(node) for node in nodes]
    return whole


def _join_lists(whole: Status, nodes: Sequence[NodeState]) -> None:
    left = [process for node in nodes for process in node.status.leftover_processes]
    if left:
        whole.leftover_processes = left
    services = [service for node in nodes for service in node.status.services]
    if services:
        whole.services = services


def _nccl(nodes: Sequence[NodeState]) -> NcclReport | None:
    reports = [node.status.nccl for node in nodes if node.status.nccl]
    if not reports:
        return None
    from safelaunch.runtime.collectives import nccl_log

    return nccl_log.combine(reports)


def _with_host(log: DroppedOutput, host: str) -> DroppedOutput:
    log = log.copy()
    log.host = host
    return log


def worst_node(nodes: Sequence[NodeState]) -> NodeState:
    """Return the node whose state is the run's; before others one whose end ended the run."""
    bad = [node for node in nodes if node.state not in (*LIVE, "succeeded")]
    stopped = [n for n in bad if n.state == "stopped" and n.status.stopped_by != "node"]
    if stopped and all(node in stopped or _follows(node) for node in bad):
        return stopped[0]  # the others only missed their peers
    own = [node for node in bad if node.status.stopped_by != "node"]
    candidates = own or bad or [n for n in nodes if n.state in LIVE] or nodes
    return min(candidates, key=lambda n: (*_WORST, n.state).index(n.state))


def _follows(node: NodeState) -> bool:
    """Whether a node ended because another one did."""
    attempts = node.status.attempts
    last_class = attempts[-1].class_name if attempts else None
    lost_peer = node.state == "failed" and last_class in classes.CASCADES
    return lost_peer or node.status.stopped_by == "node"


def _state(nodes: Sequence[NodeState], worst: NodeState) -> str:
    live = [node.state for node in nodes if node.state in LIVE]
    if not live:
        return worst.state
    return "running" if len(live) < len(nodes) or "running" in live else "pending"


def _summary(node: NodeState) -> NodeSummary:
    own = node.status
    return NodeSummary(
        node=node.number, host=node.host, state=own.state, exit_code=own.exit_code,
        signal=own.signal, reason=own.reason, stopped_by=own.stopped_by, alive=own.alive,
        stop_origin=own.stop_origin, start=own.start,
    )  # fmt: skip


class NodeFailure(NamedTuple):
    """A node with its failure.json, if it has one."""

    node: NodeState
    failure: Failure | None
    ahead: float = 0.0  # seconds that its clock is ahead of this machine's


def failure(nodes: Sequence[NodeFailure]) -> Failure | None:
    """Return the failure of a run: the first cause on any node, and what all others then did.

    Clocks differ between hosts: times are compared as this machine's clock would have had them.
    """
    if not any(node.failure for node in nodes):
        return None  # a host that does not answer is no failure by itself
    failures = [placed for node in nodes if (placed := _placed(node)) is not None]
    from safelaunch.runtime.failure import blame

    first = min(failures, key=lambda failure: blame.blame(failure.role, failure.time))
    others = list(first.others)
    for other in failures:
        if other is first:
            continue
        own = RankFailure(
            rank=other.rank, role=other.role, class_name=other.class_name, what=other.what,
            host=other.host, node=other.node, time=other.time,
            exit_code=other.exit_code, signal=other.signal,
        )  # fmt: skip
        for end in (own, *other.others):
            end.after = None
            if end.time is not None and first.time is not None and end.time >= first.time:
                end.after = round(end.time - first.time, 6)
            others.append(end)
    first.others = others
    _combine_collectives(first, failures)
    return first


def _combine_collectives(first: Failure, failures: Sequence[Failure]) -> None:
    """Say why a collective did not end, from the dumps of all nodes."""
    reports = [own.collectives for own in failures if own.collectives and own.collectives.ranks]
    if len(reports) < 2:  # noqa: PLR2004 - one knows it all
        return
    from safelaunch.runtime.collectives import verdict

    combined = verdict.combine(reports)
    combined.folder = first.collectives.folder if first.collectives else None
    verdict.explain(first, combined)


def _placed(source: NodeFailure) -> Failure | None:
    """Return a node's failure with its host, and with times of this machine's clock."""
    node = source.node
    if source.failure is None:
        return _vanished(node) if node.state in ("lost", "unknown") else None
    placed = source.failure.copy()
    placed.host, placed.node = node.host, node.number
    placed.time = placed.time - source.ahead if placed.time and placed.time > 0 else None
    others = [other.copy() for other in placed.others]
    for other in others:
        other.host, other.node, other.time = node.host, node.number, None
        if placed.time is not None and other.after is not None:
            other.time = placed.time + other.after
    placed.others = others
    return placed


def _vanished(node: NodeState) -> Failure:
    """Return the failure of a node that left no record: it comes before mere cascades."""
    reason = node.status.reason or "no end was recorded"
    advice = f"look at {node.host}: `journalctl -b -1 -e`, `dmesg`, its power and network"
    if node.state == "lost" and node.status.supervisor is None:
        advice = "start it again: the client ended, or lost its connection, while it was starting"
    return Failure(
        version=1, class_name=None, role="unknown", rank=None, host=node.host, node=node.number,
        time=None, exception=None, others=[],
        what=reason if node.state == "unknown" else f"{node.name} is lost: {reason}",
        advice=advice,
    )  # fmt: skip
