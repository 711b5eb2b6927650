"""Reads which options a script accepts, where its text shows that with certainty.

There must be one call that parses the command line, it must be reached on every path from the
script's first line, and no other such call may be reachable. Otherwise the result is incomplete.
"""

# ruff: noqa: PLC0415 - ast and the modules that walk its trees are imported only if there is a
# program to read

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

from safelaunch.analysis.imports.follow import TIME_LIMIT, Imports, read_imports
from safelaunch.analysis.option_model import Option, ScriptOptions
from safelaunch.analysis.python.cpu_budget import CpuBudget
from safelaunch.analysis.python.module_search import search_path
from safelaunch.analysis.python.statements import REQUIRED
from safelaunch.analysis.python.trees import SourceLine, Trees, Unclear

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.analysis.python.libraries import LibraryPaths

__all__ = ["Option", "ScriptOptions", "read_options"]


def read_options(
    script: str | os.PathLike[str],
    roots: Sequence[str | os.PathLike[str]],
    *,
    imports: Imports | None = None,
    trees: Trees | None = None,
    is_module: bool = False,
    cwd: str | None = None,
    library_paths: Callable[[], LibraryPaths] | None = None,
    is_library: bool = False,
    seconds: float | None = TIME_LIMIT,
) -> ScriptOptions | None:
    """Return the options that a script accepts; None if it parses no command line.

    `roots` and `cwd` as for `read_imports`; `imports` is its result, if already known. With
    `is_incomplete` in the result no option can be checked, listed or not. `seconds` of CPU time
    limit each half of the work, the imports and the options; None: no limit. `library_paths`:
    where the packages of the job's interpreter are. With `is_library` the script is a file of one
    of them, and alone is searched for calls.
    """
    trees = trees or Trees()
    path = os.path.abspath(os.fspath(script))
    if is_library:
        imports = Imports(files={path: REQUIRED})
    if imports is None:
        imports = read_imports(script, roots, trees=trees, is_module=is_module, seconds=seconds)
    if trees.tree(path) is None:
        return None
    if not imports.is_complete or imports.path_prepended:
        why = "not all of the project's files were read"
        return ScriptOptions(
            "", imports.path_prepended or SourceLine(path, 1), is_incomplete=True, why=why
        )
    folders = search_path(path, [os.fspath(root) for root in roots], is_module=is_module)
    folders = () if is_library else folders
    # ast and what walks it are imported where there is something to read
    from safelaunch.analysis.options.parse_calls import ParseCallFinder
    from safelaunch.analysis.python.libraries import Libraries
    from safelaunch.analysis.python.names import Modules

    was_on = gc.isenabled()
    gc.disable()
    try:
        budget = CpuBudget(seconds)
        libraries = None if library_paths is None else Libraries(trees, library_paths, budget)
        modules = Modules(trees, folders, budget, libraries, is_single=is_library)
        return ParseCallFinder(modules, path, imports.files, cwd).read()
    except Unclear as e:
        return ScriptOptions("", e.location, is_incomplete=True, why=e.why)
    except RecursionError:
        return ScriptOptions("", SourceLine(path, 1), is_incomplete=True, why="nested too deeply")
    finally:
        if was_on:
            gc.enable()
