"""Scripts as tests write them, and which options are read off them."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

from safelaunch.analysis.options.read import ScriptOptions, read_options

if TYPE_CHECKING:
    from pathlib import Path

ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
{}
args = parser.parse_args()
"""


def write(folder: Path, text: str, **files: str) -> Path:
    """Write a script and the project's other files, `lib__init` as lib/__init__.py; return it."""
    for name, content in {"train": text, **files}.items():
        path = folder / (name.replace("__", "/").replace("/init", "/__init__") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(content), encoding="utf-8")
    return folder / "train.py"


def flags(folder: Path, text: str, **files: str) -> ScriptOptions | None:
    """Return what is read of the script's options."""
    return read_options(write(folder, text, **files), [folder], seconds=30)


def script_options(folder: Path, text: str, **files: str) -> ScriptOptions:
    """Return what is read of a script that parses its options."""
    options = flags(folder, text, **files)
    assert options is not None
    return options


def option_names(folder: Path, text: str, **files: str) -> set[str]:
    """Return the options that are read for sure, without the help's."""
    options = script_options(folder, text, **files)
    assert not options.is_incomplete, options.why
    return set(options.names()) - {"-h", "--help"}
