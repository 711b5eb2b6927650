"""README.md of a bundle: what maintainers ask for, in the order in which they read it."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Any

from safelaunch.report.diff import compare
from safelaunch.report.diff.model import items, mapping
from safelaunch.runtime.packages import TRAINING
from safelaunch.runtime.records import Checkout, Provenance, RunRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.report.collect import Case, Part
    from safelaunch.report.diff.model import Change, Group, Side

_LAST_EVENTS = 12
_FILES = 20  # changed files that are named
_CHANGES = 12  # of a run that was tried
_LONGEST = 160  # characters of a value in a table


def page(case: Case, headline: str, block: Sequence[str], events: Sequence[str]) -> list[str]:
    """Return the lines; `block` is the failure, `events` the timeline."""
    return [
        f"# {case.name}: {headline}",
        "",
        *_happened(case, block),
        "## Environment",
        "",
        *_table(case),
        "",
        *_facts_note(case),
        "## How to reproduce",
        "",
        *_reproduction(case),
        "## What happened when",
        "",
        *_timeline(events),
        "## Already tried",
        "",
        *tried(case),
        "",
    ]


def _happened(case: Case, block: Sequence[str]) -> list[str]:
    if block:
        return ["```text", *block, "```", ""]
    why = case.status.reason or case.status.warning
    text = f"The run is `{case.status.state}`; no failure is recorded."
    return [text + (f" {why}" if why else ""), ""]


# -- the environment -------------------------------------------------------------------------------


def _table(case: Case) -> list[str]:
    columns = [_versions(part) for part in case.parts]
    rows = list(dict.fromkeys(key for column in columns for key in column))
    heads = [part.host for part in case.parts]
    lines = [f"| | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for row in rows:
        cells = [_cell(column.get(row)) for column in columns]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return lines


def _cell(value: object) -> str:
    text = " ".join(str("" if value is None else value).replace("|", "\\|").split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."


def _versions(part: Part) -> dict[str, Any]:
    """Return {label: value} of a node: what the run recorded, and what is known of its host."""
    record, run = part.record(Provenance) or Provenance(), part.record(RunRecord) or RunRecord()
    plan, packages, git = part.of("plan.json"), record.packages or {}, record.git or Checkout()
    facts = compare.known(part.facts)
    changed = len(git.changed or ()) + git.more_changed
    commit = f"{git.commit}, changed files: {changed}" if git.commit else None
    found = {
        "commit": commit,
        "safelaunch": run.safelaunch,
        "launcher": plan.get("launcher"),
        "profile": plan.get("profile"),
        "processes": run.ranks,
        "world size": run.world_size,
        "Python": record.python,
        **{name: packages[name] for name in TRAINING if name in packages},
        **{name: version for name, version in packages.items() if name not in TRAINING},
        **{key: value for key, value in facts.items() if key not in packages},
    }
    return {key: value for key, value in found.items() if value not in (None, "")}


def _facts_note(case: Case) -> list[str]:
    at = [part.facts.get("kept_at") for part in case.parts if part.facts]
    known = [when for when in at if isinstance(when, (int, float))]
    if not known:
        said = (
            "GPUs, driver, CUDA and NCCL are not known: `safelaunch facts` had not asked this host."
        )
        return [said, ""]
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(min(known)))
    return [f"Packages and commit are those of the run; cards, driver and system as of {when}.", ""]


# -- reproduction ----------------------------------------------------------------------------------


def _reproduction(case: Case) -> list[str]:
    lines: list[str] = []
    number = 1
    for record in (part.record(Provenance) for part in case.parts[:1]):
        git = record.git if record is not None else None
        if git is not None and git.commit:
            changed = list(git.changed or ())
            dirty = ", with these changes:" if changed else ", nothing changed"
            lines.append(f"{number}. check out commit `{git.commit}`{dirty}")
            lines += [f"   - `{name}`" for name in changed[:_FILES]]
            lines += [f"   - and {len(changed) - _FILES} more"] if len(changed) > _FILES else []
            number += 1
    needed = list(dict.fromkeys(name for part in case.parts for name in _from_caller(part)))
    if needed:
        lines.append(f"{number}. set {', '.join(f'`{name}`' for name in needed)} (values not kept)")
        number += 1
    several = len(case.parts) > 1
    for part in case.parts:
        where = f"node-{part.number}/launch.sh" if several else "launch.sh"
        on = f" on {part.host}" if several else ""
        if part.script:
            lines.append(f"{number}. `bash {where}`{on}; paths in it are those of that machine")
            number += 1
        command = items(_node(part).get("argv"))
        if command:
            lines += ["", "   ```sh", f"   {shlex.join(map(str, command))}", "   ```", ""]
    if not lines:
        return ["Nothing is recorded of how it was started.", ""]
    lines.append(
        "All variables with their origins: `environment.txt`; the whole plan: `plan.json`."
    )
    return [*lines, ""]


def _node(part: Part) -> dict[str, Any]:
    """Return the plan of a node."""
    nodes = [mapping(one) for one in items(part.of("plan.json").get("nodes"))]
    for node in nodes:
        if node.get("node_rank") == part.number:
            return node
    return nodes[0] if len(nodes) == 1 else {}


def _from_caller(part: Part) -> list[str]:
    env = mapping(_node(part).get("env"))
    return [name for name, told in env.items() if mapping(told).get("origin") == "env_from"]


def environment(case: Case) -> list[str]:
    """Return the variables of each node, with where each comes from and why."""
    lines: list[str] = []
    for part in case.parts:
        node = _node(part)
        lines += [f"# node {part.number} ({part.host})"]
        for name, told in mapping(node.get("env")).items():
            known = mapping(told)
            value, computed = known.get("value"), known.get("computed")
            shown = f"<{computed}>" if value is None and computed else str(value)
            lines.append(f"{name}={shown}")
            lines.append(f"    from {known.get('origin')}")
            lines += [
                f"    {key}: {known[key]}" for key in ("why", "cost", "source") if known.get(key)
            ]
        removed = items(node.get("unset"))
        lines += [f"removed: {' '.join(map(str, removed))}"] if removed else []
        lines += [f"inherited: {node['inherit']}"] if node.get("inherit") else []
        lines += [f"setup: {line}" for line in items(node.get("setup"))]
        lines.append("")
    return lines


def _timeline(events: Sequence[str]) -> list[str]:
    if not events:
        return ["No events are recorded.", ""]
    shown = [events[0], *events[1:][-_LAST_EVENTS:]]
    more = len(events) - len(shown)
    said = [f"({more} earlier ones: `timeline.txt`)", ""] if more else []
    return ["```text", *shown, "```", "", *said]


# -- already tried ---------------------------------------------------------------------------------


def tried(case: Case) -> list[str]:
    """Return how earlier runs of the job ended, and what differed from the one before each."""
    if not case.tried:
        return ["No earlier run of this job is recorded."]
    lines: list[str] = []
    before: Side | None = None
    for side in (*case.tried, case.side):
        mine = " (this run)" if side.id == case.id else ""
        lines.append(f"- {side.id}{mine}: {_ended(side)}")
        if before is not None:
            groups = compare.compare(before, side)
            lines += [f"  - {line}" for line in _short(groups)]
        before = side
    return lines


def _ended(side: Side) -> str:
    told = compare.ended(side)
    state = str(told.pop("state", "not known"))
    what = told.pop("failure", None)
    more = ", ".join(
        f"{key} {value}" for key, value in told.items() if key not in ("rank", "class")
    )
    return (
        state + (f", {more}" if more else "") + (f": {' '.join(str(what).split())}" if what else "")
    )


def _short(groups: Sequence[Group]) -> list[str]:
    changes = [
        (group.name, one) for group in groups if group.name != "outcome" for one in group.changes
    ]
    if not changes:
        return ["nothing else differed from the run before, as far as it is recorded"]
    lines = [f"{_change(one)} ({name})" for name, one in changes[:_CHANGES]]
    more = len(changes) - len(lines)
    return [*lines, f"and {more} more"] if more else lines


def _change(change: Change) -> str:
    def cell(value: str | None) -> str:
        return "nothing" if value is None else f"`{_cell(value)}`"

    return f"{change.what}: {cell(change.was)} -> {cell(change.now)}"


def contents(files: Mapping[str, tuple[int, str]], notes: Sequence[str], head: str) -> list[str]:
    """Return a list with a line for each file or note."""
    lines = [head, ""]
    lines += [f"- `{name}`: {about}" for name, (_, about) in files.items()]
    lines += [f"- {note}" for note in notes]
    return [*lines, ""]
