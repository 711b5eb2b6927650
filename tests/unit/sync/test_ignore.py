from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from safelaunch.sync.ignore import Rules
from safelaunch.sync.project_tree import points_inside, scan, total_sizes

if TYPE_CHECKING:
    from pathlib import Path


def make(root: Path, *names: str, **texts: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for name, text in texts.items():
        (root / name).write_text(text)
    return root


def sent(root: Path, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> set[str]:
    """Return the files that travel."""
    return {item.path for item in scan(Rules(str(root), include, exclude)).files}


def ignore(root: Path, text: str, name: str = ".gitignore") -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_built_in_rules_leave_out_what_no_job_needs(tmp_path: Path) -> None:
    make(
        tmp_path, ".git/config", "a.py", "__pycache__/a.cpython-311.pyc", "b.pyc", ".venv/x",
        "node_modules/x", "sub/.mypy_cache/x", "checkpoints/1.pt", "wandb/log", "checkpoint-500/m",
        ".safelaunch/runs/x", "model.safetensors", ".DS_Store", ".safelaunch-1f.part",
    )  # fmt: skip
    assert sent(tmp_path) == {"a.py", "model.safetensors"}


def test_a_package_named_like_an_output_folder_is_code(tmp_path: Path) -> None:
    make(tmp_path, "lib/checkpoints/__init__.py", "lib/checkpoints/save.py", "wandb/run.log")
    assert sent(tmp_path) == {"lib/checkpoints/__init__.py", "lib/checkpoints/save.py"}


def test_an_environment_is_known_by_its_contents(tmp_path: Path) -> None:
    make(tmp_path, "env/pyvenv.cfg", "env/lib/x.py", "conda/conda-meta/history", "train.py")
    assert sent(tmp_path) == {"train.py"}


def test_gitignore_negates_and_the_inner_file_wins(tmp_path: Path) -> None:
    make(tmp_path, "a.log", "keep.log", "sub/b.log", "sub/c.txt", "other/d.log")
    ignore(tmp_path, "*.log\n!keep.log\n")
    ignore(tmp_path, "!b.log\n*.txt\n", "sub/.gitignore")
    assert sent(tmp_path) == {".gitignore", "sub/.gitignore", "keep.log", "sub/b.log"}


def test_nothing_below_a_skipped_folder_comes_back_by_negation(tmp_path: Path) -> None:
    make(tmp_path, "data/keep.txt")
    ignore(tmp_path, "data/\n!data/keep.txt\n")
    assert sent(tmp_path) == {".gitignore"}


def test_anchored_patterns_and_folder_patterns(tmp_path: Path) -> None:
    make(tmp_path, "build", "src/build", "out/x", "src/out/y", "doc/a/b/c.txt", "doc/c.txt")
    ignore(tmp_path, "/build\nout/\ndoc/**/c.txt\n")
    assert sent(tmp_path) == {".gitignore", "src/build"}


def test_safelaunchignore_beats_gitignore_in_both_directions(tmp_path: Path) -> None:
    make(tmp_path, "local.yaml", "notes.md", "a.py")
    ignore(tmp_path, "local.yaml\n")
    ignore(tmp_path, "!local.yaml\nnotes.md\n", ".safelaunchignore")
    assert sent(tmp_path) == {".gitignore", ".safelaunchignore", "local.yaml", "a.py"}


def test_exclude_beats_ignore_files_and_include_beats_all(tmp_path: Path) -> None:
    make(tmp_path, "a.bin", "b.bin", "c.txt")
    ignore(tmp_path, "!a.bin\n")
    paths = sent(tmp_path, include=("b.bin",), exclude=("*.bin", "c.txt"))
    assert paths == {".gitignore", "b.bin"}


def test_include_reaches_into_a_skipped_folder_by_its_path(tmp_path: Path) -> None:
    make(tmp_path, "checkpoints/base/w.pt", "checkpoints/base/sub/v.pt", "checkpoints/run1/w.pt")
    assert sent(tmp_path, include=("checkpoints/base/**",)) == {
        "checkpoints/base/w.pt",
        "checkpoints/base/sub/v.pt",
    }
    assert sent(tmp_path, include=("checkpoints/",)) == {
        "checkpoints/base/w.pt",
        "checkpoints/base/sub/v.pt",
        "checkpoints/run1/w.pt",
    }


def test_include_of_a_name_does_not_search_skipped_folders(tmp_path: Path) -> None:
    make(tmp_path, ".venv/lib/model.pt", "sub/model.pt")
    ignore(tmp_path, "*.pt\n")
    assert sent(tmp_path, include=("*.pt",)) == {".gitignore", "sub/model.pt"}


def test_an_include_without_a_match_sends_no_empty_folders(tmp_path: Path) -> None:
    make(tmp_path, "wandb/a/b.txt")
    assert scan(Rules(str(tmp_path), ("wandb/x/*.pt",))).items == {}


def test_rules_of_the_repository_above_the_project_hold(tmp_path: Path) -> None:
    make(tmp_path, ".git/HEAD", "libs/one/a.log", "libs/one/b.py", "libs/one/tmp/c.py")
    ignore(tmp_path, "*.log\n/libs/one/tmp\n")
    assert sent(tmp_path / "libs/one") == {"b.py"}


def test_a_project_in_an_ignored_folder_is_meant(tmp_path: Path) -> None:
    make(tmp_path, ".git/HEAD", "scratch/try/a.py")
    ignore(tmp_path, "scratch/\n")
    assert sent(tmp_path / "scratch/try") == {"a.py"}


def test_crlf_bom_comments_and_lines_that_are_no_pattern(tmp_path: Path) -> None:
    make(tmp_path, "a.log", "b.txt", "#c", "d")
    (tmp_path / ".gitignore").write_bytes(b"\xef\xbb\xbf*.log\r\n# b.txt\r\n\r\n!\r\n\\#c\r\n")
    assert sent(tmp_path) == {".gitignore", "b.txt", "d"}


def test_what_is_skipped_says_why(tmp_path: Path) -> None:
    make(tmp_path, "wandb/x", "a.log", "c.txt")
    ignore(tmp_path, "*.log\n")
    tree = scan(Rules(str(tmp_path), exclude=("c.*",)))
    assert {s.path: s.why for s in tree.skipped} == {
        "wandb": "built in",
        "a.log": ".gitignore: *.log",
        "c.txt": "exclude: c.*",
    }


def test_skipped_folders_are_measured_within_a_time(tmp_path: Path) -> None:
    make(tmp_path, "wandb/a/b")
    (tmp_path / "wandb/a/b").write_bytes(b"x" * 1000)
    skipped = scan(Rules(str(tmp_path))).skipped
    assert total_sizes(skipped, 10.0) == {"wandb": (1000, True)}
    assert total_sizes(skipped, -1.0)["wandb"][1] is False


def test_rules_ignore_case_where_the_file_system_does(tmp_path: Path) -> None:
    make(tmp_path, "Data/x", "a.LOG")
    ignore(tmp_path, "data/\n*.log\n")
    rules = Rules(str(tmp_path))
    assert {item.path for item in scan(rules).files} == {".gitignore", "Data/x", "a.LOG"}
    rules.fold = True
    assert {item.path for item in scan(rules).files} == {".gitignore"}


def test_links_stay_links_unless_they_lead_outside(tmp_path: Path) -> None:
    make(tmp_path, "sub/a.py")
    (tmp_path / "in").symlink_to("sub/a.py")
    (tmp_path / "sub/up").symlink_to("../sub")
    (tmp_path / "out").symlink_to("../elsewhere")
    (tmp_path / "absolute").symlink_to("/etc/passwd")
    tree = scan(Rules(str(tmp_path)))
    links = {i.path: i.link for i in tree.items.values() if i.kind == "l"}
    assert links == {"in": "sub/a.py", "sub/up": "../sub"}
    assert [note.split(":")[0] for note in tree.notes] == ["absolute", "out"]


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        ("a", "b", True),
        ("a", "..", False),
        ("x/a", "..", True),
        ("x/a", "../..", False),
        ("x/a", "./../y/../z", True),
        ("a", "x/../../b", False),
        ("a", "C:/x", False),
        ("a", "/x", False),
    ],
)
def test_where_a_link_leads(path: str, target: str, inside: bool) -> None:
    assert points_inside(path, target) is inside


def test_special_files_are_named_and_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    tree = scan(Rules(str(tmp_path)))
    assert tree.items == {}
    assert tree.notes == ["pipe: no file, folder or link: not sent"]


def test_rules_agree_with_git(tmp_path: Path) -> None:
    names = [
        f"{folder}{name}"
        for folder in ("", "a/", "a/b/", "logs/", "logs/x/", "b/a/", "Ä ö/")
        for name in ("x.log", "keep.log", "b.txt", "foo", "foo bar", "[1].c", "a.py", "!odd")
    ]
    make(tmp_path, *names)
    ignore(
        tmp_path,
        "*.log\n!keep.log\n/foo\na/**/b.txt\nlogs/*\n!logs/x/\n\\!odd\nfoo bar\n\\[1\\].c\n"
        "Ä*/a.py\n",
    )
    ignore(tmp_path, "!*.log\n/b/foo\n", "a/.gitignore")
    git = ["git", "-c", "core.excludesFile=/dev/null", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True, capture_output=True)
    listed = subprocess.run(
        [*git, "ls-files", "-z", "--others", "--exclude-standard"], check=True, capture_output=True
    )
    assert sent(tmp_path) == set(listed.stdout.decode().split("\0")) - {""}


def test_include_reaches_into_folders_that_are_left_out(tmp_path: Path) -> None:
    make(tmp_path, "outputs/run1/best.pt", "outputs/run1/last.pt", "outputs/run2/best.pt", "a.py")
    ignore(tmp_path, "outputs/\n")
    paths = sent(tmp_path, include=("outputs/run1/best.pt",))
    assert paths == {".gitignore", "a.py", "outputs/run1/best.pt"}
