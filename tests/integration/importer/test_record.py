"""A recorded script reaches its launches, and nothing else of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from safelaunch.errors import StartError
from safelaunch.importer.record.record import record
from safelaunch.importer.state import ScriptCaller

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.importer.findings import Findings

    Record = Callable[..., Findings]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "data.txt").write_text("precious\n")
    (tmp_path / "home").mkdir()
    return folder


@pytest.fixture
def run(project: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    """Record the text of a script in a project of its own."""
    monkeypatch.chdir(project)

    def run_text(text: str, *arguments: str, seconds: int = 15, **answers: str) -> Findings:
        (project / "script.sh").write_text(text)
        environ = {"HOME": str(project.parent / "home"), "PATH": os.environ["PATH"]}
        caller = ScriptCaller(environ, str(project), arguments, answers)
        try:
            return record("script.sh", caller, seconds)
        except StartError as e:
            if "forbids user namespaces" in e.message:
                pytest.skip("no user namespaces here")
            raise

    return run_text


def words(findings: Findings) -> list[tuple[str, ...]]:
    return [launch.words for launch in findings.launches]


def test_each_call_is_recorded_with_words_folder_and_exports(run: Record, project: Path) -> None:
    findings = run(
        "export A='x y'\nB=no\ncd sub\nC=1 torchrun --nproc_per_node 2 t.py '' \"a b\" $'c\\nd'\n"
    )
    (launch,) = findings.launches
    assert launch.words == ("torchrun", "--nproc_per_node", "2", "t.py", "", "a b", "c\nd")
    assert (launch.env, launch.folder) == ({"A": "x y", "C": "1"}, str(project / "sub"))


def test_calls_are_in_their_order(run: Record) -> None:
    findings = run("for i in 1 2 3; do python t.py $i; done\nbash -c 'deepspeed u.py'\n")
    assert [w[-1] for w in words(findings)] == ["1", "2", "3", "u.py"]


def test_code_on_the_command_line_of_python_is_run(run: Record) -> None:
    assert words(run("N=$(python -c 'print(3)')\ntorchrun --nproc_per_node $N t.py\n")) == [
        ("torchrun", "--nproc_per_node", "3", "t.py")
    ]


def test_arguments_and_answers_reach_the_script(run: Record) -> None:
    findings = run('python t.py "$1" $DATA\n', "a b", DATA="/d")
    assert words(findings) == [("python", "t.py", "a b", "/d")]
    assert findings.launches[0].env == {"DATA": "/d"}


def test_wrappers_are_recorded_with_their_launch(run: Record) -> None:
    findings = run("timeout 5 torchrun t.py\ntimeout 5 true\nnumactl -N 0 python u.py\n")
    assert words(findings) == [
        ("timeout", "5", "torchrun", "t.py"),
        ("numactl", "-N", "0", "python", "u.py"),
    ]


def test_a_launcher_by_its_absolute_path_is_recorded(run: Record, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "torchrun"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ntouch started\n")
    program.chmod(0o755)
    assert [w[0] for w in words(run(f"{program} t.py\n"))] == ["torchrun"]


def test_what_answered_nothing_is_named(run: Record) -> None:
    findings = run("nvidia-smi\nconda activate x\npython t.py\n")
    assert [(n.line, n.text) for n in findings.notes] == [
        (2, "runs `conda`"),
        (1, "runs `nvidia-smi`"),
    ]


def test_nothing_on_the_disk_changes(run: Record, project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("precious\n")
    before = sorted(tmp_path.rglob("*"))
    findings = run(
        f"rm -rf data.txt sub {outside} ~/* /usr/bin/env\necho gone > data.txt; echo x > new\n"
        f"echo y > {outside}; echo z > ~/z; echo t > /tmp/imp; mkdir -p logs && python t.py\n"
    )
    assert words(findings) == [("python", "t.py")]
    assert sorted(tmp_path.rglob("*")) == sorted([*before, project / "script.sh"])
    assert (project / "data.txt").read_text() == outside.read_text() == "precious\n"
    assert not Path("/tmp/imp").exists()


def test_there_is_no_socket_and_no_network(run: Record) -> None:
    code = "import socket; socket.socket(socket.AF_UNIX)"
    findings = run(
        f"python3 -c '{code}' && python unix.py\nif (exec 3<>/dev/tcp/127.0.0.1/22); then\n"
        "python net.py; fi\nunshare -Ur true && python namespace.py\nmount -t tmpfs x /mnt && "
        "python mount.py\necho 1 > /proc/sys/kernel/sysrq && python sysctl.py\npython t.py\n"
    )
    assert words(findings) == [("python", "t.py")]


def test_killing_everything_ends_only_the_recording(run: Record) -> None:
    findings = run("python a.py\nkill -9 -1\npython b.py\n/bin/kill -9 -1\npython c.py\n")
    assert [w[-1] for w in words(findings)] == ["a.py", "b.py"]
    assert [n.text for n in findings.notes][-1] == "it ended with a signal"


def test_a_fork_bomb_is_ended_and_refused(run: Record) -> None:
    findings = run("python a.py\n:(){ :|:& };:\nsleep 1\nwhile :; do :; done\n")
    assert findings.stop is not None
    assert "200 processes" in findings.stop.reason or "2 s" in findings.stop.reason


def test_a_script_without_an_end_is_ended_and_refused(run: Record) -> None:
    findings = run("while :; do :; done\n", seconds=1)
    assert findings.stop is not None
    assert findings.stop.reason == "it took more than 1 s and was ended"


def test_nothing_is_left_running(run: Record, tmp_path: Path) -> None:
    mark = tmp_path.name
    run(f"python3 -c 'import time; time.sleep(99)' {mark} &\nsetsid python3 -c 1 {mark} &\n")
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert [line for line in processes.stdout.splitlines() if mark in line] == []


def test_no_scratch_folder_is_left(
    run: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    assert words(run("python t.py\n")) == [("python", "t.py")]
    assert os.listdir(scratch) == []


def test_a_script_that_reads_its_input_gets_none(run: Record) -> None:
    findings = run('read -p "name? " X || X=none\nselect y in a b; do :; done\npython t.py $X\n')
    assert words(findings) == [("python", "t.py", "none")]


def test_a_script_that_fails_before_its_launch_says_with_what(run: Record) -> None:
    findings = run("echo no data >&2\nexit 3\npython t.py\n")
    assert findings.stop is not None
    assert findings.stop.reason == "it ended with exit code 3 before a launch: no data"


def test_a_project_with_mounts_below_is_copied(project: Path, tmp_path: Path) -> None:
    (project / "script.sh").write_text("cat link/b > new && cat new && python t.py\n")
    (project / "a").mkdir()
    (project / "a" / "b").write_text("x")
    (project / "link").symlink_to("a")
    place = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    command = f"mount -t tmpfs x sub && {sys.executable} -m safelaunch import --record script.sh"
    done = subprocess.run(
        [*place, command],
        cwd=project, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if "unshare failed" in done.stderr or "forbids user namespaces" in done.stderr:
        pytest.skip("no user namespaces here")
    assert (done.stdout, done.returncode) == ("launcher: python\nscript: t.py\n", 0), done.stderr
    assert not (project / "new").exists()
