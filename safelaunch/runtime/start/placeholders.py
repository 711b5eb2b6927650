"""Files of a start with placeholders for values that only the machine, or a later moment, knows.

They lie in `unbound/` of a node's folder, so that a run which waits, or which an engine starts
again on another machine, is filled in anew. A placeholder was quoted as a plain word; one with a
blank, which stands for a path, was put into quotes.
"""

from __future__ import annotations

import os
import re

from safelaunch.runtime import json_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

UNBOUND = "unbound"  # folder of the files, in that of a node
_PLAIN = re.compile(r"[A-Za-z0-9._:@+,/%=-]+")
_IN_QUOTES = re.compile(r"[^'\"\\\x00-\x1f]+")  # of a shell, of JSON


def fill(node_dir: str, placeholders: Mapping[str, str], values: Mapping[str, str]) -> None:
    """Write the files with values, by the names of the placeholders. Raises OSError, ValueError."""
    for name, value in values.items():
        pattern = _IN_QUOTES if " " in placeholders.get(name, "") else _PLAIN
        if not pattern.fullmatch(value):  # it would need other quotes
            raise ValueError(f"the {name}, `{value}`, has unusual characters")
    folder = os.path.join(node_dir, UNBOUND)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with open(path, "rb") as file:
            text = file.read()
        for value, placeholder in placeholders.items():
            if value in values:
                text = text.replace(placeholder.encode(), values[value].encode())
        json_files.write(os.path.join(node_dir, name), text, os.stat(path).st_mode & 0o777)
