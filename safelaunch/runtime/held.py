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

PACKAGE = runtime.__name__


class Held(object):
    """A finder of last resort: asked for what is no longer on the disk."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}  # by their path in the run directory
        self.sources: dict[str, bytes] = {}  # those of them that are modules, by their name
        for path, file in runtime.files().items():
            with open(file, "rb") as source:
                self.files[path] = source.read()
            folder, _, name = path.rpartition("/")
            if folder == runtime.PLACE:
                self.sources["%s.%s" % (PACKAGE, name[:-3])] = self.files[path]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of a module that is held, else None."""
        del path, target
        return machinery.ModuleSpec(name, self) if name in self.sources else None  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> None:
        """Leave it to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module."""
        code = compile(self.sources[module.__name__], module.__name__, "exec")
        exec(code, module.__dict__)  # noqa: S102 - our own file, as it was


def hold() -> Held:
    """Read the runtime's files once. Raises OSError."""
    found = Held()
    sys.meta_path.append(found)
    return found
