from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support import REPOSITORY
from support.cli_process import safelaunch
from support.workspace import DEADLINE

if TYPE_CHECKING:
    from pathlib import Path

JOB = "launcher: torchrun\nscript: train.py\nprocesses: 2\n"


def lint_report(folder: Path, *words: str) -> Any:
    return json.loads(safelaunch(folder, "lint", "--json", *words).out)


def ids(folder: Path, *words: str) -> list[str]:
    return [f["id"] for f in lint_report(folder, *words)["findings"]]


def test_clean_files_are_exit_code_0(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    result = safelaunch(tmp_path, "lint", "job.yaml")
    assert (result.code, result.out, result.err) == (0, "", "no findings in 1 file\n")


def test_findings_are_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "acc.yaml").write_text("tpu_env: []\ndowncast_bf16: 1e-3\n")
    result = safelaunch(tmp_path, "lint", ".")
    assert result.code == 1
    assert result.out.splitlines()[:2] == ["acc.yaml", "  2:16 error yaml-type"]
    assert "safelaunch lint --fix ." in result.err


def test_notes_alone_are_exit_code_0(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("export TRANSFORMERS_OFFLINE=1\n")
    result = safelaunch(tmp_path, "lint", "a.sh")
    assert result.code == 0
    assert "note env-renamed" in result.out


@pytest.mark.parametrize(
    ("line", "rules"),
    [
        ("torchrun --nproc_per_node 2 src/train.py", []),
        ("cd src && python train.py", []),
        ("python -m src.train --x", []),
        ("python src/other.py", ["env-unknown"]),
    ],
)
def test_a_variable_that_a_program_of_a_script_reads_itself_is_known(
    line: str, rules: list[str], tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("import os\nx = os.environ.get('NCCL_OWN_X')\n")
    (tmp_path / "src" / "other.py").write_text("x = 'NCCL_OWN_X_Y'\n")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "a.sh").write_text(f"export NCCL_OWN_X=1\n{line}\n")
    assert ids(tmp_path, "scripts/a.sh") == rules


@pytest.mark.parametrize(
    "words", [[], ["missing.sh"], ["--yes", "."], ["--fix", "--json", "."], ["-x"]]
)
def test_a_wrong_call_is_exit_code_2(tmp_path: Path, words: list[str]) -> None:
    result = safelaunch(tmp_path, "lint", *words)
    assert result.code == 2
    assert "Traceback" not in result.err


def test_findings_have_the_promised_keys(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("lr: 1e-3\n")
    printed = lint_report(tmp_path, "train.yaml")
    assert printed["version"] == 1
    (finding,) = printed["findings"]
    assert finding == {
        "file": "train.yaml",
        "line": 1,
        "column": 5,
        "id": "yaml-type",
        "message": "`1e-3`: PyYAML reads text, YAML 1.2 loaders the number 0.001",
        "fix": "write 1.0e-3",
        "severity": "note",
        "fixable": True,
    }


@pytest.mark.parametrize(
    ("name", "text", "rule", "line"),
    [
        ("job.yaml", f"{JOB}proceses: 2\n", "job-file", 4),
        ("job.yaml", f"{JOB}processes: 3\n", "job-file", 4),
        ("job.yaml", f"{JOB}args:\n\ta: 1\n", "job-file", 5),
        ("p.yaml", "accelerator: cuda\nenv: {A: {valu: 1}}\n", "profile-file", 2),
        ("h.yaml", "hosts:\n  a: {adress: x}\n", "hosts-file", 2),
        ("h.yaml", "hosts:\n  a: {address: x, password: y}\n", "hosts-file", 2),
    ],
)
def test_our_own_files_are_read_by_their_own_reader(
    tmp_path: Path, name: str, text: str, rule: str, line: int
) -> None:
    (tmp_path / name).write_text(text)
    assert [(f["id"], f["line"]) for f in lint_report(tmp_path, name)["findings"]] == [(rule, line)]


def test_a_folder_is_walked_without_what_is_ignored(tmp_path: Path) -> None:
    wrong = "lr: 1e-3\n"
    for name in ("a", "node_modules", ".hidden", "env", "data", "out", "sub/data"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "x.yaml").write_text(wrong)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / ".gitignore").write_text("/out/\n")
    (tmp_path / ".safelaunchlintignore").write_text("/data/\n*.gen.yaml\n")
    (tmp_path / "b.gen.yaml").write_text(wrong)
    files = [f["file"] for f in lint_report(tmp_path, ".")["findings"]]
    assert files == ["a/x.yaml", "sub/data/x.yaml"]


def test_a_named_file_that_is_ignored_is_said(tmp_path: Path) -> None:
    (tmp_path / ".safelaunchlintignore").write_text("data/\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.yaml").write_text("lr: 1e-3\n")
    (tmp_path / "notes.txt").touch()
    result = safelaunch(tmp_path, "lint", "data/x.yaml", "notes.txt")
    assert result.code == 0
    assert "data/x.yaml: skipped, excluded by .safelaunchlintignore" in result.err
    assert "notes.txt: skipped, lint has no rules" in result.err


def test_lines_fit_eighty_columns(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("export NCCL_TIMEOUT=1\npython t.py | tee log\n")
    result = safelaunch(tmp_path, "lint", "a.sh", COLUMNS="80")
    assert max(map(len, result.out.splitlines())) <= 80


def test_what_a_terminal_would_obey_is_not_printed(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text('"\\e[2J\\ud800": 1\n"\\e[2J\\ud800": 2\n')
    (tmp_path / "b.sh").write_bytes(b"export NCCL_IB_DISABLE='\x1b[2J\xff'\r\n")
    result = safelaunch(tmp_path, "lint", "a.yaml", "b.sh")
    assert result.code == 1
    assert "\x1b" not in result.out
    assert ids(tmp_path, "a.yaml", "b.sh") != []


BEFORE = b"\xef\xbb\xbf#!/bin/bash\r\nexport NCCL_BLOCKING_WAIT=1\r\n"
AFTER = b"#!/bin/bash\nexport TORCH_NCCL_BLOCKING_WAIT=1\n"


def test_fix_shows_the_difference_and_writes_nothing_unasked(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_bytes(BEFORE)
    result = safelaunch(tmp_path, "lint", "--fix", "a.sh", then="</dev/null")
    assert result.code == 1
    assert "-<BOM>#!/bin/bash^M\n" in result.out
    assert "+export TORCH_NCCL_BLOCKING_WAIT=1\n" in result.out
    assert "add `--yes`" in result.err
    assert (tmp_path / "a.sh").read_bytes() == BEFORE


def test_the_difference_hides_secrets(tmp_path: Path) -> None:
    token = "hf_" + "a1B2c3D4" * 4
    (tmp_path / "a.sh").write_bytes(f"#!/bin/bash\r\nexport HF_TOKEN={token}\r\n".encode())
    result = safelaunch(tmp_path, "lint", "--fix", "--yes", "a.sh")
    assert token not in result.out + result.err
    assert "-(a line with a secret)^M\n" in result.out
    assert token.encode() in (tmp_path / "a.sh").read_bytes()


def test_fix_with_yes_writes_and_keeps_the_mode(tmp_path: Path) -> None:
    script = tmp_path / "a.sh"
    script.write_bytes(BEFORE)
    script.chmod(0o750)
    (tmp_path / "train.yaml").write_bytes(b"lr: 1e-3\r\nname: x\r\n")
    result = safelaunch(tmp_path, "lint", "--fix", "--yes", ".")
    assert (result.code, script.read_bytes()) == (0, AFTER)
    assert script.stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "train.yaml").read_bytes() == b"lr: 1.0e-3\r\nname: x\r\n"
    assert sorted(os.listdir(tmp_path)) == ["a.sh", "train.yaml"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("answer", "text"), [(b"n\n", BEFORE), (b"y\n", AFTER)])
def test_fix_asks_on_a_terminal(tmp_path: Path, answer: bytes, text: bytes) -> None:
    (tmp_path / "a.sh").write_bytes(BEFORE)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "safelaunch", "lint", "--fix", "a.sh"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=theirs, stdout=theirs, stderr=theirs,
    ) as child:  # fmt: skip
        os.close(theirs)
        output, deadline = b"", time.monotonic() + 30
        while b"write 1 file?" not in output and time.monotonic() < deadline:
            if select.select([ours], [], [], 1)[0]:
                output += os.read(ours, 1 << 12)
        os.write(ours, answer)
        child.wait(DEADLINE)
    os.close(ours)
    assert (tmp_path / "a.sh").read_bytes() == text


def test_this_repository_is_clean() -> None:
    result = safelaunch(REPOSITORY, "lint", ".")
    assert (result.code, result.out) == (0, "")


def test_the_hooks_name_a_command_that_exists_and_files_that_have_rules(tmp_path: Path) -> None:
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    for hook in hooks:
        words = hook["entry"].split()
        (tmp_path / "requirements.txt").write_text("numpy\n")
        assert words[0] == "safelaunch"
        assert safelaunch(tmp_path, *words[1:], "requirements.txt").code == 0


def test_lint_starts_without_what_it_does_not_need(tmp_path: Path) -> None:
    shutil.copy(REPOSITORY / "scripts" / "bench", tmp_path / "bench.sh")
    code = (
        "import sys; sys.argv = ['safelaunch', 'lint', 'bench.sh']\n"
        "import safelaunch.cli.main\ntry: safelaunch.cli.main.main()\nexcept SystemExit: pass\n"
        "print(' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    loaded = set(done.stdout.split())
    assert not loaded & {"torch", "paramiko", "pathspec", "json", "difflib", "ruamel", "subprocess"}
