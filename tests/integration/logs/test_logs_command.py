"""Whose bytes land in which file, and what `logs` shows of them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.python_versions import interpreter
from support.workspace import DEADLINE, wait_for

if TYPE_CHECKING:
    from support.workspace import Place

RAW = b"a\xff\x00b\r\nbar 10%\rbar 20%\r\nlast"


@pytest.mark.stand_in
def test_each_ranks_bytes_land_in_its_own_file(place: Place) -> None:
    program = f"import os\nos.write(1, {RAW!r} + os.environ['RANK'].encode())"
    run = place.start(place.ranks(program))
    place.ended(run)
    for rank in (0, 1):
        assert (place.logs(run) / f"rank-{rank}.log").read_bytes() == RAW + str(rank).encode()
    assert (place.logs(run) / "launcher.log").read_bytes() == b"launcher: starting 2\n"


def test_stderr_of_a_rank_goes_with_its_stdout(place: Place) -> None:
    run = place.start(place.ranks("import sys\nprint('out')\nprint('err', file=sys.stderr)"))
    place.ended(run)
    assert (place.logs(run) / "rank-1.log").read_text() == "out\nerr\n"


@pytest.mark.stand_in
def test_the_merged_log_has_whole_lines_with_their_rank(place: Place) -> None:
    program = (
        "import os, sys\nr = os.environ['RANK']\n"
        "for i in range(2000):\n    for part in (f'r{r} ', f'n{i} ', 'end\\n'):\n"
        "        os.write(1, part.encode())"
    )
    run = place.start(place.ranks(program))
    place.ended(run)
    lines = place.wait_for_text(run, "").splitlines()
    for rank in (0, 1):
        mine = [line for line in lines if line.startswith(f"[{rank}] ")]
        assert mine == [f"[{rank}] r{rank} n{i} end" for i in range(2000)]
    assert len(lines) == 4001
    assert "launcher: starting 2" in lines


def test_crlf_cr_and_a_missing_end_are_ends_of_lines(place: Place) -> None:
    program = "import os\nif os.environ['RANK'] == '1': os.write(1, b'a\\r\\nb 1%\\rb 2%\\rlast')"
    run = place.start(place.ranks(program))
    place.ended(run)
    merged = (place.logs(run) / "combined.log").read_bytes()
    assert b"[1] a\r\n[1] b 1%\r[1] b 2%\r[1] last\n" in merged


def test_a_split_crlf_is_one_end(place: Place) -> None:
    program = (
        "import os, time\nif os.environ['RANK'] == '1':\n"
        "    os.write(1, b'x' * 65535 + b'\\r')\n    os.write(1, b'\\nnext\\n')"
    )
    run = place.start(place.ranks(program))
    place.ended(run)
    merged = (place.logs(run) / "combined.log").read_bytes()
    assert b"x\r\n[1] next\n" in merged


def test_a_progress_bar_moves_before_its_line_ends(place: Place) -> None:
    program = "import time\nprint('10%', end='\\r', flush=True)\ntime.sleep(600)"
    run = place.start(place.ranks(program))
    place.wait_for_text(run, "[1] 10%")
    assert place.status(run)["state"] == "running"


def test_a_very_long_line_is_whole_in_its_own_file(place: Place) -> None:
    run = place.start(place.ranks("print('x' * 1_000_000)\nprint('after')"))
    place.ended(run)
    assert (place.logs(run) / "rank-0.log").read_text() == "x" * 1_000_000 + "\nafter\n"
    merged = place.wait_for_text(run, "[0] after\n")
    assert merged.count("x") == 2_000_000
    assert all(line.startswith(("[0] ", "[1] ", "launcher")) for line in merged.splitlines())


def test_a_job_of_one_process_has_a_merged_log_of_the_same_bytes(place: Place) -> None:
    run = place.start(place.job(f"import os\nos.write(1, {RAW!r})"))
    place.ended(run)
    assert (place.logs(run) / "combined.log").read_bytes() == RAW
    assert (place.logs(run) / "launcher.log").read_bytes() == RAW


def test_output_without_an_end_of_line_is_shown_while_the_job_runs(place: Place) -> None:
    program = "import time\nprint('loading...', end='', flush=True)\ntime.sleep(600)"
    run = place.start(place.job(program))
    place.wait_for_text(run, "loading...")
    assert place.status(run)["state"] == "running"


def test_a_flood_is_merged_completely(place: Place) -> None:
    program = "import sys\nfor i in range(200_000): sys.stdout.write(f'line {i} {\"x\" * 40}\\n')"
    run = place.start(place.job(program, env={"PYTHONUNBUFFERED": None}))
    place.ended(run)
    own = (place.logs(run) / "launcher.log").read_bytes()
    assert own.count(b"\n") == 200_000
    assert (place.logs(run) / "combined.log").read_bytes() == own


@pytest.mark.stand_in
def test_logs_shows_what_is_asked_for(place: Place) -> None:
    program = "import os\nprint('1%', end='\\r')\nprint('2%', end='\\r')\nprint('done')"
    run = place.start(place.ranks(program))
    place.ended(run)
    assert sorted(place.cli("logs", run).stdout.splitlines()) == [
        "[0] done",
        "[1] done",
        "launcher: starting 2",
    ]
    assert place.cli("logs", "--rank", "1", run).stdout == "done\n"
    assert place.cli("logs", "--launcher", run).stdout == "launcher: starting 2\n"
    raw = subprocess.run(
        [sys.executable, "-m", "safelaunch", "logs", "--raw", "--rank", "0", run],
        env=place.env,
        capture_output=True,
        check=True,
    )
    assert raw.stdout == b"1%\r2%\rdone\n"
    assert "no log of rank 9" in place.cli("logs", "--rank", "9", run, code=1).stderr


def test_logs_shows_the_last_lines_only(place: Place) -> None:
    run = place.start(place.job("for i in range(1000): print(i)"))
    place.ended(run)
    assert place.cli("logs", "--tail", "2", run).stdout == "998\n999\n"


def test_logs_shows_the_attempt_that_is_asked_for(place: Place) -> None:
    run = place.start(place.job("print('x')"))
    place.ended(run)
    later = place.logs(run).parent / "attempt-2"
    later.mkdir()
    (later / "combined.log").write_text("later\n")
    assert place.cli("logs", run).stdout == "later\n"
    assert place.cli("logs", "--attempt", "1", run).stdout == "x\n"
    assert "attempts: 1, 2" in place.cli("logs", "--attempt", "3", run, code=1).stderr


def test_logs_follows_to_the_end(place: Place) -> None:
    run = place.start(place.job("import sys\nprint('a', flush=True)\ninput_ = open('go').read()"))
    place.ended(run)  # `go` does not exist: the program fails
    shown = place.cli("logs", "-f", run)
    assert shown.stdout.startswith("a\n")
    assert "failed" in shown.stderr


def test_following_sees_lines_as_they_come(place: Place) -> None:
    program = (
        "import os, time\nprint('a', flush=True)\n"
        "while not os.path.exists('go'): time.sleep(.01)\nprint('b')"
    )
    run = place.start(place.job(program))
    client = place.popen("logs", "-f", run)
    assert client.stdout is not None
    assert client.stdout.readline() == b"a\n"
    place.write("go", "")
    assert client.stdout.readline() == b"b\n"
    assert client.wait(timeout=DEADLINE) == 0


def test_children_of_a_rank_keep_to_the_ranks_file(place: Place) -> None:
    program = (
        "import os, subprocess, sys\nprint('rank', flush=True)\n"
        "subprocess.run([sys.executable, '-c', 'print(\"loader\")'])"
    )
    run = place.start(place.ranks(program))
    place.ended(run)
    for rank in (0, 1):
        assert (place.logs(run) / f"rank-{rank}.log").read_text() == "rank\nloader\n"
    assert len(list((place.node(run) / "ranks").iterdir())) == 2


@pytest.mark.stand_in
def test_a_launcher_that_pipes_its_ranks_keeps_their_output(place: Place) -> None:
    run = place.start(place.ranks("print('x')", launcher_args={"tee": "3"}))
    place.ended(run)
    assert "teed: x" in (place.logs(run) / "launcher.log").read_text()


def test_the_users_own_sitecustomize_runs_too(place: Place) -> None:
    place.write("lib/sitecustomize.py", "import os\nos.environ['SEEN'] = os.environ['RANK']\n")
    job = place.ranks("import os\nprint('seen', os.environ['SEEN'])", env={})
    place.env["PYTHONPATH"] = str(place.project / "lib")
    run = place.start(job)
    place.ended(run)
    assert "[1] seen 1" in place.wait_for_text(run, "[0] seen 0")


def test_a_broken_sitecustomize_of_the_user_is_reported_as_python_does(place: Place) -> None:
    place.write("lib/sitecustomize.py", "import no_such_module\n")
    place.env["PYTHONPATH"] = str(place.project / "lib")
    run = place.start(place.ranks("print('still runs')"))
    place.ended(run)
    assert "no_such_module" in place.wait_for_text(run, "[0] still runs")


@pytest.mark.parametrize("version", ["3.6", "3.8", "3.12", "3.13"])
def test_ranks_of_any_python_take_their_log(place: Place, version: str) -> None:
    """The launcher's interpreter may start ranks of another one."""
    other = interpreter(version)
    place.write("rank.py", "import sys\nprint('%d.%d' % sys.version_info[:2])")
    run = place.start(place.ranks(f"import subprocess\nsubprocess.run([{other!r}, 'rank.py'])"))
    place.ended(run)
    assert (place.logs(run) / "rank-1.log").read_text() == f"{version}\n"


@pytest.mark.stand_in
@pytest.mark.parametrize("version", ["3.8", "3.9", "3.13"])
def test_any_supported_interpreter_runs_the_supervisor(place: Place, version: str) -> None:
    python = interpreter(version)
    run = place.start(place.ranks("import sys\nprint(sys.version_info[:2])", python=python))
    assert place.ended(run)["state"] == "succeeded"
    assert f"[1] ({version.replace('.', ', ')})" in place.wait_for_text(run, "[1]")
    supervised = (place.node(run) / "supervisor.log").read_text()
    assert supervised == ""


def test_the_projects_log_is_written_and_never_overwritten(place: Place) -> None:
    job = place.job("print('x')", log="experiments/deep/{name}-{id}.log")
    run = place.start(job)
    place.ended(run)
    assert (place.project / f"experiments/deep/job-{run}.log").read_text() == "x\n"
    place.write("taken.log", "precious")
    refused = place.cli("run", place.job("print('x')", log="taken.log"), code=2)
    assert "never overwritten" in refused.stderr
    assert (place.project / "taken.log").read_text() == "precious"
    assert [r["id"] for r in place.json("ps")["runs"]] == [run]


def test_the_projects_log_goes_when_the_start_fails(place: Place) -> None:
    place.write("home", "a file where the folder should be")
    place.env["SAFELAUNCH_HOME"] = str(place.project / "home")
    place.cli("run", place.job("print('x')", log="experiments/deep/x.log"), code=2)
    assert not (place.project / "experiments").exists()


@pytest.mark.tmux
def test_the_pane_shows_the_log(place: Place) -> None:
    run = place.start(place.job("import time\nprint('hello pane', flush=True)\ntime.sleep(600)"))
    tmux = ["tmux", "-S", place.json("show", run)["socket"], "capture-pane", "-p"]

    def is_shown() -> bool:
        shown = subprocess.run(tmux, capture_output=True, text=True, check=True, env=place.env)
        return "hello pane" in shown.stdout

    wait_for(is_shown, "line in the pane")


TRICKS = """
import fcntl, os, subprocess, sys
for n in range(500): print("before", n)
sys.stdout.flush()
with open("/dev/stdout", "w") as again: again.write("opened\\n")
os.system("echo shell > /dev/stderr; echo tee | tee /dev/stderr")
subprocess.run(["setsid", "bash", "-c", "exec > /dev/stderr; echo session"])
os.set_blocking(1, False)
os.write(2, b"\\0\\xff\\r\\n")
os.set_blocking(1, True)
for n in range(500): print("after", n)
"""


def test_output_is_whole_whatever_ranks_do_to_their_descriptors(place: Place) -> None:
    run = place.start(place.ranks(TRICKS, capture=False))
    assert place.ended(run)["state"] == "succeeded"
    before, after = (
        b"".join(b"%s %d\n" % (word, n) for n in range(500)) for word in (b"before", b"after")
    )
    whole = before + b"opened\nshell\ntee\ntee\nsession\n\0\xff\r\n" + after
    for rank in (0, 1):
        assert (place.logs(run) / f"rank-{rank}.log").read_bytes() == whole


def test_output_of_a_command_is_whole_whatever_it_does_to_its_descriptors(place: Place) -> None:
    """As in a pipe: also beyond a limit of the size of files."""
    script = (
        "seq 500; echo x > /dev/stderr; seq 500 | tee /dev/stderr > /dev/null; ulimit -f 16; "
        "seq 50000; echo y > /dev/stdout; exec > /dev/stderr; echo z; exec >&- 2>&-; sleep .01"
    )
    run = place.start(place.shell(script))
    assert place.ended(run)["state"] == "succeeded"
    some, many = ("".join(f"{n}\n" for n in range(1, count + 1)) for count in (500, 50000))
    for name in ("launcher.log", "combined.log"):
        assert (place.logs(run) / name).read_text() == f"{some}x\n{some}{many}y\nz\n"
    assert "dropped" not in place.json("show", run)
