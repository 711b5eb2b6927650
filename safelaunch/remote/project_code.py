"""The record of the code of a start on hosts: what the sync has sent, and what git says of it."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

from safelaunch.runtime.code import git
from safelaunch.runtime.code.launch_record import code_record
from safelaunch.runtime.code.manifest import LINK, CodeFile
from safelaunch.runtime.records import CodeRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from safelaunch.sync.project_tree import Entry


class ProjectCode:
    """The code of a project: git is asked at once, beside the connection to the hosts."""

    def __init__(self, root: str, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        self._root = root
        self._rules = include, exclude
        self._state: git.GitState | None = None
        self._thread = threading.Thread(target=self._ask_git, daemon=True)
        self._thread.start()

    def _ask_git(self) -> None:
        self._state = git.state(self._root)

    def record(self, entries: Iterable[Entry], home: str) -> LaunchFiles:
        """Return the record of the entries that a sync has sent; `home` is safelaunch's folder."""
        self._thread.join()
        record, patch = code_record(self._root, code_files(entries), home, self._state)
        record.include, record.exclude = self._rules
        return LaunchFiles(record, patch)


class LaunchFiles:
    """The record of the code of a run, and its patch: two files of a run directory."""

    def __init__(self, record: CodeRecord, patch: bytes) -> None:
        self._record = record
        self._patch = patch

    def of_node(self, target: str) -> dict[str, bytes]:
        """Return {name: content} for a node that has the project in the folder `target`."""
        record = self._record.copy()
        record.target = target
        files = {CodeRecord.FILE: json.dumps(record.to_json(), indent=1).encode()}
        return {**files, CodeRecord.PATCH: self._patch} if self._patch else files


def code_files(entries: Iterable[Entry]) -> list[CodeFile]:
    """Return the files and links among the entries of a sync that has ended."""
    return [
        CodeFile(entry.path, LINK if entry.kind == "l" else entry.mode, entry.content)
        for entry in entries
        if entry.kind != "d"
    ]
