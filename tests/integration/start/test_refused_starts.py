"""Starts that are refused with a clear message and nothing left, and full disks."""

from __future__ import annotations

import compileall
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import cli_process
from support.mounts import fill, tmpfs
from support.python_versions import interpreter
from support.workspace import Place, need_root, wait_for

from safelaunch import runtime

if TYPE_CHECKING:
    from collections.abc import Iterator

SYSTEM_PYTHON = "/usr/bin/python3"  # any user may run it, wherever the tests' own lives
FOREVER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(60)\n"


def refused(place: Place, job: str, **options: Any) -> str:
    """Check that a start is refused with nothing left; return what is said."""
    result = place.cli("run", job, code=2, **options)
    assert result.stderr.count("error:") == 1
    runs = place.home / "runs"
    assert not runs.exists() or list(runs.iterdir()) == []
    return result.stderr


def test_a_bad_interpreter_is_named(place: Place) -> None:
    plain = place.write("plain", "no program")
    listed = place.write("listed", "#!/bin/sh\necho hello\n")
    listed.chmod(0o755)
    for path, what in (
        ("/no/such/python", "does not exist"),
        (str(place.project), "is a directory"),
        (str(plain), "is not executable"),
        (str(listed), "does not work: hello"),
    ):
        stderr = refused(place, place.job("", python=path))
        assert path in stderr
        assert what in stderr


def test_an_executable_that_is_no_program_is_named(place: Place) -> None:
    path = place.write("garbage", b"\x00\x01garbage")
    path.chmod(0o755)
    assert "cannot be run: Exec format error" in refused(place, place.job("", python=str(path)))


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["taskset", "-c", "99999"], f"`taskset -c 99999` with {sys.executable} does not work: "),
        (["nice", "-n", "x"], f"`nice -n x` with {sys.executable} does not work: "),
    ],
)
def test_a_binding_that_cannot_be_had_is_named(place: Place, words: list[str], what: str) -> None:
    assert f"error: prefix: {what}" in refused(place, place.job("", prefix=words))


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7"])
def test_an_interpreter_that_is_too_old_is_named(place: Place, version: str) -> None:
    stderr = refused(place, place.job("", python=interpreter(version)))
    assert f"is Python {version}." in stderr
    assert "3.8 or newer is needed" in stderr


def test_a_secret_that_is_not_set_is_named(place: Place) -> None:
    stderr = refused(place, place.job("", env_from=["NOT_SET_HERE"]))
    assert "NOT_SET_HERE" in stderr
    assert "export NOT_SET_HERE=" in stderr


def test_a_workdir_that_does_not_exist_is_named(place: Place) -> None:
    job = place.job("", workdir="gone", script=None, launcher="command", command=["true"])
    assert "does not exist" in refused(place, job)


def test_a_limit_of_file_sizes_that_is_too_small_for_a_start_is_named(place: Place) -> None:
    place.job("print('x')")
    words = ("bash", "-c", 'ulimit -f 64; exec "$@"', "bash", *cli_process.CLI, "run", "job.yaml")
    done = subprocess.run(
        words, env=place.env, cwd=place.project, check=False, capture_output=True, text=True
    )
    assert (done.returncode, os.listdir(place.home / "runs")) == (2, [])
    assert "File too large" in done.stderr
    assert "`ulimit -f`" in done.stderr


def test_without_home_the_passwd_entry_counts(place: Place) -> None:
    for name in ("HOME", "SAFELAUNCH_HOME"):
        place.env.pop(name)
    place.home = place.user / ".safelaunch"
    program = (
        "import pwd, sys; pwd.getpwuid = lambda _: pwd.struct_passwd("
        f"('x', 'x', 0, 0, '', {str(place.user)!r}, ''))\n"
        "sys.argv = ['safelaunch', 'run', 'job.yaml']\n"
        "from safelaunch.cli.main import main\nmain()"
    )
    place.job("print('x')")
    subprocess.run(
        [sys.executable, "-c", program], env=place.env, cwd=place.project, check=True,
        capture_output=True,
    )  # fmt: skip
    place.note()
    assert len(list((place.home / "runs").iterdir())) == 1


@pytest.fixture
def shared() -> Iterator[Place]:
    """Yield a place that other users may enter: pytest's own folders are for their owner only."""
    root = Path(tempfile.mkdtemp(dir="/tmp"))
    root.chmod(0o755)
    place = Place(root)
    try:
        yield place
    finally:
        place.close()
        shutil.rmtree(root)


@pytest.fixture
def nobody() -> Iterator[tuple[str, ...]]:
    """Yield the words that run a command as a user without rights and without a passwd entry."""
    need_root()
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv here")
    words = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups")
    for program in ([sys.executable, "-c", "import safelaunch.cli.main"], [SYSTEM_PYTHON, "-V"]):
        tried = subprocess.run([*words, *program], check=False, capture_output=True, cwd="/")
        if tried.returncode != 0:
            pytest.skip(f"another user cannot run {program[0]}")
    yield words
    with contextlib.suppress(OSError):
        os.rmdir("/tmp/safelaunch-12345")


def as_nobody(
    place: Place, nobody: tuple[str, ...], *words: str
) -> subprocess.CompletedProcess[str]:
    """Run safelaunch as that user."""
    return subprocess.run(
        [*nobody, sys.executable, "-m", "safelaunch", *words],
        env=place.env, cwd=place.project, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_home_that_cannot_be_written_is_named(shared: Place, nobody: tuple[str, ...]) -> None:
    shared.env.pop("SAFELAUNCH_HOME")
    result = as_nobody(shared, nobody, "run", shared.job("", python=SYSTEM_PYTHON))
    assert result.returncode == 2, result.stderr
    assert str(shared.user) in result.stderr
    assert "Permission denied" in result.stderr
    assert "SAFELAUNCH_HOME" in result.stderr


def test_a_user_without_passwd_entry_and_home_is_told(
    shared: Place, nobody: tuple[str, ...]
) -> None:
    for name in ("HOME", "SAFELAUNCH_HOME", "USER", "LOGNAME"):
        shared.env.pop(name, None)
    result = as_nobody(shared, nobody, "run", shared.job("", python=SYSTEM_PYTHON))
    assert result.returncode == 2, result.stderr
    assert "this user has no home folder" in result.stderr


def test_a_user_without_passwd_entry_can_run(shared: Place, nobody: tuple[str, ...]) -> None:
    shared.home.mkdir()
    os.chown(shared.home, 12345, 12345)
    result = as_nobody(
        shared, nobody, "run", "--follow", shared.job("print('fine')", python=SYSTEM_PYTHON)
    )
    assert (result.returncode, result.stdout) == (0, "fine\n"), result.stderr


def test_a_read_only_home_is_named(place: Place) -> None:
    with tmpfs(place.home, "ro,size=1m"):
        stderr = place.cli("run", place.job(""), code=2).stderr
    assert "Read-only file system" in stderr


def test_a_start_without_files_left_for_bytecode_does_without(place: Place) -> None:
    sources = runtime.files(without=runtime.AGENT_ONLY)
    compileall.compile_dir(os.path.dirname(runtime.__file__), quiet=1)
    folders = {os.path.dirname(name) for name in sources}
    # the folders twice, for the machine's copy and the run's links; 40 for the run's own files
    with tmpfs(place.home, f"size=64m,nr_inodes={len(sources) + 2 * len(folders) + 40}"):
        result = place.cli("run", "--follow", place.job("print('fine')"), code=0)
        assert "fine" in result.stdout
        place.close()


# -- a full disk -----------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", [0, 16384, 65536])
def test_a_start_on_a_full_disk_leaves_nothing(small: Place, leave: int) -> None:
    fill(small.home, leave)
    stderr = refused(small, small.job(FOREVER))
    assert "No space left" in stderr or "no space left" in stderr
    assert small.records.keys() == set()


def test_a_job_prints_on_while_the_disk_is_full_and_what_is_missing_is_counted(
    small: Place,
) -> None:
    """Neither a program that is no Python nor `capture: false` gets an error."""
    script = (
        "echo up; until [ -e go ]; do sleep .01; done; seq 2000 || echo failed > seq-failed; "
        "until [ -e end ]; do sleep .01; done; echo last"
    )
    run = small.start(small.shell(script, capture=False))
    small.wait_for_text(run, "up")
    fill(small.home)
    small.write("go", "")
    file = str(small.logs(run) / "launcher.log")

    def dropped() -> dict[str, Any] | None:
        entries = small.json("show", run).get("dropped", ())
        return next((entry for entry in entries if entry["file"] == file), None)

    wait_for(dropped, "bytes that were dropped")
    (small.home / "ballast").unlink()
    small.write("end", "")
    assert small.ended(run)["state"] == "succeeded"
    assert not (small.project / "seq-failed").exists()
    log = (small.logs(run) / "launcher.log").read_bytes()
    assert log.endswith(b"last\n")
    total = sum(len(f"{number}\n") for number in range(1, 2001)) + len("up\nlast\n")
    count = total - len(log)
    assert dropped() == {"file": file, "bytes": count, "why": "No space left on device"}
    text = " ".join(small.cli("show", run).stdout.split())
    missing = f"{count:,} bytes of output are missing (No space left on device) in {file}"
    assert missing in text
    assert missing in " ".join(small.cli("logs", run).stderr.split())


def test_a_run_on_a_full_disk_can_be_stopped(small: Place) -> None:
    run = small.start(small.job(FOREVER))
    small.wait_for_text(run, "up")
    fill(small.home)
    assert small.json("stop", run)["state"] == "stopped"
    assert small.json("show", run)["state"] == "stopped"


def test_a_start_into_the_output_folder_of_a_run_that_lives_is_refused(place: Place) -> None:
    job = place.job(FOREVER, args={"output_dir": "out"})
    run = place.start(job)
    stderr = " ".join(place.cli("run", job, code=3).stderr.split())
    assert f"run {run} is still running, and writes to {place.project}/out as well" in stderr
    assert f"safelaunch stop {run}" in stderr
    assert len(list((place.home / "runs").iterdir())) == 1
    assert place.start(job) != run  # with --no-check


@pytest.mark.parametrize("name", ["out/", "./x/../out", "alias", "alias/../out", "below/out"])
def test_the_folder_of_a_run_that_lives_counts_by_any_name(place: Place, name: str) -> None:
    (place.project / "out").mkdir()
    (place.project / "alias").symlink_to("out")
    (place.project / "below").symlink_to(".")
    run = place.start(place.job(FOREVER, args={"output_dir": "out"}))
    job = place.job(FOREVER, "other", args={"output_dir": name})
    assert f"run {run} is still running" in place.cli("run", job, code=3).stderr


def test_a_run_that_lives_may_have_named_the_folder_by_a_link(place: Place) -> None:
    (place.project / "alias").symlink_to("out")  # which is not there yet
    run = place.start(place.job(FOREVER, args={"output_dir": "alias"}))
    job = place.job(FOREVER, "other", args={"output_dir": "out"})
    assert f"run {run} is still running" in place.cli("run", job, code=3).stderr
