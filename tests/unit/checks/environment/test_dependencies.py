"""Checks of what packages require of others: metadata made up, in the shape of real releases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.facts.check_cases import make_context, project_at, results_of
from support.facts.gpu_machines import Replies, box
from support.facts.interpreters import PATH, SYSTEM, python

from safelaunch.checks.environment import dependencies, packages

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

JOB = "launcher: python\nscript: train.py\nprofile: cpu\n"
# as the wheels of these releases say, without the extras for tests
TRL = [
    "accelerate>=1.4.0", "datasets>=3.0.0", "transformers>=4.56.1",
    'vllm<0.11.1,>=0.10.0; extra == "vllm"', 'peft>=0.8.0; extra == "peft"',
    'ruff<0.5; extra == "dev"',
]  # fmt: skip
TRANSFORMERS = [
    "filelock", "huggingface-hub<1.0,>=0.34.0", "numpy>=1.17", "tokenizers<=0.23.0,>=0.22.0",
    'torch>=2.2; extra == "torch"', 'accelerate>=0.26.0; extra == "accelerate"',
    'timm!=1.0.18,<=1.0.19; extra == "timm"',
]  # fmt: skip
DATASETS = ["fsspec[http]<=2025.9.0,>=2023.1.0", "pyarrow>=15.0.0", "numpy>=1.17"]
MET = {
    "trl": "0.24.0", "accelerate": "1.10.0", "datasets": "4.1.0", "transformers": "4.57.6",
    "filelock": "3.19", "huggingface-hub": "0.35.0", "numpy": "2.2.0", "tokenizers": "0.22.1",
    "pyarrow": "21.0.0", "fsspec": "2025.3.0",
}  # fmt: skip
SAFETENSORS = ['torch>=2.4; extra == "torch"']
DEEPSPEED = ["hjson", 'triton==2.1.0; extra == "triton"']
REQUIRES = {
    "trl": TRL, "transformers": TRANSFORMERS, "datasets": DATASETS, "deepspeed": DEEPSPEED,
    "safetensors": SAFETENSORS,
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Project:
    packages._read_pins.cache_clear()
    return project_at(tmp_path)


def run_check(
    project: Project,
    installed: dict[str, str],
    text: str = "import trl\n",
    job: str = JOB,
    *,
    requires: dict[str, list[str]] | None = None,
    modules: tuple[str, ...] = (),
    version: str = "3.11.9",
) -> list[Any]:
    project.write(text, "train.py")
    lines = {name: (requires or REQUIRES).get(name, []) for name in installed}

    class Answers(Replies):
        def __missing__(self, key: object) -> dict[str, Any]:
            if not isinstance(key, tuple) or key[0] != "requirements":
                return {"skip": "it is not asked"}
            roots = {name: name for name in key[1:] if name in lines}
            return {"roots": roots, "requires": lines, "modules": list(modules)}

    facts = box(python=python(installed, version=version), system=SYSTEM)
    return results_of(make_context(project, job, facts=facts, answers=Answers()), "dependencies")


def test_requirements_that_are_met_pass(project: Project) -> None:
    [result] = run_check(project, MET)
    assert result.status == "ok"


UNMET = {
    "an old one": ({"datasets": "2.10.0"}, "datasets 2.10.0: trl 0.24.0 requires datasets>=3.0.0"),
    "of a library that another one requires": (
        {"tokenizers": "0.20.3"},
        "tokenizers 0.20.3: transformers 4.57.6 requires tokenizers",
    ),
    "a new one": ({"huggingface-hub": "1.0.1"}, "huggingface-hub 1.0.1: transformers"),
    "a pre-release of an older one": ({"datasets": "3.0.0.dev0"}, None),
    "a build of its own": ({"accelerate": "1.10.0+git.x"}, None),
    "no version": ({"accelerate": "main"}, None),
}


@pytest.mark.parametrize(("changes", "evidence"), UNMET.values(), ids=UNMET)
def test_a_version_that_a_package_does_not_accept(
    project: Project, changes: dict[str, str], evidence: str | None
) -> None:
    [result] = run_check(project, {**MET, **changes})
    if evidence is None:
        assert result.status == "ok"
    else:
        assert (result.status, result.evidence[: len(evidence)]) == ("warn", evidence)


def test_each_package_has_a_line_and_a_command_that_suits_all_who_require_it(
    project: Project,
) -> None:
    installed = {**MET, "datasets": "2.10.0", "accelerate": "0.20.0"}
    results = run_check(project, installed, "import accelerate, trl\n")
    assert [r.evidence.partition(" ")[0] for r in results] == ["accelerate", "datasets"]
    assert results[0].hint == f"`{PATH} -m pip install 'accelerate>=0.26.0,>=1.4.0'`"


def test_a_package_that_is_required_and_missing(project: Project) -> None:
    installed = {name: version for name, version in MET.items() if name != "tokenizers"}
    [result] = run_check(project, installed)
    assert result.evidence.startswith("tokenizers is missing: transformers 4.57.6 requires")
    assert "pip install 'tokenizers<=0.23.0,>=0.22.0'" in result.hint


def test_a_module_without_a_distribution_is_not_missing(project: Project) -> None:
    installed = {name: version for name, version in MET.items() if name != "tokenizers"}
    [result] = run_check(project, installed, modules=("tokenizers",))
    assert result.status == "ok"


def test_transformers_that_refuses_its_import_makes_the_start_impossible(project: Project) -> None:
    [result] = run_check(project, {**MET, "numpy": "1.16"}, "import transformers\n")
    assert (result.status, "refuses to be imported" in result.evidence) == ("fail", True)
    assert "dependency_versions_check" in result.source


def test_transformers_that_only_another_package_imports_is_a_warning(project: Project) -> None:
    [result] = run_check(project, {**MET, "numpy": "1.16"})
    assert result.status == "warn"


SILENT = {
    "of what the program does not import": ("import numpy\n", {"datasets": "1.0"}),
    "of a library below those of training": ("import trl\n", {"fsspec": "2026.1.0", "x": "1"}),
    "of an import that may fail": ("try:\n    import trl\nexcept ImportError:\n    pass\n",
                                   {"datasets": "1.0"}),
    "of an extra that nobody uses": ("import trl\n", {"vllm": "0.6.0", "ruff": "0.9"}),
    "of the triton that torch has": ("import deepspeed, triton\n",
                                     {"deepspeed": "0.17.6", "hjson": "3", "triton": "3.4.0"}),
    "of a torch for files alone": ("import safetensors, torch\n",
                                   {"safetensors": "0.8.0", "torch": "2.1.2"}),
    "of an extra for other models": ("import transformers, timm\n", {"timm": "1.0.31"}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "changes"), SILENT.values(), ids=SILENT)
def test_a_conflict_that_is_no_concern_of_the_job(
    project: Project, text: str, changes: dict[str, str]
) -> None:
    requires = {**REQUIRES, "fsspec": ["x<1"]}
    installed = {**MET, **changes}
    if "fsspec" in changes:
        installed["fsspec"] = "2025.3.0"
    results = run_check(project, installed, text, requires=requires)
    assert [r.status for r in results] in ([], ["ok"])


EXTRAS = {
    "the program imports it": ("import trl, vllm\n", JOB),
    "an option needs it": ("import trl\n", JOB + "args: {use_vllm: true}\n"),
}


@pytest.mark.parametrize(("text", "job"), EXTRAS.values(), ids=EXTRAS)
def test_the_version_of_an_extra_counts_where_the_package_is_used(
    project: Project, text: str, job: str
) -> None:
    [result] = run_check(project, {**MET, "vllm": "0.6.0"}, text, job)
    assert result.evidence == (
        "vllm 0.6.0: trl 0.24.0 requires vllm<0.11.1,>=0.10.0 for its extra `vllm`"
    )


def test_an_extra_that_the_project_asks_for_must_be_there(project: Project) -> None:
    project.write("trl[vllm,Peft]==0.24.0\n", "requirements.txt")
    results = run_check(project, MET)
    assert [r.evidence.partition(":")[0] for r in results] == ["peft is missing", "vllm is missing"]


MARKERS = {
    "of this Python": ('datasets<2; python_version >= "3.11"', "warn"),
    "of an older Python": ('datasets<2; python_version < "3.11"', "ok"),
    "of another system": ('datasets<2; sys_platform == "win32"', "ok"),
    "of this machine": ('datasets<2; platform_machine == "x86_64"', "warn"),
    "of two": ('datasets<2; (os_name == "posix" and python_version > "3") or extra == "x"', "warn"),
    "of a platform that nobody knows": ('datasets<2; platform_moon == "full"', "ok"),
    "not to be read": ("datasets <<2", "ok"),
    "arbitrary equality": ("datasets===4.1.0", "ok"),
    "compatible": ("datasets~=4.0", "ok"),
    "not compatible": ("datasets~=4.0.0", "warn"),
    "excluded": ("datasets!=4.1.0", "warn"),
    "a prefix": ("datasets==4.*", "ok"),
    "in brackets": ("datasets (>=3,<4)", "warn"),
    "an address": ("datasets @ https://example.org/x.whl", "ok"),
}


@pytest.mark.parametrize(("line", "status"), MARKERS.values(), ids=MARKERS)
def test_markers_and_specifiers_mean_what_their_specification_says(
    project: Project, line: str, status: str
) -> None:
    results = run_check(project, MET, requires={"trl": [line]})
    assert [r.status for r in results] == [status]


def test_a_local_build_of_torch_meets_the_release_that_is_required(project: Project) -> None:
    requires = {"torchvision": ["torch==2.8.0"]}
    installed = {"torch": "2.8.0+cu128", "torchvision": "0.23.0"}
    [result] = run_check(project, installed, "import torchvision\n", requires=requires)
    assert result.status == "ok"


def test_another_torch_than_the_one_that_is_required_names_the_build(project: Project) -> None:
    requires = {"vllm": ["torch==2.7.0"]}
    installed = {"torch": "2.8.0+cu128", "vllm": "0.9.1"}
    [result] = run_check(project, installed, "import vllm\n", requires=requires)
    assert result.evidence == "torch 2.8.0+cu128: vllm 0.9.1 requires torch==2.7.0"
    assert "torch==2.7.0" in result.hint


def test_another_nccl_than_that_of_torch_is_no_conflict(project: Project) -> None:
    """`nccl-build` itself offers a newer one."""
    requires = {"torch": ["nvidia-nccl-cu12==2.21.5", "nvidia-cublas-cu12==12.4.5.8"]}
    installed = {"torch": "2.6.0", "nvidia-nccl-cu12": "2.26.5", "nvidia-cublas-cu12": "12.4.5.8"}
    [result] = run_check(project, installed, "import torch\n", requires=requires)
    assert result.status == "ok"


def test_requirements_that_no_version_meets_name_the_packages(project: Project) -> None:
    requires = {"trl": ["transformers>=4.56.1"], "peft": ["transformers<4.50"]}
    installed = {"trl": "0.24.0", "peft": "0.10.0", "transformers": "4.51.0"}
    [result] = run_check(project, installed, "import trl, peft\n", requires=requires)
    assert "no version is for all of them" in result.hint
    assert "peft trl --upgrade" in result.hint


def test_what_a_version_requires_that_is_to_be_replaced_is_settled_with_it(
    project: Project,
) -> None:
    installed = {**MET, "transformers": "4.40.2", "tokenizers": "0.19.1", "torch": "2.8.0"}
    requires = {**REQUIRES, "transformers": ["tokenizers<0.19", "torch<2.5"]}
    [result] = run_check(project, installed, requires=requires)
    assert result.evidence == "transformers 4.40.2: trl 0.24.0 requires transformers>=4.56.1"
    results = run_check(project, installed, "import trl, transformers\n", requires=requires)
    assert [(r.evidence.partition(" ")[0], r.status) for r in results] == [
        ("tokenizers", "fail"),
        ("transformers", "warn"),
    ]


def test_of_two_that_refuse_each_other_one_is_named(project: Project) -> None:
    requires = {"trl": ["peft>=2"], "peft": ["trl<0.20"]}
    installed = {"trl": "0.24.0", "peft": "1.0.0"}
    assert len(run_check(project, installed, "import trl, peft\n", requires=requires)) == 1


def test_many_conflicts_are_summed_up(project: Project) -> None:
    names = [f"p{at}" for at in range(12)]
    requires = {"trl": [f"{name}>=2" for name in names]}
    installed = {"trl": "1.0.0", **dict.fromkeys(names, "1")}
    results = run_check(project, installed, requires=requires)
    assert len(results) == dependencies._SHOWN + 1
    assert "4 more requirements not met" in results[-1].evidence


def test_what_another_program_uses_is_not_known(project: Project) -> None:
    job = "launcher: command\ncommand: [bash, x.sh]\nprofile: cpu\n"
    assert run_check(project, {**MET, "datasets": "1"}, job=job) == []
