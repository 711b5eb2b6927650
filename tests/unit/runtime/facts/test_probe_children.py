"""A probe whose interpreter is none, or hangs, or raves, and what is left of it: nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.workspace import DEADLINE

from safelaunch.runtime.facts import child as facts_child
from safelaunch.runtime.facts import commands, questions
from safelaunch.runtime.facts import probe as facts_probe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def program(path: Path, text: str) -> str:
    """Write a shell script in place of an interpreter."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def probe(**request: Any) -> dict[str, Any]:
    parts: dict[str, Any] = facts_probe.probe({"limit": 4.0, **request}, None)["parts"]
    return parts


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


# -- what an interpreter may print instead ---------------------------------------------------------


@pytest.mark.parametrize("says", ['["a", 1]', "[1, 2]", "[" * 100_000, '"ab"', "{}", '["python"]'])
def test_what_is_no_part_is_no_answer(tmp_path: Path, says: str) -> None:
    (tmp_path / "said").write_text(f"\n{says}\n")
    python = program(tmp_path / "python", f"cat {tmp_path}/said")
    parts = probe(python=python)
    assert parts["python"]["skip"].startswith(f"{python}: the interpreter ended with exit code 0: ")
    assert "value" in parts["system"]


def test_an_interpreter_that_prints_without_end_is_given_up_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts_probe, "START", DEADLINE)
    python = program(tmp_path / "python", "exec yes '[1, 2]'")
    started = time.process_time()
    parts = probe(python=python, limit=DEADLINE)
    assert "printed more than 64 MiB, and no facts" in parts["python"]["skip"]
    assert time.process_time() - started < 5  # all lines read one by one were half a minute


@pytest.mark.parametrize("first", ["", "echo hello;"])
def test_an_interpreter_that_tells_no_part_is_not_waited_for_as_long_as_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    monkeypatch.setattr(facts_probe, "START", 0.3)
    python = program(tmp_path / "python", f"{first} exec sleep 600")
    started = time.monotonic()
    assert "did not answer in time" in probe(python=python, limit=600.0)["python"]["skip"]
    assert time.monotonic() - started < DEADLINE


# -- how it is asked -------------------------------------------------------------------------------


def test_questions_are_not_in_the_list_of_processes(tmp_path: Path) -> None:
    text = f'echo "$@" > {tmp_path}/words; exec {sys.executable} "$@"'
    python = program(tmp_path / "python", text)
    parts = probe(python=python, asks=[["path", "/no/such/secret"]], cwd="/no/such/folder")
    assert parts["ask.0"]["value"]["kind"] is None
    assert "/no/such" not in (tmp_path / "words").read_text()


def test_questions_may_be_more_than_a_command_can_have() -> None:
    # Linux: 2 MiB of words and environment; a path may have 4 KiB
    long = f"/{'x' * 200}" * 15
    asks = [["path", f"{long}/{number}"] for number in range(800)]
    assert len(json.dumps(asks)) > 2 << 20
    assert probe(asks=asks, limit=20.0)["ask.799"]["value"]["kind"] is None


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.11 brought PYTHONSAFEPATH")
def test_a_module_of_pythonpath_is_found_also_with_a_safe_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made_up_module.py").touch()
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    finder = questions.Finder(sys.executable, "/", [])
    assert finder.add("made_up_module")()["found"]


def test_modules_are_asked_for_where_the_start_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as pyenv: which Python it runs depends on a file in the working folder
    text = f'[ -e .python-version ] && exec {sys.executable} "$@"; echo "no version"; exit 127'
    python = program(tmp_path / "python", text)
    (tmp_path / ".python-version").touch()
    monkeypatch.chdir(tmp_path)
    assert questions.Finder(python, "/", []).add("json")()["found"]


# -- what is left ----------------------------------------------------------------------------------


@pytest.mark.parametrize("quick", [True, False])
def test_an_interpreter_that_hangs_is_not_left_behind(tmp_path: Path, quick: bool) -> None:
    # asked for modules only, so that in either way the probe itself comes to its end
    text = f'echo $$ > {tmp_path}/pid; case "$*" in *find_spec*|*sleep*) exec sleep 60;; esac; '
    python = program(tmp_path / "python", f'{text}exec {sys.executable} "$@"')
    child = f"""
import sys
from safelaunch.runtime.facts import child, questions
child.main(["/", "--limit=0.5", "--quick={python}", '--ask=["module", "x"]'])
"""
    if quick:
        parts = probe(python=python, quick=True, limit=0.5, asks=[["module", "x"]])
        assert "0.5 s" in parts["ask.0"]["skip"]
    else:
        subprocess.run([sys.executable, "-c", child], check=True, capture_output=True)
    pid = int((tmp_path / "pid").read_text())
    until(lambda: is_gone(pid))


def test_a_caller_that_ignores_its_children_gets_its_facts() -> None:
    code = """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from safelaunch.runtime.facts import probe
assert probe.probe({"quick": True, "limit": 4.0}, None)["parts"]["system"]["value"]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_probe_that_was_never_begun_tells_nothing() -> None:
    assert facts_probe.end({}, None) == {"parts": {}}


def test_without_a_pipe_nothing_is_told_and_nothing_breaks() -> None:
    code = """
import os, resource
from safelaunch.runtime.facts import probe
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
print(probe.probe({"quick": True}, None)["parts"]["python"]["skip"])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "Too many open files\n"


def test_a_machine_where_no_thread_can_be_started_says_so(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    facts_child.print_parts({"system": (dict, 1.0)})
    assert '["system", {"skip": "can\'t start new thread"}]' in capfd.readouterr().out


def test_parts_are_told_when_most_of_many_hang(capfd: pytest.CaptureFixture[str]) -> None:
    blocked = threading.Event()
    parts: dict[str, tuple[Callable[[], Any], float]] = {"first": (dict, 5.0)}
    parts.update({f"ask.{number}": (blocked.wait, 0.2) for number in range(200)})
    facts_child.print_parts(parts)
    blocked.set()
    output = capfd.readouterr().out
    assert '["first", {"value": {}}]' in output
    assert output.count("did not answer within 0.2 s") == 200


def test_a_command_is_killed_with_the_probe(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"""
import threading, os
from safelaunch.runtime.facts import child, commands
words = ["sh", "-c", "echo $$ > {pid}.part; mv {pid}.part {pid}; exec sleep 60"]
child._parse_words = lambda _: {{"x": (lambda: commands.run(words), 1.0)}}
child.main(["/"])
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    until(lambda: is_gone(int(pid.read_text())))


def test_a_pipe_has_no_text(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert commands.read(str(tmp_path / "pipe")) == ""
    assert commands.read("/dev/zero") == ""


@pytest.fixture(autouse=True)
def _limited() -> Any:
    """A test that hangs ends, by a signal."""
    signal.alarm(60)
    yield
    signal.alarm(0)
