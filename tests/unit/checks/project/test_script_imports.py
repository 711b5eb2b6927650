"""Checks of the program's text: what is said of imports, and how they are found."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from support.facts.check_cases import make_context, project_at, result_of, results_of

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

    from safelaunch.checks.context import CheckContext

JOB = "launcher: python\nscript: train.py\n"
NOBODY = {"found": False, "where": None}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path)


def missing(project: Project, *names: str, job: str = JOB) -> CheckContext:
    project.write("".join(f"import {name}\n" for name in names), "train.py")
    answers = {("module", name): NOBODY for name in names}
    return make_context(project, job, answers=answers)


def test_a_module_that_nobody_has_is_to_be_installed(project: Project) -> None:
    hint = result_of(missing(project, "cv2"), "imports").hint
    assert "-m pip install opencv-python" in hint
    assert "pythonpath" not in hint


@pytest.mark.parametrize("file", ["src/mylib/__init__.py", "src/mylib.py"])
def test_a_module_of_the_projects_own_is_not_fetched_from_elsewhere(
    file: str, project: Project
) -> None:
    project.write("", file)
    hint = result_of(missing(project, "mylib"), "imports").hint
    assert hint == "`--set 'pythonpath=[., src]'` for `mylib` of the project"


@pytest.mark.parametrize("repository", [None, "", "examples/project"])
def test_an_example_finds_the_package_in_a_folder_above_it(
    tmp_path: Path, repository: str | None
) -> None:
    project = project_at(tmp_path / "examples")
    (tmp_path / "mylib").mkdir()
    (tmp_path / "mylib" / "__init__.py").touch()
    if repository is not None:
        (tmp_path / repository / ".git").mkdir()
    hint = result_of(missing(project, "mylib"), "imports").hint
    is_above = repository != "examples/project"
    assert ("'pythonpath=[., ../..]'" in hint) == is_above
    assert ("pip install mylib" in hint) != is_above


def test_what_pythonpath_names_already_is_kept(project: Project) -> None:
    project.write("", "src/mylib.py")
    hint = result_of(missing(project, "mylib", job=JOB + "pythonpath: [lib]\n"), "imports").hint
    assert "'pythonpath=[lib, src]'" in hint


@pytest.mark.parametrize("file", ["utils/torch.py", ".venv/mylib.py", "pkg/mylib.py"])
def test_a_file_that_only_has_the_name_is_not_taken_for_the_module(
    file: str, project: Project
) -> None:
    project.write("", file)
    project.write("", "pkg/__init__.py")
    name = file.rpartition("/")[2].removesuffix(".py")
    assert "pythonpath" not in result_of(missing(project, name), "imports").hint


@pytest.mark.parametrize("name", ["datasets", "yaml", "torch", "sklearn", "peft"])
def test_a_module_of_the_project_is_never_put_in_place_of_a_library(
    name: str, project: Project
) -> None:
    project.write("", f"rq/{name}.py")
    hint = result_of(missing(project, name), "imports").hint
    assert "-m pip install" in hint
    assert "pythonpath" not in hint


CURES = {
    "git": "gitpython",
    "clip": "git+https://github.com/openai/CLIP",
    "flash_attn": "flash-attn --no-build-isolation",
    "mamba_ssm": "mamba_ssm --no-build-isolation",
    "alignment": "git+https://github.com/huggingface/alignment-handbook",
    "sat": "SwissArmyTransformer",
    "apex": "git+https://github.com/NVIDIA/apex --no-build-isolation",
    "pkg_resources": "'setuptools<81'",
    "megatron": "megatron-core",
    "mpl_toolkits": "matplotlib",
}


@pytest.mark.parametrize(("name", "words"), CURES.items(), ids=CURES)
def test_a_module_is_installed_from_where_it_is(project: Project, name: str, words: str) -> None:
    assert f"-m pip install {words}`" in result_of(missing(project, name), "imports").hint


@pytest.mark.parametrize("requirement", ["Einx_Tools\n", "einx-tools[all]>=2\n"])
def test_nor_is_it_in_place_of_what_the_requirements_name(
    requirement: str, project: Project
) -> None:
    project.write("", "models/einx_tools.py")
    project.write(requirement, "requirements.txt")
    hint = result_of(missing(project, "einx_tools"), "imports").hint
    assert ("-m pip install einx_tools" in hint, "pythonpath" in hint) == (True, False)


@pytest.mark.parametrize("folder", ["src", "python"])
def test_a_library_that_the_project_itself_is_is_found_in_it(project: Project, folder: str) -> None:
    project.write("", f"{folder}/verl/__init__.py")
    hint = result_of(missing(project, "verl"), "imports").hint
    assert f"pythonpath=[., {folder}]" in hint


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("pkg/sub/run.py", "`module: pkg.sub.run` instead"),
        ("src/pkg/run.py", "`module: pkg.run` with `--set 'pythonpath=[., src]'` instead"),
        ("loose/run.py", "`module: loose.run` instead"),
    ],
)
def test_a_script_with_a_relative_import_is_named_as_a_module(
    script: str, says: str, project: Project
) -> None:
    for file in ("pkg/__init__.py", "pkg/sub/__init__.py", "src/pkg/__init__.py"):
        project.write("", file)
    project.write("from . import x\n", script)
    case = make_context(project, JOB.replace("train.py", script))
    assert says in result_of(case, "own-modules").hint


def test_a_file_beside_the_script_that_hides_a_package_is_named(project: Project) -> None:
    project.write("", "pkg/__init__.py")
    project.write("", "pkg/data.py")
    project.write("import pkg.data\n", "pkg/tools/run.py")
    project.write("", "pkg/tools/pkg.py")
    case = make_context(project, JOB.replace("train.py", "pkg/tools/run.py"))
    result = result_of(case, "own-modules")
    assert result.evidence.startswith("pkg/tools/pkg.py is imported as `pkg`, and is no package")
    assert result.hint == (
        "rename pkg/tools/pkg.py, or correct the import; or start `module: pkg.tools.run`"
    )


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    import own.gone\n",
        "try:\n    import own.gone\nexcept ImportError:\n    pass\n",
        "import sys\nif sys.argv:\n    import own.gone\n",
    ],
)
def test_a_module_that_the_program_may_do_without_is_not_missed(
    project: Project, text: str
) -> None:
    project.write("", "own/__init__.py")
    project.write(text, "train.py")
    assert results_of(make_context(project, JOB), "own-modules") == []


def test_a_job_without_arguments_is_reported_where_they_go(project: Project) -> None:
    text = "import argparse\np = argparse.ArgumentParser()\n"
    project.write(f"{text}p.add_argument('--lr', required=True)\np.parse_args()\n", "train.py")
    assert "`args:` of the job" in result_of(make_context(project, JOB), "flags").hint


@pytest.mark.parametrize(
    ("option", "flags", "refuses"),
    [("--lr", "", True), ("--local_rank", "", False), ("--lr", "no_local_rank: true", False)],
)
def test_a_script_that_refuses_the_rank_of_deepspeed_is_reported(
    option: str, flags: str, refuses: bool, project: Project
) -> None:
    text = "import argparse\np = argparse.ArgumentParser()\n"
    project.write(f"{text}p.add_argument('{option}')\np.parse_args()\n", "train.py")
    job = f"launcher: deepspeed\nscript: train.py\nprocesses: 2\nlauncher_args: {{{flags}}}\n"
    result = result_of(make_context(project, job), "flags")
    assert ("`--local_rank=N`, which the script refuses" in result.evidence) is refuses


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes with a name")
def test_a_settings_file_that_is_a_pipe_is_not_waited_for(project: Project) -> None:
    import os  # noqa: PLC0415 - no mkfifo on Windows

    project.write("", "train.py")
    os.mkfifo(project.folder / "a.yaml")
    os.mkfifo(project.folder / "requirements.txt")
    case = make_context(
        project,
        JOB + "args: {config: a.yaml}\n",
        facts={"python": {"version": "3.11", "packages": {"torch": "2.8.0"}}},
    )
    assert results_of(case, "settings-files") == []


@pytest.mark.parametrize(
    ("imports", "count"),
    [
        ("import yaml\n", 1),
        ("from transformers import HfArgumentParser\n", 1),
        ("import yaml, omegaconf\n", 0),
        ("import transformers, trl\n", 0),
        ("import toml\n", 0),
    ],
)
def test_a_number_in_a_settings_file_is_text_only_to_a_program_that_uses_pyyaml(
    project: Project, imports: str, count: int
) -> None:
    project.write(imports, "train.py")
    project.write("lr: 1e-3\n", "a.yaml")
    case = make_context(project, JOB + "args: {config: a.yaml}\n")
    assert len(results_of(case, "settings-files")) == count


def test_a_name_that_every_project_has_is_not_fetched_from_elsewhere(project: Project) -> None:
    hint = result_of(missing(project, "utils", "cv2"), "imports").hint
    assert hint.startswith("add the project's `utils`, or name its folder: `pythonpath:`; ")
    assert "pip install opencv-python`" in hint


def test_folders_of_a_variable_are_searched_as_those_of_the_job(project: Project) -> None:
    job = JOB + "env: {PYTHONPATH: 'src:lib'}\n"
    project.write("import mylib, other\n", "train.py")
    project.write("", "lib/mylib.py")
    project.write("", "more/other.py")
    case = make_context(project, job)
    result = result_of(case, "imports")
    assert "`mylib`" not in result.evidence
    assert result.hint == "`--set 'env.PYTHONPATH=src:lib:more'` for `other` of the project"
