"""What README and docs say is true: commands run, outputs are printed, every key is described."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from safelaunch.checks.registry import declared
from safelaunch.cli.main import COMMANDS
from safelaunch.config.hosts_file.reader import load_own
from safelaunch.config.schema.files import HOST, JOB, PROFILE

if TYPE_CHECKING:
    from safelaunch.config.schema.keys import Schema

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
JOB_DOC = (ROOT / "docs" / "job-file.md").read_text(encoding="utf-8")
HOSTS_DOC = (ROOT / "docs" / "hosts.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    lines = "".join(blocks("bash")).splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.startswith("safelaunch ")]


def safelaunch(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "safelaunch", *words],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "80", **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "pyproject.toml").touch()
    for script in ("scripts/train.py", "train.py"):
        (tmp_path / script).touch()
    (tmp_path / "train.yaml").write_text(blocks("yaml")[0], encoding="utf-8")
    return tmp_path


def test_readme_shows_the_dry_run_that_its_job_file_gives(project: Path) -> None:
    printed = safelaunch(
        "run", "--dry-run", "--project-root", "/home/me/llm", "train.yaml", cwd=project
    )
    at = 0
    for part in blocks("text")[0].split("  ...\n"):  # what is left out
        found = printed.stdout.find(part, at)
        assert found >= at, part
        at = found + len(part)


def test_readme_stays_under_two_hundred_lines() -> None:
    assert README.count("\n") < 200


@pytest.mark.parametrize("line", [c for c in commands() if " -- " in c])
def test_pasted_lines_of_the_readme_plan(line: str, project: Path) -> None:
    words = shlex.split(line)[1:]
    if words[0] == "run":
        words.insert(1, "--dry-run")
    assert safelaunch(*words, cwd=project).returncode == 0


@pytest.mark.parametrize("line", [c for c in commands() if " -- " not in c])
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
    assert load_own(str(tmp_path)).groups == {"lab": ("gpu1", "gpu2")}


@pytest.mark.parametrize("document", sorted((ROOT / "docs").glob("*.md")), ids=lambda d: d.name)
def test_links_between_the_docs_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for file, anchor in re.findall(r"\]\(([\w./-]*)#?([\w-]*)\)", text):
        there = (document.parent / file if file else document).read_text(encoding="utf-8")
        titles = re.findall(r"^#+ (.*)$", there, re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
        assert not anchor or anchor in anchors, f"{document.name}: {file}#{anchor}"


def test_every_command_of_the_readme_exists() -> None:
    named = {line.split()[1] for line in commands()}
    assert named <= set(COMMANDS)


def test_what_the_readme_adds_to_its_job_file_is_understood(project: Path) -> None:
    job = project / "train.yaml"
    job.write_text("".join(blocks("yaml")), encoding="utf-8")
    planned = safelaunch("run", "--dry-run", "train.yaml", cwd=project)
    assert planned.returncode == 0, planned.stderr


FAILING = {
    "src/__init__.py": "",
    "src/data.py": """
def collate(rows):
    return [row["labels"] for row in rows]
""",
    "train.py": """
import os
import torch
import torch.distributed as dist
from src.data import collate
dist.init_process_group("gloo")
batch = collate([{} if os.environ["RANK"] == "1" else {"labels": 1.0}])
dist.all_reduce(torch.tensor(batch))
""",
    "ppo.yaml": f"""
name: ppo
profile: cpu
launcher: torchrun
processes: 2
script: train.py
python: {sys.executable}
""",
}


@pytest.mark.train
def test_a_failure_looks_as_the_readme_shows_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for name, text in FAILING.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    ended = safelaunch("run", "--follow", "ppo.yaml", cwd=tmp_path, SAFELAUNCH_HOME=str(tmp_path))
    (shown,) = blocks("console")
    assert told(ended.stderr[ended.stderr.index(": failed") :]) == told(shown)


def told(block: str) -> list[str]:
    """Return each label of a failure block with its value, less what differs from run to run."""
    # a path that does not fit goes on in the next line
    block = re.sub(r"(  at {8}\S+)\n {12}(?=/)", r"\1", block)
    lines = [line for line in block.splitlines() if line.startswith("  ") and line[2] != " "]
    varying = r"ppo-\S+|(?<= on )\S+|\S+(?=/src)|:\d+ in \S+|\d+ ms|(?<=then).*"
    return [re.sub(varying, "_", line) for line in lines]


def test_every_check_stands_in_its_document() -> None:
    text = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)`( \u00b7)? \| (.*) \|$", text, re.MULTILINE)
    made = [(one.id, " \u00b7" * one.quick, one.work.__doc__ or "") for one in declared()]
    says = [
        (name, mark, doc.splitlines()[0].removeprefix("Whether ").rstrip("."))
        for name, mark, doc in made
    ]
    assert rows == says
