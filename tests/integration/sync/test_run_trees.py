"""A run keeps the files that it was launched with, whatever is synced while it lives."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.ssh import sshd
from support.workspace import wait_for

from safelaunch.errors import Refused
from safelaunch.runtime import processes
from safelaunch.runtime.records import RunRecord, Status
from safelaunch.sync.push import RunSync

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from support.ssh.sshd import Sshd
    from support.sync_pair import HostPair
    from support.workspace import Place

NEEDS_SSHD = pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
USER = "alice" if sshd.ROOT else None

FIRST = """
import os, time
while not os.path.exists('go'):
    time.sleep(0.02)
import lib
print('first sees', lib.VERSION, flush=True)
if not os.path.exists('restarted'):
    open('restarted', 'w').close()
    raise SystemExit(1)
"""
SECOND = """
import os, lib
print('second sees', lib.VERSION, open('data/set.txt').read(), open('../beside').read())
for path in ('out/ck/model', 'made/by/it', 'pkg/cache.bin'):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, 'w').write('result')
open('lib.py', 'a').write('# edited in place')
"""


def live(box: HostPair, run: str) -> None:
    """Let a run live in the project's folder on the host: this process is its supervisor."""
    node_dir = Path(box.env["SAFELAUNCH_HOME"], "runs", run, "node-0")
    node_dir.mkdir(parents=True)
    RunRecord(id=run, cwd=str(box.target)).write(str(node_dir))
    supervisor = processes.identity(os.getpid())
    Status(id=run, state="running", supervisor=supervisor).write(str(node_dir))


def test_only_a_sync_that_would_change_files_of_a_living_run_makes_a_copy(box: HostPair) -> None:
    box.write("kept.py", "same")
    box.write("edited.py", "old")
    box.write("deleted.py", "old")
    agent = box.agent()
    box.sync(agent, run_sync=RunSync("first", "me"))
    live(box, "first")
    same = box.sync(agent, run_sync=RunSync("second", "me"))
    assert (same.target, same.place) == (str(box.target), "")

    box.write("edited.py", "new")
    (box.project / "deleted.py").unlink()
    messages: list[str] = []
    options = {"run_sync": RunSync("third", "me"), "delete": True, "report": messages.append}
    summary = box.sync(agent, **options)
    tree = Path(f"{box.target}.third")
    assert (summary.target, summary.place, summary.sent) == (str(tree), str(box.target), 1)
    assert messages == [f"box:{box.target} is in use by first, second: a copy is made"]
    assert {p.name: p.read_text() for p in tree.iterdir()} == {
        "kept.py": "same",
        "edited.py": "new",
    }
    assert box.tree() == {"kept.py": b"same", "edited.py": b"old", "deleted.py": b"old"}

    (box.target / "kept.py").write_text("by hand")  # as ever refused: perhaps it was meant to stay
    box.write("kept.py", "other")
    with pytest.raises(Refused, match=r"kept\.py was changed on the host"):
        box.sync(agent, run_sync=RunSync("fourth", "me"))
    forced = box.sync(agent, run_sync=RunSync("fourth", "me"), force=True)
    assert Path(forced.target, "kept.py").read_text() == "other"
    assert box.tree()["kept.py"] == b"by hand"


def test_a_folder_without_copies_is_not_changed_under_a_living_run(box: HostPair) -> None:
    for number in range(7):
        box.write(f"{number}.py", "old")
    agent = box.agent()
    box.sync(agent)
    live(box, "first")
    for number in range(7):
        box.write(f"{number}.py", "new")
    shared, too_long = RunSync("second", ""), RunSync("r" * 255, "me")
    with pytest.raises(Refused, match=r"in use by first, .*: 0\.py, .*4\.py and 2 more") as raised:
        box.sync(agent, run_sync=shared)
    assert "--force" in str(raised.value.hint)
    with pytest.raises(Refused, match="no copy can be made beside it: File name too long"):
        box.sync(agent, run_sync=too_long)
    assert set(box.tree().values()) == {b"old"}
    box.sync(agent, run_sync=shared, force=True)
    assert set(box.tree().values()) == {b"new"}


@pytest.fixture
def far(place: Place, server: Sshd) -> Place:
    """Return a place whose ~/.ssh/config knows the host as gpu1."""
    place.ssh_config(server.ssh_config("gpu1", USER))
    return place


def remote(far: Place, file: str, *words: str) -> CompletedProcess[str]:
    return far.cli("remote", "--no-check", "--host", "gpu1", *words, file)


def job(far: Place, program: str, name: str, **keys: object) -> str:
    return far.job(program, name=name, python=None, **keys)


@NEEDS_SSHD
def test_a_run_sees_the_files_of_its_start_whatever_is_synced(far: Place, server: Sshd) -> None:
    far.write("lib.py", "VERSION = 'old'\n")
    far.write("pkg/__init__.py", "")
    classes = {"user-code-exception": "restart"}
    recovery = {"max_restarts": 1, "backoff": "0s", "classes": classes}
    first = json.loads(remote(far, job(far, FIRST, "first", recovery=recovery), "--json").stdout)
    project = server.home(USER or server.user) / "safelaunch" / "project"
    (project / "data").mkdir()
    (project / "data/set.txt").write_text("unsynced")
    (project.parent / "beside").write_text("sibling")

    # another checkout of the same name, from another machine
    far.env["SAFELAUNCH_HOME"] = str(far.root / "another")
    far.write("lib.py", "VERSION = 'other'\n")
    other = remote(far, job(far, "import lib\nprint(lib.VERSION)\n", "other"), "--follow")
    assert f"{project} is another checkout's: this one is {project}-" in other.stderr
    assert "other" in other.stdout
    far.env["SAFELAUNCH_HOME"] = str(far.home)

    far.write("lib.py", "VERSION = 'new'\n")
    done = remote(far, job(far, SECOND, "second", args=["--output_dir", "out"]), "--follow")
    assert f"{project} is in use by {first['id']}: a copy is made" in done.stderr
    assert "second sees new unsynced sibling" in done.stdout
    results = [project / name for name in ("out/ck/model", "made/by/it", "pkg/cache.bin")]
    assert [path.read_text() for path in results] == ["result"] * 3
    (tree,) = project.parent.glob(f"{project.name}.second-*")
    assert f"{tree}, a copy of {project}" in far.cli("show", "second").stdout

    (project / "go").touch()
    node_dir = server.home(USER or server.user) / ".safelaunch/runs" / first["id"] / "node-0"
    log = node_dir / "logs/attempt-2/combined.log"
    # a line may come in pieces
    wait_for(lambda: log.exists() and re.search("first sees .*\n", log.read_text()), "a whole line")
    assert "first sees old" in log.read_text()
    assert (project / "lib.py").read_text() == "VERSION = 'old'\n"

    assert "1 file nowhere else: lib.py" in far.cli("clean").stdout
    copies = [
        node_dir.parents[2] / "runtime" / "0.0-cpython-311",
        far.home / "runtime" / "0.0-pypy39",
    ]
    for copy in copies:
        copy.mkdir(parents=True, exist_ok=True)
    answer = far.json("clean", "--force")
    (cleaned,) = answer["trees"]
    assert answer["copies"] == [
        {"host": "localhost", "folder": str(copies[1])},
        {"host": "gpu1", "folder": str(copies[0])},
    ]
    assert not any(copy.exists() for copy in copies)
    assert (cleaned["tree"], cleaned["kept"], tree.exists()) == (str(tree), "", False)
    far.cli("pull", "second:out/**/*", "results")
    assert (far.project / "results/out/ck/model").read_text() == "result"
