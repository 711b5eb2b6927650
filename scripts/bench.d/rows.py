"""What all measurements share: a row of the table, and a place where runs disturb nobody."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

SAFELAUNCH = os.path.join(os.path.dirname(sys.executable), "safelaunch")


class Row(NamedTuple):
    """One line of the table; `ok` None: it could not be tried here, and `measured` says why."""

    what: str
    measured: str
    bound: str
    ok: bool | None

    def __str__(self) -> str:
        ok = "not tried" if self.ok is None else "yes" if self.ok else "**no**"
        return f"| {self.what} | {self.measured} | {self.bound} | {ok} |"


@contextlib.contextmanager
def home() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield a temporary folder and an environment in which safelaunch keeps its runs there."""
    folder = os.path.realpath(tempfile.mkdtemp(prefix="safelaunch-bench-"))
    env = {k: v for k, v in os.environ.items() if not k.startswith("SAFELAUNCH_")}
    try:
        yield folder, {**env, "SAFELAUNCH_HOME": folder}
    finally:
        shutil.rmtree(folder)
