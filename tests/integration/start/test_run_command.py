"""What `run` does and says, and how the run ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.workspace import DEADLINE, interrupt, wait_for

from safelaunch.runtime import processes

if TYPE_CHECKING:
    from support.workspace import Place

FOREVER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(60)\n"


@pytest.mark.tmux
def test_run_returns_at_once_and_says_how_to_look(place: Place) -> None:
    shown = place.cli("run", place.job(FOREVER)).stdout
    run = shown.split()[1]
    assert shown.startswith(f"started {run} in tmux\n")
    assert f"safelaunch logs -f {run}" in shown
    assert f"safelaunch attach {run}" in shown
    assert f"safelaunch stop {run}" in shown
    assert place.status(run)["state"] == "running"


@pytest.mark.tmux
def test_the_plain_tmux_command_works(place: Place) -> None:
    shown = place.cli("run", place.job(FOREVER)).stdout
    words = shown.split("or: ")[1].split("\n")[0].split()
    assert words[-1] == "attach"
    listed = subprocess.run(
        [*words[:-1], "list-sessions"], capture_output=True, text=True, check=True
    )
    assert listed.stdout.startswith(shown.split()[1] + ":")


@pytest.mark.tmux
def test_the_socket_is_removed_at_the_end(place: Place) -> None:
    run = place.start(
        place.job("import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)")
    )
    socket = place.status(run)["socket"]
    assert os.path.lexists(socket)
    place.write("go", "")
    place.ended(run)
    wait_for(lambda: not os.path.lexists(socket), "removal of the socket")


def test_succeeds(place: Place) -> None:
    run = place.start(place.job("print('done')"))
    assert place.json("wait", run)["state"] == "succeeded"


def test_the_programs_exit_code_is_kept(place: Place) -> None:
    run = place.start(place.job("raise SystemExit(3)"))
    shown = place.json("wait", run, code=1)
    assert (shown["state"], shown["exit_code"]) == ("failed", 3)


def test_a_signal_is_named(place: Place) -> None:
    run = place.start(place.job("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"))
    shown = place.json("wait", run, code=1)
    assert (shown["state"], shown["signal"], shown["exit_code"]) == ("failed", "SIGSEGV", 139)
    assert "SIGSEGV" in place.cli("show", run).stdout


def test_a_program_that_is_missing_fails_with_127(place: Place) -> None:
    job = place.job("", launcher="command", command=["no-such-program"], script=None)
    shown = place.json("wait", place.start(job), code=1)
    assert (shown["state"], shown["exit_code"]) == ("failed", 127)


def test_follow_streams_and_exits_with_the_job(place: Place) -> None:
    good = place.cli("run", "--follow", place.job("print('one')\nprint('two')", name="good"))
    assert good.stdout == "one\ntwo\n"
    assert "succeeded" in good.stderr
    bad = place.cli("run", "-f", place.job("print('x')\nraise SystemExit(7)", name="bad"), code=1)
    assert bad.stdout == "x\n"
    assert "exit code 7" in bad.stderr


def test_interrupting_a_follower_leaves_the_job_running(place: Place) -> None:
    client = place.popen("run", "--follow", place.job(FOREVER))
    assert client.stdout is not None
    assert client.stdout.readline() == b"up\n"
    interrupt(client)
    _, stderr = client.communicate(timeout=DEADLINE)
    assert client.returncode == 130
    run = place.json("show")["id"]
    assert f"{run} keeps running" in stderr.decode()
    assert place.status(run)["state"] == "running"


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGTERM, 1), (signal.SIGINT, 130), (signal.SIGHUP, 1)]
)
def test_a_signal_to_the_foreground_stops_the_job(
    place: Place, signum: signal.Signals, code: int
) -> None:
    client = place.popen("run", "--foreground", place.job(FOREVER))
    assert client.stdout is not None
    assert client.stdout.readline() == b"up\n"
    client.send_signal(signum)
    client.communicate(timeout=DEADLINE)
    assert client.returncode == code
    run = place.json("show")["id"]
    assert place.status(run)["state"] == "stopped"
    assert processes.marked(run) == {}


def test_foreground_exits_with_the_job(place: Place) -> None:
    assert place.cli("run", "--foreground", place.job("print('x')")).stdout == "x\n"


def test_a_killed_foreground_client_takes_its_job_along(place: Place) -> None:
    client = place.popen("run", "--foreground", place.job(FOREVER))
    assert client.stdout is not None
    assert client.stdout.readline() == b"up\n"
    client.kill()
    client.wait()
    run = place.json("show")["id"]
    assert place.ended(run)["state"] == "stopped"
    assert processes.marked(run) == {}


def test_run_json_has_the_promised_shape(place: Place) -> None:
    data = place.json("run", place.job("print('x')"))
    assert {"version", "id", "state", "host", "run_dir", "attach"} <= set(data)
    assert data["run_dir"] == str(place.node(data["id"]))


def test_files_are_private(place: Place) -> None:
    place.home.mkdir(mode=0o700)  # the test looks at its own copy of the runtime
    run = place.start(place.ranks("print('x')"), umask=0)
    place.ended(run)
    wait_for((place.node(run) / "record.json").exists, "the record of the run")
    for folder, below, names in os.walk(place.home):
        if "__pycache__" in below:
            below.remove("__pycache__")  # the job's own interpreter caches sitecustomize there
        assert os.stat(folder).st_mode & 0o777 == 0o700, folder
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a part that is a whole file by now
                mode = os.stat(os.path.join(folder, name)).st_mode & 0o777
                is_shared = "/runtime/" in f"{folder}/"
                own = 0o755 if name == "launch.sh" else 0o600
                assert mode == (0o400 if is_shared else own), name


def test_a_follower_whose_reader_has_gone_leaves_the_job_running(place: Place) -> None:
    program = "import time\nfor i in range(10**6):\n    print(i, flush=True)\n    time.sleep(.001)"
    client = place.popen("run", "--follow", place.job(program))
    assert client.stdout is not None
    client.stdout.readline()
    client.stdout.close()
    assert client.wait(timeout=DEADLINE) == 0
    client.stdout = None
    assert place.json("show")["state"] == "running"


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_other_systems_are_told_to_use_remote(place: Place, platform: str) -> None:
    job = place.job("print('x')")
    # click looks at the platform when it is imported, and would want its modules
    program = (
        f"import click, sys\nsys.platform = {platform!r}\nsys.argv = ['safelaunch', 'run', {job!r}]"
    )
    result = subprocess.run(
        [sys.executable, "-c", f"{program}\nfrom safelaunch.cli.main import main\nmain()"],
        cwd=place.project,
        env=place.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "safelaunch remote" in result.stderr
    assert not place.home.exists()


def test_a_rerun_starts_the_same_words_with_a_fresh_id_and_port(place: Place) -> None:
    first = place.start(place.ranks("import sys\nprint(sys.argv[1:])", args=["--a", "ä b"]))
    place.ended(first)
    place.write("job.yaml", "launcher: nonsense")
    second = place.json("rerun", first)["id"]
    assert place.ended(second)["state"] == "succeeded"
    assert second != first
    plans = [json.loads((place.node(run) / "plan.json").read_text()) for run in (first, second)]
    first_argv, second_argv = (plan["nodes"][0]["argv"] for plan in plans)
    port = first_argv.index("--master_port") + 1
    assert (
        first_argv[:port] + first_argv[port + 1 :] == second_argv[:port] + second_argv[port + 1 :]
    )
    assert first_argv[port] != second_argv[port]


EXECUTES = "#!/usr/bin/env python3\nimport os, sys\nos.execvp(sys.argv[2], sys.argv[2:])\n"
WAITS = "#!/usr/bin/env python3\nimport subprocess, sys\nsys.exit(subprocess.call(sys.argv[2:]))\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [("nice", None), ("own", '#!/bin/sh\nshift\n"$@"\n'), ("poetry", EXECUTES), ("pdm", WAITS)],
)
def test_the_program_behind_a_prefix_is_the_one_that_failed(
    place: Place, name: str, text: str | None
) -> None:
    if text is not None:
        place.write(name, text)
        (place.project / name).chmod(0o755)
    words = ["nice", "-n", "1"] if text is None else [f"./{name}", "run"]
    failure = place.failed(place.job("raise KeyError('labels')", prefix=words))["failure"]
    assert (failure["rank"], failure["what"]) == (0, "KeyError: 'labels'")


def test_a_binding_decides_how_many_cores_there_are(place: Place) -> None:
    core = min(os.sched_getaffinity(0))
    job = place.job(
        "import os\nprint(os.environ['OMP_NUM_THREADS'])",
        prefix=["taskset", "-c", str(core)],
        launcher="torchrun",
        processes=1,
    )
    node = place.node(place.start(job))
    assert ': "${OMP_NUM_THREADS:=1}"' in (node / "launch.sh").read_text()
