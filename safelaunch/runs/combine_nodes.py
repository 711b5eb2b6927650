"""What a run of several nodes is, from what each node is: its state, and why it failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.runtime.failure import blame
from safelaunch.runtime.signatures import classes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIVE = ("pending", "running")
# of a run whose nodes have ended, or may have: one that failed has failed for all
_WORST = ("failed", "unknown", "lost", "stopped", "succeeded")
_OTHER = ("rank", "role", "class", "what", "host", "node", "time", "exit_code", "signal")
_KEPT = ("state", "exit_code", "signal", "reason", "stopped_by", "alive")


class Node(NamedTuple):
    """A node of a run as it was last seen: its number, its host as the user names it."""

    number: int
    host: str
    status: Mapping[str, Any]

    @property
    def state(self) -> str:
        """Its state."""
        return str(self.status.get("state"))

    @property
    def name(self) -> str:
        """Return `gpu2 (node 1)`."""
        return f"{self.host} (node {self.number})"


def status(nodes: Sequence[Node]) -> dict[str, Any]:
    """Return the status of the whole run; `nodes` in it says how each is.

    While one node runs, the run does: a node that has failed ends the others.
    """
    if len(nodes) == 1:
        return dict(nodes[0].status)
    first, worst = nodes[0], _worst(nodes)
    found = {**worst.status, **{key: first.status.get(key) for key in ("backend", "socket")}}
    found["state"] = _state(nodes, worst)
    if found["state"] in LIVE and worst.state not in LIVE:
        found.update(exit_code=None, reason=f"{worst.name}: {worst.state}", ended_at=None)
        found.pop("elapsed", None)
    elif worst.status.get("reason") and worst.state in ("unknown", "lost"):
        found["reason"] = f"{worst.name}: {worst.status['reason']}"
    progress = [n.status.get("progress") for n in nodes if n.status.get("progress")]
    if progress:
        found["progress"] = progress[0]
    warnings = [f"{n.name}: {n.status['warning']}" for n in nodes if n.status.get("warning")]
    if warnings:
        found["warning"] = "; ".join(warnings)
    for key in ("alive", "leftovers"):
        counts = [int(n.status[key]) for n in nodes if n.status.get(key)]
        if counts:
            found[key] = sum(counts)
    found["nodes"] = [_brief(node) for node in nodes]
    return found


def _worst(nodes: Sequence[Node]) -> Node:
    """Return the node that says most about how the run is; one that began it before others."""
    ended = [node for node in nodes if node.state not in LIVE]
    bad = [node for node in ended if node.state != "succeeded"]
    asked = [n for n in bad if n.state == "stopped" and n.status.get("stopped_by") != "node"]
    if asked and all(node in asked or _follows(node) for node in bad):
        return asked[0]  # the others only missed their peers
    own = [node for node in bad if node.status.get("stopped_by") != "node"]
    return min(own or bad or [n for n in nodes if n.state in LIVE] or nodes, key=_rank)


def _follows(node: Node) -> bool:
    """Whether a node ended because another one did."""
    attempts = node.status.get("attempts") or [{}]
    lost_peer = node.state == "failed" and attempts[-1].get("class") in classes.CASCADES
    return lost_peer or node.status.get("stopped_by") == "node"


def _rank(node: Node) -> int:
    return _WORST.index(node.state) if node.state in _WORST else len(_WORST)


def _state(nodes: Sequence[Node], worst: Node) -> str:
    live = [node.state for node in nodes if node.state in LIVE]
    if not live:
        return worst.state
    return "running" if len(live) < len(nodes) or "running" in live else "pending"


def _brief(node: Node) -> dict[str, Any]:
    kept = {key: node.status[key] for key in _KEPT if node.status.get(key) is not None}
    return {"node": node.number, "host": node.host, **kept}


class Failed(NamedTuple):
    """What failure.json of a node says; None where it has none. `ahead`: its clock, in seconds."""

    node: Node
    failure: Mapping[str, Any] | None
    ahead: float = 0.0


def failure(several: Sequence[Failed]) -> dict[str, Any] | None:
    """Return the failure of a run: the first cause on any node, and what all others then did.

    Clocks differ between hosts: times are compared as this machine's clock would have had them.
    """
    found = [told for one in several if (told := _told(one)) is not None]
    if not any(one.failure for one in several):
        return None  # a host that is not heard has not failed by that
    first = min(found, key=blame.blame)
    others = list(first["others"])
    for one in found:
        if one is not first:
            others += [_other(told, first) for told in (one, *one["others"])]
    return {**first, "others": others}


def _told(one: Failed) -> dict[str, Any] | None:
    node = one.node
    where = {"host": node.host, "node": node.number}
    if one.failure is None:
        return _vanished(node) if node.state in ("lost", "unknown") else None
    told = {**one.failure, **where}
    at = told.get("time")
    told["time"] = at - one.ahead if isinstance(at, (int, float)) and at > 0 else None
    told["others"] = [{**other, **where} for other in told.get("others") or ()]
    for other in told["others"]:
        after = other.get("after")
        timed = told["time"] is not None and isinstance(after, (int, float))
        other["time"] = told["time"] + after if timed else None
    return told


def _vanished(node: Node) -> dict[str, Any]:
    """Return the failure of a node that ended without a word: it comes before mere cascades."""
    reason = str(node.status.get("reason") or "no end was recorded")
    return {
        "version": 1,
        "class": None,
        "role": "unknown",
        "rank": None,
        "host": node.host,
        "node": node.number,
        "time": None,
        "what": reason if node.state == "unknown" else f"{node.name} is lost: {reason}",
        "exception": None,
        "others": [],
        "advice": f"look at {node.host}: `journalctl -b -1 -e`, `dmesg`, its power and network",
    }


def _other(one: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any]:
    other = {key: one.get(key) for key in _OTHER}
    at, begun = one.get("time"), first.get("time")
    timed = isinstance(at, (int, float)) and isinstance(begun, (int, float)) and at >= begun
    other["after"] = round(at - begun, 6) if timed else None  # type: ignore[operator]
    return other
