"""`check`, and the quick checks before a start: what is refused, what is said, what goes on."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.ssh import sshd
from support.workspace import Place, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from support.ssh.sshd import Sshd

needs_sshd = pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
USER = "alice" if sshd.ROOT else None
NOWHERE = "Host gone\n  HostName 127.0.0.1\n  Port 1\n"


@pytest.fixture
def far(place: Place, server: Sshd) -> Place:
    """Return a place that knows one host that answers, and one that does not."""
    place.ssh_config("\n".join([server.ssh_config("gpu1", USER), NOWHERE]))
    place.env |= {"NO_COLOR": "1", "COLUMNS": "80"}
    return place


def check_results(place: Place, *words: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """Return what `check --json` says, the last result of each check."""
    results = place.json("check", *words, code=code)
    assert results["version"] == 1
    return {each["id"]: each for each in results["results"]}


def bare_python(place: Place) -> Path:
    """Return an interpreter that finds nothing but the standard library."""
    path = place.root / "bare" / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\nexec {sys.base_prefix}/bin/python3 -S "$@"\n')
    path.chmod(0o755)
    return path


def without_torch(place: Place) -> str:
    """Write a job whose interpreter lacks its launcher."""
    python = str(bare_python(place))
    return place.job("print('up')\n", launcher="torchrun", processes=1, python=python)


# -- check -----------------------------------------------------------------------------------------


def test_a_machine_without_a_job_is_checked(place: Place) -> None:
    results = place.json("check")["results"]
    assert results
    assert {each["family"] for each in results} <= {"environment", "hardware", "network", "project"}
    assert set(results[0]) == {"id", "family", "host", "status", "evidence", "hint", "source"}


def test_a_job_that_can_start_is_reported_in_one_line(place: Place) -> None:
    done = place.cli("check", place.job("print('up')\n"))
    assert done.stdout.count("\n") == 1
    assert "passed" in done.stdout


def test_a_job_without_its_launcher_is_refused_with_what_to_install(place: Place) -> None:
    job = without_torch(place)
    results = check_results(place, job, code=3)
    assert results["launcher"]["status"] == "fail"
    assert "-m pip install torch" in results["launcher"]["hint"]


def test_what_matters_most_stands_first(place: Place) -> None:
    program = "import nothing_of_this_name\n"
    python = str(bare_python(place))
    job = place.job(program, launcher="torchrun", processes=1, python=python)
    statuses = [each["status"] for each in place.json("check", job, code=3)["results"]]
    order = ["fail", "warn", "skip", "ok"]
    assert statuses == sorted(statuses, key=order.index)
    assert {"fail", "warn"} <= set(statuses)


def test_what_is_shown_of_one_machine_has_all_failures_first(place: Place) -> None:
    place.env |= {"COLUMNS": "80", "NO_COLOR": "1"}
    # about the job: a secret, an option; about the machine: a launcher, an import
    program = "import argparse, nothing_of_this_name\nargparse.ArgumentParser().parse_args()\n"
    keys: dict[str, Any] = {"env_from": ["NOT_SET"], "args": {"lr": 1}, "processes": 1}
    job = place.job(program, launcher="torchrun", python=str(bare_python(place)), **keys)
    shown = place.cli("check", job, code=3).stdout
    marks = [
        line.split()[0] for line in shown.splitlines() if line.startswith(("  fail", "  warn"))
    ]
    assert marks == sorted(marks)
    assert (marks.count("fail") > 1, marks.count("warn") > 1) == (True, True)


def test_lines_of_a_check_fit_the_terminal(place: Place) -> None:
    place.env |= {"COLUMNS": "80", "NO_COLOR": "1"}
    job = place.job("import nothing_of_this_name\n", python=str(bare_python(place)))
    shown = place.cli("check", "--all", job).stdout.splitlines()
    words = [word for line in shown if len(line) > 80 for word in line.split()]
    assert all(len(word) > 40 for word in words if len(word) > 57) or not words


def test_a_check_changes_nothing_in_the_project(place: Place) -> None:
    job = place.job("print('up')\n", args={"output_dir": "out/run1"})
    before = sorted(place.project.rglob("*"))
    place.cli("check", job)
    assert sorted(place.project.rglob("*")) == before


def test_a_script_that_is_missing_is_found_beside_all_else(place: Place) -> None:
    job = place.job("", script="trian.py", inputs=["data/train.jsonl"])
    place.write("train.py", "")
    results = check_results(place, job, code=3)
    assert {results[each]["status"] for each in ("script", "inputs")} == {"fail"}
    assert "did you mean `train.py`?" in results["script"]["hint"]
    assert "trian.py" in place.cli("run", job, code=2).stderr


def test_a_job_that_is_no_job_is_a_wrong_use(place: Place) -> None:
    place.write("job.yaml", "launcher: python\nscript: [a, {b\n")
    assert "job.yaml:" in place.cli("check", "job.yaml", code=2).stderr


def test_a_job_for_this_machine_by_name_is_checked_here(place: Place) -> None:
    assert check_results(place, place.job("print('up')\n", hosts=["localhost"]))["script"]
    refused = place.cli("check", "--host", "localhost", code=2)
    assert "hint: leave out `--host`" in refused.stderr


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gpu7.invalid", "did you mean `gpu1.invalid`? else `safelaunch hosts add gpu7.invalid "),
        ("some-workstation.lab.invalid", "known are gpu1.invalid; `safelaunch hosts add some-"),
        ("gpu1.invalid", "correct `address:` of `gpu1.invalid` in hosts.yaml"),
    ],
)
def test_a_host_that_is_unknown_is_named_with_what_cures_it(
    name: str, hint: str, place: Place
) -> None:
    place.write("hosts.yaml", "hosts: {gpu1.invalid: {address: nowhere.invalid}}\n")
    results = check_results(place, "--hosts", "hosts.yaml", "--host", name, code=4)
    assert results["reached"]["hint"].startswith(hint)


def test_an_nvidia_smi_that_hangs_does_not_hold_up_a_check(place: Place) -> None:
    place.hanging("nvidia-smi")
    results = place.json("check", code=None)["results"]  # within its deadline
    assert any("did not end within 10 s" in each["evidence"] for each in results)


# -- before a start --------------------------------------------------------------------------------


def test_a_start_that_is_impossible_is_refused_and_nothing_is_left(place: Place) -> None:
    job = without_torch(place)
    done = place.cli("run", job, code=3)
    assert "torch" in done.stderr
    assert "--no-check" in done.stderr
    assert not (place.home / "runs").exists()


def test_a_refused_start_can_be_insisted_on(place: Place) -> None:
    job = without_torch(place)
    run = place.json("run", "--no-check", job)["id"]
    wait_for(lambda: place.status(run)["state"] == "failed", "end")


def test_what_may_go_wrong_is_said_and_the_job_starts(place: Place) -> None:
    program = "import os\nif os.environ.get('NOT'):\n    pass\nimport nothing_of_this_name\n"
    done = place.cli("run", "--json", place.job(program))
    assert "nothing_of_this_name" in done.stderr
    assert "pip install nothing_of_this_name" in done.stderr


def test_an_input_that_is_missing_is_refused_before_the_start(place: Place) -> None:
    job = place.job("print('up')\n", inputs=["data/train.jsonl"])
    done = place.cli("run", job, code=3)
    assert "data/train.jsonl" in done.stderr
    (place.project / "data").mkdir()
    (place.project / "data" / "train.jsonl").touch()
    run = place.json("run", job)["id"]
    wait_for(lambda: place.status(run)["state"] == "succeeded", "end")


def test_a_pipe_in_the_place_of_a_settings_file_holds_up_no_start(place: Place) -> None:
    os.mkfifo(place.project / "settings.yaml")
    os.mkfifo(place.project / "ds.json")
    args = {"config": "settings.yaml", "deepspeed": "ds.json"}
    job = place.job("print('up')\n", args=args)
    place.cli("check", job)
    place.json("run", job)


def test_names_that_the_terminal_cannot_show_are_no_error(place: Place) -> None:
    for name in (b"\xff.bin", b"a\n.bin"):
        with open(os.fsencode(place.project) + b"/" + name, "wb"):
            pass
    place.env["PYTHONIOENCODING"] = "utf-8:strict"
    job = place.job("print('up')\n", inputs=["*.bin"])
    assert "2 paths match *.bin: a\\n.bin, \\udcff.bin" in place.cli("run", job, code=3).stderr
    assert "a\\n.bin" in " ".join(place.cli("check", job, code=3).stdout.split())


def test_a_dry_run_checks_nothing(place: Place) -> None:
    job = place.job("print('up')\n", inputs=["data/train.jsonl"])
    assert "data/train.jsonl" not in place.cli("run", "--dry-run", job).stderr


# -- hosts -----------------------------------------------------------------------------------------


@needs_sshd
def test_a_host_is_checked_for_a_job_of_this_machine(far: Place) -> None:
    job = far.job("print('up')\n", python=None)
    result = check_results(far, "--host", "gpu1", job)
    assert {each["host"] for each in result.values()} <= {"gpu1", None}
    assert result["script"]["status"] == "ok"


@needs_sshd
def test_a_script_that_is_missing_is_found_for_a_host_too(far: Place) -> None:
    job = far.job("", python=None, script="trian.py")
    far.write("train.py", "")
    results = check_results(far, "--host", "gpu1", job, code=3)
    assert results["script"]["status"] == "fail"
    assert "did you mean `train.py`?" in results["script"]["hint"]


@needs_sshd
def test_a_host_that_does_not_answer_does_not_hide_the_others(far: Place) -> None:
    results = far.json("check", "--host", "gpu1", "--host", "gone", code=4)["results"]
    assert results[0]["host"] == "gone"
    assert results[0]["status"] == "fail"
    assert any(each["host"] == "gpu1" and each["status"] == "ok" for each in results)


@needs_sshd
def test_a_remote_start_is_refused_before_anything_is_sent(far: Place, server: Sshd) -> None:
    job = far.job("print('up')\n", python=None, inputs=["/no/such/data"])
    done = far.cli("remote", "--host", "gpu1", job, code=3)
    assert "gpu1: " in done.stderr
    assert "/no/such/data" in done.stderr
    home = server.home(USER)
    assert not (home / "safelaunch").exists()
    assert not (home / ".safelaunch" / "runs").exists()


@needs_sshd
def test_a_remote_start_may_ask_more_than_a_command_can_have(far: Place) -> None:
    names = [f"data/a-folder-with-a-name-of-some-length/part-{n:05}.jsonl" for n in range(1000)]
    for name in names:
        far.write(name, "")
    job = far.job("print('up')\n", python=None, inputs=names)
    assert far.json("remote", "--host", "gpu1", job)["id"]


@needs_sshd
def test_folders_with_links_in_circles_hold_up_no_remote_start(far: Place) -> None:
    for name in "abc":
        (far.project / name).symlink_to(".")
    far.write("data/train.json", "")
    job = far.job("print('up')\n", python=None, inputs=["**/train.json"])
    done = far.cli("remote", "--host", "gpu1", "--no-sync", job, code=None)
    assert "inputs" not in done.stderr


@needs_sshd
def test_a_remote_start_says_what_may_go_wrong(far: Place) -> None:
    job = far.job("import nothing_of_this_name\n", python=None)
    done = far.cli("remote", "--host", "gpu1", "--json", job)
    assert "gpu1: the interpreter does not find `nothing_of_this_name`" in done.stderr
