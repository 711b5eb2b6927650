from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from safelaunch.diagnose.logs.sources import LogReader, LogSource, find_sources
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX names, links and pipes")


def read(path: Path | str) -> tuple[bytes, LogReader]:
    reader = LogReader(LogSource(str(path)))
    return b"".join(block.data for block in reader.blocks()), reader


def paths(root: Path, *arguments: Path | str) -> list[str]:
    return [os.path.relpath(source.path, root) for source in find_sources(map(str, arguments))]


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)  # no two are alike


# -- which logs ------------------------------------------------------------------------------------


def test_ranks_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    touch(tmp_path, *(f"rank-{rank}.log" for rank in range(12)))
    assert [source.rank for source in find_sources([str(tmp_path)])] == list(range(12))


@pytest.mark.parametrize(
    ("name", "rank", "host"),
    [
        ("rank-3.log", 3, ""),
        ("rank_12.txt", 12, ""),
        ("log_rank3.out", 3, ""),
        ("node-1/logs/attempt-2/rank-9.log", 9, "node-1"),
        ("id_x/attempt_0/5/stderr.log", 5, ""),
        ("worker-01ab3f-ffff-221.out", None, ""),
        ("train.log", None, ""),
        ("frank.log", None, ""),
    ],
)
def test_a_name_tells_rank_and_node(tmp_path: Path, name: str, rank: int | None, host: str) -> None:
    touch(tmp_path, name)
    (source,) = find_sources([str(tmp_path)])
    assert (source.rank, source.host) == (rank, host)


@pytest.mark.parametrize(
    "name",
    [
        *("a.log", "a.LOG", "a.log.gz", "a.log.1", "a.log.2.gz", "slurm-12.out", "job.o123"),
        *("job.e12-3", "nohup.out", "stderr", "console", "a.err", "log.txt", "train.log-20250101"),
    ],
)
def test_a_log_is_known_by_its_name(tmp_path: Path, name: str) -> None:
    touch(tmp_path, name, "train.py", "model.safetensors", "config.json")
    assert paths(tmp_path, tmp_path) == [name]


def test_the_merged_log_of_a_run_is_left_out_beside_its_ranks(tmp_path: Path) -> None:
    touch(tmp_path, "combined.log", "launcher.log", "rank-0.log")
    assert paths(tmp_path, tmp_path) == ["launcher.log", "rank-0.log"]


def test_of_several_attempts_of_each_node_the_last_is_read(tmp_path: Path) -> None:
    touch(tmp_path, *(f"node-{n}/logs/attempt-{a}/rank-0.log" for n, a in ((0, 1), (0, 2), (1, 1))))
    expected = [f"node-{n}/logs/attempt-{a}/rank-0.log" for n, a in ((0, 2), (1, 1))]
    assert paths(tmp_path, tmp_path) == [os.path.normpath(path) for path in expected]


def test_a_folder_named_with_its_attempt_is_read(tmp_path: Path) -> None:
    touch(tmp_path, "attempt-1/rank-0.log", "attempt-2/rank-0.log")
    (source,) = find_sources([str(tmp_path / "attempt-1")])
    assert "attempt-1" in source.path


def test_hidden_folders_are_no_logs(tmp_path: Path) -> None:
    touch(tmp_path, "a.log", ".git/x.log")
    assert paths(tmp_path, tmp_path) == ["a.log"]


def test_a_log_named_twice_is_read_once(tmp_path: Path) -> None:
    touch(tmp_path, "a.log")
    assert paths(tmp_path, tmp_path / "a.log", tmp_path, tmp_path / "." / "a.log") == ["a.log"]


@posix
def test_a_link_beside_its_log_is_not_read_again(tmp_path: Path) -> None:
    touch(tmp_path, "a.log")
    (tmp_path / "latest.log").symlink_to("a.log")
    assert len(find_sources([str(tmp_path)])) == 1


@posix
def test_pipes_dangling_links_and_loops_in_a_folder_are_passed_by(tmp_path: Path) -> None:
    touch(tmp_path, "a.log")
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "dangling.log").symlink_to("nowhere")
    (tmp_path / "one.log").symlink_to("two.log")
    (tmp_path / "two.log").symlink_to("one.log")
    (tmp_path / "above").symlink_to(tmp_path)
    (tmp_path / "folder.log").mkdir()
    assert paths(tmp_path, tmp_path) == ["a.log"]


@posix
def test_a_dangling_link_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.log").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="is a link to `nowhere`, which does not exist"):
        find_sources([str(tmp_path / "x.log")])


def test_an_absent_log_is_told_with_the_nearest_name(tmp_path: Path) -> None:
    touch(tmp_path, "train.log")
    with pytest.raises(ConfigError) as caught:
        find_sources([str(tmp_path / "trian.log")])
    assert caught.value.hint == "did you mean `train.log`?"


def test_a_folder_without_logs_is_told(tmp_path: Path) -> None:
    touch(tmp_path, "train.py")
    with pytest.raises(ConfigError, match="no logs in this folder"):
        find_sources([str(tmp_path)])


def test_a_folder_of_2001_logs_is_read(tmp_path: Path) -> None:
    touch(tmp_path, *(f"rank-{rank}.log" for rank in range(2001)))
    assert len(find_sources([str(tmp_path)])) == 2001


def test_a_disk_named_by_mistake_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safelaunch.diagnose.logs.folders.MAX_NAMES", 10)
    touch(tmp_path, *(f"{n}/x.py" for n in range(20)))
    with pytest.raises(ConfigError, match="more than 10 files"):
        find_sources([str(tmp_path)])


@posix
@pytest.mark.parametrize(
    ("name", "display_name"),
    [
        (b"a b'\"$.log", "a b'\"$.log"),
        (b"two\nlines.log", "two\\nlines.log"),
        (b"\xff\xfe.log", "\\udcff\\udcfe.log"),
        (b"\x1b[31mred.log", "\\x1b[31mred.log"),
        ("größe-模型.log".encode(), "größe-模型.log"),
    ],
)
def test_odd_names_are_read_and_shown_on_one_line(
    tmp_path: Path, name: bytes, display_name: str
) -> None:
    path = os.fsencode(tmp_path) + b"/" + name
    with open(path, "wb") as file:
        file.write(b"x\n")
    (source,) = find_sources([str(tmp_path)])
    assert read(source.path)[0] == b"x\n"
    assert os.path.basename(source.display_name) == display_name
