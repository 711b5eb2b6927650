"""Which environment variables a program itself reads, as its text shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.analysis.python.trees import Trees


def reads_variable(name: str, files: Iterable[str], trees: Trees) -> bool:
    """Whether a file names a variable as text, but to set it.

    This includes readers of the program's own: `env_int("NAME")`.
    """
    quoted = rb"(?m)^[^#\n]*?['\"]" + re.escape(name.encode()) + rb"['\"](?!\s*\]\s*=[^=])"
    return any(re.search(quoted, trees.data(path) or b"") for path in files)
