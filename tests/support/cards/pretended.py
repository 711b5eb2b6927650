"""A machine with pretended cards: a program in place of nvidia-smi, and a folder for the claims."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SCRIPT = """#!/bin/sh
case "$*" in
  *--query-gpu*) exec cat {folder}/query;;
  *compute-apps*) cd {folder}/apps && for pid in *; do [ -d /proc/$pid ] && cat $pid; done; exit 0;;
  *-L*) exec cat {folder}/list;;
esac
exit 3
"""


class PretendedCards:
    """So many cards, and the folder in which runs claim them."""

    def __init__(self, root: Path, count: int) -> None:
        self.folder = root / "smi"
        self.claims = root / "claims"
        self.folder.mkdir()
        self.claims.mkdir()
        self.claims.chmod(0o1777)
        self.count = count
        rows = (f"{at}, {self.uuid(at)}, 0, 100, 81920, 60.0\n" for at in range(count))
        self._write("query", "".join(rows))
        names = (f"GPU {at}: NVIDIA H100 (UUID: {self.uuid(at)})\n" for at in range(count))
        self._write("list", "".join(names))
        self.apps = self.folder / "apps"  # a file for each process, which counts while that lives
        self.apps.mkdir()
        self.apps.chmod(0o1777)
        program = self.folder / "nvidia-smi"
        program.write_text(_SCRIPT.format(folder=self.folder))
        program.chmod(0o755)

    @staticmethod
    def uuid(at: int) -> str:
        """Return the UUID of a card."""
        return f"GPU-{at:08x}-0000-4000-8000-000000000000"

    def use(self, pid: int, *cards: int) -> None:
        """Let a process compute on these cards, as long as it lives; on none: no more."""
        lines = (f"{pid}, {self.uuid(card)}, /usr/bin/python3, 500\n" for card in cards)
        self._write(f"apps/{pid}", "".join(lines))

    def environ(self) -> dict[str, str]:
        """Return the variables by which a start finds cards and claims."""
        path = os.environ["PATH"]
        return {"PATH": f"{self.folder}:{path}", "SAFELAUNCH_CARDS": str(self.claims)}

    def _write(self, name: str, text: str) -> None:
        path = self.folder / "new"
        path.write_text(text)
        path.rename(self.folder / name)
