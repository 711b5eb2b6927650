"""How a run has ended whose nodes were started by hand, for the records of this node.

Each node is a run of its own on its machine, and its record says how all of them ended: one that
was ended by another's failure has failed, with that failure.
"""

from __future__ import annotations

from safelaunch.runtime import run_state
from safelaunch.runtime.nodes import combine_nodes
from safelaunch.runtime.nodes.combine_nodes import NodeFailure, NodeState
from safelaunch.runtime.records import AttemptRecord, Failure, Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.runtime.messages.ends import NodeEnd
    from safelaunch.runtime.messages.members import Members


def complete(
    status: Status, failure: Failure | None, members: Members, ends: Mapping[int, NodeEnd]
) -> Failure | None:
    """Change the status of this node to that of the run; return the run's failure.

    `failure` is that of this node's last attempt. A node without an end does not answer any more:
    nothing follows from that, and a warning says so.
    """
    states = {members.own: NodeState(members.own, members.hosts[members.own], status.copy())}
    for node, end in ends.items():
        if node != members.own:
            states[node] = NodeState(node, members.hosts[node], _status(end))
    ended = [state for state in states.values() if state.state in (*run_state.ENDED, "lost")]
    worst = combine_nodes.worst_node(ended)
    silent = [members.name(node) for node in members.hosts if node not in ends]
    if silent:
        text = (
            f"it is not known how {', '.join(silent)} ended: no message came until this node's end"
        )
        status.warning = f"{status.warning}; {text}" if status.warning else text
    if worst.number != members.own:
        other = worst.status
        status.state, status.exit_code, status.signal = other.state, other.exit_code, other.signal
        stopped = f"{members.name(worst.number)} was stopped"
        status.reason = stopped if other.state == "stopped" else None
        if other.state != "stopped":
            status.stopped_by = None
    if status.state != "failed":
        return None
    combined = combine_nodes.failure(
        [
            NodeFailure(
                state,
                failure if state.number == members.own else _failure(ends[state.number]),
                members.ahead[state.number],
            )
            for state in ended
        ]
    )
    if combined is not None and combined.node not in (None, members.own):
        combined.run = members.runs[combined.node or 0]
    return combined


def _status(end: NodeEnd) -> Status:
    """Return the status of another node, as far as its message has it."""
    last = AttemptRecord(state=end.state, class_name=end.class_name)
    return Status(
        state=end.state, stopped_by=end.stopped_by, exit_code=end.exit_code, attempts=[last]
    )


def _failure(end: NodeEnd) -> Failure | None:
    """Return the failure of another node; of one with a long record only what decides."""
    if end.state not in ("failed", "lost"):
        return None
    if end.failure is not None:
        return end.failure.copy()
    return Failure(
        version=1, class_name=end.class_name, role=end.role or "unknown", rank=end.rank,
        time=end.time, what=end.what or "", exception=None, exit_code=end.exit_code, others=[],
    )  # fmt: skip
