"""A rank of its own for each test of the hooks: a node directory and programs that run in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from safelaunch import runtime
from support.workspace import DEADLINE

SITE = Path(runtime.FOLDER) / "site"


class Rank:
    """A node directory, and programs that run in it as rank 1 of 2."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.node = root / "node"
        for folder in ("ranks", "records", "logs/attempt-1"):
            (self.node / folder).mkdir(parents=True)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("SAFELAUNCH", "PY"))}
        self.env |= {
            "SAFELAUNCH_NODE_DIR": str(self.node),
            "SAFELAUNCH_ATTEMPT": "1",
            "SAFELAUNCH_CAPTURE": "1",
            "PYTHONPATH": str(SITE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "RANK": "1",
            "LOCAL_RANK": "1",
            "WORLD_SIZE": "2",
        }

    def popen(self, program: str, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start a program of the user's."""
        (self.root / "train.py").write_text(program, encoding="utf-8")
        options = {"env": self.env, "cwd": self.root, "text": True, **options}
        command = [options.pop("python", sys.executable), *words, "train.py"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, **{**pipes, **options})

    def run(self, program: str, *words: str, **options: Any) -> tuple[int, str]:
        """Run a program to its end; return its exit code and what it wrote."""
        with self.popen(program, *words, **options) as process:
            try:
                out, err = process.communicate(timeout=DEADLINE)
            finally:
                process.kill()
        return process.returncode, (out or "") + (err or "")

    def read(self, name: str = "rank-1.1.0.json") -> list[dict[str, Any]]:
        """Return the objects of a record, of each exception the last: what readers count."""
        data = (self.node / "records" / name).read_bytes().replace(b"\0", b"")
        records = [json.loads(line) for line in data.splitlines()]
        return list({(r["kind"], r["monotonic_ns"]): r for r in records}.values())

    def failures(self) -> list[dict[str, Any]]:
        """Return the exceptions that were recorded."""
        return [record for record in self.read() if record["kind"] == "exception"]

    def text(self, suffix: str) -> str:
        """Return what faulthandler wrote."""
        return (self.node / "records" / f"rank-1.1.0.{suffix}").read_text()
