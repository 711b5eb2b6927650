"""`ps` prints what hosts answer as it comes, and says which do not."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from safelaunch.cli.runs.ps import _print_json, _print_rows, _RunRow, _Table
from safelaunch.cli.runs.show import _job
from safelaunch.errors import HostError
from safelaunch.runs import mirror, store
from safelaunch.runs.access import HostAnswer
from safelaunch.runtime.agent.runs import NodeView
from safelaunch.runtime.records import NodePlace, Status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

DEAD = HostError("no route to it", where="gpu3", hint="is the VPN up?")
HOSTS = ["gpu1", "gpu2", "gpu3"]


def answer(home: Path, host: str, count: int, state: str = "running") -> HostAnswer:
    """Return what a host answers that has some runs."""
    runs = []
    for number in range(count):
        run_id = f"job-{host}-2026010{host[-1]}-00000{number}-abcd"
        places = [NodePlace(host=host, node=0, run_dir="/x")]
        runs.append((mirror.create(str(home), run_id, places, "job"), Status(state=state)))
    return HostAnswer(host, None, runs)


def test_each_answer_is_printed_before_the_next_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []

    def answers() -> Iterator[HostAnswer]:
        yield answer(tmp_path, "gpu2", 1)
        printed.append(capsys.readouterr().out)
        yield HostAnswer("gpu3", DEAD, [])
        printed.append(capsys.readouterr().out)
        yield answer(tmp_path, "gpu1", 1)
        printed.append(capsys.readouterr().out)

    errors = _print_rows(answers(), 9, _Table(None, has_more=True), HOSTS)
    assert errors == [DEAD]
    first, dead = printed[0].splitlines(), printed[1].splitlines()
    assert first[0].split() == ["RUN", "HOST", "STATE", "TIME", "PROGRESS"]
    assert first[1].split() == ["job-gpu2-20260102-000000-abcd", "gpu2", "running"]
    assert [line.split() for line in dead] == [["-", "gpu3", "unknown"]]
    assert dead[0].index("gpu3") == first[1].index("gpu2", 9)
    assert printed[2].startswith("job-gpu1-20260101-000000-abcd  gpu1  running")


def test_the_reason_of_a_host_that_does_not_answer_is_said_and_a_hint_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = HostError("no route to it", where="gpu1", hint=DEAD.hint)
    errors = [HostAnswer("gpu3", DEAD, []), HostAnswer("gpu1", other, [])]
    _print_rows([*errors, answer(tmp_path, "gpu2", 0)], 9, _Table(None, has_more=True), HOSTS)
    assert capsys.readouterr().err.splitlines() == [
        "error: gpu3: no route to it",
        "hint: is the VPN up?",
        "error: gpu1: no route to it",
        "no runs on gpu2",
        "1 of 3 hosts have answered",
    ]


def test_old_ended_runs_of_each_host_are_counted_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = [answer(tmp_path, host, 3, "failed") for host in ("gpu1", "gpu2")]
    _print_rows(hosts, 2, _Table(None, has_more=True), HOSTS[:2])
    printed = capsys.readouterr()
    assert [line.split()[0][-6] for line in printed.out.splitlines()[1:]] == ["1", "2", "1", "2"]
    assert "2 older runs are not shown" in printed.err


def test_json_has_the_errors_beside_the_runs_in_the_order_of_their_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [
        answer(tmp_path, "gpu2", 1),
        HostAnswer("gpu3", DEAD, []),
        answer(tmp_path, "gpu1", 1),
    ]
    _print_json(answers, 9)
    printed = json.loads(capsys.readouterr().out)
    assert [run["host"] for run in printed["runs"]] == ["gpu1", "gpu2"]
    assert printed["errors"] == [
        {"host": "gpu3", "reason": "no route to it", "hint": "is the VPN up?"}
    ]


def test_the_age_of_a_run_is_right_where_the_clock_of_its_host_is_a_day_off(tmp_path: Path) -> None:
    run = answer(tmp_path, "gpu1", 1).runs[0][0]
    for ahead in (-86400.0, 86400.0):
        store.Mirror(host="gpu1", run_dir="/x", clock=ahead).write(store.node_dir(run, 0))
        started_at = time.time() + ahead - 3600
        row = _RunRow(run, Status(state="running", started_at=started_at))
        assert row.age == "for 1 h 0 min"
        (_, text, _) = list(_job(run, row.status))[-1]
        assert text.endswith("1 h 0 min ago")
        shown = time.strftime("%Y-%m-%d", time.localtime(time.time() - 3600))
        assert text.startswith(shown)


def test_a_list_of_a_host_says_who_started_a_run_and_from_which_checkout(tmp_path: Path) -> None:
    rows = []
    for number, job_file in enumerate(("/home/ann/a/proj/train.yaml", "C:\\b\\proj\\train.yaml")):
        places = [NodePlace(host="gpu1", node=0, run_dir="/x")]
        run_id = f"train-2026010{number + 1}-000000-abcd"
        run = mirror.create(str(tmp_path), run_id, places, "train")
        view = NodeView(status=Status(state="running"), client="ann@laptop", job_file=job_file)
        mirror.save(run, places[0], view)
        rows.append(_RunRow(run, Status(state="running")))
    head, *lines = _Table(None, has_origin=True).lines(rows)
    assert head.split()[-1] == "FROM"
    assert [line.split()[-1] for line in lines] == ["ann@laptop:a/proj", "ann@laptop:b/proj"]
    assert "ann@laptop" not in "".join(_Table(None).lines(rows))
    for width in (80, 90):
        lines = _Table(width, has_origin=True).lines(rows)
        assert max(map(len, lines)) <= width
        assert "ann@" in lines[1]
