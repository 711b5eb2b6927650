"""Which options a script takes, where that can be read from its text with certainty.

The one place where the command line is parsed must be reached whatever happens, from the script's
first line on, and there must be no other that could be reached. Else the result is open.
"""

from __future__ import annotations

import gc
import os
import time
from typing import TYPE_CHECKING

from safelaunch.analysis.imports.follow import SECONDS, needed
from safelaunch.analysis.option_model import Flags, Option
from safelaunch.analysis.python.module_search import search_path
from safelaunch.analysis.python.trees import Place, Trees, Unclear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.analysis.imports.follow import Imports

__all__ = ["Flags", "Option", "parser_of"]


def parser_of(
    script: str | os.PathLike[str],
    roots: Sequence[str | os.PathLike[str]],
    *,
    imports: Imports | None = None,
    trees: Trees | None = None,
    is_module: bool = False,
    seconds: float = SECONDS,
) -> Flags | None:
    """Return the options that a script takes, open ones with the reason; None: it parses nothing.

    `roots` as for `imports.needed`, whose answer may be given. `is_open` means that nothing can be
    said of an option, known or not. `seconds` is a limit for each half of the work: the imports,
    and the options.
    """
    trees = trees or Trees()
    path = os.path.abspath(os.fspath(script))
    if imports is None:
        imports = needed(script, roots, trees=trees, is_module=is_module, seconds=seconds)
    if trees.tree(path) is None:
        return None
    if not imports.is_whole or imports.path_changed:
        why = "not all of the project's files were read"
        return Flags("", imports.path_changed or Place(path, 1), is_open=True, why=why)
    folders = search_path(path, [os.fspath(root) for root in roots], is_module=is_module)
    # ast and what walks it are imported where there is something to read
    from safelaunch.analysis.options.parse_calls import Sites  # noqa: PLC0415
    from safelaunch.analysis.python.names import Modules  # noqa: PLC0415

    was_on = gc.isenabled()
    gc.disable()
    try:
        return Sites(
            Modules(trees, folders, time.monotonic() + seconds), path, imports.files
        ).read()
    except Unclear as e:
        return Flags("", e.place, is_open=True, why=e.why)
    except RecursionError:
        return Flags("", Place(path, 1), is_open=True, why="nested too deeply")
    finally:
        if was_on:
            gc.enable()
