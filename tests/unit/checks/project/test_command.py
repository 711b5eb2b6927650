"""The program of a `command:`, the folder that it runs in, and a script that is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.facts.check_cases import project_at, result_of, results_of
from support.facts.machine_cases import local_context, remote_context

from safelaunch.config.resolve import Flags

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

    from safelaunch.checks.context import CheckContext


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """Return a folder of programs: `trainer`, and a `notes` that is none."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, mode in (("trainer", 0o755), ("notes", 0o644)):
        (folder / name).touch(mode)
        (folder / name).chmod(mode)
    return folder


def command(project: Project, tools: Path, words: str, more: str = "") -> CheckContext:
    job = f"launcher: command\ncommand: {words}\n{more}"
    return local_context(project, job, environ={"PATH": f"/no/such/folder:{tools}"})


# -- the first line of a script --------------------------------------------------------------------

BAD = {
    "CR LF": "#!/bin/sh\r\necho\r\n",
    "CR LF behind an argument": "#!/bin/sh -e\r\necho\r\n",
    "CR LF behind env": "#!/usr/bin/env bash\r\necho\r\n",
    "no such interpreter": "#!/no/such/bash\necho\n",
}
GOOD = {
    "LF": "#!/bin/sh\necho\r\n",
    "blanks": "#! /bin/sh -e \necho\n",
    "none": "echo\r\n",
    "no path": "#!bash\necho\n",
}


def run_file(project: Project, text: str, words: str, more: str = "") -> CheckContext:
    (project.folder / "run.sh").write_bytes(text.encode())
    (project.folder / "run.sh").chmod(0o755)
    return local_context(project, f"launcher: command\ncommand: {words}\n{more}")


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_a_script_that_no_interpreter_runs_makes_the_start_impossible(
    project: Project, text: str
) -> None:
    result = result_of(run_file(project, text, "[./run.sh]"), "script")
    assert (result.status, "bad interpreter" in result.evidence) == ("fail", True)
    assert result.evidence.startswith("./run.sh:1: `#!/")


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_a_script_that_its_interpreter_runs_passes(project: Project, text: str) -> None:
    assert result_of(run_file(project, text, "[./run.sh]"), "script").status == "ok"


@pytest.mark.parametrize(("program", "status"), [("trainer", "ok"), ("notes", "fail")])
def test_a_program_that_env_must_find_is_looked_for_on_path(
    project: Project, tools: Path, program: str, status: str
) -> None:
    run_file(project, f"#!/usr/bin/env {program}\n", "[./run.sh]")
    assert result_of(command(project, tools, "[./run.sh]"), "script").status == status


def test_a_script_that_setup_may_convert_is_a_warning(project: Project) -> None:
    case = run_file(project, BAD["CR LF"], "[./run.sh]", "setup: dos2unix run.sh\n")
    assert result_of(case, "script").status == "warn"


def test_a_script_that_a_shell_is_given_needs_no_first_line(project: Project) -> None:
    assert result_of(run_file(project, BAD["CR LF"], "[bash, run.sh]"), "script").status == "ok"


# -- programs --------------------------------------------------------------------------------------


def test_a_program_on_path_passes(project: Project, tools: Path) -> None:
    result = result_of(command(project, tools, "[trainer, -x]"), "script")
    assert (result.status, result.evidence) == ("ok", f"`trainer` is {tools}/trainer")


@pytest.mark.parametrize("name", ["nothing-like-it", "notes"])
def test_a_program_that_is_not_on_path_makes_the_start_impossible(
    name: str, project: Project, tools: Path
) -> None:
    result = result_of(command(project, tools, f"[{name}]"), "script")
    assert result.status == "fail"
    assert result.evidence == f"`command:` (job.yaml:2:10): no program `{name}` on PATH"


def test_a_prefix_that_is_not_on_path_makes_the_start_impossible(
    project: Project, tools: Path
) -> None:
    job = "launcher: python\nscript: train.py\nprefix: [{name}, -x]\npython: /env/bin/python\n"
    for name, evidence in (
        ("trainer", "train.py exists"),
        ("nothing-like-it", "`prefix:` (job.yaml:3:9): no program `nothing-like-it` on PATH"),
    ):
        case = local_context(project, job.format(name=name), environ={"PATH": str(tools)})
        assert result_of(case, "script").evidence == evidence


@pytest.mark.parametrize("target", ["script: train.py", "module: json.tool", "command: [ls]"])
def test_srun_is_looked_for_itself(target: str, project: Project, tools: Path) -> None:
    job = f"launcher: srun\n{target}\nargs: [/no/such/file]\n"
    result = result_of(local_context(project, job, environ={"PATH": str(tools)}), "script")
    assert result.evidence == "`launcher:` (job.yaml:1:11): no program `srun` on PATH"
    (tools / "srun").touch(0o755)
    result = result_of(local_context(project, job, environ={"PATH": str(tools)}), "script")
    assert result.status == "ok"


def test_setup_may_put_the_program_on_path(project: Project, tools: Path) -> None:
    case = command(project, tools, "[nothing-like-it]", "setup: module load it\n")
    assert result_of(case, "script").status == "warn"


def test_the_path_of_the_job_itself_counts(project: Project, tools: Path) -> None:
    case = command(project, tools, "[trainer]", "env: {PATH: /usr/bin}\n")
    assert result_of(case, "script").status == "fail"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("[trianer, -x]", "did you mean `trainer`?"),
        ("['trainer --lr 1']", "each word by itself: `command: [trainer, --lr, 1]`"),
        ("[LR=1, trainer]", "`env: {LR: '1'}`, and the program first"),
    ],
)
def test_what_was_meant_is_proposed(words: str, hint: str, project: Project, tools: Path) -> None:
    assert result_of(command(project, tools, words), "script").hint.startswith(hint)


def test_a_program_of_the_jobs_own_environment_is_named_whole(
    project: Project, tools: Path, tmp_path: Path
) -> None:
    program = tmp_path / "env" / "bin" / "accelerate"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    case = command(project, tools, "[accelerate]", f"python: {program.parent}/python\n")
    assert result_of(case, "script").hint == f"`command: [{program}, ...]`"


@pytest.mark.parametrize("words", ["['$HOME/run']", "['~/run']"])
def test_of_words_that_a_shell_would_change_nothing_is_said(
    words: str, project: Project, tools: Path
) -> None:
    assert results_of(command(project, tools, words), "script") == []


def test_a_script_is_named_before_the_shell_that_would_run_it(
    project: Project, tools: Path
) -> None:
    result = result_of(command(project, tools, "[bash, run.sh]"), "script")
    assert "run.sh" in result.evidence
    project.write("", "run.sh")
    assert (
        "`bash` on PATH" in result_of(command(project, tools, "[bash, run.sh]"), "script").evidence
    )


def test_the_path_of_a_host_is_not_that_of_this_machine(project: Project, tools: Path) -> None:
    case = remote_context(
        project, "launcher: command\ncommand: [trainer]\n", environ={"PATH": str(tools)}
    )
    assert results_of(case, "script") == []


# -- folders and scripts ---------------------------------------------------------------------------


def test_a_working_folder_that_is_missing_is_reported_with_the_nearest(project: Project) -> None:
    (project.folder / "source").mkdir()
    job = "launcher: command\ncommand: [x]\nworkdir: sorce\n"
    result = result_of(local_context(project, job), "workdir")
    assert result.status == "fail"
    assert result.evidence == f"`workdir` (job.yaml:3:10): {project.folder}/sorce does not exist"
    assert f"did you mean `{project.folder}/source`?" in result.hint
    (project.folder / "sorce").mkdir()
    assert result_of(local_context(project, job), "workdir").status == "ok"


def test_the_projects_own_folder_comes_to_the_host_with_it(project: Project) -> None:
    assert (
        results_of(remote_context(project, "launcher: python\nscript: train.py\n"), "workdir") == []
    )


def test_a_folder_of_the_hosts_own_must_be_there(project: Project) -> None:
    job = "launcher: command\ncommand: [x]\nworkdir: /srv/code\n"
    assert result_of(remote_context(project, job), "workdir").status == "fail"


def test_a_script_that_is_missing_keeps_no_other_check_from_being_made(project: Project) -> None:
    job = "launcher: python\nscript: trian.py\ninputs: [data]\nargs: {config: c.yaml}\n"
    case = local_context(project, job, flags=Flags(only_checked=True))
    results = {each.id: each for each in results_of(case)}
    assert results["script"].status == "fail"
    assert "(job.yaml:2:9)" in results["script"].hint
    assert "did you mean `train.py`?" in results["script"].hint
    assert (results["inputs"].status, results["configs"].status) == ("fail", "warn")
    assert {"imports", "flags", "shadowed"}.isdisjoint(results)


def test_what_begins_at_a_folder_that_is_missing_is_not_told_as_well(project: Project) -> None:
    job = "launcher: python\nscript: train.py\nworkdir: sorce\ninputs: [data]\n"
    results = {
        each.id: each
        for each in results_of(local_context(project, job, flags=Flags(only_checked=True)))
    }
    assert results["workdir"].status == "fail"
    assert (results["script"].status, results["inputs"].status) == ("skip", "skip")


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("data/a.jsonl", "write `../data/a.jsonl`: paths are relative to `workdir:`"),
        ("data/*.jsonl", "write `../data/*.jsonl`: paths are relative to `workdir:`"),
        ("data/*.csv", "put a file there that matches {}/src/data/*.csv, or correct the path"),
    ],
)
def test_a_path_that_begins_at_the_project_is_written_from_the_working_folder(
    path: str, hint: str, project: Project
) -> None:
    project.write("", "src/train.py")
    project.write("", "data/a.jsonl")
    job = f"launcher: python\nscript: train.py\nworkdir: src\ninputs: ['{path}']\n"
    assert result_of(local_context(project, job), "inputs").hint == hint.format(project.folder)
