from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.workspace import wait_for

from safelaunch.config.schema.files import JOB
from safelaunch.config.schema.sync import AssetsType
from safelaunch.config.yaml_io import node as yaml_io_node
from safelaunch.config.yaml_io import reader
from safelaunch.errors import ConfigError
from safelaunch.model import Asset, Sync
from safelaunch.runtime.agent import wire
from safelaunch.runtime.transfer import blocks, manifest
from safelaunch.sync import file_hashes, transfer_progress
from safelaunch.sync.diff import RemoteEntry, compare
from safelaunch.sync.ignore import Rules
from safelaunch.sync.project_tree import Entry, Tree, scan
from safelaunch.sync.sender import prefetch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# -- what is read


def item(path: Path, name: str | None = None) -> Entry:
    return Entry(name or path.name, str(path), "f", path.stat())


@pytest.mark.parametrize(
    ("name", "text", "arrives"),
    [
        ("run.sh", b"echo a\r\necho b\r\n", b"echo a\necho b\n"),
        ("run", b"#!/bin/bash\r\nls\r\n", b"#!/bin/bash\nls\n"),
        ("tool", b"#!/usr/bin/env python3\r\nx\r\n", b"#!/usr/bin/env python3\nx\n"),
        ("data.csv", b"a,b\r\n", b"a,b\r\n"),
        ("train.py", b"print(1)\r\n", b"print(1)\r\n"),
        ("logo.png", b"#!\x89PNG\r\n\x1a\n", b"#!\x89PNG\r\n\x1a\n"),
    ],
)
def test_scripts_arrive_with_lf(tmp_path: Path, name: str, text: bytes, arrives: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(text)
    entry_ = item(path)
    file_hashes.hash_item(entry_, lambda _: None)
    assert file_hashes.read(entry_).data == arrives
    assert entry_.size == len(arrives)
    assert entry_.hash == hashlib.sha256(arrives).hexdigest()


def test_what_is_pushed_arrives_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_bytes(b"ls\r\n")
    entry_ = item(path)
    entry_.verbatim = True
    assert file_hashes.read(entry_).data == b"ls\r\n"


def old(path: Path) -> None:
    """Give a file a time that lies behind, as most files have."""
    then = time.time() - 100
    os.utime(path, (then, then))


def test_the_cache_knows_unchanged_files_only(tmp_path: Path) -> None:
    project, cache = tmp_path / "project", str(tmp_path / "cache")
    project.mkdir()
    for name in ("a", "b"):
        (project / name).write_text(name)
        old(project / name)
    first = scan(Rules(str(project))).files
    hashes = file_hashes.HashCache(cache, str(project))
    hashes._started_ns += 10**10  # as if that were later: the ctime cannot be set back
    assert not hashes.fill_hashes(first)
    for entry_ in first:
        file_hashes.hash_item(entry_, lambda _: None)
    hashes.save(first)
    again = scan(Rules(str(project))).files
    assert file_hashes.HashCache(cache, str(project)).fill_hashes(again)
    assert [i.hash for i in again] == [i.hash for i in first]
    (project / "b").write_text("B")
    changed = scan(Rules(str(project))).files
    assert not file_hashes.HashCache(cache, str(project)).fill_hashes(changed)
    assert [bool(i.hash) for i in changed] == [True, False]


def test_the_cache_does_not_trust_a_file_that_was_just_written(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("1")
    hashes = file_hashes.HashCache(str(tmp_path / "cache"), str(tmp_path))
    entry_ = item(path)
    file_hashes.hash_item(entry_, lambda _: None)
    hashes._started_ns = entry_.key[1] + 1
    hashes.save([entry_])
    assert not file_hashes.HashCache(str(tmp_path / "cache"), str(tmp_path)).fill_hashes(
        [item(path)]
    )


def cached(project: Path, cache: Path) -> file_hashes.HashCache:
    """Return the cache of a project whose files lie a clock's tick behind."""
    files = scan(Rules(str(project))).files
    newest = max(file.key[2] for file in files)
    wait_for(lambda: time.time_ns() > newest + 100_000_000, "tick of the clock")
    for file in files:
        file_hashes.hash_item(file, lambda _: None)
    file_hashes.HashCache(str(cache), str(project)).save(files)
    return file_hashes.HashCache(str(cache), str(project))


def test_a_change_that_keeps_size_and_time_is_seen(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("edited.py", "replaced.py", "same.py"):
        (project / name).write_text("print(1)\n")
    before = (project / "edited.py").stat()
    hashes = cached(project, tmp_path / "cache")
    times = before.st_atime_ns, before.st_mtime_ns
    (project / "edited.py").write_text("print(2)\n")
    os.utime(project / "edited.py", ns=times)
    (project / "new").write_text("print(3)\n")
    (project / "new").replace(project / "replaced.py")
    os.utime(project / "replaced.py", ns=times)
    files = scan(Rules(str(project))).files
    assert not hashes.fill_hashes(files)
    assert [file.path for file in files if file.hash] == ["same.py"]


def test_the_cache_is_its_owner_s_alone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    cached(tmp_path, tmp_path / "cache")
    (path,) = (tmp_path / "cache").iterdir()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("row", [7, None, "text", [], [1, 2], [{}] * 7, {"a": 1}])
def test_a_damaged_row_of_the_cache_is_none(tmp_path: Path, row: Any) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    hashes = cached(tmp_path, tmp_path / "cache")
    hashes._hashes["train.py"] = row
    (file,) = scan(Rules(str(tmp_path), exclude=["cache"])).files
    assert (hashes.fill_hashes([file]), file.hash) == (False, "")


def test_a_broken_cache_counts_as_none(tmp_path: Path) -> None:
    hashes = file_hashes.HashCache(str(tmp_path), "/p")
    for text in ("", "{", "[]", '{"version": 1, "files": 3}'):
        (tmp_path / os.path.basename(str(hashes._path))).write_text(text)
        assert file_hashes.HashCache(str(tmp_path), "/p")._hashes == {}


# -- blocks


def test_blocks_survive_any_cutting_into_pieces() -> None:
    contents = [b"a" * 10, b"", bytes(range(256))]
    rows = [["ä\udcff", 1], ["b", 2], ["c", 3]]
    stream = b"".join(blocks.pack({"f": rows}, contents, level) for level in (0, 1))
    for step in (1, 7, len(stream)):
        pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
        unpacked = [(head, bytes(data)) for head, data in blocks.unpack(pieces)]
        assert unpacked == [({"f": rows}, b"".join(contents))] * 2


@pytest.mark.parametrize(
    "stream",
    [
        b"X\0\0\0\4abcd",
        b"S\xff\xff\xff\xff",
        b"S\0\0\0\2ab",
        b"S\0\0\0\4\0\0\0\xff",
        b"Z\0\0\0\3abc",
        blocks.pack({}, [b"x" * 99], 1)[:-4],
    ],
)
def test_a_garbled_block_is_refused(stream: bytes) -> None:
    with pytest.raises(wire.Broken):
        list(blocks.unpack([stream]))


def test_a_block_that_inflates_without_end_is_refused() -> None:
    bomb = blocks.pack({}, [b"\0" * (blocks.MAX_BLOCK + 1)], 1)
    with pytest.raises(wire.Broken):
        list(blocks.unpack([bomb]))


def test_what_runs_ahead_hands_its_error_on() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ValueError("no")

    items = prefetch(source(), 2)
    assert next(items) == 1
    with pytest.raises(ValueError, match="no"):
        next(items)


def test_what_runs_ahead_ends_when_nobody_wants_more() -> None:
    ended = []

    def source() -> Iterator[int]:
        try:
            yield from range(10**9)
        finally:
            ended.append(True)

    items = prefetch(source(), 2)
    assert next(items) == 0
    items.close()
    assert next(items, None) is None


# -- the host's record


def entry(content: str = "h", own: bool = True) -> manifest.ManifestEntry:
    return manifest.ManifestEntry("f", 0o644, content, 1, (1, 2, 3, 4), own)


def record(path: Path) -> manifest.Manifest:
    return manifest.Manifest(str(path / "m.jsonl"), "/target")


def test_the_record_survives_a_torn_last_line(tmp_path: Path) -> None:
    first = record(tmp_path)
    first.put("a", entry("1"))
    first.put("ä\udcff\n", entry("2", own=False))
    first.flush()
    path = tmp_path / "m.jsonl"
    path.write_bytes(path.read_bytes() + b'["c","f",420')
    again = record(tmp_path)
    assert {p: (e.content, e.own) for p, e in again.entries.items()} == {
        "a": ("1", True),
        "ä\udcff\n": ("2", False),
    }
    again.put("d", entry("3"))
    again.flush()
    assert sorted(record(tmp_path).entries) == ["a", "d", "ä\udcff\n"]


def test_the_record_passes_over_a_garbled_line(tmp_path: Path) -> None:
    first = record(tmp_path)
    first.put("a", entry())
    first.flush()
    with (tmp_path / "m.jsonl").open("ab") as file:
        file.write(b"\0\0\0\n" + entry().line("b"))
    assert sorted(record(tmp_path).entries) == ["a", "b"]


def test_a_record_that_has_grown_long_is_written_anew(tmp_path: Path) -> None:
    sync_record = record(tmp_path)
    for number in range(3000):
        sync_record.put("a", entry(str(number)))
        if number % 100 == 0:
            sync_record.flush()
    sync_record.mark("d", frozenset({"x"}))
    sync_record.flush()
    assert len((tmp_path / "m.jsonl").read_bytes().splitlines()) < 1200
    again = record(tmp_path)
    assert (again.entries["a"].content, again.digest) == ("2999", "d")
    assert again.leftover == {"x"}


def test_a_second_writer_is_told_and_can_take_over(tmp_path: Path) -> None:
    path = str(tmp_path / "x.lock")
    first = manifest.FolderLock(path, take_over=False)
    first.refresh()
    with pytest.raises(manifest.Busy) as raised:
        manifest.FolderLock(path, take_over=False)
    assert raised.value.idle < 60
    second = manifest.FolderLock(path, take_over=True)
    second.refresh()
    with pytest.raises(OSError, match="took over"):
        first.refresh()
    first.close()
    second.close()
    manifest.FolderLock(path, take_over=False).close()


# -- the difference


def tree(*names: str) -> Tree:
    result = Tree("/here")
    for name in names:
        kind = "d" if name.endswith("/") else "f"
        path = name.rstrip("/")
        result.items[path] = Entry(path, path, kind, os.stat(__file__))
        result.items[path].hash = "h" if kind == "f" else ""
        result.items[path].mode = 0o644
    return result


def plan(local: Tree, *rows: RemoteEntry, force: bool = False, recorded: bool = True) -> Any:
    recorded_paths = [row.path for row in rows] if recorded else []
    return compare(local, {row.path: row for row in rows}, recorded_paths, force=force)


def test_what_is_gone_on_both_sides_is_not_gone_from_the_host_alone() -> None:
    present, lost = (
        RemoteEntry("there", "f", 0o644, "h", 1, ""),
        RemoteEntry("lost", "f", 0, "", 0, "g"),
    )
    assert plan(tree("new"), present, lost).deleted == [present]


def test_new_changed_and_lost_files_are_sent() -> None:
    changes = plan(
        tree("new", "changed", "same", "lost"),
        RemoteEntry("changed", "f", 0o644, "old", 1, ""),
        RemoteEntry("same", "f", 0o644, "h", 1, ""),
        RemoteEntry("lost", "f", 0o644, "h", 1, "g"),
    )
    assert [i.path for i in changes.files] == ["new", "changed", "lost"]
    assert changes.conflicts == []


def test_a_file_changed_there_is_a_conflict_unless_it_is_the_same_or_forced() -> None:
    other, same = (
        RemoteEntry("a", "f", 0o644, "x", 1, "c"),
        RemoteEntry("a", "f", 0o644, "h", 1, "c"),
    )
    assert plan(tree("a"), other).conflicts == [("a", "was changed on the host")]
    assert [i.path for i in plan(tree("a"), same).adopted] == ["a"]
    assert [i.path for i in plan(tree("a"), other, force=True).files] == ["a"]


def test_what_no_sync_put_there_is_adopted_or_a_conflict() -> None:
    other, same = RemoteEntry("a", "f", 0o644, "x", 1, ""), RemoteEntry("a", "f", 0o644, "h", 1, "")
    changes = plan(tree("a"), other, recorded=False)
    assert changes.conflicts == [("a", "exists on the host and was not created by a sync")]
    assert [i.path for i in plan(tree("a"), same, recorded=False).adopted] == ["a"]


def test_a_folder_that_is_a_link_there_keeps_everything_below_from_being_sent() -> None:
    rows = (RemoteEntry("d", "d", 0o755, "", 0, "c"), RemoteEntry("d/a", "f", 0o644, "h", 1, "b"))
    changes = plan(tree("d/", "d/a"), *rows)
    assert [path for path, _ in changes.conflicts] == ["d", "d/a"]
    assert changes.files == []
    forced = plan(tree("d/", "d/a"), *rows, force=True)
    assert ([i.path for i in forced.folders], [i.path for i in forced.files]) == (["d"], ["d/a"])


# -- words


def test_the_rate_does_not_count_what_was_there_already() -> None:
    reports: list[transfer_progress.TransferProgress] = []
    meter = transfer_progress.Meter("x", 1000, reports.append)
    meter.skip(900)
    meter._marks = [(meter._marks[0][0] - 1.0, 900)]
    meter.add(100)
    (last,) = reports
    assert (last.done, last.total, last.eta) == (1000, 1000, 0.0)
    assert 50 < last.rate < 100


# -- the job file


def node(text: str) -> yaml_io_node.Node:
    return reader.parse(text, "job.yaml")


def read_sync(text: str) -> object:
    key = JOB.find("sync")
    assert key is not None
    return key.type.read(node(text))


def test_sync_reads_patterns() -> None:
    read = read_sync("include: checkpoints/base/**\nexclude: [data/, '*.bin']\n")
    assert read == Sync(("checkpoints/base/**",), ("data/", "*.bin"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("exclude: ['!a']", "negation is not supported"),
        ("exclude: ['#a']", "a comment"),
        ("exclude: [../a]", "below the project"),
        ("include: ['C:\\data']", "below the project"),
        ("include: ['']", "expected a pattern"),
        ("exlude: [a]", "unknown key `exlude`"),
    ],
)
def test_sync_refuses_what_no_pattern_means(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_sync(text)


def test_assets_read_names_paths_and_places() -> None:
    read = AssetsType().read(
        node("base: models/Qwen2\nc4: {path: 'D:\\c4.bin', to: /data/c4.bin}\nno: null\n")
    )
    assert read == (Asset("base", "models/Qwen2"), Asset("c4", "D:\\c4.bin", "/data/c4.bin"))
    assert str(read[1].origin).startswith("job.yaml:2:")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a b: x", "no name of an asset"),
        ("a: {to: /x}", "has no path"),
        ("a: {path: x, to: ~/x}", "never expanded"),
        ("a: {path: x, to: ../x}", "in a path on the host"),
        ("a: {path: x, to: 'C:\\x'}", "Windows path"),
        ("a: {path: x, too: y}", "unknown key `too`"),
    ],
)
def test_assets_refuse_what_cannot_be_meant(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        AssetsType().read(node(text))


def test_assets_without_names_say_what_a_name_is_for() -> None:
    listed = node("assets: [models/a]").get("assets")
    assert listed is not None
    with pytest.raises(ConfigError, match="mapping of names") as raised:
        AssetsType().read(listed)
    assert "{assets.NAME}" in str(raised.value.hint)
