from __future__ import annotations

import errno
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.workspace import DEADLINE

from safelaunch.runtime.logs import framework_logs
from safelaunch.runtime.logs import merger as logs_merger
from safelaunch.runtime.supervise import pane

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "runs" / "run" / "node-0" / "logs" / "attempt-1"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def mergers() -> Iterator[list[logs_merger.Merger]]:
    created: list[logs_merger.Merger] = []
    yield created
    for merger in created:
        merger.close()


def expected(written: bytes, prefix: bytes) -> bytes:
    """Return the merged log of one file, computed in the simplest way."""
    lines = written.splitlines(keepends=True)
    if lines and lines[-1][-1:] not in b"\r\n":
        lines[-1] += b"\n"
    return b"".join(prefix + line for line in lines)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    "written",
    [
        b"a\nb\n",
        b"a\r\nb\r\n\r\nc",
        b"1%\r2%\r\r3%\n",
        b"\n\n\n",
        b"\r\n\n\rx",
        b"a\x0bb\x85c\x1c\n",
    ],
)
def test_lines_are_the_same_however_they_arrive(logs: Path, written: bytes, step: int) -> None:
    source = logs_merger.RankLog(str(logs / "rank-3.log"), b"[3] ")
    pieces = [
        source.prefix_lines(written[i : i + step], b"[3] ") for i in range(0, len(written), step)
    ]
    assert b"".join([*pieces, source.finish()]) == expected(written, b"[3] ")


def test_a_flood_of_one_rank_does_not_hide_the_other(logs: Path) -> None:
    (logs / "rank-0.log").write_bytes(b"noise\n" * 1_000_000)
    (logs / "rank-1.log").write_bytes(b"here\n")
    merger = logs_merger.Merger(str(logs), prefixed=True)
    assert b"[1] here\n" in merger.read()
    merger.close()


def test_one_look_is_bounded_and_counts_what_was_read(logs: Path) -> None:
    (logs / "rank-0.log").write_bytes(b"x" * 99 + b"\n" + b"noise\n" * 1_000_000)
    merger = logs_merger.Merger(str(logs), prefixed=True)
    merger.read()
    assert merger.total <= logs_merger.MAX_POLL + logs_merger.CHUNK
    assert merger.offsets() == {str(logs / "rank-0.log"): merger.total}
    assert merger.pause == 0.0
    merger.drain()
    assert merger.total == 6_000_100
    merger.close()


@pytest.mark.parametrize(
    ("size", "pause"),
    [
        (0, logs_merger.PAUSE),
        (logs_merger.FLOOD - 1, logs_merger.PAUSE),
        (logs_merger.FLOOD, logs_merger.FLOOD_PAUSE),
        (logs_merger.MAX_POLL, 0.0),
    ],
)
def test_the_more_was_read_the_longer_the_pause_unless_there_is_more(
    logs: Path, size: int, pause: float
) -> None:
    (logs / "rank-0.log").write_bytes(b"\n" * size)
    merger = logs_merger.Merger(str(logs), prefixed=True)
    merger.read()
    assert merger.pause == pause
    merger.close()


def test_what_is_left_at_the_end_comes_in_small_pieces(logs: Path) -> None:
    written = b"".join(b"line %d\n" % i for i in range(300_000)) + b"last"
    (logs / "rank-0.log").write_bytes(written)
    merger = logs_merger.Merger(str(logs), prefixed=True)
    pieces = list(merger.remaining())
    assert max(map(len, pieces)) < 2 * logs_merger.CHUNK
    assert b"".join(pieces) == expected(written, b"[0] ")
    merger.close()


def test_a_log_that_is_emptied_is_read_anew(logs: Path) -> None:
    log = logs / "rank-0.log"
    log.write_bytes(b"old and long\nhalf")
    merger = logs_merger.Merger(str(logs), prefixed=True)
    merger.read()
    log.write_bytes(b"new\n")
    assert merger.read() + merger.read() == b"[0] half\n[0] new\n"
    merger.close()


# -- the framework's own files ---------------------------------------------------------------------


def merged(merger: logs_merger.Merger) -> bytes:
    """Return what comes once it is time to look for files, and a whole walk has been created."""
    finder = merger.finder
    assert finder is not None
    finder.restart_walk()
    walk, output = finder.walk, b""
    while finder.walk is walk:
        finder.next_walk_at = 0.0
        output += merger.read()
    return output + merger.read()


@pytest.mark.parametrize("first_walk", [framework_logs.FIRST_WALK, 0.0])
def test_an_old_file_is_followed_from_its_end_and_a_new_one_whole(
    logs: Path,
    project: Path,
    mergers: list[logs_merger.Merger],
    monkeypatch: pytest.MonkeyPatch,
    first_walk: float,
) -> None:
    monkeypatch.setattr(framework_logs, "FIRST_WALK", first_walk)  # on a slow machine it is cut
    (project / "old.log").write_bytes(b"before\n")
    merger = logs_merger.Merger(str(logs), True, ["*.log"], str(project))
    mergers.append(merger)
    with (project / "old.log").open("ab") as file:
        file.write(b"since\n")
    (project / "new.log").write_bytes(b"first\n")
    assert sorted(merged(merger).splitlines()) == [b"[new.log] first", b"[old.log] since"]


def test_a_rotated_file_is_read_on_and_its_successor_whole(
    logs: Path, project: Path, mergers: list[logs_merger.Merger]
) -> None:
    merger = logs_merger.Merger(str(logs), True, ["*.log*"], str(project))
    mergers.append(merger)
    log = project / "t.log"
    log.write_bytes(b"one\n")
    assert merged(merger) == b"[t.log] one\n"
    log.rename(project / "t.log.1")
    log.write_bytes(b"two\n")
    assert merged(merger) == b"[t.log] two\n"
    assert merged(merger) == b""


def test_files_of_the_same_name_are_told_apart(
    logs: Path, project: Path, mergers: list[logs_merger.Merger]
) -> None:
    merger = logs_merger.Merger(str(logs), True, ["**/t.log"], str(project))
    mergers.append(merger)
    for name in ("a", "b"):
        (project / name).mkdir()
        (project / name / "t.log").write_bytes(b"x\n")
    assert sorted(merged(merger).splitlines()) == [b"[a/t.log] x", b"[b/t.log] x"]


def test_the_runs_own_logs_are_never_followed_as_the_jobs(
    logs: Path, tmp_path: Path, mergers: list[logs_merger.Merger]
) -> None:
    copy = tmp_path / "copy.log"
    merger = logs_merger.Merger(str(logs), True, ["**/*.log"], str(tmp_path), skip=[str(copy)])
    mergers.append(merger)
    copy.write_bytes(b"copy\n")
    (logs / "combined.log").write_bytes(b"merged\n")
    (tmp_path / "real.log").write_bytes(b"real\n")
    assert merged(merger) == b"[real.log] real\n"


def test_a_file_that_gets_the_merged_log_is_dropped(
    logs: Path, project: Path, mergers: list[logs_merger.Merger]
) -> None:
    merger = logs_merger.Merger(str(logs), True, ["*.log"], str(project))
    mergers.append(merger)
    (logs / "launcher.log").write_bytes(b"hello\n")
    shown = merged(merger)
    with (project / "out.log").open("ab", buffering=0) as client:
        for _ in range(10):
            client.write(shown)
            shown = merged(merger)
    assert shown == b""
    assert merger.pause > 0.0


def test_a_file_that_comes_just_before_the_end_is_not_lost(
    logs: Path, project: Path, mergers: list[logs_merger.Merger]
) -> None:
    merger = logs_merger.Merger(str(logs), True, ["*.log"], str(project))
    mergers.append(merger)
    (project / "late.log").write_bytes(b"cause")
    assert merger.drain() == b"[late.log] cause\n"


def test_a_fifo_that_a_glob_names_is_left_alone(
    logs: Path, project: Path, mergers: list[logs_merger.Merger]
) -> None:
    os.mkfifo(project / "pipe.log")
    merger = logs_merger.Merger(str(logs), True, ["*.log"], str(project))
    mergers.append(merger)
    assert merged(merger) == b""


def test_a_walk_through_a_huge_tree_is_done_in_slices(project: Path) -> None:
    for i in range(3000):
        (project / f"{i}.txt").touch()
    finder = framework_logs.GlobWatcher(["*.log"], str(project), None, "/nowhere", ())
    finder.restart_walk()
    finder.tick(0.0)
    assert next(finder.walk, None) is not None  # it has not come to the end


def test_a_new_file_whose_time_lags_by_a_tick_of_the_kernel_is_read(project: Path) -> None:
    now = time.time()
    finder = framework_logs.GlobWatcher(["*.log"], str(project), now, "/nowhere", ())
    (project / "train.log").write_text("step 1\n")
    os.utime(project / "train.log", (now - 0.01, now - 0.01))
    finder.restart_walk()
    assert [offset for _, _, offset in finder.tick(1.0)] == [0]


def test_a_walk_that_waited_is_not_put_off_as_one_that_used_the_processor(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "train.log").write_text("step 1\n")
    finder = framework_logs.GlobWatcher(["*.log"], str(project), None, "/nowhere", ())
    stat = os.stat

    def slow_stat(path: Any, **options: Any) -> os.stat_result:
        threading.Event().wait(0.05)  # a disk that is slow, or a core that others use
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", slow_stat)
    finder.restart_walk()
    finder.tick(1.0)
    monkeypatch.undo()
    assert finder.next_walk_at < time.monotonic() + 5


# -- more of them than are followed at once --------------------------------------------------------

MANY = 3 * logs_merger.MAX_EXTRA


def opened(folder: Path) -> int:
    """Return how many files below a folder this process holds open."""
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sum(os.readlink(link).startswith(str(folder)) for link in links if os.path.exists(link))


def test_each_of_many_files_is_read_however_many_there_were_before(
    logs: Path, project: Path, mergers: list[logs_merger.Merger]
) -> None:
    merger = logs_merger.Merger(str(logs), True, ["*.log"], str(project))
    mergers.append(merger)
    for i in range(MANY):
        (project / f"w-{i:03}.log").write_bytes(b"step %d\n" % i)
        assert merged(merger) == b"[w-%03d.log] step %d\n" % (i, i)
    assert opened(project) <= logs_merger.MAX_EXTRA
    assert len(merger.sources) <= logs_merger.MAX_EXTRA


def test_files_that_all_grow_at_once_are_all_read_once_and_in_their_order(
    logs: Path, project: Path, mergers: list[logs_merger.Merger]
) -> None:
    merger = logs_merger.Merger(str(logs), True, ["*.log"], str(project))
    mergers.append(merger)
    output = b""
    for turn in range(8):
        for i in range(MANY):
            with (project / f"w-{i:03}.log").open("ab") as file:
                file.write(b"turn %d of %d, half" % (turn, i) + b" and half\n")
        output += merged(merger)
    names = len(set(output.splitlines()))
    assert names >= 4 * MANY  # each had its turn, long before the end
    output += merger.drain()
    for i in range(MANY):
        mark = b"[w-%03d.log] " % i
        mine = [line[len(mark) :] for line in output.splitlines() if line.startswith(mark)]
        assert mine == [b"turn %d of %d, half and half" % (turn, i) for turn in range(8)]
    assert opened(project) <= logs_merger.MAX_EXTRA


def test_a_line_that_grows_while_others_take_turns_is_not_cut(
    logs: Path, project: Path, mergers: list[logs_merger.Merger]
) -> None:
    merger = logs_merger.Merger(str(logs), True, ["*.log"], str(project))
    mergers.append(merger)
    (project / "half.log").write_bytes(b"step 1")
    assert merged(merger) == b""
    for i in range(logs_merger.MAX_EXTRA):
        (project / f"w-{i:03}.log").write_bytes(b"x\n")
    (project / "half.log").write_bytes(b"step 120\n")
    output = merged(merger) + merged(merger) + merged(merger)
    assert b"[half.log] step 120\n" in output
    assert output.count(b"[half.log]") == 1


def test_a_file_that_was_given_up_comes_back_with_what_is_new(
    logs: Path, project: Path, mergers: list[logs_merger.Merger]
) -> None:
    merger = logs_merger.Merger(str(logs), True, ["*.log"], str(project))
    mergers.append(merger)
    (project / "first.log").write_bytes(b"one\nhalf")
    assert merged(merger) == b"[first.log] one\n"
    for i in range(logs_merger.MAX_EXTRA):
        (project / f"w-{i:03}.log").write_bytes(b"x\n")
    assert b"[first.log] half\n" in merged(merger)
    assert str(project / "first.log") not in merger.sources
    with (project / "first.log").open("ab") as file:
        file.write(b"\nthree\n")
    assert merged(merger).endswith(b"three\n")


def test_many_files_that_come_just_before_the_end_are_all_read(
    logs: Path,
    project: Path,
    mergers: list[logs_merger.Merger],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs_merger, "FINAL_SCAN_SECONDS", DEADLINE)
    merger = logs_merger.Merger(str(logs), True, ["*.log"], str(project))
    mergers.append(merger)
    for i in range(MANY):
        (project / f"w-{i:03}.log").write_bytes(b"cause %d\n" % i)
    expected = {b"[w-%03d.log] cause %d" % (i, i) for i in range(MANY)}
    assert set(merger.drain().splitlines()) == expected
    assert opened(project) <= logs_merger.MAX_EXTRA


def test_a_file_that_was_removed_is_let_go_when_it_is_read(
    logs: Path, project: Path, mergers: list[logs_merger.Merger]
) -> None:
    merger = logs_merger.Merger(str(logs), True, ["*.log"], str(project))
    mergers.append(merger)
    (project / "t.log").write_bytes(b"one\n")
    assert merged(merger) == b"[t.log] one\n"
    with (project / "t.log").open("ab") as file:
        file.write(b"last")
    merger.read()
    (project / "t.log").unlink()
    assert merged(merger) + merged(merger) == b"[t.log] last\n"
    assert (opened(project), merger.sources) == (0, {})


def test_a_new_file_with_the_number_of_a_removed_one_is_read_whole(
    logs: Path, project: Path, mergers: list[logs_merger.Merger]
) -> None:
    merger = logs_merger.Merger(str(logs), True, ["*.log"], str(project))
    mergers.append(merger)
    first = project / "first.log"
    first.write_bytes(b"one\n")
    merged(merger)
    for i in range(logs_merger.MAX_EXTRA):
        (project / f"w-{i:03}.log").write_bytes(b"x\n")
    merged(merger)
    # rewritten in place, longer than it was: as if a new file had got its inode
    first.write_bytes(b"two\nthree\n")
    assert merged(merger) == b"[first.log] two\n[first.log] three\n"


def test_a_folder_that_cannot_be_asked_for_its_kind_is_passed_by() -> None:
    class Entry:
        name = "stale"

        def is_dir(self, *, follow_symlinks: bool) -> bool:
            raise OSError(errno.ESTALE, "Stale file handle", follow_symlinks)

    assert not framework_logs._is_folder(Entry())  # type: ignore[arg-type]


def test_a_file_system_that_fails_in_its_own_way_ends_the_following_not_the_run(
    logs: Path, project: Path, mergers: list[logs_merger.Merger], monkeypatch: pytest.MonkeyPatch
) -> None:
    merger = logs_merger.Merger(str(logs), True, ["*.log"], str(project))
    mergers.append(merger)

    def scandir(folder: str) -> None:
        raise RuntimeError("out of luck in " + folder)

    monkeypatch.setattr(os, "scandir", scandir)
    (logs / "rank-0.log").write_bytes(b"goes on\n")
    assert merger.finder is not None
    merger.finder.next_walk_at = 0.0
    output = merger.drain()
    assert b"[0] goes on\n" in output
    assert b"files of `logs:` are no longer followed: RuntimeError: out of luck" in output


@pytest.mark.parametrize(
    ("glob", "output"),
    [
        ("*.log", {"a.log"}),
        ("**/*.log", {"a.log", "x/b.log", "x/y/c.log"}),
        ("x/**", {"x/b.log", "x/y", "x/y/c.log"}),
        ("x/?.log", {"x/b.log"}),
        ("x/y/c.log", {"x/y/c.log"}),
        ("x/.h/*", {"x/.h/d.log"}),
    ],
)
def test_globs_mean_what_they_mean_in_a_shell(project: Path, glob: str, output: set[str]) -> None:
    for name in ("a.log", "x/b.log", "x/y/c.log", "x/.h/d.log"):
        (project / name).parent.mkdir(exist_ok=True, parents=True)
        (project / name).touch()
    shown = {path for path in framework_logs.matches(str(project), glob.split("/")) if path}
    assert shown == {str(project / name) for name in output}


# -- the pane --------------------------------------------------------------------------------------


def test_the_pane_gets_little_of_a_flood_and_its_end() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    terminal = pane.Pane(writer)
    shown = b""
    for i in range(2000):
        terminal.show(b"line %d %s\n" % (i, b"x" * 10_000))
        shown += _all(reader)
    terminal.show(b"the end\n")
    for _ in range(10):
        terminal.finish()
        shown += _all(reader)
    os.close(reader)
    os.close(writer)
    assert shown.endswith(b"the end\n")
    assert b"MiB not shown here" in shown
    assert len(shown) < 2_000_000


def test_a_pane_that_takes_nothing_costs_no_memory() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    terminal = pane.Pane(writer)
    for _ in range(2000):
        terminal.show(b"x" * 10_000)
    os.close(reader)
    os.close(writer)
    assert len(terminal.waiting) <= pane.BURST


def _all(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 20)
    except BlockingIOError:
        return b""
