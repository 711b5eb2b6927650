"""Checks of installed packages: the project's pins, and what the job's words ask for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.facts.check_cases import make_context, project_at, results_of
from support.facts.gpu_machines import Replies, box
from support.facts.interpreters import PATH, SYSTEM, python, torch

from safelaunch.checks.environment import packages, requirements

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

TORCHRUN = "launcher: torchrun\nscript: train.py\nprocesses: 4\nprofile: cpu\n"
MISSING = {"found": False, "where": None}
PRESENT = {"found": True, "where": "/x/__init__.py"}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    packages._read_pins.cache_clear()
    return project_at(tmp_path)


def run_checks(
    project: Project,
    id: str,  # noqa: A002
    installed: dict[str, str] | None = None,
    job: str = TORCHRUN,
    answers: dict[Any, Any] | None = None,
    **more: Any,
) -> list[Any]:
    version = more.pop("version", "3.10.14")
    parts = {
        "python": python(installed, version=version),
        "system": SYSTEM,
        **more.pop("parts", {}),
    }
    return results_of(
        make_context(project, job, facts=box(**parts), answers=Replies(answers or {}), **more), id
    )


# -- pins ------------------------------------------------------------------------------------------

FILES = {
    "met": ("torch==2.8.0\n", {"torch": "2.8.0"}, "ok", "1 pins"),
    "a build is the same version": ("torch==2.8.0\n", {"torch": "2.8.0+cu128"}, "ok", ""),
    "another version": (
        "# ours\nTorch == 2.6.0  # old\n",
        {"torch": "2.8.0"},
        "warn",
        "torch 2.8.0 (requirements.txt:2: `Torch == 2.6.0`)",
    ),
    "missing": ("trl>=0.9\n", {}, "warn", "trl is missing"),
    "no pin": ("trl\n", {}, None, ""),
    "names are normalised": ("Flash_Attn==2.7\n", {"flash-attn": "2.7"}, "ok", ""),
    "extras": ("transformers[torch]>=4\n", {"transformers": "4.5"}, "ok", ""),
    "for another Python": ("numpy==1.0 ; python_version < '3.9'\n", {"numpy": "2"}, None, ""),
    "for this Python": (
        "numpy==1.0 ; python_version >= '3.9'\n", {"numpy": "2"}, "warn", "numpy 2",
    ),
    "for Windows": ("numpy==1.0 ; sys_platform == 'win32'\n", {"numpy": "2"}, None, ""),
    "hashes and continuations": (
        "numpy==1.26.4 \\\n    --hash=sha256:abc \\\n    --hash=sha256:def\n",
        {"numpy": "1.26.4"}, "ok", "",
    ),
    "a candidate counts": ("torch>=2.6\n", {"torch": "2.7.0rc1"}, "ok", ""),
    "what is no requirement": (
        "-e .\ngit+https://x/y.git\n./local\ngit+https://x/y#egg=y-1.0\n???\n", {}, None, "",
    ),
    "an address that is met": (
        "Foo @ git+https://x/y@v1\n-e git+https://x/y.git#egg=trl[vllm]\n",
        {"foo": "1", "trl": "2"}, "ok", "2 pins",
    ),
    "an address for another Python": (
        "git+https://x/y#egg=trl ; python_version < '3.9'\n", {}, None, "",
    ),
    "a package at an address": (
        "trl @ git+https://x/y@v1\n", {}, "warn", "trl is missing (requirements.txt:1: `trl @ git+",
    ),
    "a package that an address names": (
        "-e git+https://me:token@x/y@v1#subdirectory=z&egg=my_trl\n", {}, "warn",
        "my-trl is missing (requirements.txt:1: `git+https://x/y@v1#sub",
    ),
    "an installed version that is none": ("torch==2.8\n", {"torch": "git"}, "ok", ""),
    "nothing but noise": ("\x00\ufeff\x00==\n", {}, None, ""),
}  # fmt: skip


@pytest.mark.parametrize(("text", "installed", "status", "words"), FILES.values(), ids=FILES)
def test_the_pins_of_a_requirements_file(
    project: Project, text: str, installed: dict[str, str], status: str | None, words: str
) -> None:
    project.write(text, "requirements.txt")
    results = run_checks(project, "requirements", installed)
    assert [each.status for each in results] == ([status] if status else [])
    assert all(words in each.evidence for each in results)


def test_the_hint_installs_the_file_itself(project: Project) -> None:
    project.write("torch==2.6.0+cu118\n", "requirements.txt")
    (result,) = run_checks(project, "requirements", {"torch": "2.8.0+cu128"})
    assert f"{PATH} -m pip install -r {project.folder}/requirements.txt" in result.hint
    assert "--extra-index-url https://download.pytorch.org/whl/cu118" in result.hint


def test_a_pin_of_two_files_is_named_once(project: Project) -> None:
    project.write("trl>=0.9\n", "requirements.txt")
    pins = '[project]\nname = "x"\nversion = "1"\ndependencies = ["trl>=0.9", "peft>=1"]\n'
    project.write(pins, "pyproject.toml")
    (result,) = run_checks(project, "requirements", {})
    assert result.evidence.count("trl is missing (requirements.txt:1") == 1
    assert "trl is missing (pyproject.toml" not in result.evidence
    assert result.hint.count("trl>=0.9") == 1


@pytest.mark.parametrize(
    ("pins", "installed", "cure"),
    [
        (("trl==0.9.6", "trl==1.4"), "1.4", ""),
        (("trl==0.9.6", "trl>=1"), "0.9.6", ""),
        (("trl==0.9.6", "trl==1.4"), "2.0", "install trl==1.4`"),
        (("trl>=0.9", "trl==1.4"), "2.0", "install trl==1.4`"),
        (("trl==1.4+cpu", "trl==1.4"), "2.0", "install trl==1.4+cpu trl==1.4`"),
    ],
)
def test_files_that_contradict_each_other_are_alternatives(
    project: Project, pins: tuple[str, str], installed: str, cure: str
) -> None:
    project.write(f"{pins[0]}\n", "requirements.txt")
    text = f'[project]\nname = "x"\nversion = "1"\ndependencies = ["{pins[1]}"]\n'
    project.write(text, "pyproject.toml")
    (result,) = run_checks(project, "requirements", {"trl": installed})
    assert (result.status == "warn") == bool(cure)
    assert cure in result.hint


def test_what_matters_to_training_comes_first_and_five_are_shown(project: Project) -> None:
    lines = [f"p{at}==1\n" for at in range(9)]
    project.write("".join([*lines, "torch==2.6\n"]), "requirements.txt")
    (result,) = run_checks(project, "requirements", {"torch": "2.8"})
    assert result.evidence.startswith("torch 2.8 ")
    assert result.evidence.endswith("and 5 more")


def test_files_that_are_included_count(project: Project) -> None:
    project.write("-r sub/base.txt\n-r requirements.txt\n", "requirements.txt")
    project.write("-r ../other.txt\n", "sub/base.txt")
    project.write("trl==1\n", "other.txt")
    (result,) = run_checks(project, "requirements", {"trl": "2"})
    assert "other.txt:1" in result.evidence


OTHERS = {
    "one other file": ({"requirements-train.txt": "trl==1\n"}, "warn"),
    "a file for tests": ({"requirements-dev.txt": "trl==1\n"}, None),
    "alternatives": ({"requirements-a.txt": "trl==1\n", "requirements-b.txt": "trl==3\n"}, None),
    "the pip part of conda": (
        {"environment.yml": "dependencies:\n- python=3.10\n- pip:\n  - trl==1\n"}, "warn",
    ),
    "a broken environment.yml": ({"environment.yml": "dependencies: [\n- {"}, None),
    "an odd environment.yml": ({"environment.yml": "dependencies: [{pip: 3}, 4, null]\n"}, None),
}  # fmt: skip


@pytest.mark.parametrize(("files", "status"), OTHERS.values(), ids=OTHERS)
def test_other_files_with_pins(project: Project, files: dict[str, str], status: str | None) -> None:
    for name, text in files.items():
        project.write(text, name)
    results = run_checks(project, "requirements", {"trl": "2"})
    assert [each.status for each in results] == ([status] if status else [])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_pyproject_and_its_python(project: Project) -> None:
    text = '[project]\nrequires-python = ">=3.11"\ndependencies = ["trl>=3", "x"]\n'
    project.write(text, "pyproject.toml")
    (result,) = run_checks(project, "requirements", {"trl": "2"})
    assert result.status == "warn"
    assert result.evidence.startswith("python 3.10.14 (pyproject.toml:2: ")
    assert "trl 2 (pyproject.toml:3" in result.evidence


@pytest.mark.parametrize("text", ["[project", "project = 3\n", "[project]\ndependencies = 4\n"])
def test_a_pyproject_that_says_nothing(project: Project, text: str) -> None:
    project.write(text, "pyproject.toml")
    assert run_checks(project, "requirements") == []


def test_the_jobs_own_folder_counts_too(project: Project) -> None:
    project.write("trl==1\n", "examples/requirements.txt")
    (project.folder / "examples/train.py").touch()
    job = TORCHRUN + "workdir: examples\n"
    (result,) = run_checks(project, "requirements", {"trl": "2"}, job)
    assert "examples/requirements.txt:1" in result.evidence


def test_a_comment_in_an_address_is_none() -> None:
    read = {"r.txt": "a==1#b\nb==2 # c\n"}.get
    assert [(pin.name, pin.where) for pin in requirements.read_requirements("r.txt", read)] == [
        ("b", "r.txt:2")
    ]


# -- what the words ask for ------------------------------------------------------------------------

NEEDED = {
    "wandb": ("args: {report_to: wandb}\n", "wandb"),
    "one of several": ("args: {report_to: [tensorboard, wandb]}\n", "wandb"),
    "in Hydra's words": ("args: [report_to=wandb]\n", "wandb"),
    "by env": ("env: {WANDB_PROJECT: x}\n", "wandb"),
    "flash attention": ("args: {attn_implementation: flash_attention_2}\n", "flash_attn"),
    "bits": ("args: {optim: paged_adamw_8bit}\n", "bitsandbytes"),
    "bits of torch's own": ("args: {optim: adamw_torch_8bit}\n", "torchao"),
    "bits of GaLore": ("args: {optim: galore_adamw_8bit_layerwise}\n", "galore_torch"),
    "an optimizer without a schedule": ("args: {optim: schedule_free_adamw}\n", "schedulefree"),
    "a name that PyPI does not have": ("args: {optim: stable_adamw}\n", "optimi"),
    "a switch": ("args: {load_in_4bit: true}\n", "bitsandbytes"),
    "deepspeed": ("args: {deepspeed: ds.json}\n", "deepspeed"),
    "an engine": ("args: {engine_type: sglang}\n", "sglang"),
}


@pytest.mark.parametrize(("job", "module"), NEEDED.values(), ids=NEEDED)
def test_what_the_words_ask_for_and_is_missing(project: Project, job: str, module: str) -> None:
    answers: dict[Any, Any] = {("module", name): PRESENT for name in ("tensorboard", "wandb")}
    answers |= {("module", name): MISSING for name in (module, "kernels", "tensorboardX")}
    (result,) = run_checks(project, "asked-packages", {}, TORCHRUN + job, answers)
    assert (result.status, "-m pip install" in result.hint) == ("warn", True)


@pytest.mark.parametrize(
    ("option", "module", "substitute"),
    [
        ("attn_implementation: flash_attention_2", "flash_attn", "kernels"),
        ("report_to: [tensorboard]", "tensorboard", "tensorboardX"),
    ],
)
def test_what_serves_in_place_of_a_module_is_enough(
    project: Project, option: str, module: str, substitute: str
) -> None:
    job = f"{TORCHRUN}args: {{{option}}}\n"
    for presence, status in ((PRESENT, "ok"), (MISSING, "warn")):
        answers = {("module", module): MISSING, ("module", substitute): presence}
        (result,) = run_checks(project, "asked-packages", {}, job, answers)
        assert result.status == status


@pytest.mark.parametrize("value", ["wanddb", "[tensorboard, WandB2]"])
def test_a_tracker_that_is_misspelt_is_a_warning(project: Project, value: str) -> None:
    answers = {("module", name): PRESENT for name in ("tensorboard", "tensorboardX")}
    job = TORCHRUN + f"args: {{report_to: {value}}}\n"
    (result,) = run_checks(project, "asked-packages", {}, job, answers)
    assert (result.status, result.hint) == ("warn", "did you mean `wandb`?")


@pytest.mark.parametrize("value", ["trackio", "my_tracker", "none", "[wandb]", "aim"])
def test_a_tracker_of_another_name_is_none(project: Project, value: str) -> None:
    answers = {("module", "wandb"): PRESENT}
    job = TORCHRUN + f"args: {{report_to: {value}}}\n"
    results = run_checks(project, "asked-packages", {}, job, answers)
    assert {r.status for r in results} <= {"ok"}


@pytest.mark.parametrize(("job", "module"), NEEDED.values(), ids=NEEDED)
def test_what_the_words_ask_for_and_is_there(project: Project, job: str, module: str) -> None:
    names = ("tensorboard", "tensorboardX", "kernels", module)
    answers = {("module", name): PRESENT for name in names}
    (result,) = run_checks(project, "asked-packages", {}, TORCHRUN + job, answers)
    assert (result.status, module in result.evidence) == ("ok", True)


SILENT = {
    "nothing": "",
    "report_to none": "args: {report_to: none}\n",
    "off": "args: {use_wandb: 'false'}\n",
    "disabled": "args: {report_to: wandb}\nenv: {WANDB_MODE: disabled}\n",
    "disabled for all": "args: {report_to: wandb}\nenv: {WANDB_DISABLED: 'true'}\n",
    "an empty variable": "env: {WANDB_API_KEY: ''}\n",
    "another attention": "args: {attn_implementation: sdpa}\n",
    "another optimizer": "args: {optim: adamw_torch}\n",
    "a fused optimizer": "args: {optim: adamw_torch_fused}\n",
}


@pytest.mark.parametrize("job", SILENT.values(), ids=SILENT)
def test_words_that_ask_for_nothing(project: Project, job: str) -> None:
    for id in ("asked-packages", "wandb-login"):  # noqa: A001 - the field's name
        assert run_checks(project, id, {}, TORCHRUN + job) == []


@pytest.mark.parametrize("trackers", ["none", "tensorboard", "[swanlab]"])
def test_a_variable_of_wandb_asks_for_nothing_where_other_trackers_are_chosen(
    project: Project, trackers: str
) -> None:
    job = TORCHRUN + f"args: {{report_to: {trackers}}}\nenv: {{WANDB_PROJECT: x}}\n"
    answers: dict[Any, Any] = {("module", n): PRESENT for n in ("tensorboard", "swanlab")}
    answers[("module", "wandb")] = MISSING
    results = run_checks(project, "asked-packages", {}, job, answers)
    assert {r.status for r in results} <= {"ok"}


@pytest.mark.parametrize(
    ("job", "cure"),
    [("args: {report_to: wandb}\n", True), ("env: {WANDB_PROJECT: x}\n", False)],
    ids=["an option", "a variable"],
)
def test_a_missing_wandb_is_cured_by_what_needs_no_wandb(
    project: Project, job: str, cure: bool
) -> None:
    answers = {("module", "wandb"): MISSING}
    (result,) = run_checks(project, "asked-packages", {}, TORCHRUN + job, answers)
    assert ("`--report_to none`" in result.hint) is cure
    assert "WANDB_MODE" not in result.hint  # transformers raises all the same


def test_a_shell_with_wandb_asks_for_nothing(project: Project) -> None:
    environ = {"WANDB_PROJECT": "x", "WANDB_API_KEY": "y"}
    assert run_checks(project, "asked-packages", {}, environ=environ) == []


WANDB = TORCHRUN + "args: {report_to: wandb}\n"
NETRC, SETTINGS = ("path", "~/.netrc"), ("path", "~/.config/wandb/settings")
NOWHERE = {NETRC: {"kind": None}, SETTINGS: {"kind": None}}
LOGINS = {
    "nothing": ("", {}, NOWHERE, "warn"),
    "env_from": ("env_from: [WANDB_API_KEY]\n", {}, NOWHERE, "ok"),
    "offline": ("env: {WANDB_MODE: offline}\n", {}, NOWHERE, "ok"),
    "of the shell": ("", {"WANDB_API_KEY": "x"}, NOWHERE, "ok"),
    "not let in": ("inherit: none\n", {"WANDB_API_KEY": "x"}, NOWHERE, "warn"),
    "netrc": ("", {}, {**NOWHERE, NETRC: {"kind": "file"}}, "ok"),
    "settings": ("", {}, {**NOWHERE, SETTINGS: {"kind": "file"}}, "ok"),
    "not told": ("", {}, {}, "skip"),
}


@pytest.mark.parametrize(("job", "environ", "answers", "status"), LOGINS.values(), ids=LOGINS)
def test_whether_wandb_finds_a_key(
    project: Project,
    job: str,
    environ: dict[str, str],
    answers: dict[Any, Any],
    status: str,
) -> None:
    replies = {("module", "wandb"): PRESENT, **answers}
    (result,) = run_checks(project, "wandb-login", {}, WANDB + job, replies, environ=environ)
    assert result.status == status


def test_a_wandb_that_is_missing_needs_no_key(project: Project) -> None:
    assert run_checks(project, "wandb-login", {}, WANDB, {("module", "wandb"): MISSING}) == []


@pytest.mark.parametrize("id", ["requirements", "asked-packages"])
def test_another_programs_packages_are_not_known(project: Project, id: str) -> None:  # noqa: A002
    project.write("trl==1\n", "requirements.txt")
    job = "launcher: command\ncommand: [bash, x.sh, --report_to, wandb]\nprofile: cpu\n"
    assert run_checks(project, id, {"trl": "2"}, job) == []


def test_torchs_own_version_counts_where_the_metadata_is_short(project: Project) -> None:
    project.write("torch==2.8.0+cu128\n", "requirements.txt")
    parts = {"torch": torch("2.8.0+cu128")}
    (result,) = run_checks(project, "requirements", {"torch": "2.8.0"}, parts=parts)
    assert result.status == "ok"
