"""Compares two runs: differences in groups, the most relevant first.

Values that always differ (ids, ports, run directories, times, processes) are left out: where a plan
had a slot for such a value, the slot is compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.report.diff import code_files, plans
from safelaunch.report.diff.model import Change, Group, as_list, as_mapping, diff_mappings, to_text
from safelaunch.report.redact.redactor import Redactor
from safelaunch.runtime.records import Provenance
from safelaunch.runtime.units import BYTES, size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from safelaunch.report.diff.model import RunSnapshot
    from safelaunch.runtime.records import Failure

_MAX_CHANGES = 40  # changes of a group


def compare(before: RunSnapshot, after: RunSnapshot) -> list[Group]:
    """Return all groups, also those without changes; secrets are placeholders."""
    redactor = Redactor()
    both = plans.plan_nodes(before), plans.plan_nodes(after)
    groups = [
        Group("outcome", tuple(diff_mappings(outcome(before), outcome(after)))),
        code_files.code_group(before, after),
        _group(before, after, "command", _has_plan, lambda *_: plans.command(*both)),
        _group(
            before, after, "topology", _has_plan, lambda *_: plans.topology(before, after, both)
        ),
        _group(before, after, "variables", _has_plan, lambda *_: plans.variables(both, redactor)),
        _group(before, after, "versions", _has_record, _version_changes),
        Group("host", tuple(_host_changes(before, after))),
        _group(
            before, after, "settings", _has_plan, lambda *_: plans.settings(before, after, both)
        ),
    ]

    def redact(change: Change) -> Change:
        was, now = (None if value is None else redactor.secrets(value) for value in change[1:])
        return Change(change.what, was, now)

    return [
        group._replace(changes=tuple(map(redact, group.changes[:_MAX_CHANGES]))) for group in groups
    ]


def _group(
    before: RunSnapshot,
    after: RunSnapshot,
    name: str,
    is_recorded: Callable[[RunSnapshot], bool],
    changes: Callable[[RunSnapshot, RunSnapshot], list[Change]],
) -> Group:
    missing = [snapshot.id for snapshot in (before, after) if not is_recorded(snapshot)]
    if missing:
        return Group(name, unknown=f"nothing is recorded for {' and '.join(missing)}")
    return Group(name, tuple(changes(before, after)))


def _has_plan(snapshot: RunSnapshot) -> bool:
    return any(node.plan and node.plan.nodes for node in snapshot.nodes)


def _has_record(snapshot: RunSnapshot) -> bool:
    return any(node.record for node in snapshot.nodes)


# -- how it ended ----------------------------------------------------------------------------------


def outcome(snapshot: RunSnapshot) -> dict[str, Any]:
    """Return how a run ended: state, exit code, failure, last step."""
    status, attempts = snapshot.status, len(snapshot.status.attempts)
    values = {
        "state": status.state,
        "exit code": status.exit_code,
        "signal": status.signal,
        "failure": _failure_summary(snapshot.failure),
        "attempts": attempts if attempts > 1 else None,
        "last step": status.progress.step if status.progress else None,
    }
    return {key: value for key, value in values.items() if value not in (None, "")}


def _failure_summary(failure: Failure | None) -> str | None:
    """Return `rank 1: ValueError: bad batch (user-code-exception)`."""
    if failure is None or not failure.what:
        return None
    head = "" if failure.rank is None else f"rank {failure.rank}: "
    tail = f" ({failure.class_name})" if failure.class_name else ""
    return f"{head}{failure.what}{tail}"


# -- what it ran on --------------------------------------------------------------------------------


def _record(snapshot: RunSnapshot) -> Provenance:
    return next((node.record for node in snapshot.nodes if node.record), Provenance())


def _version_changes(before: RunSnapshot, after: RunSnapshot) -> list[Change]:
    def values(snapshot: RunSnapshot) -> dict[str, Any]:
        record = _record(snapshot)
        packages = record.packages or {}
        return {"Python": record.python, **packages, "interpreter": record.interpreter}

    return diff_mappings(values(before), values(after))


def _host_changes(before: RunSnapshot, after: RunSnapshot) -> list[Change]:
    def values(snapshot: RunSnapshot) -> dict[str, Any]:
        runs = [node.run for node in snapshot.nodes if node.run]
        facts = next((node.facts for node in snapshot.nodes if node.facts), {})
        return {
            "machine": ", ".join(run.hostname for run in runs if run.hostname),
            "hosts": next((to_text(run.hosts) for run in runs if run.hosts), None),
            **(host_summary(facts) if facts else {}),
            **_nccl(snapshot),
        }

    was, now = values(before), values(after)
    if not was["machine"] or not now["machine"]:
        return []
    # a fact known of only one run is not a difference
    both = [key for key in was if key in now and None not in (was[key], now[key])]
    return diff_mappings({key: was[key] for key in both}, {key: now[key] for key in both})


def _nccl(snapshot: RunSnapshot) -> dict[str, Any]:
    """Return what NCCL chose in a run; {} where it wrote nothing."""
    nccl = snapshot.status.nccl
    if nccl is None:
        return {}
    return {
        "NCCL in use": ", ".join(nccl.versions) or None,
        "NCCL transports": ", ".join(nccl.transports) or None,
        "NCCL network": ", ".join((*nccl.networks, *nccl.devices)) or None,
        "NCCL channels": nccl.channels,
    }


def host_summary(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a host that matter for a run."""
    system, gpus, torch = (as_mapping(facts.get(key)) for key in ("system", "gpus", "torch"))
    nccl = as_mapping(torch.get("nccl"))
    models = [as_mapping(gpu).get("name") for gpu in as_list(gpus.get("cards"))]
    gpu_counts = [f"{models.count(name)} x {name}" for name in dict.fromkeys(models) if name]
    summary = {
        "system": system.get("distribution"),
        "kernel": system.get("kernel"),
        "container": system.get("container"),
        "GPUs": ", ".join(gpu_counts) or ("none" if gpus.get("count") == 0 else None),
        "driver": gpus.get("driver"),
        "CUDA of the driver": gpus.get("cuda"),
        "torch": torch.get("version"),
        "CUDA of torch": torch.get("cuda"),
        "ROCm of torch": torch.get("hip"),
        "cuDNN": torch.get("cudnn"),
        "NCCL": nccl.get("version"),
        "cores": as_mapping(facts.get("cores")).get("usable"),
        "memory": _whole_gib(as_mapping(facts.get("memory")).get("total")),
    }
    return {key: value for key, value in summary.items() if value is not None}


def _whole_gib(count: object) -> str | None:
    """Return a size in whole GiB: equal machines differ by what the kernel reserves."""
    if not isinstance(count, (int, float)) or not count:
        return None
    return size(round(count / BYTES["GiB"]) * BYTES["GiB"])
