"""A recorded script reaches its launches, and nothing else of the machine."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from safelaunch.config.write_job import job_yaml
from safelaunch.errors import StartError
from safelaunch.importer.jobs import make_job
from safelaunch.importer.record.record import record
from safelaunch.importer.state import ScriptCaller

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.importer.findings import Findings

    Record = Callable[..., Findings]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "data.txt").write_text("precious\n")
    (tmp_path / "home").mkdir()
    return folder


@pytest.fixture
def run(project: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    """Record the text of a script in a project of its own."""
    monkeypatch.chdir(project)

    def run_text(text: str, *arguments: str, seconds: int = 15, **answers: str) -> Findings:
        (project / "script.sh").write_text(text)
        environ = {"HOME": str(project.parent / "home"), "PATH": os.environ["PATH"]}
        caller = ScriptCaller(environ, str(project), arguments, answers)
        try:
            return record("script.sh", caller, seconds)
        except StartError as e:
            if "forbids user namespaces" in e.message:
                pytest.skip("no user namespaces here")
            raise

    return run_text


def words(findings: Findings) -> list[tuple[str, ...]]:
    return [launch.words for launch in findings.launches]


def questions(findings: Findings) -> list[tuple[int, str | None]]:
    return [(problem.line, problem.name) for problem in findings.problems]


def test_each_call_is_recorded_with_words_folder_and_exports(run: Record, project: Path) -> None:
    findings = run(
        "export A='x y'\nB=no\ncd sub\nC=1 torchrun --nproc_per_node 2 t.py '' \"a b\" $'c\\nd'\n"
    )
    (launch,) = findings.launches
    assert launch.words == ("torchrun", "--nproc_per_node", "2", "t.py", "", "a b", "c\nd")
    assert (launch.env, launch.folder) == ({"A": "x y", "C": "1"}, str(project / "sub"))


def test_calls_are_in_their_order(run: Record) -> None:
    findings = run("for i in 1 2 3; do python t.py $i; done\nbash -c 'deepspeed u.py'\n")
    assert [w[-1] for w in words(findings)] == ["1", "2", "3", "u.py"]


def test_code_on_the_command_line_of_python_is_run(run: Record) -> None:
    assert words(run("N=$(python -c 'print(3)')\ntorchrun --nproc_per_node $N t.py\n")) == [
        ("torchrun", "--nproc_per_node", "3", "t.py")
    ]


def test_arguments_and_answers_reach_the_script(run: Record) -> None:
    findings = run('python t.py "$1" $DATA\n', "a b", DATA="/d")
    assert words(findings) == [("python", "t.py", "a b", "/d")]
    assert findings.launches[0].env == {"DATA": "/d"}


def test_wrappers_are_recorded_with_their_launch(run: Record) -> None:
    findings = run("timeout 5 torchrun t.py\ntimeout 5 true\nnumactl -N 0 python u.py\n")
    assert words(findings) == [
        ("timeout", "5", "torchrun", "t.py"),
        ("numactl", "-N", "0", "python", "u.py"),
    ]


def test_a_launcher_by_its_absolute_path_is_recorded(run: Record, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "torchrun"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ntouch started\n")
    program.chmod(0o755)
    assert words(run(f"{program} t.py\n")) == [(str(program), "t.py")]
    assert words(run("/usr/bin/python3 t.py\n")) == [("/usr/bin/python3", "t.py")]


def test_what_answered_nothing_is_named(run: Record) -> None:
    findings = run("nvidia-smi\nconda activate x\npython t.py\n")
    assert [(n.line, n.text) for n in findings.notes] == [
        (1, "runs `nvidia-smi`"),
        (2, "runs `conda`"),
    ]


def test_nothing_on_the_disk_changes(run: Record, project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("precious\n")
    before = sorted(tmp_path.rglob("*"))
    findings = run(
        f"rm -rf data.txt sub {outside} ~/* /usr/bin/env\necho gone > data.txt; echo x > new\n"
        f"echo y > {outside}; echo z > ~/z; echo t > /tmp/imp; mkdir -p logs && python t.py\n"
    )
    assert words(findings) == [("python", "t.py")]
    assert sorted(tmp_path.rglob("*")) == sorted([*before, project / "script.sh"])
    assert (project / "data.txt").read_text() == outside.read_text() == "precious\n"
    assert not Path("/tmp/imp").exists()


def test_there_is_no_socket_and_no_network(run: Record) -> None:
    code = "import socket; socket.socket(socket.AF_UNIX)"
    findings = run(
        f"python3 -c '{code}' && python unix.py\nif (exec 3<>/dev/tcp/127.0.0.1/22); then\n"
        "python net.py; fi\nunshare -Ur true && python namespace.py\nmount -t tmpfs x /mnt && "
        "python mount.py\necho 1 > /proc/sys/kernel/sysrq && python sysctl.py\npython t.py\n"
    )
    assert words(findings) == [("python", "t.py")]


def test_killing_everything_ends_only_the_recording(run: Record) -> None:
    findings = run("python a.py\nkill -9 -1\npython b.py\n/bin/kill -9 -1\npython c.py\n")
    assert [w[-1] for w in words(findings)] == ["a.py", "b.py"]
    assert [n.text for n in findings.notes][-1] == "it ended with a signal"


def test_a_fork_bomb_is_ended_and_refused(run: Record) -> None:
    findings = run("python a.py\n:(){ :|:& };:\nsleep 1\nwhile :; do :; done\n")
    assert findings.stop is not None
    assert "200 processes" in findings.stop.reason or "2 s" in findings.stop.reason


def test_a_script_without_an_end_is_ended_and_refused(run: Record) -> None:
    findings = run("while :; do :; done\n", seconds=1)
    assert findings.stop is not None
    assert findings.stop.reason == "it took more than 1 s and was ended"


def test_nothing_is_left_running(run: Record, tmp_path: Path) -> None:
    mark = tmp_path.name
    run(f"python3 -c 'import time; time.sleep(99)' {mark} &\nsetsid python3 -c 1 {mark} &\n")
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert [line for line in processes.stdout.splitlines() if mark in line] == []


def test_no_scratch_folder_is_left(
    run: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    assert words(run("python t.py\n")) == [("python", "t.py")]
    assert os.listdir(scratch) == []


def test_a_script_that_reads_its_input_gets_none(run: Record) -> None:
    findings = run('read -p "name? " X || X=none\nselect y in a b; do :; done\npython t.py $X\n')
    assert words(findings) == [("python", "t.py", "none")]


def test_a_script_that_fails_before_its_launch_says_with_what(run: Record) -> None:
    findings = run("echo no data >&2\nexit 3\npython t.py\n")
    assert findings.stop is not None
    assert findings.stop.reason == "it ended with exit code 3 before a launch: no data"


def test_a_project_with_mounts_below_is_copied(project: Path, tmp_path: Path) -> None:
    (project / "script.sh").write_text("cat link/b > new && cat new && python t.py\n")
    (project / "a").mkdir()
    (project / "a" / "b").write_text("x")
    (project / "link").symlink_to("a")
    place = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    command = f"mount -t tmpfs x sub && {sys.executable} -m safelaunch import --record script.sh"
    done = subprocess.run(
        [*place, command],
        cwd=project, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if "unshare failed" in done.stderr or "forbids user namespaces" in done.stderr:
        pytest.skip("no user namespaces here")
    assert (done.stdout, done.returncode) == ("launcher: python\nscript: t.py\n", 0), done.stderr
    assert not (project / "new").exists()


def test_a_home_with_mounts_below_can_be_written_to(project: Path, tmp_path: Path) -> None:
    (project / "script.sh").write_text(
        "mkdir -p ~/new/x && touch ~/data/y ~/old/z && rm ~/old/a && python t.py $(cat ~/data/b)\n"
    )
    home = tmp_path / "home"
    for name in ("data", "old"):
        (home / name).mkdir()
    (home / "old" / "a").touch()
    place = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    command = f"mount -t tmpfs x {home}/data && echo 3 > {home}/data/b && {sys.executable}"
    done = subprocess.run(
        [*place, f"{command} -m safelaunch import --record script.sh && ls {home}/*"],
        cwd=project, env={**os.environ, "HOME": str(home)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if "unshare failed" in done.stderr or "forbids user namespaces" in done.stderr:
        pytest.skip("no user namespaces here")
    job, _, files = done.stdout.partition(str(home))
    assert job == "launcher: python\nscript: t.py\nargs:\n  - 3\n", done.stderr
    assert files.split() == ["/data:", "b", f"{home}/old:", "a"]


@pytest.fixture
def venv(project: Path) -> Path:
    """Return a virtual environment with a Python and a launcher of its own."""
    folder = project / "venv"
    (folder / "bin").mkdir(parents=True)
    home = Path(sys.executable).resolve().parent
    (folder / "pyvenv.cfg").write_text(f"home = {home}\n")
    (folder / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (folder / "bin" / "torchrun").write_text("#!/bin/sh\ntouch started\n")
    (folder / "bin" / "torchrun").chmod(0o755)
    (folder / "bin" / "activate").write_text(f"export PATH={folder}/bin:$PATH\n")
    return folder


@pytest.mark.parametrize(
    "line",
    [
        "source venv/bin/activate; python t.py; torchrun u.py",
        "./venv/bin/python t.py; venv/bin/torchrun u.py",
        "PY=$PWD/venv/bin; $PY/python t.py; $PY/torchrun u.py",
        "export PATH=$PWD/venv/bin:$PATH; python t.py; torchrun u.py",
        "PATH=$PWD/venv/bin python t.py; PATH=venv/bin torchrun u.py",
        "f() { PATH=$PWD/venv/bin:/bin; python t.py; torchrun u.py; }; f",
        "env -i PATH=$PWD/venv/bin python t.py; bash -c 'exec venv/bin/torchrun u.py'",
    ],
)
@pytest.mark.usefixtures("venv")
def test_programs_of_an_environment_are_recorded_not_run(
    line: str, run: Record, project: Path
) -> None:
    (project / "t.py").write_text("raise SystemExit('started')")
    findings = run(line + "\n")
    assert [(os.path.basename(w[0]), w[1]) for w in words(findings)] == [
        ("python", "t.py"),
        ("torchrun", "u.py"),
    ]
    assert findings.stop is None


def test_programs_of_the_system_are_recorded_by_any_path(run: Record) -> None:
    findings = run(
        "/usr/bin/python3 a.py\nexport PATH=/usr/bin:$PATH; python3 b.py\nenv -i python3 c.py\n"
        "N=$(/usr/bin/python3 -c 'print(7)'); python3 d.py $N\n"
    )
    assert [w[1:] for w in words(findings)] == [("a.py",), ("b.py",), ("c.py",), ("d.py", "7")]


def test_a_launcher_that_is_built_by_the_script_is_refused(run: Record) -> None:
    findings = run(
        "mkdir x; printf '#!/bin/sh\\n' > x/torchrun; chmod +x x/torchrun\n$PWD/x/torchrun t.py\n"
    )
    assert findings.stop is not None
    assert "starts itself" in findings.stop.reason


@pytest.mark.parametrize(
    "answer",
    [
        "python -u -c 'print(42)'", "python3 -W ignore -c 'print(42)'",
        "python -X dev -uc 'print(42)'",
        "timeout 5 python3 -c 'print(42)'", "python answer.py", "python answer.py | tail -1",
        "nice python answer.py", "echo 'print(42)' | python -",
    ],
)  # fmt: skip
def test_an_answer_of_python_is_that_of_the_real_one(
    answer: str, run: Record, project: Path
) -> None:
    (project / "answer.py").write_text("print(42)")
    findings = run(f"N=$({answer})\ntorchrun t.py --seed $N --x 1\n")
    assert words(findings) == [("torchrun", "t.py", "--seed", "42", "--x", "1")]
    assert findings.notes[0].text.endswith("for its answer")


def test_an_answer_that_fails_is_asked_for_by_its_variable(run: Record) -> None:
    text = "X=1\nN=$(python nothing.py)\ntorchrun t.py --seed $N --x 1\n"
    assert questions(run(text)) == [(2, "N")]
    assert words(run(text, N="7")) == [("torchrun", "t.py", "--seed", "7", "--x", "1")]


def test_an_answer_that_fails_and_that_no_variable_takes_is_refused(run: Record) -> None:
    findings = run("X=1\ntorchrun t.py --seed $(python nothing.py) --x 1\n")
    assert findings.stop is not None
    assert (findings.stop.line, "reads its answer" in findings.stop.reason) == (2, True)


def test_the_output_of_a_launcher_is_no_answer(run: Record) -> None:
    findings = run("N=$(torchrun t.py)\n")
    assert findings.stop is not None
    assert findings.stop.reason == "the output of `torchrun t.py` is used by the script"


def test_a_launch_whose_output_goes_to_a_log_is_recorded(run: Record) -> None:
    findings = run(
        "python a.py | tee log\npython b.py 2>&1 | grep -v x | tee log\npython c.py > >(tee log)\n"
        "exec > >(tee log)\npython d.py\n"
    )
    assert [w[1] for w in words(findings)] == ["a.py", "b.py", "c.py", "d.py"]


def test_conda_run_is_recorded_and_other_commands_of_conda_are_not(run: Record) -> None:
    findings = run("conda run -n e torchrun t.py\nconda activate x\nmamba run -n e python u.py\n")
    assert [w[:4] for w in words(findings)] == [
        ("conda", "run", "-n", "e"),
        ("mamba", "run", "-n", "e"),
    ]


def test_a_launch_in_a_here_document_for_another_host_is_refused(run: Record) -> None:
    findings = run("ssh host <<EOF\ncd x\ntorchrun t.py\nEOF\ntorchrun u.py\n")
    assert findings.stop is not None
    assert findings.stop.reason == "a launch in a here-document for `ssh`"


@pytest.mark.parametrize(
    "line",
    [
        "docker run image bash -c 'cd /w && torchrun t.py'",
        "ssh host 'cd x; python t.py'",
        "echo 'torchrun t.py' | ssh host bash",
    ],
)
def test_a_launch_in_a_text_for_another_shell_is_refused(line: str, run: Record) -> None:
    findings = run(f"{line}\ntorchrun u.py\n")
    assert findings.stop is not None
    assert findings.stop.reason.startswith("a launch in a ")


def test_a_program_whose_answer_is_read_and_left_out_is_noted(run: Record) -> None:
    findings = run("N=$(nvidia-smi -L | wc -l)\ntorchrun --nproc_per_node $N t.py\n")
    assert [(n.line, n.text) for n in findings.notes] == [(1, "reads what `nvidia-smi` prints")]


def test_a_script_that_is_handed_to_a_queue_is_refused(run: Record) -> None:
    findings = run("sbatch train.slurm\ntorchrun u.py\n")
    assert findings.stop is not None
    assert findings.stop.reason == "it starts the script `train.slurm` through `sbatch`"


def test_the_background_gets_time_and_a_note(run: Record) -> None:
    findings = run("(/bin/sleep 2; torchrun late.py) &\ntorchrun t.py\n")
    assert [w[1] for w in words(findings)] == ["t.py", "late.py"]
    findings = run("/bin/sleep 60 &\ntorchrun t.py\n")
    assert [n.text for n in findings.notes] == [
        "programs in the background went on, and were ended"
    ]


def test_old_pythons_have_stubs_too(run: Record) -> None:
    assert words(run("python3.6 t.py\n")) == [("python3.6", "t.py")]
    assert [n.text for n in run("python2 t.py\ntorchrun t.py\n").notes] == ["runs `python2 t.py`"]


def test_a_program_that_is_not_here_is_noted_and_succeeds(run: Record) -> None:
    findings = run("set -e\nlhotse prepare x\ntorchrun t.py\n")
    assert words(findings) == [("torchrun", "t.py")]
    assert findings.notes[0].text == "runs `lhotse prepare x`, which is not here"


def test_folders_of_other_machines_can_be_made(run: Record) -> None:
    findings = run(
        "set -e\nmkdir -p /blob-of-a-test/x\necho x > /blob-of-a-test/x/log\ntorchrun t.py\n"
    )
    assert words(findings) == [("torchrun", "t.py")]
    assert not Path("/blob-of-a-test").exists()


def test_a_sourced_file_that_is_not_there_is_noted(run: Record) -> None:
    findings = run("set -e\nsource $ROOT/env.sh\nif [ 1 = 1 ]; then torchrun t.py; fi\n")
    assert words(findings) == [("torchrun", "t.py")]
    assert findings.notes[0].text == "sources `/env.sh`, which is not there"


def test_a_variable_that_a_missing_file_may_set_is_asked_for(run: Record) -> None:
    findings = run("source missing/env.sh\ntorchrun t.py\ntorchrun t.py $DATA\n")
    assert findings.stop is not None
    assert findings.stop.hint == "safelaunch import --record script.sh --set DATA=VALUE"


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("torchrun t.py ${DATA:?}\n", "--set DATA=VALUE"),
        ("set -u\ntorchrun t.py $DATA\n", "--set DATA=VALUE"),
        ("[ -z $DATA ] && { echo Please set DATA; exit 1; }\ntorchrun t.py\n", "--set DATA=VALUE"),
        ("set -u\ntorchrun t.py $1\n", "-- ARG..."),
        ('[ $# -gt 0 ] || { echo "usage: $0 FILE"; exit 1; }\ntorchrun t.py\n', "-- ARG..."),
    ],
)
def test_what_a_script_needs_is_said_as_a_command(text: str, command: str, run: Record) -> None:
    findings = run(text)
    assert findings.stop is not None
    assert findings.stop.hint == f"safelaunch import --record script.sh {command}"


def test_a_variable_of_the_caller_that_is_left_out_is_noted(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (project / "script.sh").write_text("torchrun t.py ${STEPS:-3}\n")
    environ = {"HOME": str(project.parent / "home"), "PATH": os.environ["PATH"], "STEPS": "9"}
    try:
        findings = record("script.sh", ScriptCaller(environ, str(project)))
    except StartError:
        pytest.skip("no user namespaces here")
    assert findings.notes == [
        (1, "reads `STEPS`, which you have set", "left out; else `--set STEPS=VALUE`")
    ]


def test_startup_files_of_the_user_are_not_read(run: Record, project: Path) -> None:
    (project.parent / "home" / ".bashrc").write_text("export API_TOKEN=secret\n")
    findings = run("source ~/.bashrc\ntorchrun t.py\n")
    assert [launch.env for launch in findings.launches] == [{}]


@pytest.mark.parametrize("folder", ["sub", "sub/deep"])
def test_a_script_that_starts_nothing_here_is_recorded_from_a_folder_above_it(
    folder: str, project: Path, run: Record
) -> None:
    assert run("torchrun t.py\n").launches
    (project / "sub" / "deep").mkdir()
    (project / "sub" / "deep" / "script.sh").write_text("[ -f here ] && torchrun t.py\n")
    (project / folder / "here").touch()
    environ = {"HOME": str(project.parent / "home"), "PATH": os.environ["PATH"]}
    findings = record("sub/deep/script.sh", ScriptCaller(environ, str(project)))
    assert [launch.folder for launch in findings.launches] == [str(project / folder)]
    assert findings.notes[0] == (
        1, "it starts nothing from here", f"assumed that `{folder}` is where it is started"
    )  # fmt: skip


def test_a_folder_with_the_files_that_a_script_sources_is_preferred_to_a_question(
    project: Path, run: Record
) -> None:
    assert run("torchrun t.py\n").launches
    (project / "sub" / "script.sh").write_text("set -u\nsource ./env.sh\ntorchrun t.py $A\n")
    (project / "sub" / "env.sh").write_text("A=1\n")
    environ = {"HOME": str(project.parent / "home"), "PATH": os.environ["PATH"]}
    findings = record("sub/script.sh", ScriptCaller(environ, str(project)))
    assert (words(findings), findings.problems) == ([("torchrun", "t.py", "1")], [])


def test_a_folder_with_the_files_that_a_script_sources_is_preferred_to_a_start_without_them(
    project: Path, run: Record
) -> None:
    assert run("torchrun t.py\n").launches
    (project / "sub" / "script.sh").write_text("source ./env.sh\nbash u.sh\ntorchrun t.py $A\n")
    (project / "sub" / "env.sh").write_text("A=1\n")
    (project / "sub" / "u.sh").touch()
    environ = {"HOME": str(project.parent / "home"), "PATH": os.environ["PATH"]}
    findings = record("sub/script.sh", ScriptCaller(environ, str(project)))
    assert words(findings) == [("torchrun", "t.py", "1")]
    assert findings.notes[0].text == "`./env.sh` is not there"


def test_a_script_that_is_started_and_not_there_is_noted(run: Record) -> None:
    notes = run("bash a.sh 1\n./b.sh\nbash -c 'echo c.sh'\ntorchrun t.py\n").notes
    absent = [(n.line, n.text) for n in notes if n.outcome == "left out"]
    assert absent == [
        (1, "starts the script `a.sh`, which is not there"),
        (2, "starts the script `./b.sh`, which is not there"),
    ]


def test_a_port_that_is_drawn_is_left_to_safelaunch_and_other_draws_are_kept_and_noted(
    run: Record,
) -> None:
    findings = run(
        "export MASTER_PORT=$(shuf -i 20000-60000 -n 1)\nP=$((20000 + RANDOM))\n"
        "torchrun --nproc_per_node 2 --master_port $P t.py --out o-$(date +%Y)\n"
    )
    (launch,) = findings.launches
    job = job_yaml(make_job(launch, "script.sh", {}).keys, None)
    year = dt.date.today().year  # noqa: DTZ011 - as `date` prints it
    assert job == f"launcher: torchrun\nscript: t.py\nargs:\n  out: o-{year}\nprocesses: 2\n"
    text = f"`--out o-{year}` differs at each start"
    assert (3, text, "kept as it is in this recording") in findings.notes


def test_what_a_program_prints_that_is_not_here_is_asked_for_and_taken_from_the_answer(
    run: Record,
) -> None:
    text = "U=$(no-such-program | tr a b)\nexport K=${K:-$(no-such-program)}\npython t.py $U\n"
    assert sorted(questions(run(text))) == [(1, "U"), (2, "K")]
    (launch,) = run(text, U="mia", K="v").launches
    assert (launch.words[2:], launch.env["K"]) == (("mia",), "v")


def test_which_finds_what_it_finds_without_stubs(run: Record) -> None:
    (launch,) = words(run("torchrun t.py --python $(which python3) --sh=$(command -v sh)\n"))
    assert launch[2:] == ("--python", shutil.which("python3"), f"--sh={shutil.which('sh')}")


def test_a_launch_with_the_place_of_a_stub_in_it_is_refused(run: Record) -> None:
    findings = run("torchrun t.py --python $(dirname $(which python))\n")
    assert findings.stop is not None
    assert "where programs are" in findings.stop.reason


def test_lines_are_those_that_the_shell_runs(run: Record) -> None:
    findings = run("L=torchrun\nfor i in 1 2; do\n  $L t.py \\\n    --x $i\ndone\n$L t.py\n")
    assert [launch.line for launch in findings.launches] == [3, 3, 6]


def test_many_calls_keep_their_order(run: Record) -> None:
    findings = run("for i in {1..40}; do torchrun t.py $i; done\n")
    assert [w[2] for w in words(findings)] == [str(n) for n in range(1, 41)]


def test_what_other_programs_read_of_python_is_an_answer_where_they_start_something(
    run: Record, project: Path
) -> None:
    (project / "list.py").write_text("print('a'); print('b')")
    findings = run(
        "python list.py | xargs -n 1 torchrun t.py\npython list.py | sort | while read x; do "
        "torchrun t.py $x; done\nmapfile -t A < <(python list.py)\ntorchrun t.py ${A[@]}\n"
    )
    assert [w[2:] for w in words(findings)] == [("a",), ("b",), ("a",), ("b",), ("a", "b")]


def test_a_folder_that_is_not_there_is_noted_where_the_script_would_end(
    run: Record, project: Path
) -> None:
    findings = run(
        "set -e\npushd /missing-of-a-test/x\ntorchrun t.py\npopd\ncd missing\ntorchrun u.py\n"
    )
    folders = [launch.folder for launch in findings.launches]
    assert folders == ["/missing-of-a-test/x", str(project / "missing")]
    assert findings.notes[0].text == "uses the folder `/missing-of-a-test/x`, which is not there"


def test_a_folder_that_is_not_there_changes_nothing_where_the_script_goes_on(
    run: Record, project: Path
) -> None:
    findings = run("cd /missing-of-a-test/x\ntorchrun t.py\n")
    assert [launch.folder for launch in findings.launches] == [str(project)]


def test_nothing_of_the_recording_is_exported(run: Record) -> None:
    findings = run("set -a\nA=1\nf() { :; }\nexport -f f\ntorchrun t.py\n")
    assert [launch.env for launch in findings.launches] == [{"A": "1"}]


def test_a_program_that_is_not_here_fails_where_the_script_goes_on(run: Record) -> None:
    findings = run(
        "if nosuch-a; then torchrun t.py; else torchrun u.py; fi\nnosuch-b; torchrun v.py\n"
    )
    assert [w[1] for w in words(findings)] == ["u.py", "v.py"]
    assert [n.text for n in findings.notes] == [
        "runs `nosuch-a`, which is not here",
        "runs `nosuch-b`, which is not here",
    ]


def test_arguments_that_a_launch_is_made_of_are_asked_for(run: Record) -> None:
    text = "MODE=$1\nSIZE=$2\nif [ $SIZE = 7B ]; then L=32; fi\ntorchrun t.py --layers $L\n"
    findings = run(text)
    assert questions(findings) == [(1, "$1"), (2, "$2")]
    assert findings.problems[1].reason == "argument 2 of the script, `SIZE` (`7B`)"
    assert findings.placeholders == ("MODE", "SIZE")
    assert run(text, "sft", "7B").problems == []


def test_all_arguments_are_asked_for_where_the_first_missing_one_ends_the_script(
    run: Record,
) -> None:
    findings = run("set -e\nA=$1\ncat $A/x\nB=$2\ntorchrun t.py $B\n")
    assert questions(findings) == [(2, "$1"), (4, "$2")]
    findings = run("[ $# -eq 2 ] || exit 1\ntorchrun t.py $1 $2\n")
    assert questions(findings) == [(2, "$1"), (2, "$2")]


def test_arguments_that_a_script_does_without_are_noted(run: Record) -> None:
    findings = run('[ "$1" = debug ] && set -x\nS=$2\n[ -z "$S" ] && S=3\ntorchrun t.py $S\n')
    assert words(findings) == [("torchrun", "t.py", "3")]
    assert (questions(findings), [n.text for n in findings.notes]) == (
        [], ["argument 1 is not given", "argument 2 is not given"]
    )  # fmt: skip


def test_a_function_and_a_loop_over_options_need_no_arguments(run: Record) -> None:
    findings = run(
        "f() { torchrun t.py $1; }\n"
        "while [ $# -gt 0 ]; do case $1 in -x) X=$2 ;; esac; shift; done\nf a\nf\n"
        "awk '{print $3}' /dev/null\n"
    )
    assert (words(findings), findings.problems) == (
        [("torchrun", "t.py", "a"), ("torchrun", "t.py")], []
    )  # fmt: skip


def test_a_call_in_a_comment_is_shown_where_arguments_are_missing(run: Record) -> None:
    findings = run("# bash script.sh 7B /data\ntorchrun t.py $1 $2\n")
    assert findings.notes[0].text == "a comment calls it with `-- 7B /data`"


def test_a_variable_that_is_not_set_is_asked_for_if_it_is_in_a_launch(run: Record) -> None:
    text = "A=$NODES\nif [ $DEBUG = 1 ]; then set -x; fi\ntorchrun --nnodes $A t.py ${LR:-1}\n"
    findings = run(text)
    assert questions(findings) == [(1, "NODES")]
    assert [n.text for n in findings.notes] == ["`DEBUG` is not set"]
    assert words(run(text, NODES="2")) == [("torchrun", "--nnodes", "2", "t.py", "1")]


def test_a_variable_for_which_a_sourced_file_has_a_default_is_not_asked_for(
    run: Record, project: Path
) -> None:
    (project / "env.sh").write_text("PORT=${PORT:-123}\n")
    findings = run("source env.sh\ntorchrun --master_port $PORT t.py\n")
    assert (words(findings)[0][2], findings.problems) == ("123", [])


@pytest.mark.parametrize("program", ["nvidia-smi -L | wc -l", "srun -N1 hostname"])
def test_what_a_program_prints_that_is_not_run_is_asked_for_by_its_variable(
    program: str, run: Record
) -> None:
    text = f"N=$({program})\ntorchrun --nproc_per_node $N t.py\n"
    assert questions(run(text)) == [(1, "N")]
    findings = run(text, N="4")
    assert words(findings) == [("torchrun", "--nproc_per_node", "4", "t.py")]
    assert (findings.launches[0].env, findings.notes[0].outcome) == ({}, "`N` is what you have set")


def test_an_output_that_is_itself_the_default_is_asked_for(run: Record) -> None:
    findings = run("N=${N:-$(nvidia-smi -L | wc -l)}\ntorchrun --nproc_per_node $N t.py\n")
    assert questions(findings) == [(1, "N")]


def test_an_alias_is_expanded_where_a_script_starts_nothing_without(run: Record) -> None:
    findings = run("set -x\nalias run='torchrun --x'\nrun t.py\n")
    assert words(findings) == [("torchrun", "--x", "t.py")]
    assert findings.notes[0].text == "defines an alias for your shell"


def test_a_folder_that_a_script_tests_and_changes_to_is_made_where_it_starts_nothing_without(
    run: Record,
) -> None:
    findings = run("R=/gone-of-a-test/x\n[ -e $R ] || exit 1\ncd $R || exit 1\ntorchrun t.py\n")
    assert [launch.folder for launch in findings.launches] == ["/gone-of-a-test/x"]
    assert findings.notes[0].text == "uses the folder `/gone-of-a-test/x`, which is not there"


def test_a_repository_is_not_copied_and_its_folder_is_there(run: Record, project: Path) -> None:
    findings = run("set -e\ngit clone --depth 1 https://h.example/a/b.git\ncd b\ntorchrun t.py\n")
    assert [launch.folder for launch in findings.launches] == [str(project / "b")]
    assert [n.text for n in findings.notes] == ["runs `git clone`"]


def test_the_name_of_this_machine_is_noted(run: Record) -> None:
    findings = run("H=$(hostname)\ntorchrun --master_addr $H t.py\n")
    assert [n.text for n in findings.notes] == ["runs `hostname` for its answer"]


def test_words_of_a_source_line_are_those_of_the_script(run: Record, project: Path) -> None:
    (project / "a.sh").write_text("A=1\n")
    findings = run("for f in a.sh; do source $f; done\nsource $1\ntorchrun t.py $A $#\n", "a.sh")
    assert (words(findings), findings.notes) == ([("torchrun", "t.py", "1", "1")], [])


def test_a_program_that_is_not_here_leaves_no_trace_of_the_recording_in_messages(
    run: Record,
) -> None:
    findings = run("set -x\nnosuch-a t.py\nexit 3\n")
    assert findings.stop is not None
    assert "SAFELAUNCH" not in findings.stop.reason


def test_what_fails_ends_nothing_where_a_script_starts_nothing_without_it(run: Record) -> None:
    text = (
        "set -e\nif false; then :; fi\ncp none.json /tmp\nX=$(cat none.txt)\nls none | xargs cp\n"
        "torchrun t.py --x $X --y 1 >none/log\n"
    )
    findings = run(text)
    assert questions(findings) == [(4, "X")]
    assert [(n.line, n.text) for n in findings.notes] == [
        (3, "`cp none.json /tmp` fails here with exit code 1"),
        (4, "`X=$(cat none.txt)` fails here with exit code 1"),
        (5, "`xargs cp` fails here with exit code 123"),
        (6, "uses the folder `none`, which is not there"),
    ]
    assert words(run(text, X="3")) == [("torchrun", "t.py", "--x", "3", "--y", "1")]


def test_a_failure_ends_a_script_that_has_started_something(run: Record) -> None:
    findings = run("set -e\ntorchrun t.py\ncp none.json /tmp\ntorchrun u.py\n")
    assert words(findings) == [("torchrun", "t.py")]


def test_a_launcher_by_a_path_that_is_not_here_is_recorded(run: Record) -> None:
    findings = run(
        "PY=/gone-of-a-test/bin/python\n$PY t.py\nA=1 nohup /gone-of-a-test/e/torchrun u.py\n"
    )
    assert words(findings) == [
        ("/gone-of-a-test/bin/python", "t.py"),
        ("/gone-of-a-test/e/torchrun", "u.py"),
    ]
    assert [(n.line, n.text) for n in findings.notes] == [
        (2, "starts `/gone-of-a-test/bin/python`, which is not here"),
        (3, "starts `/gone-of-a-test/e/torchrun`, which is not here"),
    ]


def test_an_argument_in_a_line_that_bash_cannot_run_is_asked_for(run: Record) -> None:
    findings = run("for ((i=$1; i<=$2; i++)); do torchrun t.py $3; done\n")
    assert questions(findings) == [(1, "$1"), (1, "$2"), (1, "$3")]


def test_options_that_are_missing_are_named(run: Record) -> None:
    text = (
        "while [ $# -gt 0 ]; do\n  case $1 in\n    -m|--model) M=$2; shift 2 ;;\n"
        "    --data)\n      D=$2\n      shift 2 ;;\n    --fast) shift ;;\n  esac\ndone\n"
        '[ "$M" ] && [ "$D" ] || { echo Missing --model or --data; exit 1; }\ntorchrun t.py $M $D\n'
    )
    stop = run(text).stop
    assert stop is not None
    hint = "safelaunch import --record script.sh -- --model VALUE --data VALUE"
    assert stop.hint == hint
    assert words(run(text, "--model", "a", "--data", "b")) == [("torchrun", "t.py", "a", "b")]


def test_an_output_for_which_a_script_has_a_default_is_not_asked_for(run: Record) -> None:
    findings = run(
        "A=$(scontrol show hostnames x | head -n 1)\nA=${A:-localhost}\n"
        "torchrun --master_addr $A t.py\n"
    )
    assert (words(findings)[0][2], findings.problems) == ("localhost", [])
    assert [n.text for n in findings.notes] == ["reads what `scontrol` prints"]


@pytest.mark.parametrize(
    ("text", "line"),
    [("A='<x>'\nD=<your data>\npython t.py $D\n", 2), ("python t.py \\\n  --d <data_root>\n", 2)],
)
def test_a_placeholder_is_named(text: str, line: int, run: Record) -> None:
    stop = run(text).stop
    assert stop is not None
    assert (stop.line, stop.hint) == (line, "put the value in its place")
    assert stop.reason.endswith("` is a placeholder")


def test_a_script_that_starts_nothing_without_options_says_which_it_takes(run: Record) -> None:
    text = (
        "while [ $# -gt 0 ]; do\n  case $1 in\n    --end) END=$2; shift 2 ;;\n    *) break ;;\n"
        "  esac\ndone\nfor ((i = 0; i < END; i++)); do torchrun t.py $i; done\n"
    )
    stop = run(text).stop
    assert stop is not None
    assert stop.reason == "it starts nothing without arguments"
    assert stop.hint == "safelaunch import --record script.sh -- --end VALUE"
    assert len(run(text, "--end", "2").launches) == 2
    assert run("true\n").stop is None
    stop = run(
        'while true; do\n  case "$1" in\n    -p) P=$2; shift 2 ;;\n    *) break ;;\n'
        "  esac\ndone\n[ $P ] || exit 1\ntorchrun t.py\n"
    ).stop
    assert stop is not None
    assert stop.hint == "safelaunch import --record script.sh -- -p VALUE"


def test_a_variable_that_only_a_branch_sets_is_asked_for_where_it_is_a_value(run: Record) -> None:
    text = (
        "#A=1\nwhile [ $# -gt 0 ]; do case $1 in --n) N=$2 ;; --f) F=--fast ;; esac; shift; done\n"
        "if [ $D ]; then M=x; fi\nexport B=$M\ntorchrun t.py $F --a $A --n $N p=$N\n"
    )
    findings = run(text)
    assert sorted(questions(findings)) == [(4, "M"), (5, "A"), (5, "N")]
    assert run(text, M="m", A="a", N="3").problems == []


def test_a_variable_that_is_added_to_or_set_before_its_use_is_not_asked_for(run: Record) -> None:
    findings = run('A+=" --x"\nfor i in 1 2; do B=$i; torchrun t.py $A --b $B; done\n')
    assert (words(findings)[1], findings.problems) == (
        ("torchrun", "t.py", "--x", "--b", "2"), []
    )  # fmt: skip
