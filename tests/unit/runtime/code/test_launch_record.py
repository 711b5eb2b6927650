"""What is recorded of the code that a run is launched with, and what of it is stored."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from safelaunch.runtime.code import git, launch_record, manifest
from safelaunch.runtime.code.launch_record import code_record
from safelaunch.runtime.code.manifest import CodeFile
from safelaunch.runtime.code.store import ContentStore

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\n"


def run_git(folder: Path, *words: str) -> str:
    settings = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "gc.auto=0")
    command = ["git", "-C", str(folder), *settings, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def code_files(root: Path) -> list[CodeFile]:
    paths = [p for p in root.rglob("*") if p.is_file() and ".git" not in p.parts]
    return [
        CodeFile(p.relative_to(root).as_posix(), p.stat().st_mode, manifest.digest(p.read_bytes()))
        for p in paths
    ]


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "home")


def test_a_dirty_checkout_is_its_commit_and_a_patch_that_applies(tmp_path: Path, home: str) -> None:
    top, root = tmp_path / "mono", tmp_path / "mono" / "project"
    write(
        root, {"train.py": "a\n", "same.py": "same\n", "gone.py": "x\n", "old name.py": "m\n" * 9}
    )
    run_git(tmp_path, "init", "-q", "-b", "feature/x", str(top))
    run_git(top, "add", ".")
    run_git(top, "commit", "-qm", "1")
    index = (top / ".git" / "index").read_bytes()
    write(root, {"train.py": "b\n", "new ä\n.py": "new\n", "sub/raw.bin": "\0\1", ".env": "K=1"})
    write(top, {"elsewhere.py": "e\n"})
    (root / "gone.py").unlink()
    (root / "old name.py").rename(root / "other.py")
    files = code_files(root)
    record, patch = code_record(str(root), files, home, git.state(str(root)))
    assert record.git is not None
    assert record.git.commit == run_git(top, "rev-parse", "HEAD").strip()
    assert (record.git.branch, record.files) == ("feature/x", 6)
    assert " M project/train.py" in (record.git.changed or ())
    assert record.not_stored == {".env": "may hold secrets"}
    assert (top / ".git" / "index").read_bytes() == index
    # only what no commit has is stored, and the list of all files
    store = ContentStore(home)
    stored = {f.path for f in files if store.has(f.content)}
    assert stored == {"train.py", "new ä\n.py", "sub/raw.bin", "other.py"}
    assert manifest.from_bytes(store.get(record.manifest) or b"") == sorted(
        files, key=lambda f: f.path
    )
    # the patch makes the commit what was launched, but for the secret
    (tmp_path / "code.patch").write_bytes(patch)
    run_git(tmp_path, "clone", "-q", str(top), "again")
    again = tmp_path / "again" / "project"
    run_git(again, "apply", str(tmp_path / "code.patch"))
    assert {*code_files(again)} == {f for f in files if f.path != ".env"}


def test_without_git_all_contents_are_stored_once_for_their_owner_only(
    tmp_path: Path, home: str
) -> None:
    root = tmp_path / "project"
    write(root, {"train.py": "a", "key.txt": KEY, "big.py": "#" * (launch_record.MAX_SIZE + 1)})
    files = [*code_files(root), CodeFile("lost.py", 0o644, "0" * 64)]
    record, patch = code_record(str(root), files, home, git.state(str(root)))
    assert (record.git, patch, record.patch) == (None, b"", False)
    assert record.not_stored == {
        "key.txt": "may hold secrets",
        "big.py": "larger than 1 MB",
        "lost.py": "No such file or directory",
    }
    content = next(f.content for f in files if f.path == "train.py")
    assert ContentStore(home).get(content) == b"a"
    for folder, _, names in os.walk(home):
        assert [n for n in names if stat.S_IMODE(os.stat(Path(folder, n)).st_mode) != 0o600] == []
    before = {p: p.stat().st_mtime_ns for p in Path(home).rglob("*")}
    code_record(str(root), files, home, None)
    assert {p: p.stat().st_mtime_ns for p in Path(home).rglob("*")} == before


def test_a_run_stores_no_more_than_its_limit(
    tmp_path: Path, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_record, "MAX_BYTES", 10)
    write(tmp_path / "project", {"a.py": "a" * 8, "b.py": "b" * 8})
    record, _ = code_record(
        str(tmp_path / "project"), sorted_files(tmp_path / "project"), home, None
    )
    assert record.not_stored == {"b.py": "more than 10 B that no commit has"}


def sorted_files(root: Path) -> list[CodeFile]:
    return sorted(code_files(root), key=lambda f: f.path)


def test_a_home_that_cannot_be_written_is_said_and_not_raised(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    write(tmp_path / "project", {"a.py": "a"})
    root = tmp_path / "project"
    record, _ = code_record(str(root), code_files(root), str(tmp_path / "home"), None)
    assert set(record.not_stored) == {"the list of all files", "a.py"}


def test_a_change_between_the_hash_and_the_copy_is_said(tmp_path: Path, home: str) -> None:
    root = tmp_path / "project"
    write(root, {"a.py": "a", "run.sh": "echo\r\n"})
    files = [CodeFile("run.sh", 0o755, manifest.digest(b"echo\n")), *code_files(root)[:0]]
    files.append(CodeFile("a.py", 0o644, manifest.digest(b"before")))
    record, _ = code_record(str(root), files, home, None)
    assert record.not_stored == {"a.py": "changed during the start"}


def test_the_hash_of_a_manifest_depends_on_path_mode_and_content_alone() -> None:
    files = [CodeFile("a", 0o600, "1"), CodeFile("b", 0o700, "2")]
    same = [CodeFile("b", 0o755, "2"), CodeFile("a", 0o664, "1")]
    other = [CodeFile("a", 0o755, "1"), CodeFile("b", 0o755, "2")]
    assert manifest.to_bytes(files) == manifest.to_bytes(same)
    assert manifest.to_bytes(files) != manifest.to_bytes(other)
    with pytest.raises(ValueError, match="no manifest"):
        manifest.from_bytes(b'[["a", 1, 2]]')


def test_a_damaged_store_has_nothing_that_is_not_whole(home: str) -> None:
    store = ContentStore(home)
    contents = [store.put(data) for data in (b"text", b"more text")]
    store.close()
    [pack, index] = sorted(Path(home, "code").iterdir(), key=lambda path: path.name == "index")
    with index.open("ab") as file:
        file.write(b"0123 torn")  # a writer that was killed
    other = ContentStore(home)
    third = other.put(b"another")
    other.close()
    assert [ContentStore(home).get(c) for c in [*contents, third]] == [
        b"text", b"more text", b"another",
    ]  # fmt: skip
    for data in (b"", b"x", pack.read_bytes()[:-1]):
        pack.write_bytes(data)
        assert ContentStore(home).get(contents[1]) is None
    index.write_bytes(b"\xff" * 9 + f"\n{contents[0]} ../../x 0 9\n{contents[0]} x 9".encode())
    assert ContentStore(home).get(contents[0]) is None


def test_what_a_killed_start_left_is_swept_and_never_read(home: str) -> None:
    folder = Path(home, "code")
    folder.mkdir(parents=True)
    parts = [folder / "old.part", folder / "new.part"]
    for part in parts:
        part.touch()
    os.utime(parts[0], (1, 1))
    store = ContentStore(home)
    store.put(b"text")
    store.close()
    assert [part.exists() for part in parts] == [False, True]


def test_contents_are_kept_alike_whether_compressed_or_not(tmp_path: Path) -> None:
    store = ContentStore(str(tmp_path))
    texts = [os.urandom(1 << 20) + b"a" * 1000, b"b" * 1000]  # what is behind the first is stored
    contents = [store.put(text) for text in texts]
    store.close()
    again = ContentStore(str(tmp_path))
    assert [again.get(content) for content in contents] == texts
