"""The runtime's own files, held in memory: a removed run directory takes them away.

At the start of a run only what starts it is imported; what judges its end may be needed days later,
and what a later attempt's ranks import as well.
"""

from __future__ import annotations

import sys
from importlib import machinery

from safelaunch import runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


class Held(object):
    """A finder of last resort: asked for what is no longer on the disk."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}  # by their path in the run directory
        self.sources: dict[str, bytes] = {}  # those of them that are modules, by their name
        for path, file in runtime.files().items():
            with open(file, "rb") as source:
                self.files[path] = source.read()
            if file.endswith(".py") and not file.startswith(runtime.SITE):
                self.sources[runtime.module_name(path)] = self.files[path]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of a module that is held, else None."""
        del path, target
        if name not in self.sources:
            return None
        is_package = any(other.startswith(name + ".") for other in self.sources)
        return machinery.ModuleSpec(name, self, is_package=is_package)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> None:
        """Leave it to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module."""
        code = compile(self.sources[module.__name__], module.__name__, "exec")
        exec(code, module.__dict__)  # noqa: S102 - our own file, as it was


def hold() -> Held:
    """Read the runtime's files once. Raises OSError."""
    found = Held()
    runtime.keep_in_memory(found.files)
    sys.meta_path.append(found)
    return found
