"""The declared records: what is read of a file, and what stands in it after a rewrite."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

import pytest
from support import REPOSITORY
from support.show_json_page import docs

from safelaunch.runtime import records
from safelaunch.runtime.records import Failure, PlanRecord, Process, Record, RunRecord, Status

if TYPE_CHECKING:
    from pathlib import Path

CLASSES = sorted(
    (c for _, c in inspect.getmembers(records, inspect.isclass) if issubclass(c, Record)),
    key=lambda c: c.__name__,
)
GOLDEN = REPOSITORY / "tests" / "golden"
STATUS: dict[str, Any] = {
    "version": 1,
    "id": "job-20260101-000000-abcd",
    "state": "failed",
    "exit_code": None,
    "supervisor": {"boot_id": "b", "pidns": "n", "pid": 7, "start": 9},
    "attempts": [
        {"attempt": 1, "started_at": 1.5, "class": "cuda-oom", "rank": None, "tomorrow": [1]}
    ],
    "progress": {"step": 3, "total": None, "metrics": {"loss": "nan", "kl": 0.5}},
    "a_key_of_tomorrow": {"x": [None, 1]},
}


def test_a_file_is_written_again_as_it_was_read() -> None:
    data = Status.from_json(STATUS).to_json()
    assert data == STATUS
    assert list(data) == list(STATUS)


def test_what_is_nested_is_a_record_too() -> None:
    status = Status.from_json(STATUS)
    assert status.supervisor == Process(boot_id="b", pidns="n", pid=7, start=9)
    assert status.attempts[0].class_name == "cuda-oom"
    assert status.progress is not None
    assert status.progress.metrics["kl"] == 0.5


def test_a_missing_key_has_its_default_and_is_not_written() -> None:
    status = Status.from_json({"state": "running"})
    assert (status.attempts, status.warning, status.hang) == ((), None, None)
    assert status.to_json() == {"state": "running"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("state", 5),
        ("state", None),
        ("exit_code", "1"),
        ("attempts", {}),
        ("attempts", 3),
        ("supervisor", [1]),
        ("progress", "120/800"),
        ("nodes", "gpu1"),
        ("reason", ["it"]),
    ],
)
def test_a_value_of_another_type_counts_as_missing(key: str, value: object) -> None:
    damaged = Status.from_json({**STATUS, key: value})
    without = Status.from_json({k: v for k, v in STATUS.items() if k != key})
    assert damaged == without


def test_an_item_of_another_type_is_left_out() -> None:
    assert Status.from_json({"attempts": [None, 1, {"attempt": 2}]}).to_json() == {
        "attempts": [{"attempt": 2}]
    }
    assert RunRecord.from_json({"roots": ["/a", 3]}).roots == ["/a"]


def test_none_takes_a_key_away_unless_it_is_written_as_null() -> None:
    status = Status.from_json({"state": "failed", "signal": "SIGKILL", "exit_code": 137})
    status.signal = status.exit_code = None
    assert status.to_json() == {"state": "failed", "exit_code": None}


def test_unknown_keys_survive_a_change_and_a_copy() -> None:
    status = Status.from_json(STATUS).copy()
    status.state = "stopped"
    assert status.to_json() == {**STATUS, "state": "stopped"}


def test_a_key_with_the_name_of_a_method_does_no_harm() -> None:
    hostile = {"to_json": 1, "copy": "x", "__class__": 2, "__dict__": {}, "_unknown": 3}
    failure = Failure.from_json(hostile)
    assert failure.to_json() == hostile
    assert failure.copy() == failure


def test_the_key_class_is_the_attribute_class_name() -> None:
    failure = Failure.from_json({"class": "host-oom", "class_name": "x"})
    assert failure.class_name == "host-oom"
    assert failure.to_json() == {"class": "host-oom", "class_name": "x"}


@pytest.mark.parametrize("record", CLASSES, ids=lambda c: c.__name__)
def test_every_key_has_a_line_of_documentation(record: type[Record]) -> None:
    own = [name for name in getattr(record, "__annotations__", {}) if record is not Record]
    assert list(docs(record)) == own


@pytest.mark.parametrize("record", CLASSES, ids=lambda c: c.__name__)
def test_every_key_takes_values_of_its_type_alone(record: type[Record]) -> None:
    """Types that reading does not know would be found by the first file only."""
    values: list[object] = ["", 1, 1.5, True, [], {}, [{}], {"a": {}}, [1], None]
    for field in record.fields().values():
        accepted = [v for v in values if field.convert(v) is not records._MISSING]
        assert accepted, field.kind
        assert len(accepted) < len(values) or "object" in field.kind


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_every_key_of_a_plan_is_declared(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    for printed in data.get("steps", [data]):  # each step of a file is a plan of its own
        printed.pop("step", None)
        plan = PlanRecord.from_json(printed)
        assert json.dumps(plan.to_json()) == json.dumps(printed)
        parts = [plan, *plan.nodes, *(v for node in plan.nodes for v in node.env.values())]
        assert not any(records._UNKNOWN in vars(part) for part in parts)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '"x"', "{" * 9999, '{"version": 1'])
def test_a_damaged_file_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "status.json").write_text(text)
    assert Status.read(str(tmp_path)) is None


def test_there_may_be_no_file(tmp_path: Path) -> None:
    assert RunRecord.read(str(tmp_path)) is None


def test_a_record_is_written_to_the_file_of_its_class(tmp_path: Path) -> None:
    Failure(what="exited").write(str(tmp_path))
    assert json.loads((tmp_path / "failure.json").read_text()) == {"what": "exited"}
