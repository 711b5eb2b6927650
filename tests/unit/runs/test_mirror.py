"""remote.json: what this machine records of a run on hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.runs import mirror
from safelaunch.runtime.agent.runs import PARTS_LIMIT, NodeView
from safelaunch.runtime.parts import manifest
from safelaunch.runtime.records import NodePlace, PartEnd

if TYPE_CHECKING:
    from safelaunch.runs.store import Run

RUN_ID = "far-20260101-000000-abcd"


def place(node: int) -> NodePlace:
    return NodePlace(host=f"gpu{node}", node=node, run_dir=f"/runs/node-{node}")


def remote_json(run: Run) -> Any:
    return json.loads((Path(run.folder) / "remote.json").read_text())


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return mirror.create(str(tmp_path), RUN_ID, [place(1)], "far", "/etc/hosts.yaml")


def test_the_record_has_each_place_and_the_hosts_file(run: Run) -> None:
    assert remote_json(run) == {
        "version": 1,
        "id": RUN_ID,
        "hosts_file": "/etc/hosts.yaml",
        "places": [{"host": "gpu1", "node": 1, "run_dir": "/runs/node-1"}],
    }
    record = mirror.pointer(run)
    assert record is not None
    assert record.places == [place(1)]


def test_safelaunch_s_own_hosts_file_is_null(tmp_path: Path) -> None:
    assert (
        remote_json(mirror.create(str(tmp_path), RUN_ID, [place(0)], "far"))["hosts_file"] is None
    )


def test_a_node_is_added_in_its_order_and_unknown_keys_stay(run: Run) -> None:
    path, data = Path(run.folder) / "remote.json", remote_json(run)
    path.write_text(json.dumps({**data, "tomorrow": [1]}))
    mirror.add_nodes(run, [place(0), place(1)])
    first = {"host": "gpu0", "node": 0, "run_dir": "/runs/node-0"}
    assert remote_json(run) == {**data, "tomorrow": [1], "places": [first, *data["places"]]}


@pytest.mark.parametrize("text", ["", "{}", '{"places": []}', '{"places": [{"node": 1}]}'])
def test_a_damaged_record_counts_as_none(run: Run, text: str) -> None:
    (Path(run.folder) / "remote.json").write_text(text)
    assert mirror.pointer(run) is None


def _recorded_ends(run: Run, lines: str, position: int) -> dict[int, PartEnd]:
    """Record a view with a piece of the host's parts.jsonl; return what is recorded then."""
    view = NodeView(part_count=3, parts_size=400, parts_from=position, parts=lines)
    mirror.save(run, place(1), view)
    return manifest.read(run.node_dir)


def test_the_ends_of_parts_come_piece_by_piece_also_twice(run: Run) -> None:
    pieces = ['{"part": 0, "state": "failed"}\n', '{"part": 1, "state": "succeeded"}\n']
    _recorded_ends(run, pieces[0], 0)
    assert not mirror.has_parts(run, 1)
    for _ in range(2):
        ends = _recorded_ends(run, pieces[1], len(pieces[0]))
    assert {number: end.state for number, end in ends.items()} == {0: "failed", 1: "succeeded"}
    assert mirror.parts_position(run.node_dir) == len("".join(pieces))


@pytest.mark.parametrize("position", [-1, 1, 1 << 62])
def test_ends_of_parts_that_do_not_follow_what_is_recorded_are_ignored(
    run: Run, position: int
) -> None:
    assert _recorded_ends(run, '{"part": 0, "state": "failed"}\n', position) == {}
    assert _recorded_ends(run, "x" * (PARTS_LIMIT + 1), 0) == {}
