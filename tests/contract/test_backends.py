"""Every backend answers what the Protocol asks, and starts what outlives its starter."""

from __future__ import annotations

import inspect
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.workspace import wait_for

from safelaunch.runtime import backends, commands, processes

if TYPE_CHECKING:
    from pathlib import Path

ALL = {backend.NAME: backend for backend in backends.backends()}
QUESTIONS = {
    "unusable": ["probe"],
    "reserve": ["run_id"],
    "start": ["run_id", "handle", "argv", "cwd", "environ"],
    "serves": ["handle"],
    "attach": ["handle"],
    "clean_up": ["handle"],
}
WORK = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"


@pytest.mark.parametrize("backend", ALL.values(), ids=ALL)
def test_a_backend_answers_every_question(backend: Any) -> None:
    signatures = {
        name: list(inspect.signature(getattr(backend, name)).parameters) for name in QUESTIONS
    }
    assert signatures == QUESTIONS
    assert isinstance(backend.PROBE, tuple)


@pytest.mark.parametrize("backend", ALL.values(), ids=ALL)
def test_a_record_names_its_backend(backend: Any) -> None:
    assert backends.by_name(backend.NAME) is backend


@pytest.mark.parametrize("backend", ALL.values(), ids=ALL)
def test_a_program_is_started_and_nothing_is_left_of_it(backend: Any, tmp_path: Path) -> None:
    environ = dict(os.environ)
    if backend.PROBE and (why := backend.unusable(commands.run(backend.PROBE, environ=environ))):
        pytest.skip(why)
    run_id = f"contract-{os.getpid()}"
    handle = backend.reserve(run_id)
    noted = tmp_path / "pid"
    try:
        argv = [sys.executable, "-c", WORK, str(noted)]
        is_alive = backend.start(run_id, handle, argv, cwd=str(tmp_path), environ=environ)
        wait_for(lambda: noted.is_file() and noted.read_text(), "the program's pid")
        pid = int(noted.read_text())
        try:
            assert is_alive()
            assert backend.serves(handle) is bool(backend.attach(handle))
        finally:
            processes.terminate(pid, processes.start_time(pid) or 0)
        wait_for(lambda: not backend.serves(handle), "the end of the terminal")
    finally:
        backend.clean_up(handle)
    assert handle is None or not os.path.exists(handle)
