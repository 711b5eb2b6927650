"""A run in a few hundred bytes, for programs that read many of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.runs.store import ShownRun

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_TEXT = 400  # characters of a text; a longer one ends in ...
_KEYS = (
    *(
        "version",
        "id",
        "name",
        "group",
        "step",
        "state",
        "exit_code",
        "host",
        "run_dir",
        "client",
        "signal",
    ),
    *("started_at", "ended_at", "elapsed", "alive", "reason", "warning", "recovery", "advice"),
)
_OF_PROGRESS = ("step", "total", "scope", "epoch", "epochs", "eta", "step_time", "loss")
_OF_FAILURE = (
    *("attempt", "class", "role", "rank", "host", "node", "what", "why", "advice"),
    *("restart", "log"),
)
_OF_ENDING = ("state", "what", "shutdown_at")
_OF_NODE = ("node", "host", "state", "exit_code", "reason")
_ALWAYS = ("version", "id", "state", "exit_code")
MAX_NODES = 16  # that are listed


def brief(run: ShownRun) -> dict[str, Any]:
    """Return the keys of `show --json` that say how a run is, with texts that are cut.

    `left_out` names the other keys that it has, and those of which less is shown.
    """
    whole = run.to_json()
    shown: dict[str, Any] = {
        key: whole.get(key) for key in _KEYS if key in _ALWAYS or whole.get(key) is not None
    }
    shown["attempt"] = len(whole.get("attempts") or ())
    if whole.get("progress"):
        shown["progress"] = _some(whole["progress"], _OF_PROGRESS)
    hang = whole.get("hang") or {}
    shown["hang"] = bool(hang) and not hang.get("over")
    if whole.get("ending"):
        shown["ending"] = _some(whole["ending"], _OF_ENDING)
    failure = whole.get("failure")
    shown["failure"] = None if failure is None else _some(failure, _OF_FAILURE)
    nodes = whole.get("nodes") or []
    if nodes:
        shown["nodes"] = [_some(node, _OF_NODE) for node in nodes[:MAX_NODES]]
    same = {key for key in shown if shown[key] == whole.get(key)}
    left_out = sorted({key for key in whole if whole[key] not in (None, [], {})} - same - {"hang"})
    return {**_cut(shown), "left_out": left_out}


def brief_group(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `show --json` prints of a group, with its steps as by `brief`."""
    return {**shown, "steps": [brief(ShownRun.from_json(step)) for step in shown["steps"]]}


def _some(whole: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: whole[key] for key in keys if whole.get(key) is not None}


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cut(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_cut(part) for part in value]
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return value[: MAX_TEXT - 3] + "..."
    return value
