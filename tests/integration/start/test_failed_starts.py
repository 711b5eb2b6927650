"""A start that fails leaves nothing that would block the next one, here and on a host."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from support.ssh import sshd
from support.workspace import DEADLINE, interrupt, wait_for

from safelaunch.runtime import PLACE, processes
from safelaunch.runtime.start import starter

if TYPE_CHECKING:
    from pathlib import Path

    from support.ssh.sshd import Sshd
    from support.workspace import Place

USER = "alice" if sshd.ROOT else None
LOG = "results/deep/train.log"  # neither {time} nor {id}: a second start needs it free


def broken_supervisor(folder: Path, python: str) -> Path:
    """Write an interpreter that runs everything but a supervisor while `broken` is beside it."""
    path = folder / "python3"
    path.write_text(
        f'#!/bin/sh\ncase "$*" in *supervisor.py*) test -e {folder}/broken && exit 7 ;; esac\n'
        f'exec {python} "$@"\n'
    )
    path.chmod(0o755)
    (folder / "broken").touch()
    return path


def test_a_failed_start_leaves_no_log_that_blocks_the_next_one(place: Place) -> None:
    job = place.job(
        "print('x')", python=str(broken_supervisor(place.root, sys.executable)), log=LOG
    )
    stderr = place.cli("run", job, code=2).stderr
    assert "the supervisor did not start" in stderr
    assert not (place.project / "results").exists()
    assert os.listdir(place.home / "runs") == []
    (place.root / "broken").unlink()
    run = place.start(job)
    assert place.ended(run)["state"] == "succeeded"
    assert (place.project / LOG).read_text() == "x\n"


@pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
def test_a_failed_start_on_a_host_leaves_no_log_that_blocks_the_next_one(
    place: Place, server: Sshd
) -> None:
    place.ssh_config(server.ssh_config("gpu1", USER))
    home = server.home(USER)
    python = broken_supervisor(home, "/usr/bin/python3" if sshd.ROOT else sys.executable)
    job = place.job("print('x')", python=str(python), log=LOG)
    far = home / "safelaunch" / "project"
    stderr = place.cli("remote", "--host", "gpu1", job, code=2).stderr
    assert "the supervisor did not start" in stderr
    assert not (far / "results").exists()
    (home / "broken").unlink()
    done = place.cli("remote", "--host", "gpu1", "--follow", job)
    assert done.stdout == "x\n"
    assert (far / LOG).read_text() == "x\n"


def test_a_start_that_is_undone_leaves_nothing_that_makes_its_folder_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = place.root / "bin" / "git"  # the record of the run waits for it
    git.parent.mkdir()
    git.write_text("#!/bin/sh\nwhile kill -0 $PPID 2>/dev/null; do sleep 0.05; done\n")
    git.chmod(0o755)
    path = f"{git.parent}:{place.env['PATH']}"
    run = place.start(place.shell("sleep 600"), env={**place.env, "PATH": path})
    programs = processes.own_programs(str(place.node(run)), str(place.node(run) / PLACE))
    monkeypatch.setenv("SAFELAUNCH_HOME", str(place.home))
    starter.undo(run, 0)
    assert len(programs) >= 2  # the supervisor, and what records the run
    assert not any(processes.start_time(pid) == start for pid, start in programs.items())
    assert os.listdir(place.home / "runs") == []


def test_an_interpreter_that_hangs_is_ended_with_the_start_that_waits_for_it(place: Place) -> None:
    python = place.root / "python3"
    hangs = "*supervisor.py*) touch hangs; sleep 600; exit 7 ;;"
    python.write_text(f'#!/bin/sh\ncase "$*" in {hangs} esac\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    client = place.popen("run", "--no-check", place.job("print('x')", python=str(python)))
    runs = place.home / "runs"
    (marker,) = wait_for(lambda: [*runs.glob("*/node-0/hangs")], "interpreter that hangs")
    programs = processes.own_programs(str(marker.parent), str(marker.parent / PLACE))
    assert programs
    interrupt(client)
    assert client.wait(timeout=DEADLINE) == 130
    assert not any(processes.start_time(pid) == start for pid, start in programs.items())
    assert os.listdir(runs) == []
