"""What the job gets of its caller's surroundings; tmux or none; terminals."""

from __future__ import annotations

import json
import os
import pty
import resource
import secrets
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.workspace import DEADLINE, Place, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

FOREVER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(60)\n"
SHOW = (
    "import json, os, resource, signal\n"
    "u = os.umask(0)\n"
    "print(json.dumps({'env': dict(os.environ), 'umask': u, 'cwd': os.getcwd(),\n"
    "  'files': resource.getrlimit(resource.RLIMIT_NOFILE),\n"
    "  'ignored': [s for s in range(1, 32) if signal.getsignal(s) is signal.SIG_IGN],\n"
    "  'fds': sorted(map(int, os.listdir('/proc/self/fd')))[:4],\n"
    "  'stdin': os.readlink('/proc/self/fd/0')}))\n"
)


def surroundings(place: Place, **options: Any) -> dict[str, Any]:
    """Return what a job sees of its surroundings."""
    run = place.start(place.job(SHOW), **options)
    assert place.ended(run)["state"] == "succeeded"
    values: dict[str, Any] = json.loads((place.logs(run) / "launcher.log").read_text())
    for name in ("SAFELAUNCH_RUN_ID", "SAFELAUNCH_NODE_DIR"):
        values["env"].pop(name)
    return values


# -- what the job gets -----------------------------------------------------------------------------


@pytest.mark.parametrize("with_tmux", [True, False])
def test_the_job_gets_its_callers_surroundings(
    request: pytest.FixtureRequest, place: Place, with_tmux: bool
) -> None:
    if not with_tmux:
        request.getfixturevalue("no_tmux")
    place.env |= {"SAFELAUNCH_STRANGE": "1", "TMUX": "/tmp/x,1,0", "RANK": "7", "MINE": "ä\n'\""}
    for name in ("SHELL", "PS1"):  # bash drops an exported PS1 itself where it is not interactive
        place.env.pop(name, None)
    values = surroundings(place, umask=0o022)
    env = values["env"]
    added = {"PYTHONUNBUFFERED", "PYTHONPATH", "SAFELAUNCH_ATTEMPT",
             "SAFELAUNCH_CAPTURE", "SAFELAUNCH_MAIN", "SAFELAUNCH_SINGLE", "SAFELAUNCH_SITE",
             "SAFELAUNCH_SUPERVISOR",
             "SPT_NOENV", "PWD", "OLDPWD", "SHLVL", "_", "PATH", "VIRTUAL_ENV"}  # fmt: skip
    expected = {k: v for k, v in place.env.items() if k not in {*added, "RANK", "TMUX"}}
    expected = {k: v for k, v in expected.items() if not k.startswith("SAFELAUNCH_")}
    assert {k: v for k, v in env.items() if k not in added} == expected
    assert env["PATH"].endswith(place.env["PATH"])
    assert (values["umask"], values["cwd"]) == (0o022, str(place.project))
    assert values["stdin"] == "/dev/null"
    assert values["ignored"] == [13, 25]  # Python itself ignores PIPE and XFSZ; nothing is added
    assert values["fds"][:3] == [0, 1, 2]


def test_secrets_reach_the_program_and_nothing_else(place: Place) -> None:
    secret = secrets.token_hex(8)
    place.env["HF_TOKEN"] = secret
    program = (
        "import hashlib, os, time\nt = os.environ['HF_TOKEN']\n"
        "print(len(t), hashlib.sha1(t.encode()).hexdigest(), flush=True)\ntime.sleep(600)"
    )
    job = place.ranks(program, env_from=["HF_TOKEN"])
    run = place.start(job)
    place.wait_for_text(run, f"[1] {len(secret)} ")
    for path in place.node(run).rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    assert secret.encode() not in file.read()
            except OSError:
                continue
    wait_for((place.node(run) / "record.json").exists, "record")
    for words in (("run", "--dry-run", job), ("run", "--dry-run", "--json", job), ("show", run),
                  ("show", "--json", run), ("ps", "--json")):  # fmt: skip
        result = place.cli(*words)
        assert secret not in result.stdout + result.stderr


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_words_that_are_not_ascii_survive_any_locale(place: Place, locale: str) -> None:
    place.env["LC_ALL"] = locale
    job = place.job(
        "import os, sys\nos.write(1, os.fsencode(sys.argv[1] + os.environ['X']) + b'\\n')",
        args=["größe 数"],
        env={"X": "é"},
    )
    run = place.start(job)
    place.ended(run)
    shown = place.cli("logs", run, encoding="utf-8")
    assert shown.stdout == "größe 数é\n"


MANY = (
    "import os, resource, time\n"
    "print('up', *resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)\n"
    "while len(os.listdir(os.environ['SAFELAUNCH_NODE_DIR'] + '/ranks')) < 24: time.sleep(.02)\n"
    "time.sleep(1)\nprint('end', flush=True)\n"
)


def with_few_descriptors(place: Place, hard: int) -> tuple[str, dict[str, Any]]:
    """Run 24 ranks where 32 files may be open, or more where the hard limit allows it."""

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, hard))

    run = place.start(place.ranks(MANY, 24, env={"OMP_NUM_THREADS": "1"}), preexec_fn=lower)
    return run, place.ended(run)


def test_a_run_with_more_ranks_than_descriptors_is_followed_whole(place: Place) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    run, status = with_few_descriptors(place, hard)
    assert (status["state"], status.get("warning")) == ("succeeded", None)
    lines = place.wait_for_text(run, "end").splitlines()
    assert (
        sum(line.endswith(f"] up 32 {hard}") for line in lines) == 24
    )  # the job has its own limit
    assert sum(line.endswith("] end") for line in lines) == 24


def test_a_supervisor_that_may_not_have_more_descriptors_still_ends_its_run(place: Place) -> None:
    run, status = with_few_descriptors(place, 32)
    assert (status["state"], status.get("warning")) == ("succeeded", None)
    for rank in range(24):
        assert place.wait_for_text(run, "end", f"rank-{rank}.log") == "up 32 32\nend\n"


# -- tmux, or none ---------------------------------------------------------------------------------


def without_attach(place: Place, why: str) -> None:
    """Check that a run works without tmux, and that one line says so."""
    started = place.cli("run", place.job(FOREVER))
    assert started.stderr.count(why) == 1
    run = started.stdout.split()[1]
    assert started.stdout.startswith(f"started {run} (no tmux)")
    assert "attach" not in started.stdout
    place.wait_for_text(run, "up")
    assert "started without tmux" in place.cli("attach", run, code=1).stderr
    assert place.json("show", run)["state"] == "running"
    assert place.json("stop", run)["state"] == "stopped"


def test_without_tmux_everything_but_attach_works(no_tmux: Place) -> None:
    without_attach(no_tmux, "`tmux` is not installed")


@pytest.mark.parametrize("says", ["tmux 1.8", "something else"])
def test_a_tmux_that_is_too_old_is_not_used(place: Place, says: str) -> None:
    tmux = place.write("bin/tmux", f"#!/bin/sh\necho {says}\n")
    tmux.chmod(0o755)
    place.env["PATH"] = f"{tmux.parent}:{place.env['PATH']}"
    without_attach(place, says)


@pytest.fixture
def terminal(place: Place) -> Iterator[Any]:
    """Yield a function that runs a command in a tmux of the test's own, as a user's terminal."""
    socket = str(place.root / "t")
    base = ["tmux", "-f", "/dev/null", "-S", socket]

    def run(*words: str) -> str:
        return subprocess.run(
            [*base, *words], capture_output=True, text=True, check=True, env=place.env
        ).stdout

    run("new-session", "-d", "-x", "180", "-y", "40", "bash --norc")
    try:
        yield run
    finally:
        subprocess.run([*base, "kill-server"], check=False, capture_output=True)


@pytest.mark.tmux
def test_attach_in_a_terminal_shows_the_job_and_at_its_end_the_verdict(
    place: Place, terminal: Any
) -> None:
    """Also inside tmux: the user's terminal here is a tmux pane."""
    place.job(FOREVER)
    terminal("send-keys", f"cd {place.project}; {sys.executable} -m safelaunch run job.yaml", "C-m")
    wait_for(lambda: "follow " in terminal("capture-pane", "-p") or None, "start")
    run = place.json("show")["id"]
    assert place.status(run)["backend"] == "tmux"
    terminal("send-keys", "clear", "C-m", f"{sys.executable} -m safelaunch attach", "C-m")
    wait_for(lambda: f"[{run[:9]}" in terminal("capture-pane", "-p"), "the run's pane")
    wait_for(lambda: "\nup" in "\n" + terminal("capture-pane", "-p"), "its log in the pane")
    terminal("send-keys", "C-b", "d")
    wait_for(lambda: f"detached from {run}" in terminal("capture-pane", "-p", "-J"), "detaching")
    assert place.json("show")["state"] == "running"
    terminal("send-keys", "clear", "C-m", f"{sys.executable} -m safelaunch attach", "C-m")
    wait_for(lambda: f"[{run[:9]}" in terminal("capture-pane", "-p"), "the run's pane again")
    place.cli("stop", run)
    verdict = f"{run}: stopped by `safelaunch stop`"
    wait_for(lambda: verdict in terminal("capture-pane", "-p", "-J"), "the verdict")


@pytest.mark.tmux
def test_interrupt_in_the_pane_stops_the_job(place: Place) -> None:
    run = place.start(place.job(FOREVER))
    place.wait_for_text(run, "up")
    socket = place.status(run)["socket"]
    subprocess.run(["tmux", "-S", socket, "send-keys", "C-c"], check=True)
    status = place.ended(run)
    origin = "Ctrl-C in its terminal"
    assert (status["stopped_by"], status["stop_origin"]) == ("SIGINT", origin)


@pytest.mark.tmux
def test_attach_needs_a_terminal(place: Place) -> None:
    place.start(place.job(FOREVER))
    refused = place.cli("attach", code=1, stdin=subprocess.DEVNULL)
    assert "attach needs a terminal" in refused.stderr
    assert "safelaunch logs -f" in refused.stderr


@pytest.mark.tmux
def test_interrupting_a_follower_in_a_terminal_leaves_the_job(place: Place) -> None:
    """A real Ctrl-C: the terminal signals the whole foreground process group."""
    job = place.job(FOREVER)
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(place.project)
        os.execve(sys.executable, [sys.executable, "-m", "safelaunch", "run", "-f", job], place.env)  # noqa: S606
    read_until(fd, b"up")
    os.write(fd, b"\x03")
    assert b"keeps running" in read_until(fd, b"stop  ")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    os.close(fd)
    assert place.json("show")["state"] == "running"


def read_until(fd: int, expected: bytes) -> bytes:
    """Read a terminal until it has shown something."""
    output, deadline = b"", time.monotonic() + DEADLINE
    while expected not in output and time.monotonic() < deadline:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                output += os.read(fd, 4096)
            except OSError:
                break
    assert expected in output, output
    return output


def test_a_secret_of_a_pasted_line_reaches_the_job_and_no_file(place: Place) -> None:
    secret = secrets.token_hex(8)
    (place.project / "job.py").write_text("import os\nprint(len(os.environ['HF_TOKEN']))\n")
    line = (f"HF_TOKEN={secret}", "python", "job.py")
    started = place.cli("run", "--foreground", "--no-check", "--", *line)
    assert ("16" in started.stdout.split(), secret in started.stderr) == (True, False)
    files = [path for path in place.home.rglob("*") if path.is_file()]
    assert [path for path in files if secret.encode() in path.read_bytes()] == []


def test_a_program_that_its_platform_has_numbered_fails_with_its_reason(place: Place) -> None:
    """One container for each process: the line is pasted in each, with its RANK exported."""
    place.write("own.py", "import os\nraise KeyError(os.environ['RANK'])")
    place.env |= {"RANK": "3", "WORLD_SIZE": "8"}
    screen = place.cli("run", "--follow", "--", sys.executable, "own.py", code=1).stderr
    assert "note: handed on from your environment: RANK, WORLD_SIZE (`env_from`)" in screen
    assert "failed: KeyError: '3'" in screen
