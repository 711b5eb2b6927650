"""The copy of the runtime that run directories share."""

from __future__ import annotations

import marshal
import os
import py_compile
import shutil
from typing import TYPE_CHECKING

import pytest
from support.workspace import wait_for

from safelaunch import runtime
from safelaunch.runtime.start import runtime_copy

if TYPE_CHECKING:
    from pathlib import Path

FILES = {"runtime/a.py": b"A = 1\n", "runtime/b/c.json": b"{}"}


@pytest.fixture
def copy(tmp_path: Path) -> str:
    """Return a copy of two small files, in its place."""
    place = runtime_copy.place_of(str(tmp_path), runtime_copy.digest(FILES))
    runtime_copy.make(place, FILES)
    return place


def tree(folder: str) -> list[str]:
    return [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names]


def test_a_copy_holds_the_files_and_their_bytecode(copy: str) -> None:
    assert runtime_copy.is_whole(copy)
    assert [name for name in runtime_copy.names_in(copy) if "pyc" not in name] == list(FILES)
    assert sum(name.endswith(".pyc") for name in runtime_copy.names_in(copy)) == 1
    assert {os.stat(path).st_mode & 0o777 for path in tree(copy)} == {0o400}


@pytest.mark.parametrize("name", ["runtime/a.py", "runtime/b/c.json", "sizes"])
@pytest.mark.parametrize("is_cut", [True, False], ids=["cut", "missing"])
def test_a_damaged_copy_is_not_whole_and_is_made_again(copy: str, name: str, is_cut: bool) -> None:
    path = os.path.join(copy, name)
    os.chmod(path, 0o600)
    if is_cut:
        os.truncate(path, os.stat(path).st_size - 1)
    else:
        os.unlink(path)
    assert not runtime_copy.is_whole(copy)
    runtime_copy.make(copy, FILES)
    assert runtime_copy.is_whole(copy)
    assert os.listdir(os.path.dirname(copy)) == [os.path.basename(copy)]
    assert not os.path.exists(os.path.join(copy, "damaged"))


def test_of_two_starts_at_once_the_first_copy_stays(copy: str) -> None:
    before = os.stat(copy).st_ino
    runtime_copy.make(copy, FILES)
    assert os.stat(copy).st_ino == before
    assert os.listdir(os.path.dirname(copy)) == [os.path.basename(copy)]


def test_the_version_of_files_is_that_of_an_earlier_start_while_they_stay_as_they_were(
    tmp_path: Path,
) -> None:
    paths, record = runtime.files(), tmp_path / runtime_copy.RECORD
    version = runtime_copy.digest(runtime_copy.contents())
    # files that have just been written may still change unseen
    wait_for(
        lambda: runtime_copy.version(str(tmp_path), paths) == version and record.exists(),
        "the record of the version",
    )
    record.write_text(record.read_text().replace(version, "of-record"))
    assert runtime_copy.version(str(tmp_path), paths) == "of-record"
    other = tmp_path / "other.py"
    other.write_text("")
    changed = {**paths, next(iter(paths)): str(other)}
    assert runtime_copy.version(str(tmp_path), changed) not in ("of-record", version)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": 1}'])
def test_a_record_that_cannot_be_used_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / runtime_copy.RECORD).write_text(text)
    version = runtime_copy.digest(runtime_copy.contents())
    assert runtime_copy.version(str(tmp_path), runtime.files()) == version


def test_a_file_that_has_just_been_written_is_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    runtime_copy.version(str(tmp_path), {"a.py": str(tmp_path / "a.py")})
    assert not (tmp_path / runtime_copy.RECORD).exists()


def test_runs_share_the_files_of_one_copy_and_outlive_it(tmp_path: Path) -> None:
    runs = [tmp_path / "one", tmp_path / "two"]
    for run in runs:
        run.mkdir()
        runtime_copy.put_into(str(run), str(tmp_path))
    (place,) = (tmp_path / "runtime").iterdir()
    own = [path for run in runs for path in run.rglob("*") if path.is_file()]
    assert sum(path.stat().st_blocks for path in own if path.stat().st_nlink == 1) == 0
    assert not [path for path in own if "/agent/" in str(path)]
    shutil.rmtree(place)
    assert runtime.files(without=runtime.AGENT_ONLY).keys() <= {
        str(path.relative_to(runs[0])) for path in runs[0].rglob("*")
    }


def test_without_links_a_run_gets_files_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str) -> None:
        raise PermissionError(1, "Operation not permitted", source, None, target)

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "run").mkdir()
    runtime_copy.put_into(str(tmp_path / "run"), str(tmp_path))
    names = {str(p.relative_to(tmp_path / "run")) for p in (tmp_path / "run").rglob("*.*")}
    assert names == runtime.files(without=runtime.AGENT_ONLY).keys()


def test_copies_of_other_versions_are_swept_unless_an_agent_runs_from_them(tmp_path: Path) -> None:
    home, month = str(tmp_path), runtime_copy.AGE
    versions = (runtime_copy.digest(runtime_copy.contents()), "b", "c", "d")
    own, used, old, new = [runtime_copy.place_of(home, version) for version in versions]
    for place in (own, used, old, new):
        runtime_copy.make(place, FILES)
    earlier = [tmp_path / "agent" / "old", tmp_path / "agent" / "new", tmp_path / "runtime/new-1"]
    for path in earlier:
        path.mkdir(parents=True)
    os.utime(earlier[0], (0, 0))
    before = len(runtime_copy.locks)
    runtime_copy.hold(used)
    for place in (own, used, old):
        os.utime(os.path.join(place, runtime_copy.SIZES), (0, 0))
    assert runtime_copy.unused(home, month) == [old, str(earlier[0])]
    runtime_copy.sweep(home, month)
    assert runtime_copy.unused(home, 0.0) == [new]
    os.close(runtime_copy.locks.pop())
    assert len(runtime_copy.locks) == before
    assert runtime_copy.unused(home, month) == [used]
    assert [path.exists() for path in earlier] == [False, True, True]


@pytest.mark.parametrize("edited_at", [None, 1])
def test_bytecode_of_an_installed_module_is_taken_if_it_is_of_that_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edited_at: int | None
) -> None:
    module = tmp_path / "a.py"
    module.write_bytes(b"A = 1\n")
    py_compile.compile(str(module), doraise=True)
    if edited_at is not None:
        module.write_bytes(b"A = 2\n")
        os.utime(module, (edited_at, edited_at))
    monkeypatch.setattr(runtime, "files", lambda: {"runtime/a.py": str(module)})
    place = runtime_copy.place_of(str(tmp_path), "version")
    runtime_copy.make(place, {"runtime/a.py": module.read_bytes()})
    (cached,) = (path for path in tree(place) if path.endswith(".pyc"))
    with open(cached, "rb") as file:
        code = marshal.loads(file.read()[16:])  # noqa: S302 - ours
    assert code.co_consts[0] == (1 if edited_at is None else 2)
    assert code.co_filename == (str(module) if edited_at is None else "runtime/a.py")
