"""`lint` of job files: with what they extend, and by the kept facts of their hosts."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from support.cli_process import safelaunch

from safelaunch.hostfacts.assemble import VERSION
from safelaunch.hostfacts.saved import ProbeOptions, SavedFacts

if TYPE_CHECKING:
    from pathlib import Path

BASE = "launcher: swift\ncommand: [sft]\nprocesses: 2\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path


def write(project: Path, **files: str) -> None:
    for name, text in files.items():
        (project / f"{name}.yaml").write_text(text, encoding="utf-8")


def lint_findings(project: Path, *words: str) -> list[Any]:
    result = safelaunch(project, "lint", "--json", *words, SAFELAUNCH_HOME=str(project / "home"))
    assert "Traceback" not in result.err
    findings: list[Any] = json.loads(result.out)["findings"]
    return findings


def places(project: Path, *words: str) -> list[tuple[str, str, int]]:
    return [(f["id"], f["file"], f["line"]) for f in lint_findings(project, *words)]


# -- what its program reads ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "places_of_findings"),
    [
        ("t = int(os.environ['NCCL_TIMEOUT'])\n", []),
        ('t = env_int("NCCL_TIMEOUT", 5)\n', []),
        ("os.environ['NCCL_TIMEOUT'] = '5'\n", [("env-never-existed", "job.yaml", 4)]),
        ("# os.environ['NCCL_TIMEOUT']\n", [("env-never-existed", "job.yaml", 4)]),
        ("t = os.getenv('NCCL_TIMEOUT_SECONDS')\n", [("env-never-existed", "job.yaml", 4)]),
        ("from src.settings import t\n", []),
    ],
)
@pytest.mark.parametrize(
    "program_keys", ["script: src/train.py", "module: src.train", "workdir: src\nscript: train.py"]
)
def test_a_variable_that_the_program_reads_itself_is_known(
    program: str, places_of_findings: list[tuple[str, str, int]], program_keys: str, project: Path
) -> None:
    (project / "pyproject.toml").touch()
    (project / "src").mkdir()
    (project / "src" / "__init__.py").touch()
    (project / "src" / "settings.py").write_text("import os\nt = os.getenv('NCCL_TIMEOUT')\n")
    (project / "src" / "train.py").write_text(f"import os\n{program}")
    lines = program_keys.count("\n")
    write(
        project,
        job=f"launcher: torchrun\nprocesses: 2\n{program_keys}\nenv: {{NCCL_TIMEOUT: 5}}\n",
    )
    expected = [(rule, file, line + lines) for rule, file, line in places_of_findings]
    assert places(project, "job.yaml") == expected


# -- what it extends -------------------------------------------------------------------------------


def test_a_problem_of_a_file_that_is_extended_is_shown_there(project: Path) -> None:
    write(
        project, base=f"{BASE}env: {{NCCL_TIMEOUT: 5}}\n", job="extends: base.yaml\nargs: {a: 1}\n"
    )
    assert places(project, "job.yaml") == [("env-never-existed", "base.yaml", 4)]


def test_a_problem_is_shown_once_for_all_that_extend_the_file(project: Path) -> None:
    write(
        project,
        base=f"{BASE}env: {{NCCL_TIMEOUT: 5}}\nproceses: 2\n",
        one="extends: base.yaml\nargs: {a: 1}\n",
        two="extends: one.yaml\nargs: {a: 2}\n",
    )
    once = [("job-file", "base.yaml", 5)]
    assert places(project, "one.yaml", "two.yaml") == once
    assert places(project, "base.yaml", "./two.yaml") == [
        ("env-never-existed", "base.yaml", 4),
        *once,
    ]
    write(project, base=f"{BASE}env: {{NCCL_TIMEOUT: 5}}\n")
    assert places(project, ".") == [("env-never-existed", "base.yaml", 4)]


def test_what_a_job_takes_away_is_no_problem_of_it(project: Path) -> None:
    write(
        project,
        base=f"{BASE}env: {{NCCL_TIMEOUT: 5, NCCL_DEBUG: INFO}}\n",
        job="extends: base.yaml\nenv: {NCCL_TIMEOUT: null}\n",
    )
    assert places(project, "job.yaml") == []


def test_variables_of_both_files_are_judged_together(project: Path) -> None:
    write(
        project,
        base=f"{BASE}env: {{NCCL_P2P_DISABLE: 1}}\n",
        job="extends: base.yaml\nenv: {NCCL_SHM_DISABLE: 1}\n",
    )
    assert places(project, ".") == [("env-together", "job.yaml", 2)]


def test_the_launcher_of_the_whole_job_counts(project: Path) -> None:
    write(project, base=BASE, job="extends: base.yaml\nenv: {NCCL_TIMEOUT: 5}\n")
    (finding,) = lint_findings(project, "job.yaml")
    assert finding["fix"] == "set `--ddp_timeout` (seconds)"


def test_a_part_that_the_other_file_completes_is_right(project: Path) -> None:
    write(
        project,
        base=f"{BASE}assets: {{model: {{path: models/x}}}}\n",
        job="extends: base.yaml\nassets: {model: {to: /data/x}}\nargs: {a: 1}\n",
    )
    assert places(project, "job.yaml") == []


@pytest.mark.parametrize(
    ("extends", "text"), [("gone.yaml", "no such file"), ("job.yaml", "leads back to")]
)
def test_a_chain_that_leads_nowhere_is_found(extends: str, text: str, project: Path) -> None:
    write(project, job=f"extends: {extends}\nargs: {{a: 1}}\nenv: {{NCCL_TIMEOUT: 5}}\n")
    variable, chain = sorted(lint_findings(project, "job.yaml"), key=lambda f: -f["line"])
    assert (chain["id"], chain["line"]) == ("job-file", 1)
    assert text in chain["message"]
    assert variable["id"] == "env-never-existed"


def test_a_comment_in_the_extended_file_counts(project: Path) -> None:
    text = f"{BASE}env:\n  NCCL_TIMEOUT: 5  # safelaunch: ignore[env-never-existed]\n"
    write(project, base=text, job="extends: base.yaml\nargs: {a: 1}\n")
    assert places(project, "job.yaml") == []


def test_a_file_that_is_not_named_is_not_mended(project: Path) -> None:
    base = f"{BASE}env: {{NCCL_BLOCKING_WAIT: 1}}\n"
    write(project, base=base, job="extends: base.yaml\nargs: {a: 1}\n")
    safelaunch(project, "lint", "--fix", "--yes", "job.yaml")
    assert (project / "base.yaml").read_text() == base
    safelaunch(project, "lint", "--fix", "--yes", "base.yaml", "job.yaml")
    assert "TORCH_NCCL_BLOCKING_WAIT" in (project / "base.yaml").read_text()


@pytest.mark.parametrize(
    "text",
    ["extends: base.yaml\nmodel: x\nenv: {a b: 1}\n", "extends: eslint:all\nenv: {a b: 1}\n"],
)
def test_what_extends_a_training_config_is_none_of_ours(text: str, project: Path) -> None:
    write(project, base="model: x\n", config=text)
    assert places(project, ".") == []


# -- what is kept of its hosts ---------------------------------------------------------------------

NAMES = ["NCCL_SHM_DISABLE", "NCCL_DEBUG", "NCCL_OF_TOMORROW"]
JOB = f"{BASE}hosts: [gpu1]\nenv: {{NCCL_DEBUG: INFO, NCCL_IB_HCA: x}}\n"


def know(project: Path, host: str = "gpu1", **facts: Any) -> None:
    values = {"version": VERSION, "python": {"executable": "/opt/x/bin/python", "prefix": "/opt/x"}}
    values["names"] = {"/opt/x/libnccl.so.2": NAMES}
    SavedFacts(str(project / "home")).save(host, ProbeOptions(), {**values, **facts})


def test_names_are_judged_by_the_libraries_of_the_jobs_host(project: Path) -> None:
    write(project, job=JOB)
    assert places(project, "job.yaml") == []
    know(project)
    (finding,) = lint_findings(project, "job.yaml")
    assert (finding["id"], finding["line"]) == ("env-not-there", 5)
    pattern = r"the libraries of gpu1 \(facts from \d+ s ago\) do not contain this name"
    assert re.search(pattern, finding["message"])


def test_a_name_that_only_the_host_knows_is_right(project: Path) -> None:
    write(project, job=f"{BASE}hosts: [gpu1]\nenv: {{NCCL_OF_TOMORROW: 1}}\n")
    assert places(project, "job.yaml") == [("env-unknown", "job.yaml", 5)]
    know(project)
    assert places(project, "job.yaml") == []


def test_versions_of_the_jobs_host_count(project: Path) -> None:
    write(project, job=f"{BASE}hosts: [gpu1]\nenv: {{NCCL_IB_GID_INDEX: 3}}\n")
    know(project, torch={"version": "2.8.0", "nccl": {"version": "2.27.3"}})
    assert [p for p, _, _ in places(project, "job.yaml")] == ["env-machine", "env-not-there"]


@pytest.mark.parametrize(
    ("key", "is_judged"),
    [
        ("python: /opt/x/bin/python", True),
        ("venv: /opt/x", True),
        ("venv: /opt/y", False),
        ("python: /opt/y/bin/python", False),
        ("{conda: x, conda_root: /opt}", True),
        ("{conda: y, conda_root: /opt}", False),
    ],
)
def test_only_the_libraries_of_the_jobs_interpreter_count(
    key: str, is_judged: bool, project: Path
) -> None:
    write(project, job=JOB + key.strip("{}").replace(", ", "\n") + "\n")
    know(project)
    assert bool(places(project, "job.yaml")) is is_judged


def test_a_host_that_is_named_counts_for_all_files(project: Path) -> None:
    write(project, job=JOB)
    (project / "run.sh").write_text("export NCCL_IB_HCA=x\n")
    know(project, "gpu2")
    assert places(project, "--host", "gpu2", "job.yaml", "run.sh") == [
        ("env-not-there", "job.yaml", 5),
        ("env-not-there", "run.sh", 1),
    ]


def test_a_host_of_which_nothing_is_kept_is_not_asked(project: Path) -> None:
    write(project, job=JOB)
    result = safelaunch(
        project, "lint", "--host", "gpu3", ".", SAFELAUNCH_HOME=str(project / "home")
    )
    assert result.code == 2
    assert "no stored facts of `gpu3`" in result.err
    assert "safelaunch facts --host gpu3" in result.err


@pytest.mark.parametrize(
    "facts",
    [
        {"names": {"/x": None}},
        {"names": {"/x": ["NCCL_DEBUG"]}},  # libnccl was not among them: a CPU build of torch
        {"names": [1]},
        {"names": {"/x": [1, {}]}},
        {"names": None, "torch": {"version": 2, "nccl": "x"}},
        {"python": None},
    ],
)
def test_what_is_not_known_for_sure_says_nothing(facts: dict[str, Any], project: Path) -> None:
    write(project, job=JOB)
    know(project, **facts)
    assert places(project, "job.yaml") == []


def test_kept_facts_that_are_no_facts_say_nothing(project: Path) -> None:
    write(project, job=JOB)
    know(project)
    (facts_file,) = (project / "home" / "facts").iterdir()
    for text in ("", "{}", '{"at": "x"}', '{"at": 1, "asked": {}, "facts": []}'):
        facts_file.write_text(text)
        assert places(project, "job.yaml") == [], text
