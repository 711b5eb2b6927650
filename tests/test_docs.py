"""What README and docs say is true: commands run, outputs are printed, every key is described."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import cli_process, readme_output, show_json_page

from safelaunch import api
from safelaunch.checks.registry import declared
from safelaunch.cli.automation.tools import TOOLS
from safelaunch.cli.main import COMMANDS
from safelaunch.config.hosts_file.reader import load_default
from safelaunch.config.schema.files import HOST, JOB, PROFILE
from safelaunch.errors import CODES
from safelaunch.remote.runs.catalog import RunCatalog
from safelaunch.runs.access import LocalRun
from safelaunch.runs.events.changes import KINDS

if TYPE_CHECKING:
    import subprocess

    from safelaunch.config.schema.keys import Schema

ROOT = Path(__file__).resolve().parent.parent
README = readme_output.README.read_text(encoding="utf-8")
JOB_DOC = (ROOT / "docs" / "job-file.md").read_text(encoding="utf-8")
HOSTS_DOC = (ROOT / "docs" / "hosts.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    lines = "".join(blocks("bash")).splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.startswith("safelaunch ")]


def safelaunch(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return cli_process.run(words, {**os.environ, "COLUMNS": "80", **env}, cwd, timeout=60)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "pyproject.toml").touch()
    for script in ("scripts/train.py", "train.py", "train.sh"):
        (tmp_path / script).touch()
    (tmp_path / "train.yaml").write_text(job_on_gpus(), encoding="utf-8")
    return tmp_path


def job_on_gpus() -> str:
    (job,) = (block for block in blocks("yaml") if block.startswith("name: "))
    return job


def test_readme_shows_the_dry_run_that_its_job_file_gives() -> None:
    shown = readme_output.text("dry-run")
    assert readme_output.fresh("dry-run") == shown, "scripts/readme writes the README anew"


@pytest.mark.train
@pytest.mark.parametrize("name", ["first-run", "failure"])
def test_readme_shows_what_runs_really_print(name: str) -> None:
    shown = readme_output.comparable(readme_output.text(name))
    fresh = readme_output.comparable(readme_output.fresh(name))
    assert fresh == shown, "scripts/readme writes the README anew"


def test_init_prints_the_first_job_file_of_the_readme(project: Path) -> None:
    words = "init -- torchrun --nproc_per_node 2 train.py"
    assert f"`safelaunch {words}`" in README
    assert safelaunch(*words.split(), cwd=project).stdout == blocks("yaml")[0]


def test_readme_stays_under_two_hundred_lines() -> None:
    assert README.count("\n") < 200


LINES = [c for c in commands() if c.startswith("safelaunch run ") and ".yaml" not in c]


@pytest.mark.parametrize("line", LINES)
def test_pasted_lines_of_the_readme_plan(line: str, project: Path) -> None:
    words = shlex.split(line)[1:]
    words.insert(1, "--dry-run")
    (project / "train.sh").touch()
    assert safelaunch(*words, cwd=project).returncode == 0


@pytest.mark.parametrize("line", [c for c in commands() if c not in LINES])
def test_readme_commands_take_the_options_that_it_names(line: str, project: Path) -> None:
    words = shlex.split(line)[1:]
    helped = safelaunch(words[0], "--help", cwd=project)
    options = [word for word in words if word.startswith("-")]
    assert words[0] in COMMANDS
    assert all(option in helped.stdout for option in options)


@pytest.mark.parametrize("schema", [JOB, PROFILE, HOST], ids=lambda s: s.name)
def test_every_key_of_a_file_is_described(schema: Schema) -> None:
    described = HOSTS_DOC if schema is HOST else JOB_DOC
    missing = [key.name for key in schema.keys if key.name not in described]
    assert missing == []


def test_the_hosts_file_of_the_docs_is_one(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", HOSTS_DOC, re.DOTALL)
    (tmp_path / "hosts.yaml").write_text(example, encoding="utf-8")
    assert load_default(str(tmp_path)).groups == {"lab": ("gpu1", "gpu2")}


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("document", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_the_docs_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for file, anchor in re.findall(r"\]\(([\w./-]*)#?([\w-]*)\)", text):
        path = document.parent / file if file else document
        assert path.exists(), f"{document.name}: {file}"
        content = path.read_text(encoding="utf-8") if anchor else ""
        titles = re.findall(r"^#+ (.*)$", content, re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
        assert not anchor or anchor in anchors, f"{document.name}: {file}#{anchor}"


def test_every_command_of_the_readme_exists() -> None:
    named = {line.split()[1] for line in commands()}
    assert named <= set(COMMANDS)


def test_what_the_readme_adds_to_its_job_file_is_understood(project: Path) -> None:
    job = project / "train.yaml"
    added = blocks("yaml")[-1]
    job.write_text(job_on_gpus() + added, encoding="utf-8")
    planned = safelaunch("run", "--dry-run", "train.yaml", cwd=project)
    assert planned.returncode == 0, planned.stderr


def test_every_check_stands_in_its_document() -> None:
    text = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)`( \u00b7)? \| (.*) \|$", text, re.MULTILINE)
    descriptions = [
        (check.id, " \u00b7" * check.quick, check.function.__doc__ or "") for check in declared()
    ]
    says = [
        (name, mark, doc.splitlines()[0].removeprefix("Whether ").rstrip("."))
        for name, mark, doc in descriptions
    ]
    assert rows == says


DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))


def test_every_decision_is_listed() -> None:
    listed = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\d\S*)\)", listed) == [page.name for page in DECISIONS]


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_says_what_it_costs_and_when_to_look_again(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert {"Context", "Decision", "Cost", "When to look again"} <= set(titles)
    assert text.startswith(f"# {page.name[:3]}: ")


def test_what_the_page_on_python_names_exists() -> None:
    text = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
    functions = set(re.findall(r"\bapi\.([A-Za-z]\w*)", text))
    methods = set(re.findall(r"`(\w+)\(\w*\)`", text)) - functions
    assert functions == set(api.__all__)
    assert {"status", "wait", "files", "find_live", "statuses"} <= methods
    available = {*dir(LocalRun), *dir(RunCatalog), *api.__all__}
    assert methods | functions <= available


def test_the_reference_of_show_json_is_current() -> None:
    written = show_json_page.PAGE.read_text(encoding="utf-8")
    assert written == show_json_page.page(), "scripts/show-json writes it"


def test_the_page_for_programs_describes_every_event() -> None:
    text = (ROOT / "docs" / "automation.md").read_text(encoding="utf-8")
    section = text.split("\n## ")[1]
    assert dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE)) == KINDS


def test_the_page_for_programs_describes_every_code_of_an_error() -> None:
    text = (ROOT / "docs" / "automation.md").read_text(encoding="utf-8")
    section = text.split("\n## Errors")[1]
    assert dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", section, re.MULTILINE)) == CODES


def test_the_page_for_programs_names_every_tool_of_mcp() -> None:
    text = (ROOT / "docs" / "automation.md").read_text(encoding="utf-8")
    section = text.split("\n## Tools for")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (no|yes)[^|]*\|$", section, re.MULTILINE))
    assert rows == {tool.name: "no" if tool.is_read_only else "yes" for tool in TOOLS}
