"""The start of the agent on hosts whose first Python is of no use, over pipes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.mounts import fill
from support.workspace import DEADLINE

from safelaunch.errors import HostError
from safelaunch.remote import agent_bootstrap
from safelaunch.remote.agent_client import AgentError
from safelaunch.runtime.start import runtime_copy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workspace import Place


GOOD = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
SHIM = "#!/usr/bin/env no-such-shell\n"
# runs the program that comes with -I -S -B -c as a Python of that version would
OLD = f"""#!/bin/sh
exec {sys.executable} -I -S -B -c "import sys; sys.version_info = (3, 6, 9); $5"
"""
NOT_KNOWN = '#!/bin/sh\necho "pyenv: python3: command not found" >&2\nexit 127\n'


class Host:
    """A host with Pythons of ours, and a channel to what runs there."""

    def __init__(self, root: Path) -> None:
        self.path = root / "bin"
        self.path.mkdir()
        self.home = str(root / "home")
        self.startup = ""  # what the shell runs before the command
        self._process: subprocess.Popen[bytes] | None = None

    def has(self, name: str, program: str) -> None:
        (self.path / name).write_text(program)
        (self.path / name).chmod(0o755)

    def run(self, command: str) -> Any:
        env = {**os.environ, "PATH": str(self.path), "SAFELAUNCH_HOME": self.home}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", self.startup + command], stdin=pipe, stdout=pipe, stderr=pipe,
            bufsize=0, env=env, start_new_session=True,
        )  # fmt: skip
        return self

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def read(self, size: int) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.read(size) or b""

    def write(self, data: bytes | memoryview) -> None:
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) or 0 :]

    def stderr_tail(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def exit_code(self, timeout: float) -> int | None:
        return self.process.wait(timeout)

    def close(self) -> None:
        """Close the channel, as a client may at any time: what is read of it has its end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        for file in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                file.close()  # type: ignore[union-attr]
        self.process.wait(DEADLINE)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Yield a host that has no Python but those of a test."""
    names = tuple(name for name in agent_bootstrap.PYTHONS if "/" not in name)
    monkeypatch.setattr(agent_bootstrap, "PYTHONS", names)
    host_ = Host(tmp_path)
    try:
        yield host_
    finally:
        host_.end()


def start(host: Host, *pythons: str) -> str:
    """Start the agent, asking at once; return what it says its own home is."""
    agent = agent_bootstrap.start_agent("box", host.run, agent_bootstrap.digest(), pythons)
    first, second = agent.ask_first("start.look"), agent.ask("start.look")
    assert first.result() == second.result()
    return str(first.result()["base"])


@pytest.mark.parametrize("first", [SHIM, OLD, NOT_KNOWN], ids=["shim", "old", "not known"])
def test_the_next_python_is_tried(host: Host, first: str) -> None:
    host.has("python3", first)
    host.has("python3.11", GOOD)
    assert start(host) == host.home


def test_the_named_python_is_tried_first(host: Host) -> None:
    host.has("python3", OLD)
    host.has("mine", GOOD)
    assert start(host, str(host.path / "mine")) == host.home


def test_what_was_found_is_said_where_none_will_do(host: Host) -> None:
    host.has("python3", SHIM)
    host.has("python3.9", OLD)
    with pytest.raises(HostError) as caught:
        start(host)
    assert caught.value.message == (
        "no python3 there that works: python3 does not run (exit code 127); "
        f"Python 3.6 is too old ({sys.executable})"
    )
    assert "3.8 or newer" in str(caught.value.hint)


def test_no_python_at_all_is_said(host: Host) -> None:
    with pytest.raises(HostError, match=r"no python3 there$"):
        start(host)


def test_what_a_startup_file_prints_in_our_name_is_not_believed(host: Host) -> None:
    host.has("python3", GOOD)
    host.startup = "printf '\\000safelaunch nopython\\n'; "
    assert start(host) == host.home


def test_a_relative_home_is_refused_there_as_it_is_here(host: Host) -> None:
    host.has("python3", GOOD)
    host.home = "runs-of-mine"
    with pytest.raises(HostError, match="is not absolute: runs-of-mine") as caught:
        start(host)
    assert "SAFELAUNCH_HOME" in str(caught.value.hint)


def test_the_files_are_sent_once_and_what_was_asked_before_is_answered(host: Host) -> None:
    host.has("python3", GOOD)
    assert start(host) == host.home
    (copy,) = Path(host.home, "runtime").iterdir()
    before = copy.stat().st_ino
    host.end()
    assert start(host) == host.home
    assert copy.stat().st_ino == before
    # a full disk cannot damage what nobody writes
    files = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert files == {*runtime_copy.names_in(str(copy)), runtime_copy.SIZES}


def test_without_a_folder_for_its_files_the_agent_runs_from_memory(host: Host) -> None:
    host.has("python3", GOOD)
    Path(host.home).write_text("a file")
    assert start(host) == host.home


def test_a_run_is_watched_and_stopped_while_the_disk_has_no_room_for_the_agent(
    small: Place, host: Host
) -> None:
    run = small.start(small.job("import time\nprint('up', flush=True)\ntime.sleep(600)\n"))
    small.wait_for_text(run, "up")
    fill(small.home)
    host.has("python3", GOOD)
    host.home = str(small.home)
    agent = agent_bootstrap.start_agent("box", host.run, agent_bootstrap.digest(), ())
    views = agent.call("runs.runs")["runs"]
    assert views[run]["0"]["status"]["state"] == "running"
    stopped = agent.call("runs.stop", id=run, node=0, grace=5)["status"]
    assert (stopped["state"], stopped.get("alive", 0)) == ("stopped", 0)
    assert not list((small.home / "runtime").glob("*"))


def test_a_copy_of_the_agent_that_cannot_be_imported_is_replaced(host: Host) -> None:
    host.has("python3", GOOD)
    start(host)
    (copy,) = Path(host.home, "runtime").iterdir()

    def damage(name: str) -> tuple[Path, bytes]:
        host.end()
        path = next(copy.rglob(name))
        path.chmod(0o600)
        whole = path.read_bytes()
        path.write_bytes(whole[:16] + bytes(len(whole) - 16))
        return path, whole

    path, whole = damage("server.*.pyc")
    assert start(host) == host.home
    assert path.read_bytes() == whole
    assert list(Path(host.home, "runtime").iterdir()) == [copy]
    damage("network.*.pyc")  # imported once it is asked for
    agent = agent_bootstrap.start_agent("box", host.run, agent_bootstrap.digest(), ())
    with pytest.raises(AgentError) as caught:
        agent.call("network.close")
    assert "give the same command again" in str(caught.value.hint)
    assert not runtime_copy.is_whole(str(copy))


def test_a_python_that_hangs_is_given_up(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_bootstrap, "TIMEOUT", 0.3)
    host.has("python3", "#!/bin/sh\nexec /bin/sleep 600\n")
    with pytest.raises(HostError, match=r"no Python there has answered within 0\.3 s"):
        start(host)
