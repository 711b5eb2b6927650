"""What a start asks of an interpreter and cannot change while its files stay: read from a cache.

An entry holds while the interpreter, what its path leads to, its pyvenv.cfg, its standard library
and the variables of the dynamic linker are as they were. Versions of packages are not in it: each
start reads their files. A script in the place of an interpreter (pyenv's shims) may run another one
each time, and is always asked. A cache that cannot be read or written is no cache.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from safelaunch.runtime import json_files
from safelaunch.runtime.start.start_probe import FACTS

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "interpreters.json"  # in safelaunch's folder
VERSION = 1
LARGEST = 32  # entries
_LINKER = ("LD_LIBRARY_PATH", "LD_PRELOAD")
_ELF = b"\x7fELF"


def load(home: str, python: str, environ: Mapping[str, str]) -> dict[str, str] | None:
    """Return the facts of an interpreter by their names; None where it has to be asked."""
    entry = _entries(home).get(python)
    if not isinstance(entry, dict) or not isinstance(entry.get("facts"), dict):
        return None
    facts = {str(name): str(value) for name, value in entry["facts"].items()}
    is_whole = facts.keys() == set(FACTS)
    if not is_whole or entry.get("state") != _state(python, facts["library"], environ):
        return None
    return facts


def save(home: str, python: str, environ: Mapping[str, str], values: Mapping[str, str]) -> None:
    """Keep the facts among the values that an interpreter has printed."""
    facts = {name: values[name] for name in FACTS if name in values}
    if facts.keys() != set(FACTS):
        return
    state = _state(python, facts["library"], environ)
    if state is None:
        return
    entries = {name: entry for name, entry in _entries(home).items() if name != python}
    latest = dict(list(entries.items())[1 - LARGEST :])
    latest[python] = {"facts": facts, "state": state}
    try:
        os.makedirs(home, 0o700, exist_ok=True)
        path = os.path.join(home, FILE)
        json_files.write_json(path, {"version": VERSION, "interpreters": latest})
    except OSError:
        return  # the next start asks again


def _entries(home: str) -> dict[str, object]:
    content = json_files.read_json(os.path.join(home, FILE)) or {}
    entries = content.get("interpreters")
    return entries if content.get("version") == VERSION and isinstance(entries, dict) else {}


def _state(python: str, library: str, environ: Mapping[str, str]) -> list[object] | None:
    """Return what changes where an interpreter may answer otherwise; None where that is unknown."""
    program = os.path.realpath(python)
    folder = os.path.dirname(python)
    try:
        with open(program, "rb") as file:
            is_program = file.read(len(_ELF)) == _ELF
    except OSError:
        return None
    folders = (folder, os.path.dirname(folder))
    paths = (program, library, *(os.path.join(place, "pyvenv.cfg") for place in folders))
    stamps = [_stamp(path) for path in paths]
    is_asked = not is_program or not stamps[0] or not stamps[1]
    return None if is_asked else [program, *stamps, *map(environ.get, _LINKER)]


def _stamp(path: str) -> list[int]:
    try:
        info = os.stat(path)
    except OSError:
        return []
    return [info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino]
