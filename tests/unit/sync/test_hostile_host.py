"""Pulls from a host that is not to be trusted: what it sends, and where that may lie."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.hostile_agent import HostileAgent, answer, data, frame, listing

from safelaunch.errors import ConfigError, Refused, RunError
from safelaunch.runtime.agent import wire
from safelaunch.runtime.transfer import blocks, compression
from safelaunch.sync.answers import BadAnswer
from safelaunch.sync.download import folder
from safelaunch.sync.download.pull import pull

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.hostile_agent import Answers

EVIL = b"#!/bin/sh\necho caught\n"
ATTACKS = Path(__file__).parents[2] / "support" / "inputs" / "memory_attacks.py"


def host(rows: list[list[Any]], contents: bytes = EVIL) -> Answers:
    """Return a host that lists rows, and sends the same contents for each file."""

    def answers(request: dict[str, Any]) -> Iterator[bytes]:
        if request["verb"] == "send.find":
            yield from listing(rows)
        elif request["verb"] == "send.hashes":
            yield answer(hashes=[None] * len(request["files"]))
        elif request["verb"] == "send.small":
            count = len(request["files"])
            heads = {"f": [[number, len(contents)] for number in range(count)]}
            yield from data(blocks.pack(heads, [contents] * count, 1))
            yield answer()
        else:
            yield frame(wire.DATA, b"0")
            yield from data(compression.STORED + contents)
            yield answer(hash="", size=len(contents), offset=0, changed=False)

    return answers


def row(name: str, size: int = len(EVIL), mtime: int = 10**18) -> list[Any]:
    return [0, name, f"/run/{name}", size, mtime]


def fetch(answers: Answers, into: Path, *patterns: str, force: bool = False) -> Any:
    agent = HostileAgent(answers)
    return pull(agent, patterns or ("out/*.bin",), str(into), root="/run", force=force)


def test_only_what_was_asked_for_is_written(tmp_path: Path) -> None:
    others = (".git/hooks/post-checkout", "sitecustomize.py", "../x.bin", "/x.bin", "out/.x.bin")
    done = fetch(host([row("out/model.bin"), *map(row, others)]), tmp_path / "into")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [tmp_path / "into/out/model.bin"]
    assert done.files == ("out/model.bin",)
    assert len(done.notes) == len(others)


def test_no_file_becomes_executable(tmp_path: Path) -> None:
    fetch(host([[*row("out/model.bin"), 0o777]]), tmp_path)
    assert not (tmp_path / "out/model.bin").stat().st_mode & 0o111


@pytest.mark.parametrize("has_dir_fd", [True, False])  # Windows has not
@pytest.mark.parametrize(("force", "size"), [(False, len(EVIL)), (True, 1 << 19)])
def test_nothing_is_written_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_dir_fd: bool, force: bool, size: int
) -> None:
    monkeypatch.setattr(folder, "_HAS_DIR_FD", has_dir_fd)
    target, into = tmp_path / "ssh", tmp_path / "into"
    (into / "out").mkdir(parents=True)
    target.mkdir()
    (into / "out/sub").symlink_to(target)
    with pytest.raises(Refused, match="a link in the path") as raised:
        fetch(host([row("out/sub/x.bin", size)], b"x" * size), into, "out", force=force)
    assert "nothing is written through a link" in str(raised.value.hint)
    assert os.listdir(target) == []
    (into / "out/sub").unlink()
    fetch(host([row("out/sub/x.bin", 9), row("out/sub/y.bin", 9)], b"x" * 9), into, "out")
    assert sorted(os.listdir(into / "out/sub")) == ["x.bin", "y.bin"]


def test_a_link_that_appears_meanwhile_is_not_followed(tmp_path: Path) -> None:
    target, into = tmp_path / "ssh", tmp_path / "into"
    target.mkdir()
    honest = host([row("out/sub/x.bin")])

    def answers(request: dict[str, Any]) -> Iterator[bytes]:
        if request["verb"] == "send.small":
            (into / "out/sub").rmdir()
            (into / "out/sub").symlink_to(target)
        yield from honest(request)

    try:
        fetch(answers, into, "out")
    except RunError as e:
        assert "link" in str(e)  # noqa: PT017 - where the folder was not open yet
    assert os.listdir(target) == []


def test_a_file_that_is_a_link_here_is_replaced_only_by_force(tmp_path: Path) -> None:
    target, into = tmp_path / "mine", tmp_path / "into"
    target.write_text("mine")
    (into / "out").mkdir(parents=True)
    (into / "out/x.bin").symlink_to(target)
    with pytest.raises(Refused, match=r"not overwritten: out/x\.bin"):
        fetch(host([row("out/x.bin")]), into)
    fetch(host([row("out/x.bin")]), into, force=True)
    assert target.read_text() == "mine"
    assert (into / "out/x.bin").read_bytes() == EVIL


def test_a_destination_may_itself_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "into").symlink_to("disk")
    fetch(host([row("out/x.bin")]), tmp_path / "into")
    assert (tmp_path / "disk/out/x.bin").read_bytes() == EVIL


def test_a_size_that_no_disk_has_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the disk is too full"):
        fetch(host([row("out/x.bin", 1 << 60)]), tmp_path / "into")
    assert not (tmp_path / "into").exists()


@pytest.mark.parametrize("announced", [3, (1 << 18) + 1])
def test_a_file_does_not_become_longer_than_it_said(tmp_path: Path, announced: int) -> None:
    with pytest.raises(BadAnswer):
        fetch(host([row("out/x.bin", announced)], b"x" * (1 << 19)), tmp_path)
    assert not (tmp_path / "out/x.bin").exists()


def test_a_file_that_the_host_does_not_send_is_said(tmp_path: Path) -> None:
    def answers(request: dict[str, Any]) -> Iterator[bytes]:
        yield from listing([row("out/x.bin")]) if request["verb"] == "send.find" else [answer()]

    done = fetch(answers, tmp_path)
    assert (done.fetched, done.notes) == (
        0,
        ("/run/out/x.bin: the host did not send it: not fetched",),
    )


def test_a_time_that_no_file_has_does_no_harm(tmp_path: Path) -> None:
    assert fetch(host([row("out/x.bin", mtime=-(1 << 90))]), tmp_path).fetched == 1


def test_notes_of_a_host_are_few_and_of_one_line_each(tmp_path: Path) -> None:
    def answers(request: dict[str, Any]) -> Iterator[bytes]:
        if request["verb"] == "send.find":
            yield from listing([row("out/x.bin")], ["a\nhint: run `rm -rf /`\x1b[2J"] * 1000)
        else:
            yield from host([])(request)

    lines = fetch(answers, tmp_path).lines()
    assert len(lines) == 22
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    "frames",
    [
        [b"HTTP/1.1 200 OK\r\n\r\n"],
        [frame(b"X", b"")],
        [frame(wire.MESSAGE, b"[1]")],
        [frame(wire.MESSAGE, b"{")],
        [frame(wire.MESSAGE, b"[" * 100_000)],
        [frame(wire.MESSAGE, b'{"ok": null}')],
        [frame(wire.MESSAGE, b'{"ok": []}')],
        [frame(wire.MESSAGE, b"{}")],
        [answer()],
        [answer(notes=7)],
        [frame(wire.DATA, b"garbage"), answer(notes=[])],
        [*data(blocks.rows([7])), answer(notes=[])],
        [*data(blocks.rows([[5, "out/x.bin", "/x", 1, 1]])), answer(notes=[])],
    ],
)
def test_what_no_agent_answers_is_an_error_of_the_host(tmp_path: Path, frames: list[bytes]) -> None:
    with pytest.raises(BadAnswer, match=r"box: its answer is not that of safelaunch's agent"):
        fetch(lambda _: frames, tmp_path)


@pytest.mark.parametrize(
    "error",
    [7, [], {}, {"kind": 1, "message": ["\x1b"], "path": 3, "errno": "x"}],
)
def test_an_error_of_any_form_is_an_error_of_the_host(tmp_path: Path, error: Any) -> None:
    body = json.dumps({"error": error}).encode()
    with pytest.raises(Exception, match=r"^box: ") as raised:
        fetch(lambda _: [frame(wire.MESSAGE, body)], tmp_path)
    assert str(raised.value).isprintable()


def test_nothing_found_says_what_the_host_listed_instead(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        fetch(host([row(".envrc")]), tmp_path)
    assert "not what was asked for" in str(raised.value.hint)


def test_no_answer_takes_more_than_200_mb(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ATTACKS), str(tmp_path / "into")],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ATTACKS.parents[2])},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 200, done.stderr
