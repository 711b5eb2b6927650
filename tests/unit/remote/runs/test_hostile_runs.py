"""Runs as a host reports them that is not to be trusted."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.remote.runs.query_status import host_runs
from safelaunch.runs import mirror
from safelaunch.runtime.agent.runs import NodeView
from safelaunch.runtime.records import NodePlace
from safelaunch.sync.answers import BadAnswer

if TYPE_CHECKING:
    from pathlib import Path

RUN = "job-20260101-000000-abcd"
VIEW = {"run_dir": "/runs/node-0", "status": {"state": "failed", "name": "job"}}


class Host:
    """Connections to one host, which answers each question alike."""

    hosts_path = None

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def call(self, host: str, verb: str, **request: Any) -> Any:
        del host, verb, request
        return self.answer


def record(home: Path, answer: Any, host: str = "gpu1") -> list[str]:
    """Ask a host for its runs; return their ids."""
    answers = list(host_runs(Host(answer), str(home), [host]))  # type: ignore[arg-type]
    for error in (answer.error for answer in answers):
        if error is not None:
            raise error
    return [run.id for answer in answers for run, _ in answer.runs]


@pytest.mark.parametrize(
    "run_id",
    ["../../" + RUN, "/tmp/" + RUN, "a\\" + RUN, "\x1b]0;" + RUN, "..", "", "x\n" + RUN],
)
def test_an_id_of_a_host_names_no_folder_elsewhere(tmp_path: Path, run_id: str) -> None:
    home = tmp_path / "a/b/home"
    assert record(home, {"runs": {run_id: {"0": VIEW}, RUN: {"0": VIEW, "../1": VIEW}}}) == []
    assert record(home, {"runs": {run_id: {"0": VIEW}, RUN: {"0": VIEW}}}) == [RUN]
    assert [p.name for p in tmp_path.rglob("*-abcd")] == [RUN]
    assert sorted(os.listdir(home / "runs" / RUN / "node-0")) == ["mirror", "status.json"]


@pytest.mark.parametrize(
    "answer", [{}, None, [], {"runs": []}, {"runs": {RUN: []}}, {"runs": {RUN: {"0": 7}}}]
)
def test_what_is_no_list_of_runs_is_an_error_of_the_host(tmp_path: Path, answer: Any) -> None:
    with pytest.raises(BadAnswer, match="gpu1: its answer"):
        record(tmp_path, answer)


def test_a_host_does_not_change_what_is_known_of_a_run_on_another(tmp_path: Path) -> None:
    run = mirror.create(
        str(tmp_path), RUN, [NodePlace(host="gpu1", node=0, run_dir="/runs/node-0")], "job"
    )
    record(tmp_path, {"runs": {RUN: {"0": VIEW}}}, host="gpu2")
    assert json.loads((tmp_path / "runs" / RUN / "node-0/status.json").read_text())["state"] == (
        "pending"
    )
    pointer = mirror.pointer(run)
    assert pointer is not None
    assert [place.host for place in pointer.places] == ["gpu1"]


def test_a_host_replaces_no_recorded_plan_and_adds_no_other_file(tmp_path: Path) -> None:
    place = NodePlace(host="gpu1", node=0, run_dir="/runs/node-0")
    run = mirror.create(str(tmp_path), RUN, [place], "job")
    for plan in ("first", "second"):
        files: Any = {"plan.json": {"argv": [plan]}, "remote.json": {}, "x.sh": {"a": 1}}
        mirror.save(run, place, NodeView(files=files))
    node = tmp_path / "runs" / RUN / "node-0"
    assert json.loads((node / "plan.json").read_text()) == {"argv": ["first"]}
    assert sorted(os.listdir(node)) == ["mirror", "plan.json", "status.json"]
