"""A job for hosts: resolved from files and flags, and planned once their homes are known."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from safelaunch.cli.show_plan import resolve_target
from safelaunch.config.paths import Paths
from safelaunch.remote import project_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.config.resolve import Flags, Resolved
    from safelaunch.model import Plan


class Ordered:
    """What is to run, on which hosts, and where the project lies there."""

    def __init__(self, file: str | None, line: tuple[str, ...], flags: Flags) -> None:
        self._files = () if file is None else (file,)
        self._line = line
        self._flags = flags
        self.root = Paths.of(file or "-", os.getcwd(), None).root
        resolved = self._resolve(flags)
        self.hosts = resolved.hosts
        self.sync = resolved.job.sync

    def places(self, homes: Sequence[str]) -> list[str]:
        """Return the project's folder on each host, from the home folders there."""
        found = []
        for host, home in zip(self.hosts, homes, strict=True):
            found.append(project_dir.place(host, self.root, home))
        return found

    def plan(self, homes: Sequence[str]) -> tuple[Plan, Resolved]:
        """Return the plan for hosts with these home folders."""
        return project_dir.plan(self._resolve, self._flags, self.places(homes), homes)

    def _resolve(self, flags: Flags) -> Resolved:
        return resolve_target(self._files, self._line, flags)
