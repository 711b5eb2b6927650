from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.errors import ConfigError
from safelaunch.runtime.agent import wire
from safelaunch.runtime.transfer import blocks, send
from safelaunch.sync.download import listing
from safelaunch.sync.download.listing import RemotePattern

if TYPE_CHECKING:
    from pathlib import Path

TREE = (
    "status.json", "out/model.bin", "out/epoch-1/model.bin", "out/.cache/x", ".git/hooks/post",
    ".envrc", "logs/rank-0.log", "logs/rank-1.log", "a[1].txt", "a1.txt", "sub/a/b/c.txt",
    "sub/a/.hidden/c.txt", "naïve.txt", "\udcff.bin", "lib/x.py",
)  # fmt: skip
PATTERNS = (
    "out", "out/", "./out", "*", "**", "**/*", "*.json", "out/**/*.bin", "**/model.bin", "sub/**",
    "sub/*/b", "sub/**/c.txt", ".git", ".*", "logs/rank-[0-9].log", "logs//*", "a[[]1].txt",
    "a[1].txt", "na??ve.txt", "na?ve.txt", "*.bin", ".", "**/.hidden", "nothing",
)  # fmt: skip


def find(patterns: list[RemotePattern]) -> list[list[Any]]:
    """Return the rows that a host lists."""
    out = bytearray()
    link = wire.Link(lambda _: b"", out.extend)
    send.find({"patterns": [list(pattern) for pattern in patterns]}, link)
    return blocks.read_rows(bytes(out[wire.HEAD.size :])) if out else []


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_the_same_here_as_on_a_host(tmp_path: Path, pattern: str) -> None:
    for name in TREE:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    names = {os.fsencode(name).decode("utf-8", "surrogateescape") for name in TREE}
    parsed = RemotePattern.parse(pattern, str(tmp_path))
    matched = {row[1] for row in find([parsed])}
    assert matched == {name for name in names if parsed.includes(name)}


@pytest.mark.parametrize(
    ("pattern", "folder", "glob"),
    [
        ("out/*.pt", "/run", "out/*.pt"),
        ("/run/out/*.pt", "/run", "out/*.pt"),
        ("/data/ckpt/*/model.pt", "/data/ckpt", "*/model.pt"),
        ("/data/w.bin", "/data", "w.bin"),
        ("/w.bin", "/", "w.bin"),
        ("~/data/*", "~/data", "*"),
        ("../other/*.txt", "/run/../other", "*.txt"),
        ("../other/out.txt", "/run/../other", "out.txt"),
        ("out/../x", "/run/out/..", "x"),
        (".", "/run", "."),
    ],
)
def test_a_pattern_out_of_the_run_names_files_below_its_folder(
    pattern: str, folder: str, glob: str
) -> None:
    assert RemotePattern.parse(pattern, "/run") == (folder, glob)


def test_a_pattern_must_not_climb_behind_a_wildcard() -> None:
    for pattern in ("*/../x", "out/.."):
        with pytest.raises(ConfigError, match="behind a wildcard"):
            RemotePattern.parse(pattern, "/run")


HOSTILE = [
    "/etc/passwd", "../x", "out/../../x", "out//x", "", "out/.", "out/a\0",
    ".git/hooks/post-commit", "sitecustomize.py", ".envrc", "sub/.envrc", "-rf",
    "out/\x1b]0;t\x07", "out/a\nb", "out/\u202etxt",
    "out/" + "a" * 256, "out/" + "a/" * 3000 + "a", "out/\ud83d", "out/.safelaunch-00.part",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_host_cannot_name_what_was_not_asked_for(name: str) -> None:
    notes: list[str] = []
    pattern = RemotePattern.parse("out", "/run")
    assert listing.read([[0, name, "/run/x", 1, 1]], [pattern], notes) == []
    assert len(notes) == 1
    assert notes[0].isprintable()


@pytest.mark.parametrize(
    "row",
    [
        [], 7, None, "text", [0, "out/a"], [9, "out/a", "/a", 1, 1], ["0", "out/a", "/a", 1, 1],
        [0, "out/a", "/a", "many", 1], [0, "out/a", "/a", None, 1], [0, "out/a", "/a", 1e999, 1],
    ],
)  # fmt: skip
def test_what_is_no_list_of_files_is_an_error(row: Any) -> None:
    pattern = RemotePattern.parse("out", "/run")
    with pytest.raises((LookupError, TypeError, ValueError, OverflowError)):
        listing.read([row], [pattern], [])


def test_a_name_with_control_characters_is_fetched_by_its_name() -> None:
    pattern = RemotePattern.parse("out/a\tb\x07", "/run")
    assert listing.read([[0, "out/a\tb\x07", "/run/x", 1, 1]], [pattern], [])


def test_two_files_of_one_name_are_not_both_fetched() -> None:
    patterns = [RemotePattern.parse(pattern, "/run") for pattern in ("/a/x", "/b/x")]
    notes: list[str] = []
    rows = [[0, "x", "/a/x", 1, 1], [1, "x", "/b/x", 1, 1]]
    assert [file.path for file in listing.read(rows, patterns, notes)] == ["/a/x"]
    assert notes == ["/b/x: has the same local name as /a/x: not fetched"]


def test_a_size_that_no_file_has_is_refused() -> None:
    pattern = RemotePattern.parse("out", "/run")
    for size in (-1, 1 << 63):
        assert listing.read([[0, "out/a", "/run/out/a", size, 1]], [pattern], []) == []
