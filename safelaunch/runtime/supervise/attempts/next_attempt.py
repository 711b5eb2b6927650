"""What follows an attempt: on this node alone, or as all nodes agree."""

# ruff: noqa: PLC0415 - what few attempts need

from __future__ import annotations

from safelaunch.runtime.records import Failure
from safelaunch.runtime.supervise.node_run import free_port

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.runtime.messages.ends import Decision, NodeEnd
    from safelaunch.runtime.supervise.attempts.outcome import Outcome
    from safelaunch.runtime.supervise.node_run import NodeRun
    from safelaunch.runtime.supervise.peers import Peers


def decide(
    node: NodeRun, number: int, result: Outcome, failure: Failure | None, wakeup: int
) -> Decision | None:
    """Return what follows attempt `number`, None for the end of the run."""
    if node.nodes is not None and not node.nodes.is_alone and node.run.recovery:
        decision = _agreed(node, number, result, node.nodes, wakeup)
        if decision is not None or not node.control.signals:
            return decision
        if node.journal.status.state != "failed":
            return None
        # stopped before all agreed: as for one node, a restart that was due is called off
        return result.decide(failure or Failure())
    if len(node.run.hosts) > 1:
        return None  # its ranks would wait for the others
    if node.journal.status.state != "failed":
        return None
    decision = result.decide(failure or Failure())
    decision.checkpoint = _newest_checkpoint([_whole_checkpoints(node)])
    return decision


def end_allocation(node: NodeRun) -> None:
    """Let the engine start the run again, where that brings it further."""
    status, last = node.journal.status, node.attempts[-1]
    if not node.engine.can_resume:
        last.next = "no requeue: the job does not resume from checkpoints"
    elif not _has_progressed(node):
        last.next = "no requeue: the attempt made no progress that it could resume from"
    else:
        last.next = status.reason = f"goes on once {node.engine.title} starts it again"
        status.state = "pending"
    node.journal.event("time-limit", why=last.next)


def _has_progressed(node: NodeRun) -> bool:
    """Whether the last attempt has come further than those before it."""
    from safelaunch.runtime.supervise.attempts import recovery

    return recovery.progressed(node.attempts)[-1]


def send_end(node: NodeRun, number: int, failure: Failure | None) -> None:
    """Send to the other nodes how this one's attempt has ended."""
    status = node.journal.status
    end: dict[str, object] = {"state": status.state, "stopped_by": status.stopped_by}
    if failure is not None:
        end.update(rank=failure.rank, what=failure.what, role=failure.role)
        end.update(class_name=failure.class_name, time=failure.time)
        end.update(exit_code=failure.exit_code, unmet=failure.unmet or None)
        if node.run.manual_node is not None:  # no client asks each node for its own
            end.update(failure=failure)
    if status.state != "succeeded":
        end.update(checkpoints=_whole_checkpoints(node))
    if not node.send(number, **end):
        node.nodes = None


def _agreed(
    node: NodeRun, number: int, result: Outcome, nodes: Peers, wakeup: int
) -> Decision | None:
    """Return what follows on all nodes; None for the end of the run."""

    def decide_for_all(ends: dict[int, NodeEnd]) -> Decision:
        decision = result.decide_for_all(ends)
        decision.port = free_port(number + 1)
        with_ranks = range(len(node.run.hosts) - node.run.service_nodes)
        if node.run.manual_node is None:  # a node without ranks has none, and needs none
            ends = {number: end for number, end in ends.items() if number in with_ranks}
        by_node = [end.checkpoints or () for _, end in sorted(ends.items())]
        decision.checkpoint = _newest_checkpoint(by_node)
        return decision

    try:
        decision = nodes.agree(number, decide_for_all, wakeup, node.control)
    except Exception as e:  # noqa: BLE001 - no fault of ours may hide how the job ended
        node.journal.broken("agreement of the nodes", e)
        return None
    is_over = decision is not None and decision.action != "restart"
    return None if is_over and node.journal.status.state == "succeeded" else decision


def _whole_checkpoints(node: NodeRun) -> Sequence[str]:
    """Return the whole checkpoints of a job that resumes from one, the newest first."""
    again, policy = node.run.again, node.run.recovery
    if again is None or again.checkpoint is None or policy is None or policy.checkpoint is None:
        return ()
    from safelaunch.runtime.progress import checkpoints

    try:
        paths, node.flaw = checkpoints.whole(policy.checkpoint, node.run.cwd or "/")
    except Exception as e:  # noqa: BLE001 - no fault of ours may hide how the job ended
        node.journal.broken("search for checkpoints", e)
        return ()
    return paths


def _newest_checkpoint(by_node: Sequence[Sequence[str]]) -> str | None:
    """Return the checkpoint that the nodes resume from, None for the beginning."""
    from safelaunch.runtime.progress import checkpoints

    return checkpoints.common(by_node)
