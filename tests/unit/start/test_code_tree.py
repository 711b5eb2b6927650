"""Giving back the code that a run was launched with."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from safelaunch.errors import ConfigError, RunError
from safelaunch.runtime.code import git, manifest
from safelaunch.runtime.code.launch_record import code_record
from safelaunch.runtime.code.manifest import LINK, CodeFile
from safelaunch.runtime.code.store import ContentStore
from safelaunch.runtime.records import CodeRecord
from safelaunch.start.code.code_tree import RunCode, missing_text


def run_git(folder: Path, *words: str) -> str:
    settings = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "gc.auto=0")
    command = ["git", "-C", str(folder), *settings, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def scan(root: Path) -> list[CodeFile]:
    files = []
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if ".git" in path.parts:
            continue
        if path.is_symlink():
            files.append(CodeFile(name, LINK, str(path.readlink())))
        elif path.is_file():
            content = manifest.digest(path.read_bytes())
            files.append(CodeFile(name, path.stat().st_mode, content))
    return files


def stored(home: Path, data: bytes) -> str:
    store = ContentStore(str(home))
    content = store.put(data)
    store.close()
    return content


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "mono" / "project"
    (root / "src").mkdir(parents=True)
    for name in ("train.py", "same file.py", "src/data.py", "crlf.py"):
        (root / name).write_text(f"# {name}\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "big.bin").write_bytes(b"x" * (3 << 20))
    (root / "current").symlink_to("train.py")
    (root.parent / ".gitattributes").write_text("crlf.py eol=crlf\n")
    run_git(tmp_path, "init", "-q", str(root.parent))
    run_git(root, "add", ".")
    run_git(root, "commit", "-qm", "1")
    (root / "crlf.py").write_bytes(b"# crlf.py\r\n")  # as git checks it out
    (root / "train.py").write_text("# edited\n")
    (root / "new.py").write_text("# new\n")
    return root


def launched(project: Path, home: Path) -> tuple[RunCode, list[CodeFile]]:
    files = scan(project)
    record, _ = code_record(str(project), files, str(home), git.state(str(project)))
    return RunCode("ppo-1", record, str(home)), files


def test_the_tree_comes_back_after_commits_edits_and_removals(
    project: Path, tmp_path: Path
) -> None:
    code, files = launched(project, tmp_path / "home")
    run_git(project, "add", ".")
    run_git(project, "commit", "-qm", "2")
    shutil.rmtree(project / "src")
    for path in project.iterdir():
        path.unlink()
    (project / "train.py").write_text("# again\n")
    os.mkfifo(project / "new.py")
    assert code.restore(str(tmp_path / "tree")) == {}
    assert scan(tmp_path / "tree") == files


def test_what_is_nowhere_is_named_and_the_rest_is_there(project: Path, tmp_path: Path) -> None:
    (project / ".env").write_text("TOKEN=1")
    (project / "huge.bin").write_bytes(b"y" * (2 << 20))
    code, files = launched(project, tmp_path / "home")
    (project / ".env").unlink()
    (project / "huge.bin").unlink()
    (project / "src" / "data.py").write_text("edited")
    shutil.rmtree(project.parent / ".git")
    missing = code.restore(str(tmp_path / "tree"))
    reasons = {".env": "may hold secrets", "huge.bin": "larger than 1 MB",
               "src/data.py": "git lacks its commit"}  # fmt: skip
    assert missing == reasons
    assert scan(tmp_path / "tree") == [file for file in files if file.path not in reasons]
    assert missing_text(missing, 9) == (
        "3 of 9 files cannot be given back: .env (may hold secrets), huge.bin (larger than 1 MB), "
        "src/data.py (git lacks its commit)"
    )


def test_the_host_is_asked_for_what_is_missing_here_and_not_trusted(
    project: Path, tmp_path: Path
) -> None:
    code, files = launched(project, tmp_path / "home")
    shutil.rmtree(tmp_path / "home" / "code", ignore_errors=True)
    text = manifest.to_bytes(files)
    code = RunCode(code.run_id, code.record, str(tmp_path / "home"))
    stored(tmp_path / "home", text)
    (project / "new.py").unlink()
    (project / "train.py").unlink()
    requests = []

    def fetch(paths: list[str], folder: str) -> None:
        requests.append(paths)
        Path(folder, "new.py").write_text("# new\n")
        Path(folder, "train.py").write_text("# of another sync\n")

    assert set(code.restore(str(tmp_path / "tree"), fetch)) == {"train.py"}
    assert requests == [["new.py", "train.py"]]
    assert (tmp_path / "tree" / "new.py").read_text() == "# new\n"


def test_a_folder_with_files_is_left_alone(project: Path, tmp_path: Path) -> None:
    code, _ = launched(project, tmp_path / "home")
    with pytest.raises(ConfigError, match="no empty folder"):
        code.restore(str(project))


@pytest.mark.parametrize("text", [None, b"{1}", b"[1, 2, 3]", b"x"])
def test_a_list_that_is_gone_or_damaged_is_an_error(tmp_path: Path, text: bytes | None) -> None:
    content = "0" * 64 if text is None else stored(tmp_path, text)
    with pytest.raises(RunError, match=r"not on this machine|damaged"):
        RunCode("ppo-1", CodeRecord(manifest=content), str(tmp_path)).restore(str(tmp_path / "t"))


def test_no_path_of_a_list_leaves_the_folder(tmp_path: Path) -> None:
    paths = ("../a", "/a", "b//c", "d")
    files = [CodeFile(path, 0o644, stored(tmp_path, b"x")) for path in paths]
    record = CodeRecord(manifest=stored(tmp_path, manifest.to_bytes(files)))
    missing = RunCode("ppo-1", record, str(tmp_path)).restore(str(tmp_path / "tree"))
    assert sorted(missing) == ["../a", "/a", "b//c"]
    assert scan(tmp_path / "tree") == files[3:]
