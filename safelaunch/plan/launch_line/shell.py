"""The shell that a launch line is typed into."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Shell(NamedTuple):
    """Where a line is pasted: from there its launcher would read its config file.

    `workdir` is what the line changes to before it, relative to `cwd`; "" without. `is_here`:
    whether it runs on this machine, so that programs are those of its PATH. `brings_python`:
    whether what stands before the line puts a Python of its own first there.
    """

    cwd: str
    environ: Mapping[str, str]
    workdir: str = ""
    is_here: bool = True
    brings_python: bool = False

    def with_env(self, env: Mapping[str, str | None]) -> Shell:
        """Return the shell with the variables in front of the line; None removes one."""
        merged = {**self.environ, **env}
        environ = {name: text for name, text in merged.items() if text is not None}
        return self._replace(environ=environ)
