"""Trees of runs on the host: what is copied, linked and moved, and when one may be removed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.runtime import processes
from safelaunch.runtime.records import Process, RecoveryPolicy, RunRecord, Status
from safelaunch.runtime.transfer import living_runs, run_trees, tree_links
from safelaunch.runtime.transfer.session import Session, place_suffix

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.runtime.agent.wire import Link

DEAD = Process(**processes.machine(), pid=1 << 30, start=1)
NO_LINK: Link = None  # type: ignore[assignment]


class Host:
    """The folders of a host: safelaunch's, and a project's place."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.place = root / "proj"

    def sync(self, *paths: str, folders: Iterable[str] = (), text: str = "synced") -> None:
        session = Session(str(self.place), owner="me")
        session.root_folder()
        session.own()
        for folder in folders:
            session.folder(folder, 0o755, force=False)
        for path in paths:
            data = memoryview(text.encode())
            session.file(path, [path, 0o644, "", len(data)], data, force=False)
        session.manifest.flush()
        session.close()

    def tree(self, run: str = "r1") -> Path:
        session = Session(str(self.place), owner="me")
        try:
            path, self.shared = run_trees.make(session, run)
        finally:
            session.close()
        return Path(os.fsdecode(path))

    def write(self, path: str, text: str = "made") -> None:
        (self.place / path).parent.mkdir(parents=True, exist_ok=True)
        (self.place / path).write_text(text)

    def link(self, tree: Path) -> None:
        tree_links.link_unsynced(os.fsencode(tree), str(self.home))

    def settle(self, tree: Path) -> list[str]:
        return tree_links.settle(os.fsencode(tree), str(self.home))

    def run(self, run_id: str, cwd: Path, state: str, *, alive: bool = False, **keys: Any) -> None:
        node_dir = self.home / "runs" / run_id / "node-0"
        node_dir.mkdir(parents=True)
        RunRecord(id=run_id, cwd=str(cwd), **keys).write(str(node_dir))
        supervisor = processes.identity(os.getpid()) if alive else DEAD
        Status(id=run_id, state=state, supervisor=supervisor).write(str(node_dir))

    def clean(self, **words: bool) -> list[tuple[str, str]]:
        rows = run_trees.clean(dict(words), NO_LINK)["trees"]
        return [(row["run"], row["kept"]) for row in rows]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("SAFELAUNCH_HOME", str(tmp_path / "home"))
    return Host(tmp_path)


def users(folder: Path, but: str = "") -> list[str]:
    return living_runs.in_folder(os.fsencode(folder), but)


def test_a_tree_has_what_was_synced_and_no_edit_of_either_reaches_the_other(host: Host) -> None:
    host.sync("a.py", "pkg/b.py", folders=["pkg"])
    (host.place / "pkg/link").symlink_to("b.py")
    tree = host.tree()
    assert sorted(os.listdir(tree)) == ["a.py", "pkg"]
    with (tree / "a.py").open("a") as file:
        file.write(" and edited")
    with (host.place / "pkg/b.py").open("a") as file:
        file.write(" and edited")
    assert (host.place / "a.py").read_text() == (tree / "pkg/b.py").read_text() == "synced"
    assert host.shared == []


def test_a_large_file_is_one_file_where_the_disk_cannot_copy_it_lazily(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_trees, "LINK_FROM", 3)
    monkeypatch.setattr(run_trees, "_FICLONE", 0)
    host.sync("big", text="large")
    host.sync("a", text="s")
    tree = host.tree()
    assert host.shared == ["big"]
    assert (tree / "big").samefile(host.place / "big")
    assert not (tree / "a").samefile(host.place / "a")
    session = Session(str(host.place))
    assert [row[5] for row in session.rows()] == ["", ""]  # the record of the place still holds
    session.close()
    (host.place / "big").unlink()
    assert host.settle(tree) == []  # the tree's is the same as ever


def test_what_was_changed_in_the_place_is_not_copied_as_if_it_were_synced(host: Host) -> None:
    host.sync("a", "b")
    host.write("a", "by hand")
    assert os.listdir(host.tree()) == ["b"]


def test_what_no_sync_put_there_is_linked_by_its_top_names(host: Host) -> None:
    host.sync("pkg/a.py", "gone.py", folders=["pkg"])
    for path in ("data/x/y", "pkg/cache/z", "pkg/__pycache__/a.pyc", ".safelaunch-1.part"):
        host.write(path)
    tree = host.tree()
    (tree / "gone.py").unlink()  # as by `--delete`
    host.link(tree)
    links = {str(p.relative_to(tree)): os.readlink(p) for p in tree.rglob("*") if p.is_symlink()}
    assert links == {name: str(host.place / name) for name in ("data", "pkg/cache")}
    assert not (tree / "gone.py").exists()


def test_output_folders_are_made_in_the_place(host: Host) -> None:
    host.sync("pkg/a.py", folders=["pkg"])
    tree = host.tree()
    paths = ["out/run1/ck", "pkg/out", "pkg/a.py/x", "out/run2"]
    tree_links.make_outputs(os.fsencode(tree), str(host.home), paths)
    (tree / "out/run1").mkdir()
    (tree / "pkg/out/model").write_text("m")
    assert (host.place / "out/run1").is_dir()
    assert (host.place / "pkg/out/model").read_text() == "m"


def test_what_a_run_made_moves_into_the_place_and_stays_reachable(host: Host) -> None:
    host.sync("pkg/a.py", "b.py", folders=["pkg"])
    tree = host.tree()
    host.write("both/old")
    host.write("metrics.json", "of the other run")
    for name in ("new/deep/x", "pkg/y", "both/old", "both/fresh", "metrics.json", "b.py"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("of this run")
    (tree / "latest").symlink_to("new")
    (tree / "pkg/__pycache__").mkdir()
    expected = ["b.py", "both/old", "metrics.json"]
    assert sorted(host.settle(tree)) == expected
    assert sorted(host.settle(tree)) == expected
    for name in ("new/deep/x", "pkg/y", "both/fresh", "latest/deep/x"):
        assert (host.place / name).read_text() == (tree / name).read_text() == "of this run"
    assert (host.place / "metrics.json").read_text() == "of the other run"
    assert not (host.place / "pkg/__pycache__").exists()


def test_a_folder_is_used_by_runs_that_live_in_it_or_are_about_to_start(host: Host) -> None:
    host.sync("a")
    host.run("lives", host.place / "sub", "running", alive=True)
    host.run("below-pythonpath", Path("/"), "running", alive=True, roots=[str(host.place)])
    host.run("elsewhere", host.place.parent / "proj2", "running", alive=True)
    host.run("ended", host.place, "succeeded", alive=True)
    host.run("lost", host.place, "running")
    living_runs.reserve(os.fsencode(host.place), "comes")
    assert users(host.place) == ["below-pythonpath", "comes", "lives"]
    assert users(host.place, "comes") == ["below-pythonpath", "lives"]
    host.run("comes", host.place, "failed")  # it came, and has ended
    assert users(host.place) == ["below-pythonpath", "lives"]


def test_a_start_that_never_came_uses_nothing_once_its_client_is_gone(host: Host) -> None:
    host.sync("a")
    living_runs.reserve(os.fsencode(host.place), "comes")
    assert users(host.place) == ["comes"]
    (path,) = (host.home / "sync").glob("*.start")
    path.write_text(json.dumps(DEAD.to_json()))
    assert users(host.place) == []
    assert not path.exists()


@pytest.mark.parametrize(
    ("holders", "force", "own"),
    [
        ([], False, True),  # new
        ([""], False, True),  # of a version without owners
        (["me"], False, True),
        (["other"], False, False),
        (["other"], True, True),  # taken over
        (["other", "me"], True, False),  # this checkout has one already
        (["me", "me"], False, True),
        (["", "me"], False, False),
    ],
)
def test_a_place_belongs_to_one_checkout(
    host: Host, holders: list[str], *, force: bool, own: bool
) -> None:
    for suffix, owner in zip(("", "-me"), holders, strict=False):
        session = Session(str(host.place) + suffix)
        session.root_folder()
        (Path(os.fsdecode(session.target)) / "a").touch()
        session.manifest.set_origin(owner)
        session.manifest.mark("", frozenset())
        session.manifest.flush()
        session.close()
    assert place_suffix(str(host.place), "me", force=force) == ("" if own else "-me")


def test_clean_removes_trees_of_ended_runs_that_nothing_needs(host: Host) -> None:
    host.sync("a")
    policy = RecoveryPolicy(max_restarts=1)
    trees = {name: host.tree(name) for name in ("done", "edited", "lives", "resumes")}
    host.run("done", trees["done"], "failed")
    host.run("edited", trees["edited"], "succeeded", recovery=policy)
    host.run("lives", trees["lives"], "running", alive=True)
    host.run("resumes", trees["resumes"], "failed", recovery=policy)
    (trees["edited"] / "a").write_text("nowhere else")
    (trees["done"] / "out").write_text("result")
    remaining = [("edited", "files"), ("lives", "living"), ("resumes", "resume")]
    expected = sorted([("done", ""), *remaining])
    assert sorted(host.clean(dry_run=True)) == expected
    assert trees["done"].exists()
    assert not (host.place / "out").exists()
    assert sorted(host.clean()) == expected
    assert [name for name, tree in trees.items() if tree.exists()] == ["edited", "lives", "resumes"]
    assert (host.place / "out").read_text() == "result"
    assert sorted(host.clean(all=True)) == sorted([*remaining[:2], ("resumes", "")])
    assert sorted(host.clean(force=True)) == [("edited", ""), ("lives", "living")]


def test_the_tree_of_a_start_that_never_came_is_swept_with_the_next_sync(host: Host) -> None:
    host.sync("a")
    tree = host.tree("never")
    run_trees.settle_ended(os.fsencode(host.place))
    assert tree.exists()  # its start is under way
    for path in (host.home / "sync").glob("*.start"):
        path.unlink()
    run_trees.settle_ended(os.fsencode(host.place))
    assert not tree.exists()
    assert (host.place / "a").exists()


def test_a_tree_that_cannot_be_completed_leaves_nothing(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.sync("a")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_trees, "_copy_bytes", full)
    monkeypatch.setattr(run_trees, "_FICLONE", 0)
    with pytest.raises(OSError, match="No space"):
        host.tree()
    assert sorted(os.listdir(host.place.parent)) == ["home", "proj"]
