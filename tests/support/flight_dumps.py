"""Dumps of torch's flight recorder as ProcessGroupNCCL writes them: FlightRecorder.hpp, 2.10."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SCRIPT = "/home/me/proj/train.py"
LIBRARY = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
WORLD = ("0", "default_pg")


class Recorder:
    """The flight recorder of one rank: what it called, in order."""

    def __init__(self, rank: int, groups: Mapping[tuple[str, str], Sequence[int]]) -> None:
        self.rank = rank
        self.groups = groups
        self.entries: list[dict[str, Any]] = []
        self.numbers: dict[tuple[str, str], int] = {}

    def call(
        self,
        operation: str = "all_reduce",
        sizes: Sequence[int] = (16, 4),
        line: int = 17,
        group: tuple[str, str] = WORLD,
        state: str = "completed",
    ) -> Recorder:
        """Record an operation."""
        is_p2p = operation.startswith(("send", "recv"))
        number = self.numbers[group] = self.numbers.get(group, 0) + (not is_p2p)
        self.entries.append(
            {
                "frames": [
                    {"name": operation, "filename": LIBRARY, "line": 2696},
                    {"name": "step", "filename": SCRIPT, "line": line},
                    {"name": "<module>", "filename": SCRIPT, "line": 90},
                ],
                "record_id": len(self.entries),
                "pg_id": int(group[0]),
                "process_group": group,
                "collective_seq_id": number,
                "p2p_seq_id": int(is_p2p),
                "op_id": number,
                "profiling_name": f"nccl:{operation}",
                "time_created_ns": 1_724_779_239_936_775_119 + len(self.entries) * 1_000_000,
                "input_sizes": [list(sizes)],
                "input_dtypes": ["Float"],
                "output_sizes": [list(sizes)],
                "output_dtypes": ["Float"],
                "state": state,
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": 1 if state == "completed" else None,
                "retired": state == "completed",
                "timeout_ms": 600_000,
                "is_p2p": is_p2p,
            }
        )
        return self

    def waits(self, operation: str = "all_reduce", **more: Any) -> Recorder:
        """Record an operation that does not end."""
        return self.call(operation, **{"state": "scheduled", **more})

    def dump(self) -> dict[str, Any]:
        """Return what the pickle of the dump holds."""
        config = {
            name: {"name": name, "desc": title, "ranks": str(list(ranks))}
            for (name, title), ranks in self.groups.items()
            if self.rank in ranks
        }
        return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": self.entries}

    def write(self, folder: Path, prefix: str = "flight-") -> None:
        """Write the dump as torch names it."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{prefix}{self.rank}").write_bytes(pickle.dumps(self.dump(), 2))


def recorders(world: int, **groups: Sequence[int]) -> list[Recorder]:
    """Return the recorders of all ranks; `groups` are {description: ranks} beside the world."""
    named = {WORLD: tuple(range(world))}
    named |= {(str(n), title): tuple(r) for n, (title, r) in enumerate(groups.items(), 1)}
    return [Recorder(rank, named) for rank in range(world)]
