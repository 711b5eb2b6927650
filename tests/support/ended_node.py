"""A node directory as an attempt leaves it: records, exits, blocks and logs."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from safelaunch.runtime import rank_exits
from safelaunch.runtime.failure import analyse
from safelaunch.runtime.monitor import oom_kills
from safelaunch.runtime.records import RunRecord

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

START = 1_700_000_000_000_000_000  # ns: a whole second, so that some ms later it is still the same
MS = 1_000_000
FAILED = {"exit_code": 1, "signal": "", "time_ns": START + 2000 * MS}
ENDED_WELL = {"exit_code": 0, "signal": "", "time_ns": START + 2000 * MS}
NO_KILLS = oom_kills.Kills()


class Node:
    """The node directory of a run that is over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs" / "attempt-1"
        self.logs.mkdir(parents=True)
        (path / "records").mkdir()
        self.exits: dict[int, list[rank_exits.RankExit]] = {}
        self.run: dict[str, Any] = {"roots": ["/home/me/proj"], "cwd": "/home/me/proj"}
        self.log("launcher", "")

    def log(self, name: str, text: str) -> None:
        (self.logs / f"{name}.log").write_text(text)

    def record(self, rank: int, *objects: dict[str, Any], restart: int = 0) -> None:
        text = "".join(json.dumps(record) + "\n" for record in objects).encode()
        path = self.path / "records" / f"rank-{rank}.1.{restart}.json"
        path.write_bytes(text.ljust(16384, b"\x00"))

    def marked(
        self, rank: int, number: int, seconds: float, pid: int = 0, program: str = ""
    ) -> None:
        """Write a marker, made so long after the start."""
        (self.path / "ranks").mkdir(exist_ok=True)
        marker = self.path / "ranks" / f"rank-{rank}.1.{number}"
        marker.write_text(f"{pid or 1000 + rank}\n{program}\n")
        started_at = START + int(seconds * 1e9)
        os.utime(marker, ns=(started_at, started_at))

    def raised(
        self, rank: int, kind: str, message: str, ms: float = 0, thread: str | None = None
    ) -> None:
        self.record(rank, error(rank, kind, message, ms, thread))
        self.ended(rank, ms + 5, code=1)

    def cut_off(self, rank: int, kind: str, ms: float) -> None:
        """Let an agent end a rank before more than type and time of its exception are recorded."""
        self.record(rank, {**error(rank, kind, "", ms), "traceback": "", "frames": []})
        self.ended(rank, ms + 5, signal="SIGTERM")

    def ended(
        self, rank: int, ms: float, code: int | None = None, signal: str = "", restart: int = 0
    ) -> None:
        exit_ = rank_exits.RankExit(1000 + rank, restart, 0)
        exit_.code, exit_.signal, exit_.died_ns = code, signal, START + int(ms * MS)
        self.exits[rank] = [exit_]

    def find(
        self,
        launcher: dict[str, Any] | None = None,
        logs: Sequence[str] = (),
        kills: oom_kills.Kills = NO_KILLS,
    ) -> tuple[dict[str, Any], list[str]]:
        run = RunRecord.from_json(self.run)
        failure, warnings = analyse.find(
            str(self.path), run, 1, self.exits, launcher or FAILED, logs, kills
        )
        return {} if failure is None else failure.to_json(), warnings


def error(
    rank: int, kind: str, message: str, ms: float = 0, thread: str | None = None
) -> dict[str, Any]:
    file, line = "/home/me/proj/train.py", 17
    return {
        "kind": "exception",
        "thread": thread,
        "rank": rank,
        "host": "gpu01",
        "pid": 1000 + rank,
        "time_ns": START + int(ms * MS),
        "type": kind,
        "message": message,
        "traceback": "Traceback (most recent call last):\n"
        f'  File "{file}", line {line}, in step\n    loss = model(batch)\n{kind}: {message}\n',
        "frames": [
            {"file": file, "line": line, "function": "step", "code": "loss = model(batch)"},
            {
                "file": "/home/me/proj/.venv/lib/python3.11/site-packages/torch/nn/x.py",
                "line": 1,
                "function": "forward",
                "code": "raise",
            },
        ],
    }
