"""Facts of GPU machines, as a probe would have fetched them: recorded outputs, and made ones."""

from __future__ import annotations

from typing import Any

from safelaunch.hostfacts.assemble import from_probe
from support.facts.gpu_host_records import records

RECORDS = {record["id"]: record for record in records()}
MIB, GIB = 1 << 20, 1 << 30
_HEAD = ("index, name, uuid, pci.bus_id, memory.total [MiB], memory.used [MiB], driver_version, "
         "compute_cap, mig.mode.current\n")  # fmt: skip
# name, MiB, compute capability: as nvidia-smi prints them (tests/data/gpu-hosts; NVIDIA's list)
A100 = ("NVIDIA A100-SXM4-80GB", 81920, "8.0")
H100 = ("NVIDIA H100 80GB HBM3", 81559, "9.0")
RTX4090 = ("NVIDIA GeForce RTX 4090", 24564, "8.9")
RTX5090 = ("NVIDIA GeForce RTX 5090", 32607, "12.0")
T4 = ("Tesla T4", 15360, "7.5")
GTX1080 = ("NVIDIA GeForce GTX 1080 Ti", 11264, "6.1")  # of no profile
L40S = ("NVIDIA L40S", 46068, "8.9")


class Replies(dict[Any, Any]):
    """Answers to questions; every other question counts as one that was skipped."""

    def __contains__(self, key: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True

    def __missing__(self, key: object) -> dict[str, str]:
        return {"skip": "it is not asked"}


def recorded(**outputs: str) -> dict[str, Any]:
    """Return facts with the output of nvidia-smi for each query, by the id of a record."""
    return box(outputs={name: RECORDS[record]["text"] for name, record in outputs.items()})


def query(
    *cards: tuple[str, int, str], used: dict[int, int] | None = None, mig: tuple[int, ...] = ()
) -> str:
    """Return the answer to `--query-gpu` of a machine with these cards."""
    lines = [
        f"{at}, {name}, GPU-{at:08d}, 00000000:{at + 1:02X}:00.0, {mib} MiB, "
        f"{(used or {}).get(at, 0)} MiB, 570.86.10, {capability}, "
        f"{'Enabled' if at in mig else 'Disabled'}\n"
        for at, (name, mib, capability) in enumerate(cards)
    ]
    return _HEAD + "".join(lines)


def box(
    *cards: tuple[str, int, str],
    outputs: dict[str, Any] | None = None,
    proc: bool = False,
    used: dict[int, int] | None = None,
    mig: tuple[int, ...] = (),
    users: dict[str, str] | None = None,
    fabric_manager: dict[str, Any] | None = None,
    others: dict[str, Any] | None = None,
    system: dict[str, Any] | None = None,
    parts: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return the facts of a machine. `outputs`: of nvidia-smi, by query.

    `proc`: only /proc has the cards. `parts`, and other names, are more of what a probe tells.
    """
    answers = dict(outputs or {})
    if cards and not proc:
        answers.setdefault("query", query(*cards, used=used, mig=mig))
    proc_cards = {
        f"0000:{at + 1:02x}:00.0": f"Model: \t\t {name}\nGPU UUID: \t GPU-{at:08d}\n"
        f"Bus Location: \t 0000:{at + 1:02x}:00.0\n"
        for at, (name, _, _) in enumerate(cards)
    }
    gpu_facts: dict[str, Any] = {
        "proc": {
            "version": "NVRM version: 570.86.10" if cards or answers else "",
            "cards": proc_cards,
        },
        "nvidia_smi": "/usr/bin/nvidia-smi" if answers or cards else None,
        "said": {
            name: answer if isinstance(answer, dict) else {"text": answer, "command": "", "exit": 0}
            for name, answer in answers.items()
        },
        "users": users or {},
        "fabric_manager": fabric_manager or {},
    }
    about = {"user": "me", "usable_cores": 32, "cores": 32, "allowed_cores": 32, **(system or {})}
    whole = {
        "cards": gpu_facts,
        "other_cards": others or {},
        "system": about,
        **(parts or {}),
        **more,
    }
    return from_probe("localhost", {"parts": {k: {"value": v} for k, v in whole.items()}})


def other(tool: str, record: str) -> dict[str, Any]:
    """Return the output of another maker's tool, by the id of a record, as `box` takes it."""
    entry = RECORDS[record]
    return {tool: {"path": f"/usr/bin/{tool}", "text": entry["text"], "command": entry["command"]}}


def matrix(size: int, link: str) -> str:
    """Return `topo -m`, or `topo -p2p r`, of cards that are all joined in one way."""
    head = "\t" + "\t".join(f"GPU{at}" for at in range(size)) + "\n"
    rows = [
        f"GPU{row}\t" + "\t".join("X" if row == at else link for at in range(size)) + "\n"
        for row in range(size)
    ]
    return head + "".join(rows)
