"""`report` and `diff`: real runs, damaged ones, runs on hosts, and what is planted in files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from support.inputs.planted_secrets import HOME, HOST, PLAN_SECRET, PLANTED, USER
from support.ssh import sshd
from support.workspace import Place, wait_for

from safelaunch.cli.main import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.ssh.sshd import Sshd


FAILS = (
    "import os\nprint('step 1')\nraise ValueError('bad batch ' + os.environ.get('HF_TOKEN', ''))\n"
)
TOKEN = "hf_" + "A1b2C3d4" * 4
RUN = "small-20260101-120000-abcd"


def unpacked(path: str | Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as bundle:
        return {name: bundle.read(name).decode() for name in bundle.namelist()}


def reported(place: Place, *words: str) -> dict[str, str]:
    return unpacked(place.json("report", *words)["path"])


def fingerprint(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(file): (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns)
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.fixture(scope="module")
def failed_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Yield the id and the home of a run that has failed."""
    place = Place(tmp_path_factory.mktemp("failed"))
    try:
        place.env["HF_TOKEN"] = TOKEN
        job = place.job(FAILS, env_from=["HF_TOKEN"])
        yield str(place.failed(job)["id"]), place.home
    finally:
        place.close()


@pytest.fixture
def failed(place: Place, failed_once: tuple[str, Path]) -> str:
    """Return the id of a run that has failed, which the test has for itself."""
    run, home = failed_once
    shutil.copytree(home, place.home)
    place.env["HF_TOKEN"] = TOKEN
    return run


# -- a real run ------------------------------------------------------------------------------------


def test_a_bundle_holds_what_maintainers_ask_for(place: Place, failed: str) -> None:
    files = reported(place, failed)
    assert set(files) >= {
        "README.md", "launch.sh", "plan.json", "environment.txt", "timeline.txt", "failure.json",
        "failure.txt", "logs/attempt-1/launcher.log",
    }  # fmt: skip
    titles = [line for line in files["README.md"].splitlines() if line.startswith("## ")]
    assert titles[:4] == [
        "## Environment",
        "## How to reproduce",
        "## What happened when",
        "## Already tried",
    ]
    assert "ValueError: bad batch <secret-" in files["README.md"]
    assert "bad batch <secret-" in files["logs/attempt-1/launcher.log"]


def test_the_value_of_a_secret_variable_is_nowhere(place: Place, failed: str) -> None:
    assert [name for name, text in reported(place, failed).items() if TOKEN in text] == []


def test_a_bundle_is_private_and_the_run_unchanged(place: Place, failed: str) -> None:
    before = fingerprint(place.node(failed))
    path = place.json("report", failed)["path"]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert fingerprint(place.node(failed)) == before


def test_what_was_written_is_said_with_a_warning(place: Place, failed: str) -> None:
    done = place.cli("report", failed)
    assert f"wrote {failed}-report.zip" in done.stdout
    assert "read it before you post it" in done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_second_bundle_gets_another_name(place: Place, failed: str) -> None:
    paths = [place.json("report", failed)["path"] for _ in range(2)]
    assert [Path(path).name for path in paths] == [f"{failed}-report.zip", f"{failed}-report-2.zip"]


def test_a_file_that_is_there_is_not_overwritten(place: Place, failed: str) -> None:
    mine = place.write("mine.zip", "mine")
    done = place.cli("report", failed, "-o", "mine.zip", code=2)
    assert "not overwritten" in done.stderr
    assert mine.read_text() == "mine"
    assert sorted(p.name for p in place.project.glob("mine*")) == ["mine.zip"]


def test_a_folder_is_written_for_a_name_with_a_slash(place: Place, failed: str) -> None:
    place.cli("report", failed, "-o", "there/")
    folder = place.project / "there"
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert (folder / "logs" / "attempt-1" / "launcher.log") in files
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert "not empty" in place.cli("report", failed, "-o", "there/", code=2).stderr


def test_earlier_runs_of_the_job_are_told_with_what_differed(place: Place, failed: str) -> None:
    job = place.job("print('fine')", env_from=["HF_TOKEN"], env={"NCCL_DEBUG": "INFO"})
    second = place.start(job)
    place.ended(second)
    tried = reported(place, second)["README.md"].split("## Already tried")[1]
    assert f"- {failed}: failed" in tried
    assert f"- {second} (this run): succeeded" in tried
    assert "NCCL_DEBUG: nothing -> `INFO (" in tried


def test_a_running_run_is_reported_too(place: Place) -> None:
    run = place.start(place.job("import time\nprint('up', flush=True)\ntime.sleep(600)"))
    place.wait_for_text(run, "up")
    files = reported(place, run)
    assert "no failure is recorded" in files["README.md"]
    assert "up" in files["logs/attempt-1/launcher.log"]


# -- damaged runs ----------------------------------------------------------------------------------


def node(place: Place, number: int = 0, run: str = RUN) -> Path:
    folder = place.home / "runs" / run / f"node-{number}"
    (folder / "logs" / "attempt-1").mkdir(parents=True)
    return folder


def test_an_empty_run_gives_what_there_is_and_says_what_is_missing(place: Place) -> None:
    node(place)
    report = place.json("report", RUN)
    assert any("there is no plan.json" in line for line in report["missing"])
    assert any("all logs are empty" in line for line in report["missing"])
    assert "## Missing" in unpacked(report["path"])["README.md"]


DAMAGE = (
    b"",
    b"\x00\xff" * 999,
    b"[1, 2]",
    b'{"a": ',
    b"{}",
    b'{"nodes": [[]], "git": 3, "attempts": {}, "hosts": 1, "others": "x", "what": []}',
)


DAMAGED = (
    "plan.json", "run.json", "status.json", "failure.json", "record.json", "events.jsonl",
    "launch.sh", "samples.csv", "logs/attempt-1/rank-0.log",
)  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_no_hindrance(
    place: Place, failed: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.project)
    path, runner = place.node(failed) / name, CliRunner(env=place.env)
    for data in DAMAGE:
        path.write_bytes(data)
        done = runner.invoke(cli, ["report", failed, "--json"], catch_exceptions=False)
        assert "README.md" in unpacked(json.loads(done.stdout)["path"]), data
        assert runner.invoke(cli, ["diff", failed, failed], catch_exceptions=False).exit_code == 0


def test_torn_events_are_counted_and_the_others_told(place: Place, failed: str) -> None:
    events = place.node(failed) / "events.jsonl"
    events.write_bytes(events.read_bytes() + b'{"event": "half')
    report = place.json("report", failed)
    assert any("1 unreadable lines" in line for line in report["missing"])
    assert "ended: state failed" in unpacked(report["path"])["timeline.txt"]


def test_of_a_huge_log_only_head_and_tail_are_read(place: Place) -> None:
    log = node(place) / "logs" / "attempt-1" / "rank-0.log"
    with open(log, "wb") as file:
        file.write(b"the first line\n")
        file.truncate(10 << 30)  # sparse
        file.seek(0, os.SEEK_END)
        file.write(b"\nthe last line\n")
    excerpt = reported(place, RUN)["logs/attempt-1/rank-0.log"]
    assert excerpt.startswith("the first line\n")
    assert excerpt.endswith("the last line\n")
    assert "left out here: 10,7" in excerpt


def test_many_logs_share_the_room_and_those_of_the_failure_come_first(place: Place) -> None:
    folder = node(place)
    for rank in range(200):
        (folder / "logs" / "attempt-1" / f"rank-{rank}.log").write_text(f"{rank}\n" * 200_000)
    failure = {"what": "x", "rank": 150, "others": []}
    (folder / "failure.json").write_text(json.dumps(failure))
    (folder / "status.json").write_text(json.dumps({"state": "failed", "id": RUN}))
    report = place.json("report", RUN)
    assert "logs/attempt-1/rank-150.log" in [file["name"] for file in report["files"]]
    assert report["size"] < 4 << 20
    assert "136 of 200 logs" in report["left_out"]


def test_each_of_several_nodes_has_its_folder(place: Place) -> None:
    for number in (0, 1):
        folder = node(place, number)
        (folder / "launch.sh").write_text(f"exec true {number}\n")
        (folder / "logs" / "attempt-1" / f"rank-{number}.log").write_text(f"rank {number}\n")
        event = {"event": "started", "time": 1.7e9 + number}
        (folder / "events.jsonl").write_text(json.dumps(event) + "\n")
    files = reported(place, RUN)
    assert files["node-1/logs/attempt-1/rank-1.log"] == "rank 1\n"
    assert files["node-0/launch.sh"] == "exec true 0\n"
    assert [line.split()[2:5] for line in files["timeline.txt"].splitlines()[1:]] == [
        ["node", "0", "started"],
        ["node", "1", "started"],
    ]


# -- planting --------------------------------------------------------------------------------------


TEXTS = (
    "launch.sh", "launch.2.sh", "accelerate.yaml", "supervisor.log", "samples.csv",
    "hang-1/summary.txt", "hang-1/rank-0.txt", "logs/attempt-1/rank-0.log",
    "logs/attempt-1/launcher.log", "logs/attempt-1/combined.log",
)  # fmt: skip


def plant(folder: Path) -> None:
    """Fill every file of a run with everything that must not be in a bundle."""
    texts = [text for text, _ in PLANTED.values()]
    lines = "\n".join(texts)
    plain = {"a": texts, "b": {"message": lines, "deep": json.dumps({"m": texts})}}
    env = {"SERVICE_PASSWORD": PLAN_SECRET, "NOTE": lines}
    plan = {
        "name": f"{USER}-job",
        "nodes": [
            {
                "host": HOST,
                "node_rank": 0,
                "cwd": HOME,
                "argv": ["python", *texts],
                "env": {k: {"value": v, "origin": f"{HOME}/job.yaml:1:1"} for k, v in env.items()},
                "setup": texts,
                "files": {"accelerate.yaml": lines},
                "script": lines,
            }
        ],
        "unbound": plain,
        "warnings": plain,
    }
    failure = {
        "what": lines,
        "rank": 0,
        "host": HOST,
        "class": "user-code-exception",
        "exception": {"type": "X", "message": lines, "traceback": lines},
        "frame": {"file": f"{HOME}/train.py", "line": 1, "code": texts[0], "own": True},
        "last_lines": texts,
        "others": [{"rank": 1, "what": text} for text in texts],
        "log": f"{HOME}/logs/x",
        "more": plain,
    }
    git = {"commit": "0" * 40, "changed": [f" M {text}" for text in texts]}
    run = {"hostname": HOST, "hosts": [HOST], "cwd": HOME, "job_file": f"{HOME}/j.yaml", "x": plain}
    attempts = [{"attempt": 1, "state": "failed", "what": lines}]
    for name, data in {
        "plan.json": plan,
        "run.json": run,
        "record.json": {"git": git, "packages": {"torch": "2.6.0"}, "cwd": HOME, "x": plain},
        "code.json": {"git": git, "root": HOME, "target": HOME, "not_stored": {texts[0]: lines}},
        "status.json": {"state": "failed", "exit_code": 1, "attempts": attempts, "x": plain,
                        "hostname": HOST, "reason": texts[0], "warning": lines},
        "failure.json": failure,
    }.items():  # fmt: skip
        (folder / name).write_text(json.dumps(data))
    events = [{"time": 1.7e9 + n, "event": "note", "note": text} for n, text in enumerate(texts)]
    (folder / "events.jsonl").write_text(
        "\n".join(json.dumps(event) for event in events) + '\n{"t": "'
    )
    (folder / "hang-1").mkdir()
    for name in (*TEXTS, "code.patch"):
        (folder / name).write_text(lines + "\n" + json.dumps(texts) + "\n")


def left_over(text: str) -> list[str]:
    return [needle for _, needles in PLANTED.values() for needle in needles if needle in text]


def test_nothing_that_is_planted_in_any_file_of_a_run_is_in_the_bundle(place: Place) -> None:
    earlier = "small-20260101-110000-abcd"
    for run in (earlier, RUN):
        plant(node(place, run=run))
    done = place.cli("report", RUN, "--json")
    report = json.loads(done.stdout)
    files = unpacked(report["path"])
    assert {name: secrets for name, text in files.items() if (secrets := left_over(text))} == {}
    assert left_over(" ".join([*files, *report["missing"], *report["left_out"]])) == []
    assert len(files) >= 16
    assert "code.json" in files
    assert [line for line in report["left_out"] if "code.patch" in line] != []  # code is private


# -- on hosts --------------------------------------------------------------------------------------


@pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
def test_a_run_on_a_host_is_fetched_and_reported(place: Place, server: Sshd) -> None:
    place.ssh_config(server.ssh_config("gpu1", "alice" if sshd.ROOT else None))
    program = "for i in range(100000):\n    print('step', i)\nraise ValueError('bad batch')\n"
    job = place.job(program, name="far", python=None)
    run = str(place.json("remote", "--host", "gpu1", job)["id"])
    place.cli("wait", run, code=1)
    report = place.json("report", run)
    files = unpacked(report["path"])
    log = files["logs/attempt-1/launcher.log"]
    assert log.startswith("step 0\n")
    assert log.endswith("ValueError: bad batch\n")
    assert "left out here" in log
    assert "exec " in files["launch.sh"]
    assert "started: attempt 1" in files["timeline.txt"]
    assert [line for line in report["missing"] if "record.json" not in line] == []


@pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
def test_of_a_host_that_does_not_answer_what_is_known_here_is_told(
    place: Place, server: Sshd
) -> None:
    place.ssh_config(server.ssh_config("gpu1", "alice" if sshd.ROOT else None))
    job = place.job("raise ValueError('bad batch')\n", name="far", python=None)
    run = str(place.json("remote", "--host", "gpu1", job)["id"])
    place.cli("wait", run, code=1)
    place.ssh_config("Host gpu1\n  HostName 127.0.0.1\n  Port 1\n")
    report = place.json("report", run)
    assert any("does not answer" in line for line in report["missing"])
    assert "ValueError: bad batch" in unpacked(report["path"])["failure.txt"]


# -- diff ------------------------------------------------------------------------------------------


def diff(place: Place, *words: str) -> dict[str, Any]:
    report = place.json("diff", *words)
    return {g["name"]: g["changes"] for g in report["groups"] if g["changes"]}


def test_two_starts_of_one_job_do_not_differ(place: Place) -> None:
    job = place.job("print('fine')")
    first, second = (place.start(job) for _ in range(2))
    for run in (first, second):
        place.ended(run)
    assert diff(place, first, second) == {}
    assert "no difference" in place.cli("diff", first, second).stdout


def test_a_diff_tells_outcome_command_and_variables(place: Place) -> None:
    first = place.start(place.job("import sys\nsys.exit(len(sys.argv) - 1)"))
    wait_for((place.node(first) / "record.json").exists, "the record of the first job file")
    second_job = place.job("import sys\nsys.exit(len(sys.argv) - 1)", args=["x"], env={"A_B": "1"})
    second = place.start(second_job)
    for run in (first, second):
        place.ended(run)
    changes = diff(place, first, second)
    assert list(changes) == ["outcome", "code", "command", "variables"]
    assert [change["what"] for change in changes["code"]] == ["job.yaml"]
    assert changes["command"] == [{"what": "command", "was": None, "now": "x"}]
    assert changes["variables"][0]["what"] == "A_B"
    output = place.cli("diff", first, second).stdout
    assert max(map(len, output.splitlines())) <= 80
    assert "state" in output


def test_a_diff_of_a_run_that_is_not_there_says_so(place: Place, failed: str) -> None:
    assert "no run `gone`" in place.cli("diff", failed, "gone", code=2).stderr
