from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli_process import safelaunch

from safelaunch.cli.main import COMMANDS

JOB = "launcher: python\nscript: train.py\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").touch()
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "bad.yaml").write_text(JOB + "proceses: 2\n")
    return tmp_path


@pytest.mark.parametrize("form", [[], ["--json"], ["--script"], ["--explain"]])
def test_a_good_dry_run_exits_0(form: list[str], folder: Path) -> None:
    result = safelaunch(folder, "run", "--dry-run", *form, "job.yaml")
    assert (result.code, "error" in result.err) == (0, False)


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "no.yaml"],
        ["run", "--dry-run", "bad.yaml"],
        ["run", "--dry-run", "job.yaml", "--", "python", "train.py"],
        ["run", "job.yaml", "job.yaml"],
        ["run", "--project-root", "/x", "job.yaml"],
        ["run", "--dry-run", "--", "torchrun"],
        ["run", "--nonsense"],
        ["run", "--dry-run", "--nccl-ladder", "x", "job.yaml"],
        ["nonsense"],
        ["init"],
        ["init", "--", "UID=1", "python", "x.py"],
        ["profiles", "nope"],
        ["ps", "--nonsense"],
        ["show", "no-such-run"],
    ],
)
def test_wrong_use_exits_2_with_one_error(words: list[str], folder: Path) -> None:
    result = safelaunch(folder, *words, SAFELAUNCH_HOME=str(folder / "home"))
    assert (result.code, result.out, result.err.count("error:")) == (2, "", 1)


def test_the_end_of_a_command_runs_what_was_registered_for_it(folder: Path) -> None:
    program = (
        "import atexit, sys; sys.argv = ['safelaunch', 'nonsense']\n"
        "atexit.register(print, 'the end')\n"
        "from safelaunch.cli.main import program; program()"
    )
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, check=False, cwd=folder, capture_output=True)
    assert (done.returncode, done.stdout) == (2, b"the end\n")


@pytest.mark.parametrize("words", [["run", "bad.yaml"], ["run", "no.yaml"], ["init"]])
def test_wrong_use_writes_nothing(words: list[str], folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    safelaunch(folder, *words, SAFELAUNCH_HOME=str(folder / "home"), HOME=str(folder))
    assert sorted(folder.rglob("*")) == before


def test_a_dry_run_writes_nothing(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    safelaunch(folder, "run", "--dry-run", "job.yaml", HOME=str(folder))
    assert sorted(folder.rglob("*")) == before


def test_an_error_says_where_and_what_next(folder: Path) -> None:
    assert safelaunch(folder, "run", "--dry-run", "bad.yaml").err == (
        "error: bad.yaml:3:1: unknown key `proceses`\nhint: did you mean `processes`?\n"
    )


def test_one_bad_file_among_several_exits_2(folder: Path) -> None:
    assert safelaunch(folder, "run", "--dry-run", "job.yaml", "bad.yaml", "no.yaml").code == 2


def test_every_file_of_several_is_reported(folder: Path) -> None:
    result = safelaunch(folder, "run", "--dry-run", "bad.yaml", "no.yaml", "job.yaml")
    assert (
        "bad.yaml:3:1" in result.err,
        "no.yaml: no" in result.err,
        "# job.yaml" in result.out,
    ) == (
        True,
        True,
        True,
    )


def test_several_good_files_exit_0(folder: Path) -> None:
    assert safelaunch(folder, "run", "--dry-run", "job.yaml", "job.yaml").code == 0


@pytest.mark.parametrize("words", [["profiles"], ["run", "--dry-run", "job.yaml"]])
def test_a_reader_that_leaves_is_no_failure(words: list[str], folder: Path) -> None:
    result = safelaunch(folder, *words, then="| head -c 1 >/dev/null")
    assert (result.code, result.err) == (0, "")


def test_a_closed_stdout_is_no_failure(folder: Path) -> None:
    result = safelaunch(folder, "run", "--dry-run", *["job.yaml"] * 40, then="| true")
    assert (result.code, result.err) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_the_unexpected_is_one_line_and_exit_5(folder: Path) -> None:
    result = safelaunch(folder, "profiles", then=">/dev/full", TMPDIR=str(folder))
    assert (result.code, result.err.count("\n")) == (5, 1), result


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_the_details_of_the_unexpected_are_saved(folder: Path) -> None:
    result = safelaunch(folder, "profiles", then=">/dev/full", TMPDIR=str(folder))
    details = re.search(r"details: (\S+)", result.err)
    assert details is not None, result
    assert "Traceback" in Path(details[1]).read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_the_details_of_the_unexpected_are_private(folder: Path) -> None:
    safelaunch(folder, "profiles", then=">/dev/full", TMPDIR=str(folder))
    [saved] = folder.glob("safelaunch-error-*")
    assert stat.S_IMODE(os.stat(saved).st_mode) == 0o600


def test_no_color_is_honoured_on_a_terminal(folder: Path) -> None:
    result = safelaunch(folder, "run", "bad.yaml", then="2>&1", NO_COLOR="1", FORCE_COLOR="1")
    assert "\x1b" not in result.out


def test_output_that_is_no_terminal_has_no_colour(folder: Path) -> None:
    assert "\x1b" not in safelaunch(folder, "run", "bad.yaml").err


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_exits_0_and_fits_80_columns(command: str, folder: Path) -> None:
    result = safelaunch(folder, *command.split(), "--help", COLUMNS="80")
    assert result.code == 0
    assert [line for line in result.out.splitlines() if len(line) > 80] == []


def test_init_prints_a_job_file_that_runs(folder: Path) -> None:
    written = safelaunch(folder, "init", "--", "python", "train.py", "--lr", "1e-3").out
    (folder / "new.yaml").write_text(written)
    assert safelaunch(folder, "run", "--dry-run", "new.yaml").code == 0


def test_init_never_overwrites_a_file(folder: Path) -> None:
    result = safelaunch(folder, "init", "-o", "job.yaml", "--", "python", "train.py")
    assert (result.code, (folder / "job.yaml").read_text()) == (2, JOB)


def test_init_writes_paths_relative_to_the_file(folder: Path) -> None:
    (folder / "jobs").mkdir()
    safelaunch(folder, "init", "-o", "jobs/new.yaml", "--", "./env/bin/python", "train.py")
    script = safelaunch(folder, "run", "--dry-run", "--script", "jobs/new.yaml").out
    assert f"exec {folder}/env/bin/python train.py\n" in script


def test_a_pasted_line_and_its_file_print_the_same_script(folder: Path) -> None:
    line = ["NCCL_P2P_DISABLE=1", "accelerate", "launch", "--num_processes", "4", "train.py", "-x"]
    safelaunch(folder, "init", "-o", "train.yaml", "--", *line)
    form = ["run", "--dry-run", "--script"]
    assert safelaunch(folder, *form, "train.yaml").out == safelaunch(folder, *form, "--", *line).out


@pytest.fixture
def config(folder: Path) -> str:
    """Return an accelerate config file outside of the project; `folder` becomes a project."""
    (folder / "pyproject.toml").touch()
    file = folder.parent / f"{folder.name}.yaml"
    text = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: {zero_stage: 3}\n"
    file.write_text(text)
    return f"../{file.name}"


def test_a_start_names_the_config_file_that_a_line_is_completed_from(
    folder: Path, config: str
) -> None:
    line = ["accelerate", "launch", "--config_file", config, "train.py"]
    assert (
        f"note: settings from {config}" in safelaunch(folder, "run", "--dry-run", "--", *line).err
    )


def test_explain_shows_the_line_of_each_flag_from_a_config_file(folder: Path, config: str) -> None:
    line = ["accelerate", "launch", "--config_file", config, "train.py"]
    out = safelaunch(folder, "run", "--explain", "--", *line).out
    assert f"      --zero_stage 3    {config}:3:32\n" in out


def test_a_line_for_the_cpu_takes_no_profile_for_gpus(folder: Path) -> None:
    line = ["accelerate", "launch", "--cpu", "train.py"]
    result = safelaunch(folder, "run", "--dry-run", "--profile", "rtx5090", "--", *line)
    assert (result.code, "the line runs on the CPU" in result.err) == (2, True)
