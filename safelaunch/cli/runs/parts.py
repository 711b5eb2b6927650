"""The parts of a run, as `ps`, `show` and `logs` show them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from safelaunch.errors import RunError
from safelaunch.runs import store
from safelaunch.runtime import members
from safelaunch.runtime.parts import expand, manifest
from safelaunch.runtime.records import FanOutSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.runs.access import RunAccess

SHOWN = 20  # parts that have not succeeded


def part_counts(run: store.Run) -> tuple[int, int] | None:
    """Return how many parts of a run are done, and how many it has; None: it has none."""
    spec = FanOutSpec.read(run.node_dir)
    if spec is None:
        return None
    ends = manifest.read(run.node_dir).values()
    return sum(end.state == "succeeded" for end in ends), expand.part_count(spec)


def part_rows(shown: store.ShownRun) -> Iterator[tuple[str, str, int]]:
    """Yield how many parts are done, and why others have not succeeded."""
    if not shown.part_count:
        return
    others = [end for end in shown.parts if end.state != "succeeded"]
    done = len(shown.parts) - len(others)
    yield "parts", f"{done} of {shown.part_count} are done", 1
    for end in others[:SHOWN]:
        yield "parts", f"{end.part}: {end.state}: {end.cause}", 2
    if others:
        yield "parts", f"the log of one: safelaunch logs {shown.id} --part {others[0].part}", 2


def part_run(run: RunAccess, number: int) -> store.Run:
    """Return a part of a run, which has the files of one. Raises RunError."""
    node_dir = run.record.node_dir
    spec = FanOutSpec.read(node_dir)
    if spec is None:
        raise RunError(f"{run.id} has no parts")
    count = expand.part_count(spec)
    if number >= count:
        raise RunError(f"no part {number} of {run.id}", hint=f"it has 0 to {count - 1}")
    folder = members.folder(node_dir, f"part-{number}")
    if spec.earlier and not os.path.isdir(os.path.join(folder, "node-0", "logs")):
        folder = members.folder(spec.earlier, f"part-{number}")
    if not os.path.isdir(os.path.join(folder, "node-0", "logs")):
        raise RunError(f"part {number} of {run.id} has not started yet")
    return store.Run(f"{run.id}/part-{number}", folder)
