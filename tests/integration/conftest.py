"""A workspace or an SSH server for a test, and what this machine must have for it."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from support.mounts import tmpfs
from support.ssh.sshd import Sshd
from support.workspace import Place

from safelaunch.ssh.connection import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from safelaunch.ssh.connection import Connection


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Yield a place; end and check all its runs, also when the test has failed."""
    workspace = Place(tmp_path)
    try:
        yield workspace
    finally:
        workspace.close()


@pytest.fixture(params=["stand-in", pytest.param("direct", marks=pytest.mark.train)])
def ranks_job(place: Place, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Return what writes a job of several ranks, for each way of starting them."""
    return place.direct if request.param == "direct" else place.ranks


@pytest.fixture
def no_tmux(place: Place) -> Place:
    """Return a place whose PATH has everything of the system but tmux."""
    tools = place.root / "tools"
    tools.mkdir()
    for folder in ("/usr/local/bin", "/bin", "/usr/bin"):
        for program in os.scandir(folder) if os.path.isdir(folder) else ():
            if program.name != "tmux" and not os.path.lexists(tools / program.name):
                (tools / program.name).symlink_to(program.path)
    place.env["PATH"] = str(tools)
    return place


@pytest.fixture
def small(place: Place) -> Iterator[Place]:
    """Yield a place whose home is a file system of 3 MiB."""
    with tmpfs(place.home, "size=3m"):
        yield place
        place.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Sshd]:
    """Yield a host; what runs on it ends with it."""
    with Sshd() as sshd:
        yield sshd


@pytest.fixture
def connection(server: Sshd) -> Iterator[Connection]:
    """Yield a connection to it."""
    with connect(server.target()) as opened:
        yield opened


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, with the reason, what this machine cannot run."""
    if item.get_closest_marker("tmux") and shutil.which("tmux") is None:
        pytest.skip("no tmux here")
