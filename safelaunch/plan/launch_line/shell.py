"""The shell that a launch line is typed into."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Shell(NamedTuple):
    """Where a line is pasted: from there its launcher would read its config file."""

    cwd: str
    environ: Mapping[str, str]

    def with_env(self, env: Mapping[str, str | None]) -> Shell:
        """Return the shell with the variables in front of the line; None removes one."""
        merged = {**self.environ, **env}
        return Shell(self.cwd, {name: text for name, text in merged.items() if text is not None})
