"""Plan <-> JSON: the contract of `run --dry-run --json`, and the form that `rerun` reads."""

# ruff: noqa: PLC0415 - engines are imported only for jobs that one starts

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from safelaunch import model
from safelaunch.environ import removals
from safelaunch.errors import RunError
from safelaunch.model import (
    EnvVar,
    NodePlan,
    Plan,
    PlanWarning,
    Service,
    Slot,
    Supervision,
    Template,
)
from safelaunch.plan import direct
from safelaunch.script import launch_script, rank_words

VERSION = 1
_RARE = ("ending", "max_cost", "preemption")  # of a supervision: left out where there is none
_CLASSES: dict[str, Any] = {n: c for n, c in vars(model).items() if is_dataclass(c)}


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as `run --dry-run --json` prints it; unbound slots read `<port>`."""
    return {
        "version": VERSION,
        "name": plan.name,
        "launcher": plan.launcher,
        "profile": plan.profile,
        "log": plan.log,
        "nodes": [_node(plan, node) for node in plan.nodes],
        "warnings": [warning_json(w) for w in plan.warnings],
        "supervision": supervision_json(plan.supervision),
        **({"manual_node": str(plan.manual_node)} if plan.manual_node else {}),
        **({"engine": _engine(plan)} if plan.engine else {}),
        **({"after": [_plain(dependency) for dependency in plan.after]} if plan.after else {}),
        **({"queue": _plain(plan.queue)} if plan.queue else {}),
        **({"services": [_service(service) for service in plan.services]} if plan.services else {}),
        **({"fan_out": _plain(plan.fan_out)} if plan.fan_out else {}),
    }


def _service(service: Service) -> dict[str, Any]:
    """Return a service: its plan, and when it starts and is ready."""
    ready = {key: value for key, value in _plain(service.ready).items() if value}
    return {
        **plan_json(service.plan),
        "ready": ready,
        "after": list(service.needs),
        "port": service.port,
        "on_exit": service.on_exit,
    }


def _engine(plan: Plan) -> dict[str, Any]:
    """Return what a start would submit, and where each part of it comes from."""
    from safelaunch import engines

    engine = engines.of_plan(plan)
    scripts = [script_of(plan, node) for node in plan.nodes]
    return {} if engine is None else engine.to_json(plan, scripts)


def supervision_json(supervision: Supervision) -> dict[str, Any]:
    """Return how a run is watched, as in run.json too: times in seconds, sizes in bytes."""
    values = {f.name: _plain(getattr(supervision, f.name)) for f in fields(supervision)}
    return {key: value for key, value in values.items() if value is not None or key not in _RARE}


def _plain(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def warning_json(warning: PlanWarning) -> dict[str, str]:
    """Return a warning as JSON data."""
    return {"id": warning.id, "message": warning.text, "where": warning.where}


def _node(plan: Plan, node: NodePlan) -> dict[str, Any]:
    env = {
        name: _variable(var)
        for name, var in node.env.items()
        if var.value is not None or var.computed
    }
    for name in node.secrets:
        env[name] = {"value": "***", "origin": "env_from"}
    removed = [name for name, var in node.env.items() if var.value is None and not var.computed]
    return {
        "host": node.host,
        "node_rank": node.node_rank,
        "cwd": str(node.cwd),
        "argv": [str(word) for word in node.argv],
        "env": env,
        "unset": [*removals(node.unset, node.requested), *removed],
        "inherit": "all" if node.keep is None else list(node.keep),
        "setup": list(node.setup),
        "files": {name: str(body) for name, body in node.files},
        "script": script_of(plan, node),
        **_optional(node),
    }


def _optional(node: NodePlan) -> dict[str, Any]:
    """Return the words of later attempts, what ranks set, and the assets, of jobs with them."""
    optional: dict[str, Any] = {}
    if node.resume_argv is not None:
        optional["resume_argv"] = [str(word) for word in node.resume_argv]
    if node.rungs:
        optional["rungs"] = [{var.name: str(var.value) for var in rung} for rung in node.rungs]
    if node.evidence:
        optional["evidence"] = {
            var.name: {**_variable(var), "value": str(var.value)}
            for group in node.evidence.values()
            for var in group
        }
    ranks = direct.newest(node).ranks
    if ranks is not None:
        optional["ranks"] = {
            "count": str(ranks.count),
            "first": ranks.first,
            "argv": [str(word) for word in rank_words(node, ranks)],
            "env": {var.name: str(var.value) for var in ranks.variables},
        }
    if node.container is not None:
        from safelaunch.plan.container import container_json

        optional["container"] = container_json(node)
    if node.assets:
        optional["assets"] = [
            {"name": a.name, "path": a.path, "place": str(a.place), "origin": str(a.origin)}
            for a in node.assets
        ]
    return optional


def script_of(plan: Plan, node: NodePlan) -> str:
    """Return launch.sh of a node."""
    number = plan.manual_node or f"{node.node_rank} of {len(plan.nodes)}"
    title = f"{plan.name}: {plan.launcher}, node {number}"
    if plan.engine is not None:
        from safelaunch import engines

        if engines.load(plan.engine.engine_name).ONE_SCRIPT:
            from safelaunch.plan.engine import script_for_all

            return script_for_all(plan)
    return launch_script(direct.newest(node), title)


def _variable(var: EnvVar) -> dict[str, Any]:
    keys = ("why", "cost", "source", "computed", "workaround", "prepend")
    return {
        "value": None if var.computed else str(var.value),
        "origin": str(var.origin),
        **{key: getattr(var, key) for key in keys if getattr(var, key)},
    }


def freeze(value: object) -> Any:
    """Return plain data for JSON from a plan, slots and all."""
    if isinstance(value, Slot):
        return {"slot": value.value}
    if isinstance(value, Template):
        return {"parts": [freeze(part) for part in value.parts]}
    if is_dataclass(value) and not isinstance(value, type):
        body = {f.name: freeze(getattr(value, f.name)) for f in fields(value)}
        return {"type": type(value).__name__, **body}
    if isinstance(value, tuple):
        return {"tuple": [freeze(item) for item in value]}
    if isinstance(value, dict):
        return {"map": [[key, freeze(item)] for key, item in value.items()]}
    return value


def thaw(data: Any) -> Any:
    """Return the plan that `freeze` turned into data. Raises RunError for other data."""
    if not isinstance(data, dict):
        return data
    try:
        if "slot" in data:
            return Slot(data["slot"])
        if "parts" in data:
            return Template(tuple(thaw(part) for part in data["parts"]))
        if "tuple" in data:
            return tuple(thaw(item) for item in data["tuple"])
        if "map" in data:
            return {key: thaw(item) for key, item in data["map"]}
        values = {key: thaw(item) for key, item in data.items() if key != "type"}
        if isinstance(values.get("manual_node"), str):  # as recorded before 2026-11-27
            values["manual_node"] = None
        return _CLASSES[data["type"]](**values)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise RunError("the recorded plan cannot be read", hint=f"{type(e).__name__}: {e}") from e
