"""The runtime's own files, held in memory: a removed run directory takes them away.

At the start of a run only what starts it is imported; what analyses its end may be needed days
later, and what a later attempt's ranks import as well.
"""

from __future__ import annotations

import sys
from importlib import machinery

from safelaunch import runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


class MemoryImporter:
    """The last finder on sys.meta_path: it imports what is no longer on the disk."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.sources = {  # by module name; ranks alone import those of `site`
            runtime.module_name(path): data
            for path, data in files.items()
            if path.endswith(".py") and not path.startswith(f"{runtime.PLACE}/site/")
        }

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of a module that is in memory, else None."""
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


def load() -> dict[str, bytes]:
    """Return the runtime's files by their path in the run directory. Raises OSError."""
    files = {}
    for path, file in runtime.files().items():
        with open(file, "rb") as source:
            files[path] = source.read()
    runtime.keep_in_memory(files)
    sys.meta_path.append(MemoryImporter(files))
    return files
