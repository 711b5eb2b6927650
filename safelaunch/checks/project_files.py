"""What is read of a job's program and of the settings files that its arguments name, once."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

from safelaunch.checks.answers import NotKnown

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.analysis.imports.follow import Imports
    from safelaunch.analysis.options.read import ScriptOptions
    from safelaunch.analysis.options.trl_configs import TrlConfigs
    from safelaunch.model import Job

QUICK = 0.03  # seconds for the imports before a start, of the 0.1 s that all checks may take
WHOLE = 2.0
_MOST = 1 << 22  # bytes of a settings file


class Reading:
    """The project's text, as far as it lies on this machine. Nothing of it is run."""

    def __init__(
        self, job: Job | None, here: Callable[[str], str | None], *, is_quick: bool
    ) -> None:
        self._given = job
        self._here = here
        self._is_quick = is_quick
        self._trees: Any = None

    @property
    def _job(self) -> Job:
        if self._given is None:
            raise NotKnown("there is no job")
        return self._given

    @cached_property
    def script(self) -> str | None:
        """The path of the program on this machine; None where it is not here."""
        job = self._job
        if job.script is not None:
            found = self._here(job.script)
            return found if found and os.path.isfile(found) and found.endswith(".py") else None
        if job.module is None:
            return None
        below = job.module.replace(".", "/")
        for root in (self._here("."), *self.roots):
            for name in (f"{below}.py", f"{below}/__main__.py"):
                path = os.path.join(root or "", name)
                if root and os.path.isfile(path):
                    return path
        return None

    @cached_property
    def roots(self) -> list[str]:
        """The folders of the job's PYTHONPATH that are on this machine."""
        found = [self._here(str(path)) for path in self._job.pythonpath]
        return [path for path in found if path is not None]

    @cached_property
    def imports(self) -> Imports:
        """What the program imports. Raises NotKnown."""
        from safelaunch.analysis.imports.follow import read_imports  # noqa: PLC0415 - as above
        from safelaunch.analysis.python import trees  # noqa: PLC0415 - only where there is a program

        if self.script is None:
            raise NotKnown("the program is not on this machine")
        self._trees = trees.Trees()
        return read_imports(
            self.script,
            self.roots,
            trees=self._trees,
            cwd=self._here("."),
            is_module=self._job.module is not None,
            seconds=QUICK if self._is_quick else WHOLE,
        )

    @cached_property
    def unparsed(self) -> tuple[int, str] | None:
        """Return (line, why) of the program where it is no Python; None where it is."""
        _ = self.imports
        self._trees.tree(self.script)
        found = self._trees.unread.get(self.script)
        if found is None or not found.why.startswith("syntax: "):
            return None
        return found.location.line, found.why.removeprefix("syntax: ")

    @cached_property
    def flags(self) -> ScriptOptions | None:
        """The options that the program takes; None where it parses none. Raises NotKnown."""
        from safelaunch.analysis.options.read import read_options  # noqa: PLC0415 - as above

        imports = self.imports
        return read_options(
            self.script or "",
            self.roots,
            imports=imports,
            trees=self._trees,
            is_module=self._job.module is not None,
        )

    @cached_property
    def configs(self) -> TrlConfigs | None:
        """The configurations of TRL that the program uses; None where that cannot be told."""
        from safelaunch.analysis.options.trl_configs import read_configs  # noqa: PLC0415 - as above

        if self.script is None:
            return None
        return read_configs(self.script, self.imports, self._trees)

    def text(self, path: str) -> bytes | None:
        """Return a file of the job that lies on this machine; None where it does not."""
        at = self._here(path)
        if at is None or not os.path.isfile(at):  # a pipe would be waited for
            return None
        try:
            with open(at, "rb") as file:
                return file.read(_MOST)
        except OSError:
            return None

    def settings(self, path: str) -> Any:
        """Return a settings file as plain data; None where there is none that can be read."""
        data = self.text(path)
        if data is None:
            return None
        try:
            if path.endswith(".json"):
                import json  # noqa: PLC0415 - only jobs that name one

                return json.loads(data.decode("utf-8", "replace"))
            if path.endswith((".yaml", ".yml")):
                import yaml  # noqa: PLC0415 - as above

                loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
                return yaml.load(data, Loader=loader)  # noqa: S506 - both are the safe one
        except Exception:  # noqa: BLE001 - whatever a file may hold; its own checks say so
            return None
        return None
