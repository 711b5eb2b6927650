"""The parts of a run, as `ps`, `show` and `logs` show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.errors import RunError
from safelaunch.runs import store
from safelaunch.runtime.parts import manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.runs.access import RunAccess

SHOWN = 20  # parts that have not succeeded


def part_rows(shown: store.ShownRun) -> Iterator[tuple[str, str, int]]:
    """Yield how many parts are done, and why others have not succeeded."""
    if not shown.part_count:
        return
    others = [end for end in shown.parts if end.state != "succeeded"]
    done = len(shown.parts) - len(others)
    yield "parts", f"{done} of {shown.part_count} are done", 1
    for node in shown.nodes:
        own = [end for end in shown.parts if end.host == node.host]
        done_there = sum(end.state == "succeeded" for end in own)
        yield "parts", f"{done_there} of them on {node.host}", 1
    for end in others[:SHOWN]:
        place = f" on {end.host}" if end.host else ""
        yield "parts", f"{end.part}{place}: {end.state}: {end.cause}", 2
    if others:
        yield "parts", f"the log of one: safelaunch logs {shown.id} --part {others[0].part}", 2


def part_run(run: RunAccess, number: int) -> RunAccess:
    """Return a part of a run, which has the files of one. Raises RunError, HostError."""
    run.status()  # updates which parts of a run on a host have ended
    counts = store.part_counts(run.record)
    if counts is None:
        raise RunError(f"{run.id} has no parts")
    if number >= counts[1]:
        raise RunError(f"no part {number} of {run.id}", hint=f"it has 0 to {counts[1] - 1}")
    node = store.node_of_part(run.record, number)
    end = manifest.read(store.node_dir(run.record, node)).get(number)
    if end is None or end.run is None:
        part = run.member(f"part-{number}", None, (node, node))
    else:
        part = run.member(f"part-{number}", end.run, (node, end.run_node))
    part.status()
    if not part.attempts():
        raise RunError(f"part {number} of {run.id} has not started yet")
    return part
