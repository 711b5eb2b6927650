"""The hash of the files that a job is launched with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from safelaunch.sync.file_hashes import hash_item
from safelaunch.sync.ignore import Rules
from safelaunch.sync.manifest import manifest_hash
from safelaunch.sync.project_tree import scan

if TYPE_CHECKING:
    from pathlib import Path


def project_hash(root: Path) -> str:
    tree = scan(Rules(str(root)))
    for item in tree.files:
        hash_item(item, lambda _: None)
    return manifest_hash(reversed(tree.items.values()))


def test_content_mode_name_and_link_count_and_times_do_not(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one")
    (tmp_path / "link").symlink_to("a.py")
    first = project_hash(tmp_path)
    os.utime(tmp_path / "a.py", (1, 1))
    assert project_hash(tmp_path) == first
    hashes = {first}
    (tmp_path / "a.py").chmod(0o755)
    hashes.add(project_hash(tmp_path))
    (tmp_path / "a.py").write_text("two")
    hashes.add(project_hash(tmp_path))
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("b.py")
    hashes.add(project_hash(tmp_path))
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    hashes.add(project_hash(tmp_path))
    assert len(hashes) == 5
