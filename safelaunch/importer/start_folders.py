"""The folders from which a script may be started: the one of its caller, and those above it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.importer.activities import ASSUMED
from safelaunch.importer.findings import Note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.importer.state import ScriptCaller

_MOST_FOLDERS = 6  # above a script


class Start(NamedTuple):
    """A script as it is started from another folder, and the note that says so."""

    script: str
    caller: ScriptCaller
    note: Note


def starts_above(script: str, caller: ScriptCaller, reason: str) -> Iterator[Start]:
    """Yield the starts from the folder of a script, and from those above it up to the caller's.

    `reason` says why it is not started from there.
    """
    path = os.path.realpath(os.path.join(caller.folder, script))
    top, folder = os.path.realpath(caller.folder), os.path.dirname(path)
    for _ in range(_MOST_FOLDERS):
        if folder == top or not f"{folder}/".startswith(f"{top}/"):
            return
        shown = os.path.relpath(folder, top)
        note = Note(1, reason, f"{ASSUMED} that `{shown}` is where it is started")
        yield Start(os.path.relpath(path, folder), replace(caller, folder=folder), note)
        folder = os.path.dirname(folder)
