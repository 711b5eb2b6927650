"""What holds of the suite itself: nothing is left out in silence, and nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support import REPOSITORY
from support.ssh import sshd
from support.sweeper import start_of
from support.workspace import DEADLINE, wait_for

if TYPE_CHECKING:
    from pathlib import Path

PATHS = f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests'}"


def suite(folder: Path, text: str, **env: str) -> subprocess.Popen[str]:
    """Start pytest on a file of tests, with the hooks of the whole suite."""
    (folder / "test_it.py").write_text(text)
    environ = {k: v for k, v in os.environ.items() if k != "CI" and not k.startswith("PYTEST")}
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-c", os.devnull,
         "--rootdir", folder, f"--basetemp={folder / 'base'}", folder / "test_it.py"],
        env={**environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": PATHS, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


# -- skips -----------------------------------------------------------------------------------------

SKIPS = "import pytest\n\ndef test_it():\n    pytest.skip({!r})\n"


@pytest.mark.parametrize(
    ("reason", "ci", "code"),
    [
        ("no tmux here", "true", 1),
        ("no tmux here", "", 0),
        ("no python3.8 here", "true", 0),
    ],
)
def test_a_skip_that_is_not_allowed_fails_in_ci(
    reason: str, ci: str, code: int, tmp_path: Path
) -> None:
    pytest_run = suite(tmp_path, SKIPS.format(reason), CI=ci)
    out, _ = pytest_run.communicate(timeout=DEADLINE)
    assert (pytest_run.returncode, f"not to be skipped in CI: Skipped: {reason}" in out) == (
        code,
        code == 1,
    ), out


# -- a suite that is killed ------------------------------------------------------------------------

LEAVES = """
import json, os, pathlib, time
from support import slurm
from support.ssh import network_namespaces, sshd
from support.workspace import Place

def test_it(tmp_path):
    place = Place(tmp_path)
    run = place.start(place.job("import time\\nprint('up', flush=True)\\ntime.sleep(600)"))
    place.wait_for_text(run, "up")
    status = place.status(run)
    pids = [status["supervisor"]["pid"], *place.json("show", run)["pids"]["ranks"].values()]
    folders, links = [], []
    if not network_namespaces.why_not():
        lan = network_namespaces.Lan(1)
        links = [lan._bridge, *lan._names]
        pids += [host._process.pid for host in lan.hosts]
        folders += [str(host.folder) for host in lan.hosts]
    if not sshd.missing():
        server = sshd.Sshd()
        agent = sshd.agent(tmp_path)
        path = agent.__enter__()
        listener = [pid for pid, parent in sshd.running() if parent == os.getpid()]
        pids += [server._process.pid, *listener]
        folders.append(str(server.folder))
    if not slurm.missing():
        cluster = slurm.Slurm()
        cluster.submit(script="sleep 600")
        pids += cluster.daemons()
        folders.append(str(cluster.folder))
    left = {"pids": pids, "folders": folders, "links": links, "socket": status.get("socket")}
    pathlib.Path("TEXT.new").write_text(json.dumps(left))
    os.rename("TEXT.new", "TEXT")
    time.sleep(600)
"""


def links() -> str:
    """Return the names of all network devices and namespaces."""
    commands = (["ip", "-o", "link"], ["ip", "netns", "list"])
    return "".join(
        subprocess.run(a, check=True, capture_output=True, text=True).stdout for a in commands
    )


def test_a_suite_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    record = tmp_path / "left.json"
    pytest_run = suite(tmp_path, LEAVES.replace("TEXT", str(record)))
    try:
        wait_for(lambda: record.exists() or pytest_run.poll() is not None, "what may be left")
        assert record.exists(), pytest_run.communicate()[0]
        left: dict[str, Any] = json.loads(record.read_text())
        starts = {pid: start_of(pid) for pid in left["pids"]}
        assert starts
    finally:
        pytest_run.send_signal(signal.SIGKILL)
        pytest_run.wait()
        assert pytest_run.stdout is not None
        pytest_run.stdout.close()
    for pid, start in starts.items():
        wait_for(lambda p=pid, s=start: not is_there(p, s), f"end of {pid}")  # type: ignore[misc]
    for folder in left["folders"]:
        wait_for(lambda f=folder: not os.path.exists(f), f"removal of {folder}")  # type: ignore[misc]
    for name in left["links"]:
        wait_for(lambda n=name: n not in links(), f"removal of {name}")  # type: ignore[misc]


def is_there(pid: int, start: str) -> bool:
    """Return whether a process still runs, and is the one that was meant."""
    try:
        return start_of(pid) == start and pid in dict(sshd.running())
    except OSError:
        return False
