"""Syncs, pushes and pulls through a real agent, over pipes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from support.agent_thread import ThreadAgent
from support.sync_pair import HostPair
from support.workspace import wait_for

from safelaunch.errors import ConfigError, HostError, Refused
from safelaunch.runtime.agent import server as runtime_agent
from safelaunch.runtime.transfer import blocks, compression
from safelaunch.sync.download.pull import pull
from safelaunch.sync.ignore import Rules
from safelaunch.sync.push import push_file, start_push

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from support.sync_pair import HostPair

    from safelaunch.sync.transfer_progress import TransferProgress

MIB = 1 << 20


def test_a_first_sync_brings_the_tree(box: HostPair) -> None:
    box.write("train.py", "print(1)\n")
    box.write("run.sh", "#!/bin/sh\r\nls\r\n", 0o755)
    box.write("private.txt", "x", 0o600)
    box.write("sub/deep/data.txt", "d" * 100_000)
    box.write("wandb/log", "no")
    box.write(".env", "KEY=x")
    (box.project / "empty").mkdir()
    (box.project / "link").symlink_to("sub/deep")
    summary = box.sync()
    assert box.tree() == {
        "train.py": b"print(1)\n",
        "run.sh": b"#!/bin/sh\nls\n",
        "private.txt": b"x",
        "sub/deep/data.txt": b"d" * 100_000,
    }
    assert os.access(box.target / "run.sh", os.X_OK)
    assert (box.target / "private.txt").stat().st_mode & 0o777 == 0o600
    assert (box.target / "empty").is_dir()
    assert box.target.stat().st_mode & 0o777 == 0o700
    assert os.readlink(box.target / "link") == "sub/deep"
    assert summary.target == str(box.target)
    lines = summary.lines("box")
    assert lines[0].startswith(f"synced box:{box.target}: 4 files sent (100 kB in ")
    assert lines[1].startswith("not sent, as secrets: .env; if the job needs them, name them in")
    assert lines[2] == "not sent: wandb (2 B, built in)"


def test_nothing_changed_is_one_request(box: HostPair) -> None:
    for number in range(50):
        box.write(f"sub{number % 5}/{number}.py", f"x = {number}\n")
    box.settle()
    box.sync()
    agent = box.agent()
    summary = box.sync(agent)
    assert agent.verbs == ["receive.compare"]
    assert (summary.sent, summary.files) == (0, 50)
    assert summary.lines("box")[0].startswith(f"box:{box.target} is up to date (50 files, ")
    shutil.rmtree(box.cache)
    again = box.agent()
    box.sync(again)
    assert again.verbs == ["receive.compare"]  # so little is read at once
    box.write("weights.bin", os.urandom(2 << 20))
    box.sync()
    shutil.rmtree(box.cache)
    last = box.agent()
    box.sync(last)
    assert last.verbs == ["receive.compare", "receive.release"]


def test_only_what_changed_travels(box: HostPair) -> None:
    for number in range(50):
        box.write(f"{number}.bin", os.urandom(10_000))
    box.sync()
    box.write("7.bin", os.urandom(10_000))
    box.write("new.txt", "n")
    agent = box.agent()
    summary = box.sync(agent)
    assert summary.sent == 2
    assert agent.sent < 20_000
    assert box.tree()["7.bin"] == (box.project / "7.bin").read_bytes()


def test_a_changed_mode_alone_arrives(box: HostPair) -> None:
    path = box.write("run", "x")
    path.chmod(0o644)
    box.sync()
    path.chmod(0o755)
    box.settle()
    summary = box.sync()
    assert summary.sent == 0
    assert os.access(box.target / "run", os.X_OK)
    agent = box.agent()
    box.sync(agent)
    assert agent.verbs == ["receive.compare"]


def test_a_file_changed_on_the_host_is_not_overwritten(box: HostPair) -> None:
    box.write("a.py", "one")
    box.write("b.py", "one")
    box.sync()
    (box.target / "a.py").write_text("edited there")
    box.write("a.py", "two")
    box.write("b.py", "two")
    with pytest.raises(Refused, match=r"not overwritten: a\.py was changed on the host") as raised:
        box.sync()
    assert "--force" in str(raised.value.hint)
    assert box.tree() == {"a.py": b"edited there", "b.py": b"one"}
    box.sync(force=True)
    assert box.tree() == {"a.py": b"two", "b.py": b"two"}


def test_a_change_of_the_same_size_is_seen(box: HostPair) -> None:
    box.write("a.py", "one")
    box.sync()
    (box.target / "a.py").write_text("six")
    with pytest.raises(Refused):
        box.sync()


def test_a_touched_file_and_an_equal_edit_are_no_conflict(box: HostPair) -> None:
    box.write("a", "one")
    box.write("b", "one")
    box.sync()
    os.utime(box.target / "a", (1, 1))
    (box.target / "b").write_text("two")
    box.write("b", "two")
    box.settle()
    assert box.sync().sent == 0
    agent = box.agent()
    box.sync(agent)
    assert agent.verbs == ["receive.compare"]


def test_a_file_lost_on_the_host_comes_back(box: HostPair) -> None:
    box.write("a", "one")
    box.write("d/b", "two")
    box.sync()
    shutil.rmtree(box.target / "d")
    assert box.sync().sent == 1
    assert box.tree() == {"a": b"one", "d/b": b"two"}
    shutil.rmtree(box.target)
    assert box.sync().sent == 2


def test_what_is_there_and_the_same_is_not_sent_and_never_removed(box: HostPair) -> None:
    for number in range(20):
        box.write(f"d/{number}", os.urandom(10_000))
    shutil.copytree(box.project, box.target)
    agent = box.agent()
    assert box.sync(agent).sent == 0
    assert agent.sent < 20_000
    (box.project / "d/3").unlink()
    box.sync(delete=True)
    assert "d/3" in box.tree()


def test_what_is_there_and_different_is_refused_before_anything_is_sent(box: HostPair) -> None:
    box.write("a", "mine")
    box.write("b", "mine")
    box.target.mkdir(parents=True)
    (box.target / "a").write_text("theirs")
    with pytest.raises(Refused, match="a exists on the host and was not created by a sync"):
        box.sync()
    assert box.tree() == {"a": b"theirs"}


def test_delete_removes_only_what_a_sync_put_there_and_nobody_changed(box: HostPair) -> None:
    for name in ("keep", "gone", "d/gone", "edited", "ignored"):
        box.write(name, name)
    box.sync()
    (box.target / "theirs").write_text("x")
    (box.target / "edited").write_text("by hand")
    for name in ("gone", "edited"):
        (box.project / name).unlink()
    shutil.rmtree(box.project / "d")
    rules = Rules(str(box.project), exclude=("ignored",))
    summary = box.sync(rules=rules)
    assert (summary.removed, summary.left) == (0, 4)
    assert any("--delete removes them" in line for line in summary.lines("box"))
    summary = box.sync(rules=rules, delete=True)
    assert summary.removed == 2
    assert summary.not_removed == (("edited", "was changed on the host, and stays"),)
    assert sorted(box.tree()) == ["edited", "ignored", "keep", "theirs"]
    assert not (box.target / "d").exists()


def test_a_file_becomes_a_folder_and_back(box: HostPair) -> None:
    box.write("x", "file")
    box.write("y/a", "folder")
    (box.project / "z").symlink_to("x")
    box.sync()
    (box.project / "x").unlink()
    box.write("x/inner", "1")
    shutil.rmtree(box.project / "y")
    box.write("y", "now a file")
    (box.project / "z").unlink()
    box.write("z/b", "2")
    with pytest.raises(Refused, match="y is a folder on the host"):
        box.sync()
    box.sync(delete=True)
    assert box.tree() == {"x/inner": b"1", "y": b"now a file", "z/b": b"2"}


def test_nothing_is_written_through_a_link_on_the_host(box: HostPair, tmp_path: Path) -> None:
    box.write("data/a", "one")
    box.write("b", "one")
    box.sync()
    elsewhere = tmp_path / "elsewhere"
    shutil.move(box.target / "data", elsewhere)
    (box.target / "data").symlink_to(elsewhere)
    (box.target / "b").unlink()
    (box.target / "b").symlink_to(elsewhere / "a")
    box.write("data/a", "two")
    box.write("data/new", "two")
    box.write("b", "two")
    with pytest.raises(Refused, match=r"data is not a folder on the host"):
        box.sync()
    assert {p.name: p.read_text() for p in elsewhere.iterdir()} == {"a": "one"}
    box.sync(force=True)
    assert {p.name: p.read_text() for p in elsewhere.iterdir()} == {"a": "one"}
    assert box.tree() == {"b": b"two", "data/a": b"two", "data/new": b"two"}


def test_a_folder_that_becomes_a_link_in_the_middle_is_not_followed(
    box: HostPair, tmp_path: Path
) -> None:
    for number in range(30):
        box.write(f"d/{number}", os.urandom(300_000))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def swap(state: TransferProgress) -> None:
        if state.done and not (box.target / "d").is_symlink():
            wait_for((box.target / "d").is_dir, "folder on the host")
            (box.target / "d").rename(tmp_path / "moved")
            (box.target / "d").symlink_to(elsewhere)

    with contextlib.suppress(Refused):
        box.sync(progress=swap)
    assert list(elsewhere.iterdir()) == []


def test_hostile_names_of_paths_are_refused_by_the_host(box: HostPair) -> None:

    for path in ("../x", "/tmp/x", "a/../../x", "", "a//b", "a\0b"):
        agent = box.agent()
        list(agent.stream("receive.compare", target=str(box.target), digest=""))
        block = blocks.pack({"f": [[path, 0o644, "", 1]]}, [b"x"], 0)
        with pytest.raises(HostError):
            agent.call("receive.put", data=[block])
    assert not box.target.exists() or box.tree() == {}


def test_nothing_is_written_behind_an_error(box: HostPair) -> None:

    agent = box.agent()
    list(agent.stream("receive.compare", target=str(box.target), digest=""))
    long = blocks.pack({"f": [["x" * 300, 0o644, "", 1]]}, [b"x"], 0)
    end = {"digest": "whole", "left": []}
    last = blocks.pack({"f": [["y", 0o644, "", 1]], "finish": end}, [b"y"], 0)
    # the second goes before the first is answered, as the client does it
    replies = [agent.ask("receive.put", data=[block]) for block in (long, last)]
    for reply in replies:
        with pytest.raises(HostError):
            reply.result()
    assert box.tree() == {}
    answer = agent.call("receive.compare", target=str(box.target), digest="whole")
    assert not answer["same"]


def test_what_was_refused_is_reported_with_the_end_of_the_sync(box: HostPair) -> None:

    agent = box.agent()
    list(agent.stream("receive.compare", target=str(box.target), digest=""))
    box.target.mkdir(parents=True)
    (box.target / "mine").write_text("mine")
    first = blocks.pack({"f": [["mine", 0o644, "", 1]]}, [b"x"], 0)
    last = blocks.pack({"finish": {"digest": "whole", "left": []}}, [], 0)
    replies = [agent.ask("receive.put", data=[block]) for block in (first, last)]
    answers = [reply.result() for reply in replies]
    assert answers[1]["conflicts"] == [["mine", "is there, and no sync put it there"]]
    assert box.tree() == {"mine": b"mine"}
    answer = agent.call("receive.compare", target=str(box.target), digest="whole")
    assert not answer["same"]


def test_names_of_any_bytes_arrive_under_any_locale(box: HostPair) -> None:
    names = [b"\xff\xfe", "ä 語".encode(), b"a\nb", b"-x", b"'\"$(x)`", b"%s{}\\"]
    for name in names:
        (Path(os.fsdecode(os.fsencode(box.project) + b"/" + name))).write_bytes(name)
    for locale in ("C", "en_US.ISO-8859-1", "C.UTF-8"):
        box.sync(box.agent(LC_ALL=locale))
        paths = {name: (os.fsencode(box.target) + b"/" + name) for name in names}
        for name, path in paths.items():
            assert Path(os.fsdecode(path)).read_bytes() == name
        shutil.rmtree(box.target)


@pytest.mark.parametrize("method", ["", compression.BZIP2, compression.ZSTD])
def test_each_compression_brings_files_of_all_sizes(
    box: HostPair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str
) -> None:
    if method and method not in compression.available():
        pytest.skip(f"no {method} here: install backports.zstd")
    monkeypatch.setenv("SAFELAUNCH_HOME", str(tmp_path / "home"))
    text = "".join(f"step {n}: loss = {n % 7919 / 7919}\n" for n in range(30_000))
    for number in range(40):
        box.write(f"d{number % 3}/{number}.log", text[number * 1000 :][:200_000])
    box.write("weights.bin", os.urandom(70_000))
    box.write("corpus.txt", text * 10)
    box.write("model.bin", os.urandom(9_000_000) + text.encode() + os.urandom(100))

    class ThisHost(ThreadAgent):
        """Its Python has one method of compression, and its link is slow."""

        def ask(self, verb: str, data: Any = None, **request: Any) -> Any:
            reply = super().ask(verb, data, **request)
            result = reply.result

            def changed() -> Any:
                answer = result()
                if "compression" in answer:
                    answer["compression"] = [method]
                if "took" in answer:
                    answer |= {"waited": answer["arrived"] / 1e6, "took": answer["arrived"] / 1e6}
                return answer

            reply.result = changed  # type: ignore[method-assign]
            return reply

    agent = ThisHost("box", lambda *_: None)
    try:
        summary = box.sync(cast("Any", agent))
    finally:
        agent.socket.close()
    assert summary.wire_size < 0.6 * summary.size
    assert box.tree() == {
        str(path.relative_to(box.project)): path.read_bytes()
        for path in box.project.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("cut", [1, 100_000, 500_000, 1_500_000])
def test_a_cut_sync_leaves_whole_files_and_goes_on(box: HostPair, cut: int) -> None:
    old = {f"{n}.bin": os.urandom(40_000) for n in range(60)}
    for name, data in old.items():
        box.write(name, data)
    box.sync()
    new = {name: os.urandom(40_000) for name in old}
    for name, data in new.items():
        box.write(name, data)
    agent = box.agent()
    agent.cut_after = cut
    with pytest.raises(HostError):
        box.sync(agent)
    contents = box.tree()
    assert sorted(contents) == sorted(old)  # nothing half-written beside them
    assert all(contents[name] in (old[name], new[name]) for name in old)
    arrived = sum(contents[name] == new[name] for name in old)
    again = box.sync()
    assert again.sent == 60 - arrived
    assert box.tree() == new


def test_a_reader_never_sees_half_a_file(box: HostPair) -> None:
    versions = [bytes([n]) * 300_000 for n in (65, 66)]
    box.write("a.txt", versions[0])
    box.sync()
    contents, stop = set(), threading.Event()

    def read() -> None:
        while not stop.is_set():
            contents.add((box.target / "a.txt").read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for turn in range(10):
            box.write("a.txt", versions[(turn + 1) % 2])
            box.sync()
    finally:
        stop.set()
        reader.join()
    assert contents <= set(versions)


def test_a_half_written_file_of_a_killed_agent_is_swept(box: HostPair) -> None:
    box.write("d/a", "x")
    box.sync()
    (record,) = Path(box.env["SAFELAUNCH_HOME"], "sync").glob("*.lock")
    record.write_text(f'[4242, "{box.target}/d"]')
    (box.target / "d" / ".safelaunch-4242.part").write_text("half")
    box.sync()
    assert sorted(os.listdir(box.target / "d")) == ["a"]


def test_what_is_too_large_is_asked_for_or_refused(box: HostPair) -> None:
    box.write("data/big.bin", b"x" * 5000)
    box.write("a.py", "x")
    with pytest.raises(Refused, match=r"2 files, 5 kB, .*data/big\.bin \(5 kB\)") as raised:
        box.sync(limit=1000)
    assert "--yes" in str(raised.value.hint)
    questions: list[str] = []

    def answer(yes: bool) -> Callable[[str], bool]:
        def asking(question: str) -> bool:
            questions.append(question)
            return yes

        return asking

    with pytest.raises(Refused):
        box.sync(limit=1000, confirm=answer(False))
    assert not box.target.exists()
    box.sync(limit=1000, confirm=answer(True))
    assert len(questions) == 2
    box.sync(limit=1000)  # nothing is left to send


def test_two_syncs_at_once_both_end_well(box: HostPair) -> None:
    for number in range(200):
        box.write(f"{number % 7}/{number}", os.urandom(20_000))
    failures: list[BaseException] = []
    messages: list[str] = []

    def work() -> None:
        try:
            pending = start_push(box.agent(), str(box.project), str(box.target))
            pending.finish(report=messages.append)
        except BaseException as e:  # noqa: BLE001 - shown below
            failures.append(e)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(box.tree()) == 200
    assert all("another sync" in text for text in messages)


def test_a_file_that_cannot_be_read_is_named(box: HostPair) -> None:
    box.write("a", "x")
    box.write("b", "x")

    def lose(state: TransferProgress) -> None:
        del state

    tree_rules = Rules(str(box.project))
    real_decide = tree_rules.decide

    def decide(path: str, *, is_folder: bool) -> Any:
        decision = real_decide(path, is_folder=is_folder)
        if path == "b":  # it goes between the walk and the reading
            (box.project / "a").unlink()
        return decision

    tree_rules.decide = decide  # type: ignore[method-assign]
    summary = box.sync(rules=tree_rules, progress=lose)
    assert summary.notes == ("a: No such file or directory: not sent",)
    assert box.tree() == {"b": b"x"}
    again = box.agent()
    box.sync(again)
    assert again.verbs != ["receive.compare"]  # the host's record does not claim to be the tree


def test_a_target_that_is_a_file_or_not_writable_says_so(box: HostPair) -> None:
    box.write("a", "x")
    box.target.parent.mkdir()
    box.target.write_text("")
    with pytest.raises(HostError, match="not a folder") as raised:
        box.sync()
    assert "workdir" in str(raised.value.hint)


def in_small_disk(box: HostPair, size: str) -> Sequence[str]:
    """Return words that start a program to which the target is a small disk."""
    box.target.mkdir(parents=True)
    words = ("unshare", "--mount", "sh", "-c")
    mount = f'mount -t tmpfs -o {size} tmpfs "$0" && exec "$@"'
    done = subprocess.run(
        [*words, mount, str(box.target), "true"], check=False, capture_output=True
    )
    if done.returncode:
        pytest.skip("no rights here to mount a small disk")
    return (*words, mount, str(box.target))


def test_a_disk_that_is_too_small_is_told_before_anything_is_written(box: HostPair) -> None:
    box.write("a.bin", os.urandom(3 * MIB))
    agent = box.agent(*in_small_disk(box, "size=1m"))
    with pytest.raises(HostError, match=r"is too full: 3\.1 MB to come, 1 MB free") as raised:
        box.sync(agent)
    assert "free space" in str(raised.value.hint)
    assert agent.sent < MIB * 4


def test_a_disk_that_fills_up_in_the_middle_leaves_whole_files(box: HostPair) -> None:
    for number in range(100):
        box.write(f"{number:03}", os.urandom(5000))
    agent = box.agent(*in_small_disk(box, "nr_inodes=40"))
    with pytest.raises(HostError, match="No space left on device"):
        box.sync(agent)
    data = pull(agent, ["*"], str(box.project.parent / "back"), root=str(box.target))
    assert 30 < len(data.files) < 40
    for name in data.files:
        back = (box.project.parent / "back" / name).read_bytes()
        assert back == (box.project / name).read_bytes()


# -- large files


def large(box: HostPair, size: int = 20 * MIB) -> Path:
    return box.write("big.bin", os.urandom(MIB) * (size // MIB))


def test_a_large_file_of_a_project_arrives(box: HostPair) -> None:
    large(box)
    box.write("a.py", "x")
    box.settle()
    box.sync()
    assert box.tree() == {n: (box.project / n).read_bytes() for n in ("a.py", "big.bin")}
    agent = box.agent()
    box.sync(agent)
    assert agent.verbs == ["receive.compare"]


def test_a_push_that_was_cut_goes_on(box: HostPair) -> None:
    path = large(box)
    place = str(box.target / "models" / "w.bin")
    box.settle()
    agent = box.agent()
    agent.cut_after = 15 * MIB
    with pytest.raises(HostError):
        push_file(agent, str(path), place)
    assert not Path(place).exists()
    reports: list[TransferProgress] = []
    again = box.agent()
    summary = push_file(again, str(path), place, reports.append)
    assert again.sent < 10 * MIB
    assert Path(place).read_bytes() == path.read_bytes()
    assert os.listdir(Path(place).parent) == ["w.bin"]
    assert reports[-1].done == reports[-1].total == summary.size
    third = box.agent()
    assert push_file(third, str(path), place).sent == 0
    assert third.sent < MIB


def test_a_beginning_that_is_not_the_same_is_not_kept(box: HostPair) -> None:
    path = large(box)
    agent = box.agent()
    agent.cut_after = 12 * MIB
    with pytest.raises(HostError):
        push_file(agent, str(path), f"{box.target}/w.bin")
    (part,) = box.target.iterdir()
    with part.open("r+b") as file:
        file.seek(MIB)
        file.write(b"garbage")
    push_file(box.agent(), str(path), f"{box.target}/w.bin")
    assert (box.target / "w.bin").read_bytes() == path.read_bytes()


def test_a_large_file_that_changes_while_it_is_sent_is_sent_again(box: HostPair) -> None:
    path = large(box)
    changes = iter([b"new"])

    def change(state: TransferProgress) -> None:
        if state.done > MIB and (data := next(changes, None)):
            with path.open("r+b") as file:
                file.write(data)

    push_file(box.agent(), str(path), f"{box.target}/w.bin", change)
    assert (box.target / "w.bin").read_bytes() == path.read_bytes()


def test_a_large_file_that_never_rests_is_not_sent(box: HostPair) -> None:
    path = large(box)
    count = iter(range(10**6))

    def change(_: TransferProgress) -> None:
        with path.open("r+b") as file:
            file.write(b"%d" % next(count))

    summary = push_file(box.agent(), str(path), f"{box.target}/w.bin", change)
    assert "changed while it was sent, twice: not sent" in summary.notes[0]
    assert not (box.target / "w.bin").exists()


def test_a_push_does_not_replace_what_is_not_ours(box: HostPair) -> None:
    path = large(box)
    box.target.mkdir(parents=True)
    (box.target / "w.bin").write_text("theirs")
    with pytest.raises(Refused, match=r"w\.bin exists on the host and was not created by a sync"):
        push_file(box.agent(), str(path), f"{box.target}/w.bin")
    push_file(box.agent(), str(path), f"{box.target}/w.bin", force=True)
    assert (box.target / "w.bin").stat().st_size == path.stat().st_size


def test_a_pushed_folder_brings_what_its_links_mean(box: HostPair) -> None:
    blob = box.write("blobs/1f", os.urandom(10_000))
    box.write("snapshots/rev/.git/x", "kept")
    (box.project / "snapshots/rev/model.bin").symlink_to("../../blobs/1f")
    push_file(box.agent(), str(box.project / "snapshots/rev"), str(box.target))
    assert box.tree() == {".git/x": b"kept", "model.bin": blob.read_bytes()}


def test_two_files_in_one_folder_do_not_disturb_each_other(box: HostPair) -> None:
    for name in ("a", "b"):
        push_file(box.agent(), str(box.write(name, name * 100)), f"{box.target}/{name}")
    assert box.tree() == {"a": b"a" * 100, "b": b"b" * 100}


def test_memory_does_not_grow_with_the_file(box: HostPair, tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(250 * MIB)
    program = (
        "import resource, subprocess, sys\n"
        "from safelaunch.remote.agent_client import Agent\n"
        "from safelaunch.sync.push import push_file\n"
        "p = subprocess.Popen(sys.argv[3:], stdin=-1, stdout=-1, bufsize=0)\n"
        "p.stdout.read(18)\n"
        "def write(d):\n"
        "    v = memoryview(d)\n"
        "    while v: v = v[p.stdin.write(v):]\n"
        "push_file(Agent('box', p.stdout.read, write), sys.argv[1], sys.argv[2])\n"
        "p.stdin.close(); p.wait()\n"
        # not ru_maxrss: it survives exec, and would be that of the tests
        "own = [line for line in open('/proc/self/status') if line.startswith('VmHWM')]\n"
        "print(int(own[0].split()[1]) // 1024,\n"
        "      resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)\n"
    )
    host = [sys.executable, "-I", "-S", "-B", str(runtime_agent.__file__)]
    words = [sys.executable, "-c", program, str(tmp_path / "sparse"), f"{box.target}/w", *host]
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=box.env)
    assert all(int(used) <= 150 for used in done.stdout.split())
    (box.target / "w").unlink()


# -- pull


def results(box: HostPair) -> Path:
    """Write what a run leaves behind, and return its folder."""
    run = box.target / "run"
    for name, data in {
        "logs/rank-0.log": b"line\n" * 1000,
        "logs/rank-1.log": b"line\n" * 10,
        "out/model.bin": os.urandom(3 * MIB),
        "status.json": b"{}",
    }.items():
        path = run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_pull_fetches_what_matches(box: HostPair, tmp_path: Path) -> None:
    run, into = results(box), tmp_path / "into"
    (run / "latest").symlink_to("out/model.bin")
    done = pull(box.agent(), ["logs", "*/model.*", "latest"], str(into), root=str(run))
    assert sorted(done.files) == ["latest", "logs/rank-0.log", "logs/rank-1.log", "out/model.bin"]
    assert contents(into) == {
        name: (run / name).read_bytes()
        for name in ("latest", "logs/rank-0.log", "logs/rank-1.log", "out/model.bin")
    }
    assert done.lines()[0].startswith("fetched 4 files (6.3 MB in ")
    again = pull(box.agent(), ["logs", "*/model.*", "latest"], str(into), root=str(run))
    assert (again.fetched, again.size) == (0, 0)


def test_pull_takes_absolute_patterns(box: HostPair, tmp_path: Path) -> None:
    run, into = results(box), tmp_path / "into"
    pull(box.agent(), [f"{run}/logs/*.log", f"{run}/status.json"], str(into))
    assert sorted(contents(into)) == ["rank-0.log", "rank-1.log", "status.json"]


def test_pull_without_a_match_says_so(box: HostPair, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no file matches `\*\.pt`"):
        pull(box.agent(), ["*.pt"], str(tmp_path / "into"), root=str(results(box)))
    assert not (tmp_path / "into").exists()


def test_pull_adds_to_a_log_that_grew_and_keeps_what_is_different(
    box: HostPair, tmp_path: Path
) -> None:
    run, into = results(box), tmp_path / "into"
    log = run / "logs/rank-0.log"
    log.write_bytes(os.urandom(2 * MIB))
    pull(box.agent(), ["logs/*"], str(into), root=str(run))
    with log.open("ab") as file:
        file.write(b"more\n")
    done = pull(box.agent(), ["logs/*"], str(into), root=str(run))
    assert (done.fetched, done.size) == (1, 5)
    assert (into / "logs/rank-0.log").read_bytes() == log.read_bytes()
    (into / "logs/rank-1.log").write_text("mine")
    with pytest.raises(Refused, match=r"not overwritten: logs/rank-1\.log"):
        pull(box.agent(), ["logs/*"], str(into), root=str(run))
    assert (into / "logs/rank-1.log").read_text() == "mine"
    pull(box.agent(), ["logs/*"], str(into), root=str(run), force=True)
    assert contents(into) == {f"logs/{p.name}": p.read_bytes() for p in log.parent.iterdir()}


def test_a_pull_that_was_cut_goes_on(box: HostPair, tmp_path: Path) -> None:
    run, into = results(box), tmp_path / "into"
    (run / "out/model.bin").write_bytes(os.urandom(MIB) * 20)
    agent = box.agent()
    agent.cut_after_reading = 10 * MIB
    with pytest.raises(HostError):
        pull(agent, ["out/*"], str(into), root=str(run))
    assert not (into / "out/model.bin").exists()
    done = pull(box.agent(), ["out/*"], str(into), root=str(run))
    assert done.size < 11 * MIB
    assert contents(into) == {"out/model.bin": (run / "out/model.bin").read_bytes()}


def test_pull_says_what_it_cannot_read(box: HostPair, tmp_path: Path) -> None:
    run = results(box)
    os.mkfifo(run / "logs" / "pipe")
    (run / "logs" / "dangling").symlink_to("nowhere")
    (run / "logs" / "up").symlink_to("..")
    done = pull(box.agent(), ["logs"], str(tmp_path / "into"), root=str(run))
    assert sorted(done.files) == ["logs/rank-0.log", "logs/rank-1.log"]
    assert [note.partition(": ")[2] for note in done.notes] == [
        "a link to a folder: not fetched",
        "No such file or directory: not fetched",
        "no file: not fetched",
    ]


def test_pull_tells_of_a_file_that_vanished_meanwhile(box: HostPair, tmp_path: Path) -> None:
    run = results(box)
    agent = box.agent()
    stream = agent.stream

    def losing(verb: str, **request: Any) -> Any:
        if verb == "send.send":
            (run / "out/model.bin").unlink()
        return stream(verb, **request)

    agent.stream = losing  # type: ignore[method-assign]
    done = pull(agent, ["out", "status.json"], str(tmp_path / "into"), root=str(run))
    assert done.fetched == 1
    assert done.notes == (f"{run}/out/model.bin: No such file or directory: not fetched",)
