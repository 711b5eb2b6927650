from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from safelaunch.runtime import backends
from safelaunch.runtime.backends import tmux
from safelaunch.runtime.commands import NOT_RUN, CommandResult
from safelaunch.runtime.records import RunRecord


@pytest.mark.parametrize(
    ("probe", "why"),
    [
        (CommandResult(0, "tmux 3.4\n", ""), None),
        (CommandResult(0, "tmux 2.1\n", ""), None),
        (CommandResult(0, "tmux master\n", ""), None),
        (CommandResult(0, "tmux 1.8\n", ""), "tmux 1.8 is too old (2.1 or newer)"),
        (CommandResult(1, "", "a library is missing\n"), "`tmux -V` says: a library is missing"),
        (CommandResult(NOT_RUN, "", "`tmux` is not installed"), "`tmux` is not installed"),
    ],
)
def test_a_tmux_that_cannot_run_a_supervisor_is_unusable(
    probe: CommandResult, why: str | None
) -> None:
    assert tmux.unusable(probe) == why


def test_without_tmux_setsid_is_chosen_with_the_reason(tmp_path: Path) -> None:
    backend, handle, why = backends.choose("job-1", None, {"PATH": str(tmp_path)})
    assert (backend.NAME, handle, why) == ("setsid", None, "`tmux` is not installed")


def test_a_backend_that_is_named_is_taken_without_a_reason() -> None:
    backend, handle, why = backends.choose("job-1", "setsid", {})
    assert (backend.NAME, handle, why) == ("setsid", None, None)


def test_a_record_names_its_backend_and_handle() -> None:
    record = RunRecord(backend="tmux", socket="/tmp/safelaunch-0/job-1")
    backend, handle = backends.from_record(record)
    assert backend.attach(handle) == ("tmux", "-S", "/tmp/safelaunch-0/job-1", "attach")


@pytest.mark.parametrize("name", [None, "setsid", "slurm"])
def test_a_run_of_any_other_backend_has_no_terminal(name: str | None) -> None:
    backend, handle = backends.from_record(RunRecord(backend=name))
    assert (backend.attach(handle), backend.serves(handle)) == ((), False)


@pytest.mark.parametrize("backend", backends.backends(), ids=lambda backend: backend.NAME)
def test_a_run_without_a_handle_is_cleaned_up_and_attached_to_by_nothing(
    backend: backends.Backend,
) -> None:
    backend.clean_up(None)
    assert (backend.attach(None), backend.serves(None)) == ((), False)


def test_a_socket_of_tmux_that_nobody_serves_is_removed() -> None:
    folder = Path(tempfile.mkdtemp(prefix="sl-", dir="/tmp"))
    path = str(folder / "job-1")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(1)
        assert tmux.serves(path)
    assert not tmux.serves(path)
    tmux.clean_up(path)
    assert not folder.exists()
