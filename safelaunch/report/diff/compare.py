"""What differs between two runs, grouped, the most telling first.

What differs always (ids, ports, run directories, times, processes) is left out: where a plan had a
slot for such a value, the slot is compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.report.diff import plans
from safelaunch.report.diff.model import Change, Group, between, items, mapping, text
from safelaunch.report.redact.redactor import Redactor
from safelaunch.runtime.records import Checkout, Provenance
from safelaunch.runtime.units import BYTES, size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from safelaunch.report.diff.model import Side
    from safelaunch.runtime.records import Failure

_MOST = 40  # changes of a group
_NAMED = 8  # changed files that are named


def compare(one: Side, other: Side, hide: Redactor | None = None) -> list[Group]:
    """Return every group, those without a difference too; secrets are placeholders."""
    hidden = hide or Redactor()
    both = plans.plans(one), plans.plans(other)
    groups = [
        _outcome(one, other),
        _of(one, other, "code", _has_record, _code),
        _of(one, other, "command", _has_plan, lambda *_: plans.command(*both)),
        _of(one, other, "topology", _has_plan, lambda *_: plans.topology(one, other, both)),
        _of(one, other, "variables", _has_plan, lambda *_: plans.variables(both, hidden)),
        _of(one, other, "versions", _has_record, _versions),
        Group("host", tuple(_host(one, other))),
        _of(one, other, "settings", _has_plan, lambda *_: plans.settings(one, other, both)),
    ]
    return [
        group._replace(changes=tuple(_hidden(change, hidden) for change in group.changes[:_MOST]))
        for group in groups
    ]


def _hidden(change: Change, hide: Redactor) -> Change:
    was, now = (None if one is None else hide.secrets(one) for one in change[1:])
    return Change(change.what, was, now)


def _of(
    one: Side,
    other: Side,
    name: str,
    has: Callable[[Side], bool],
    changes: Callable[[Side, Side], list[Change]],
) -> Group:
    missing = [side.id for side in (one, other) if not has(side)]
    if missing:
        return Group(name, unknown=f"nothing is recorded for {' and '.join(missing)}")
    return Group(name, tuple(changes(one, other)))


def _has_plan(side: Side) -> bool:
    return any(node.plan.get("nodes") for node in side.nodes)


def _has_record(side: Side) -> bool:
    return any(node.record for node in side.nodes)


# -- how it ended ----------------------------------------------------------------------------------


def ended(side: Side) -> dict[str, Any]:
    """Return how a run ended, in the words of its files."""
    status, attempts = side.status, len(side.status.attempts)
    outcome = {
        "state": status.state,
        "exit code": status.exit_code,
        "signal": status.signal,
        "failure": _failure(side.failure),
        "attempts": attempts if attempts > 1 else None,
        "last step": status.progress.step if status.progress else None,
    }
    return {key: value for key, value in outcome.items() if value not in (None, "")}


def _failure(failure: Failure | None) -> str | None:
    """Return `rank 1: ValueError: bad batch (user-code-exception)`."""
    if failure is None or not failure.what:
        return None
    head = "" if failure.rank is None else f"rank {failure.rank}: "
    tail = f" ({failure.class_name})" if failure.class_name else ""
    return f"{head}{failure.what}{tail}"


def _outcome(one: Side, other: Side) -> Group:
    return Group("outcome", tuple(between(ended(one), ended(other))))


# -- what it ran on --------------------------------------------------------------------------------


def _record(side: Side) -> Provenance:
    return next((node.record for node in side.nodes if node.record), Provenance())


def _code(one: Side, other: Side) -> list[Change]:
    was, now = (_record(side).git or Checkout() for side in (one, other))
    found = between({"commit": was.commit}, {"commit": now.commit})
    files = [list(git.changed or ()) for git in (was, now)]
    gone, new = ([f for f in files[i] if f not in files[1 - i]] for i in (0, 1))
    for what, names, is_new in (("changed file", new, True), ("changed file", gone, False)):
        for name in names[:_NAMED]:
            found.append(Change(what, *((None, name) if is_new else (name, None))))
        if len(names) > _NAMED:
            more = f"and {len(names) - _NAMED} more"
            found.append(Change(what, *((None, more) if is_new else (more, None))))
    return found


def _versions(one: Side, other: Side) -> list[Change]:
    def of(side: Side) -> dict[str, Any]:
        record = _record(side)
        return {
            "Python": record.python,
            **(record.packages or {}),
            "interpreter": record.interpreter,
        }

    return between(of(one), of(other))


def _host(one: Side, other: Side) -> list[Change]:
    def of(side: Side) -> dict[str, Any]:
        runs = [node.run for node in side.nodes if node.run]
        facts = next((node.facts for node in side.nodes if node.facts), {})
        return {
            "machine": ", ".join(run.hostname for run in runs if run.hostname),
            "hosts": next((text(run.hosts) for run in runs if run.hosts), None),
            **(known(facts) if facts else {}),
        }

    was, now = of(one), of(other)
    if not was["machine"] or not now["machine"]:
        return []
    # facts that are known of one of them alone are no difference
    both = [key for key in was if key in now and None not in (was[key], now[key])]
    return between({key: was[key] for key in both}, {key: now[key] for key in both})


def known(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a host's facts explains a run."""
    system, gpus, torch = (mapping(facts.get(key)) for key in ("system", "gpus", "torch"))
    nccl = mapping(torch.get("nccl"))
    models = [mapping(card).get("name") for card in items(gpus.get("cards"))]
    cards = [f"{models.count(name)} x {name}" for name in dict.fromkeys(models) if name]
    found = {
        "system": system.get("distribution"),
        "kernel": system.get("kernel"),
        "container": system.get("container"),
        "GPUs": ", ".join(cards) or ("none" if gpus.get("count") == 0 else None),
        "driver": gpus.get("driver"),
        "CUDA of the driver": gpus.get("cuda"),
        "torch": torch.get("version"),
        "CUDA of torch": torch.get("cuda"),
        "ROCm of torch": torch.get("hip"),
        "cuDNN": torch.get("cudnn"),
        "NCCL": nccl.get("version"),
        "cores": mapping(facts.get("cores")).get("usable"),
        "memory": _whole_gib(mapping(facts.get("memory")).get("total")),
    }
    return {key: value for key, value in found.items() if value is not None}


def _whole_gib(count: object) -> str | None:
    """Return a size in whole GiB: that of two equal machines differs by what the kernel took."""
    if not isinstance(count, (int, float)) or not count:
        return None
    return size(round(count / BYTES["GiB"]) * BYTES["GiB"])
