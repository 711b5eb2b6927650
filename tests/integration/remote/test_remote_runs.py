"""Runs on a host: a real sshd, a user without privileges, nothing installed there but Python."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.cli_process import CLI
from support.ssh import sshd
from support.ssh.faulty_proxy import Faults
from support.workspace import DEADLINE, Place, wait_for

from safelaunch.ssh.config.local_user import current_user

if TYPE_CHECKING:
    from support.ssh.sshd import Sshd

pytestmark = pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))

COUNT = """
import sys, time
for i in range(1, 41):
    print(f"step {i}/40 loss {1 / i:.3f}", flush=True)
    time.sleep(0.05)
"""
FOREVER = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
USER = "alice" if sshd.ROOT else None


@pytest.fixture
def far(place: Place, server: Sshd) -> Place:
    """Return a place whose ~/.ssh/config knows the host as gpu1."""
    place.ssh_config(server.ssh_config("gpu1", USER))
    return place


def job(place: Place, program: str, name: str = "far", **keys: object) -> str:
    """Write a job that runs with whatever Python the host has."""
    return place.job(program, name=name, python=None, **keys)


def start(place: Place, file: str, *words: str) -> str:
    return str(place.json("remote", "--host", "gpu1", *words, file)["id"])


def state_of(place: Place, run: str) -> str:
    return str(place.json("show", run)["state"])


def test_a_job_runs_there_and_its_log_comes_here(far: Place) -> None:
    done = far.cli("remote", "--host", "gpu1", "--follow", job(far, COUNT))
    assert done.stdout.splitlines()[-1] == "step 40/40 loss 0.025"
    assert "succeeded" in done.stderr


def test_a_host_is_named_by_an_ipv6_address(place: Place) -> None:
    if not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("no IPv6 here")
    with sshd.Sshd(address="::1") as server:
        keys = f"IdentityFile {server.key}\n  UserKnownHostsFile {server.known_hosts}"
        place.ssh_config(f"Host *\n  {keys}\n")
        host = f"{USER or server.user}@[::1]:{server.port}"
        assert place.cli("ps", "--host", host).stderr == f"no runs on {host}\n"


def test_what_failed_there_is_told_here(far: Place) -> None:
    file = job(far, "def load():\n    raise ValueError('bad batch')\nload()\n")
    done = far.cli("remote", "--host", "gpu1", "--follow", file, code=1)
    stderr = " ".join(done.stderr.split())
    assert "ValueError: bad batch" in stderr
    assert "far.py:2 in load" in stderr


def test_a_run_is_looked_at_and_stopped_also_by_another_laptop(far: Place, tmp_path: Path) -> None:
    run = start(far, job(far, FOREVER))
    wait_for(lambda: "up" in far.cli("logs", run, code=None).stdout, "first line")
    shown = far.json("show", run)
    assert (shown["state"], shown["host"]) == ("running", "gpu1")
    assert [r["id"] for r in far.json("ps")["runs"]] == [run]
    own_home = far.env["SAFELAUNCH_HOME"]
    far.env["SAFELAUNCH_HOME"] = str(tmp_path / "another")
    stopped = far.json("stop", "--host", "gpu1", run)
    assert (stopped["state"], stopped.get("alive", 0)) == ("stopped", 0)
    far.env["SAFELAUNCH_HOME"] = own_home
    assert far.cli("wait", run, code=1).stderr.startswith(f"{run}: stopped")


def test_another_laptop_finds_a_run_by_its_host(far: Place, tmp_path: Path) -> None:
    run = start(far, job(far, COUNT))
    far.cli("wait", run)
    far.env["SAFELAUNCH_HOME"] = str(tmp_path / "another")
    listed = far.json("ps", "--host", "gpu1")["runs"]
    clients = {r["id"]: r.get("client") for r in listed}
    assert clients[run] == current_user(far.env).label
    assert "step 40/40" in far.cli("logs", "--tail", "1", run).stdout


def test_another_laptop_is_told_why_a_run_failed(far: Place, tmp_path: Path) -> None:
    run = start(far, job(far, "raise ValueError('bad batch')\n"))
    far.cli("wait", run, code=1)
    far.env["SAFELAUNCH_HOME"] = str(tmp_path / "another")
    far.cli("ps", "--host", "gpu1")
    assert far.json("show", run)["failure"]["what"] == "ValueError: bad batch"


def test_an_end_that_was_seen_needs_no_host(far: Place) -> None:
    run = start(far, job(far, COUNT))
    far.cli("wait", run)
    far.ssh_config("Host gpu1\n  HostName 127.0.0.1\n  Port 1\n")
    assert state_of(far, run) == "succeeded"


def test_a_host_that_does_not_answer_leaves_the_state_unknown(far: Place, server: Sshd) -> None:
    with Faults(server.address, server.port) as proxy:
        config = server.ssh_config("gpu1", USER).replace(str(server.port), str(proxy.port))
        alias = f"  HostKeyAlias [{server.address}]:{server.port}\n"
        far.ssh_config(config + alias)
        run = start(far, job(far, FOREVER))
        assert state_of(far, run) == "running"
        far.ssh_config(config.replace(str(proxy.port), "1") + alias)
        shown = far.json("show", run)
        assert shown["state"] == "unknown"
        assert "when last seen" in shown["reason"]
        far.ssh_config(config + alias)
        assert far.json("stop", run)["state"] == "stopped"


def test_a_followed_log_goes_on_after_a_cut_without_a_lost_or_doubled_byte(
    far: Place, server: Sshd
) -> None:
    with Faults(server.address, server.port) as proxy:
        alias = f"  HostKeyAlias [{server.address}]:{server.port}\n"
        config = server.ssh_config("gpu1", USER).replace(str(server.port), str(proxy.port))
        far.ssh_config(config + alias)
        run = start(far, job(far, COUNT))
        follow = subprocess.Popen(
            [*CLI, "logs", "-f", run], env=far.env, cwd=far.project, stdout=subprocess.PIPE
        )
        far.started.append(follow)
        assert follow.stdout is not None
        first = follow.stdout.readline()
        proxy.reset()
        rest = follow.stdout.read()
        assert follow.wait(DEADLINE) == 0
    lines = (first + rest).decode().splitlines()
    assert lines == [f"step {i}/40 loss {1 / i:.3f}" for i in range(1, 41)]


def test_the_project_is_synced_and_a_change_travels(far: Place) -> None:
    far.write("lib/words.py", "SAID = 'one'\n")
    file = job(far, "from lib.words import SAID\nprint(SAID)\n")
    assert "one" in far.cli("remote", "--host", "gpu1", "-f", file).stdout
    # of another size: Python takes its old bytecode for a file of the same second and size
    far.write("lib/words.py", "SAID = 'another'\n")
    assert "another" in far.cli("remote", "--host", "gpu1", "-f", file).stdout


def test_a_secret_reaches_the_job_and_no_file(far: Place, server: Sshd) -> None:
    far.env["HF_TOKEN"] = "hf_verysecret"  # noqa: S105 - that is the point
    program = "import os\nprint(len(os.environ['HF_TOKEN']))\n"
    file = job(far, program, env_from=["HF_TOKEN"])
    refused = far.cli("remote", "--host", "gpu1", "-f", file, code=3).stderr
    assert "variable HF_TOKEN" in refused
    assert "--yes" in refused
    assert "13" in far.cli("remote", "--host", "gpu1", "-f", "--yes", file).stdout
    matches = subprocess.run(
        ["grep", "-rl", "hf_verysecret", str(server.home(USER)), str(far.home)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert matches.stdout == ""


def test_a_dry_run_asks_nobody(far: Place) -> None:
    far.ssh_config("Host gpu1\n  HostName 192.0.2.1\n")
    plan = far.json("remote", "--host", "gpu1", "--dry-run", job(far, COUNT))
    (node,) = plan["nodes"]
    assert (node["host"], node["cwd"]) == ("gpu1", "<home>/safelaunch/project")


def test_a_plan_that_is_printed_is_the_one_that_runs(far: Place, server: Sshd) -> None:
    file = job(far, COUNT, env={"WANDB_MODE": "offline"})
    printed = far.cli("remote", "--host", "gpu1", "--dry-run", "--json", file).stdout
    run = start(far, file)
    far.cli("wait", run)
    record = json.loads((far.home / "runs" / run / "node-0" / "plan.json").read_text())
    (want,), (have,) = json.loads(printed)["nodes"], record["nodes"]
    # other tests have checkouts of the same name on this host: to it belongs part of an id
    assert have["cwd"].startswith(want["cwd"].replace("<home>", str(server.home(USER))))
    assert have["env"].keys() == want["env"].keys()


def test_the_only_job_file_of_a_folder_is_meant(far: Place) -> None:
    job(far, COUNT, name="one")
    assert far.json("remote", "--host", "gpu1", "--dry-run")["name"] == "one"


def read_until(fd: int, mark: bytes | None, limit: float = DEADLINE) -> bytes:
    """Read a terminal until a word comes, or to its end."""
    output, deadline = b"", time.monotonic() + limit
    with contextlib.suppress(OSError):  # EIO: the other side is gone
        while (mark is None or mark not in output) and time.monotonic() < deadline:
            if select.select([fd], [], [], 0.2)[0]:
                output += os.read(fd, 4096)
    return output


@pytest.mark.tmux
def test_attach_is_a_terminal_of_the_pane(far: Place) -> None:
    run = start(far, job(far, FOREVER))
    wait_for(lambda: "up" in far.cli("logs", run, code=None).stdout, "first line")
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(far.project)
        os.execvpe(CLI[0], [*CLI, "attach", run], far.env)  # noqa: S606
    screen = read_until(fd, b"up")

    def over() -> tuple[int, int] | None:
        """Press Ctrl-B D, again if need be: a busy tmux that greets its terminal may miss keys."""
        with contextlib.suppress(OSError):
            os.write(fd, b"\x02d")
        read_until(fd, None, 2.0)
        waited = os.waitpid(pid, os.WNOHANG)
        return waited if waited[0] else None

    _, code = wait_for(over, "end of attach")
    os.close(fd)  # not before: it would hang up on it
    assert b"up" in screen
    assert os.waitstatus_to_exitcode(code) == 0
    assert state_of(far, run) == "running"
    far.cli("stop", run)


def test_a_file_goes_there_and_results_come_back(far: Place) -> None:
    far.write("model.bin", bytes(300_000))
    target = far.cli("push", "model.bin", "--host", "gpu1").stdout.strip()
    program = f"import os\nos.makedirs('out', exist_ok=True)\nn = os.path.getsize({target!r})\n"
    program += "open('out/size.txt', 'w').write(str(n))\n"
    run = start(far, job(far, program))
    far.cli("wait", run)
    far.cli("pull", f"{run}:out/*.txt", "results")
    assert (far.project / "results" / "out" / "size.txt").read_text() == "300000"


def test_files_changed_there_are_not_overwritten(far: Place) -> None:
    far.write("words.txt", "mine\n")
    file = job(far, "print(open('words.txt').read())\n")
    run = start(far, file)
    far.cli("wait", run)
    record = json.loads((far.node(run) / "run.json").read_text())
    Path(record["cwd"], "words.txt").write_text("changed there\n")
    far.write("words.txt", "mine again\n")
    refused = far.cli("remote", "--host", "gpu1", file, code=3)
    assert "words.txt" in refused.stderr
    assert "mine again" in far.cli("remote", "--host", "gpu1", "-f", "--force", file).stdout


def test_assets_travel_once_and_their_place_is_known_there(far: Place, server: Sshd) -> None:
    far.write("models/base/config.json", "{}\r\n")
    program = "import sys\nprint('size', len(open(sys.argv[1] + '/config.json', 'rb').read()))\n"
    file = job(far, program, args=["{assets.base}"], assets={"base": "models/base"})
    first = far.cli("remote", "--host", "gpu1", "-f", file)
    assert "size 4" in first.stdout
    place = f"{server.home(USER)}/safelaunch/assets/base"
    assert f"synced gpu1:{place}: 1 file sent" in first.stderr
    second = far.cli("remote", "--host", "gpu1", "-f", file)
    assert f"gpu1:{place} is up to date" in second.stderr
