"""What the supervisors of several nodes send each other.

How an attempt ended, what is next, and how the services are that a node runs for all.
"""

from __future__ import annotations

from safelaunch.runtime.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.runtime.records import Failure, Nullable, ServiceStatus


class Decision(Record):
    """What follows an attempt; of several nodes node 0 decides, and sends it to the others."""

    action: str = "stop"  # restart or stop
    delay: float = 0.0  # seconds before a restart
    rung: int = 0  # steps of the NCCL ladder above the start
    port: Nullable[int] = None  # rendezvous port of the next attempt, where node 0 has chosen one
    checkpoint: Nullable[str] = None  # whole checkpoint that all nodes resume from
    why: str = ""  # the reason, a sentence


class NodeEnd(Record):
    """How an attempt has ended on one node, as it is sent to the others."""

    node: int = -1  # number of the node
    state: str = ""  # succeeded, failed, stopped or lost
    stopped_by: Nullable[str] = None  # what stopped it
    class_name: Nullable[str] = None  # failure class
    rank: Nullable[int] = None  # rank that failed first
    what: Nullable[str] = None  # the failure in one line
    role: Nullable[str] = None  # root, cascade or unknown
    time: Nullable[float] = None  # when it failed, seconds since 1970
    exit_code: Nullable[int] = None  # exit code of the rank or launcher that failed
    unmet: Nullable[Sequence[str]] = None  # conditions of `success` that are not met
    checkpoints: Nullable[Sequence[str]] = None  # whole ones on the node, the newest first
    failure: Failure | None = None  # its failure.json, of a node that was started by hand


class NodeServices(Record):
    """How the services on one node are, as it is sent to the others."""

    node: int = -1  # number of the node
    attempt: int = 0  # number of the attempt that they are started for, or run beside
    services: Sequence[ServiceStatus] = ()  # those that the node runs
