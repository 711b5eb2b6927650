"""The code of a run on a host: recorded at the launch, given back, and run again."""

from __future__ import annotations

import json
import stat
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from support.ssh import sshd
from support.workspace import wait_for

if TYPE_CHECKING:
    from support.ssh.sshd import Sshd
    from support.workspace import Place

pytestmark = pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))

# its client fetches the record with the end of the run, and the process that makes it has no hurry
PROGRAM = """
import lib, os, time
print('lib is', lib.VERSION, flush=True)
while not os.path.exists(os.environ['SAFELAUNCH_NODE_DIR'] + '/record.json'):
    time.sleep(0.01)
time.sleep(600 if lib.VERSION == 22 else 0)
"""


def run_git(place: Place, *words: str) -> str:
    settings = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "gc.auto=0")
    command = ["git", "-C", str(place.project), *settings, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def follow(place: Place, *words: str) -> tuple[str, str]:
    """Return the last line of a run's log, and its id."""
    done = place.cli(*words, "--follow")
    run = max(place.json("ps", "--all")["runs"], key=lambda run: run["started_at"] or 0)["id"]
    return done.stdout.splitlines()[-1], run


def read(place: Place, run: str, name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((place.node(run) / name).read_text())
    return data


def test_what_was_launched_is_recorded_given_back_and_run_again(place: Place, server: Sshd) -> None:
    user = "alice" if sshd.ROOT else None
    place.ssh_config(server.ssh_config("gpu1", user))
    file = place.job(PROGRAM, name="far", python=None)
    place.write("lib.py", "VERSION = 0\n")
    place.write("words.txt", "one\n")
    run_git(place, "init", "-q", "-b", "try")
    run_git(place, "add", ".")
    run_git(place, "commit", "-qm", "1")
    place.write("lib.py", "VERSION = 1\n")
    line, first = follow(place, "remote", "--no-check", "--host", "gpu1", file)
    assert line == "lib is 1"

    # recorded here and there
    commit = run_git(place, "rev-parse", "HEAD").strip()
    code = place.json("show", first)["code"]
    assert (code["git"]["commit"], code["git"]["branch"]) == (commit, "try")
    assert (code["git"]["changed"], code["files"]) == ([" M lib.py"], 4)
    patch = place.node(first) / "code.patch"
    assert "+VERSION = 1" in patch.read_text()
    assert stat.S_IMODE(patch.stat().st_mode) == 0o600
    remote = server.home(user) / ".safelaunch" / "runs" / first / "node-0"
    assert (remote / "code.patch").read_bytes() == patch.read_bytes()
    assert json.loads((remote / "code.json").read_text()) == code
    assert read(place, first, "record.json")["git"] == code["git"]
    assert f"{commit[:12]} on try, changed files: 1" in place.cli("show", first).stdout

    # run again, as it was and as it is now
    place.write("lib.py", "VERSION = 22\n")  # no bytecode of 1 looks like its own
    place.write("words.txt", "two\n")
    third = str(place.json("rerun", "--current", first)["id"])
    line, second = follow(place, "rerun", first)  # beside it: in a copy
    assert line == "lib is 1"
    shown = place.json("show", second)
    assert shown["code"] == {**code, "target": shown["tree"]}
    assert (shown["place"], read(place, second, "run.json")["cwd"]) == (
        code["target"], shown["tree"],
    )  # fmt: skip
    wait_for(
        lambda: place.cli("logs", third, code=None).stdout == "lib is 22\n", "line of the other run"
    )
    place.cli("stop", third)

    # compared
    same = place.json("diff", first, second)["groups"]
    assert [g["changes"] for g in same if g["name"] == "code"] == [[]]
    text = place.cli("diff", first, third).stdout
    assert "code (settings and files that a rank imported)" in text
    assert {"lib.py", "words.txt"} <= {line.split()[0] for line in text.splitlines() if line}

    # given back
    place.cli("pull", "--code", first, "tree")
    tree = place.project / "tree"
    assert (tree / "lib.py").read_text() == "VERSION = 1\n"
    assert sorted(p.name for p in tree.iterdir()) == ["far.py", "far.yaml", "lib.py", "words.txt"]
    (place.home / "code").rename(place.home / "lost")
    assert "is not on this machine" in place.cli("pull", "--code", first, "x", code=1).stderr
