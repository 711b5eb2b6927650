"""Reads the options of `trl sft` and its like: those of the script, and those of accelerate.

What the script's parser does not know goes to `accelerate launch` (trl 0.24 cli.py, 1.16
cli/commands/training.py), also what its settings file has beside.
"""

from __future__ import annotations

import re

from safelaunch.analysis.option_model import Option, ScriptOptions
from safelaunch.analysis.options.read import read_options
from safelaunch.analysis.python.libraries import LibraryPaths, library_file
from safelaunch.analysis.python.trees import SourceLine, Trees

_LAUNCH = "accelerate.commands.launch"
_NAME = re.compile(r"\"(--?[a-zA-Z][\w-]*)\"")
_OWN = ("--accelerate_config",)  # TRL's own name for accelerate's --config_file


def read_trl_command(
    command: str, paths: LibraryPaths, seconds: float | None
) -> ScriptOptions | None:
    """Return the options of a subcommand of TRL; None where it is not installed."""
    trees = Trees()
    script = library_file(f"trl.scripts.{command}", paths)
    if script is None:
        return None
    options = read_options(
        script,
        [],
        trees=trees,
        is_module=True,
        library_paths=lambda: paths,
        is_library=True,
        seconds=seconds,
    )
    launch = library_file(_LAUNCH, paths)
    names = _NAME.findall(trees.text(launch)) if launch is not None else []
    if options is None or options.is_incomplete:
        return options
    if not names or launch is None:
        why = "accelerate is not installed on this machine"
        return options._replace(is_incomplete=True, why=why)
    location = SourceLine(launch, 1)
    added = tuple(
        Option(name.lstrip("-").replace("-", "_"), _spellings(name), location, None, None)
        for name in (*names, *_OWN)
    )
    # the script drops what accelerate has taken; accelerate refuses what it does not know
    settings = tuple(file._replace(refuses_unknown=True) for file in options.settings)
    return options._replace(
        options=(*added, *options.options), settings=settings, ignores_unknown=False
    )


def _spellings(name: str) -> tuple[str, ...]:
    """Return both spellings of an option of accelerate (CustomArgumentParser)."""
    bare = name.lstrip("-")
    dashes = name[: len(name) - len(bare)]
    both = (name, dashes + bare.replace("_", "-"), dashes + bare.replace("-", "_"))
    return tuple(dict.fromkeys(both))
