"""Recorded outputs of real GPU hosts, and what a reading of them is compared with.

tests/data/gpu-hosts/README.md says where they come from.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from safelaunch.hostfacts import gpu_models
from safelaunch.hostfacts.tools.recognise import read_report
from support import DATA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from safelaunch.hostfacts.tools.report import Card, Matrix, Report

FOLDER = DATA / "gpu-hosts"


def records(*paths: Path) -> list[dict[str, Any]]:
    """Return the records of JSON lines files; of those beside the tests without `paths`."""
    paths = paths or tuple(sorted(FOLDER.glob("*.jsonl")))
    lines = (line for path in paths for line in path.read_text(encoding="utf-8").splitlines())
    return [json.loads(line) for line in lines]


def differences(record: dict[str, Any]) -> list[str]:
    """Return what of a record is read otherwise than expected."""
    reading = as_expected(read_report(record["text"], record["command"]))
    return [
        f"{record['id']}: {key}: {reading.get(key)!r} instead of {expected!r}"
        for key, expected in record["expected"].items()
        if key != "exit_code_shown" and reading.get(key) != expected
    ]


def as_expected(report: Report) -> dict[str, Any]:
    """Return a reading in the words of the records."""
    cards = report.cards
    reading: dict[str, Any] = {
        "vendor": report.vendor,
        "gpu_count": None if cards is None else len(cards),
        "driver": report.driver,
        "cuda": report.cuda,
        "smi_version": report.tool,
        "attached_gpus": report.attached,
        "nvml_library": _nvml(report),
        "profile": _profile(report),
        "warnings": list(report.warnings),
        **report.versions,
    }
    reading |= _of_cards(cards or ())
    reading |= _of_slices(report)
    reading |= _of_processes(report)
    reading |= _of_matrix(report.matrix)
    reading |= _of_links(report)
    reading |= _of_troubles(report)
    return reading


def _nvml(report: Report) -> str | None:
    return report.nvml


def _profile(report: Report) -> object:
    models = gpu_models.models_of([card.name for card in report.cards or ()], report.vendor)
    if len(models) > 1:
        return list(models)
    return models[0] if models else None


def _of_cards(cards: Sequence[Card]) -> dict[str, Any]:
    def each(value: Callable[[Card], object]) -> list[object]:
        return [value(card) for card in cards]

    return {
        "indices": each(lambda card: card.index),
        "names": each(lambda card: card.name),
        "names_truncated": any(gpu_models.is_truncated(card.name or "") for card in cards),
        "memory_mib": each(lambda card: card.memory_mib),
        "bus_ids": each(lambda card: card.bus_id),
        "compute_cap": each(lambda card: card.compute_capability),
        "mig_mode": each(lambda card: card.mig_mode),
        "power_cap_w": each(lambda card: card.power_cap_w),
        "device_ids": each(lambda card: card.device_id),
    }


def _of_slices(report: Report) -> dict[str, Any]:
    by_card: dict[int, int] = {}
    for partition in report.slices:
        by_card[partition.card] = by_card.get(partition.card, 0) + 1
    profiles = [partition.profile for partition in report.slices]
    enabled = {card.index for card in report.cards or () if card.is_mig}
    if report.cards is None:
        instances = report.processes or ()
        enabled = {p.card for p in instances if p.gpu_instance is not None and p.card is not None}
    mig: dict[str, Any] = {"enabled": sorted(enabled)}
    if report.slices:
        mig["devices"] = len(report.slices)
    named = all(profile is not None for profile in profiles)
    return {"mig": mig, "mig_devices": profiles if named else list(by_card.values())}


def _of_processes(report: Report) -> dict[str, Any]:
    if report.processes is None:
        return {}
    return {
        "process_rows": len(report.processes),
        "gpus_with_processes": sorted({p.card for p in report.processes if p.card is not None}),
        "names_seen": _once(p.card_name for p in report.processes if p.card_name),
    }


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _of_matrix(matrix: Matrix | None) -> dict[str, Any]:
    if matrix is None:
        return {}
    nearest = {card: matrix.nearest(card) for card in range(matrix.size)}
    return {
        "links": _pairs(matrix.pairs),
        "fabric": matrix.fabric,
        "nics": list(matrix.nics),
        "nearest_nics": {str(c): [n[0], list(n[1])] for c, n in nearest.items() if n},
        "cpu_affinity": _listed(matrix.cpu_affinity),
        "numa": _listed(matrix.numa),
        "gpu_numa_id": _listed(matrix.gpu_numa_id),
    }


def _listed(cells: tuple[str, ...] | None) -> list[str] | None:
    return None if cells is None else list(cells)


def _pairs(pairs: Any) -> object:
    kinds = set(pairs.values())
    return (
        {"all": kinds.pop()} if len(kinds) == 1 else [[*pair, kind] for pair, kind in pairs.items()]
    )


def _of_links(report: Report) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if report.peers is not None:
        pairs = report.peers.size * (report.peers.size - 1) // 2
        capability = report.peers.capability
        values["p2p"] = {
            "pairs": _pairs(report.peers.pairs),
            "ok": report.peers.allowed_pairs,
            "of": pairs,
        }
        values["p2p"]["capability"] = capability
    if report.links is not None:
        values["active_links"] = [link.active for link in report.links]
        values["link_gb_s"] = [link.gb_s for link in report.links]
        values["nvlink_state"] = [link.state for link in report.links]
    return values


def _of_troubles(report: Report) -> dict[str, Any]:
    if not report.troubles:
        return {}
    first = report.troubles[0]
    lost = {"index": first.index, "bus_id": first.bus_id}
    return {"error": first.kind, "lost": {k: v for k, v in lost.items() if v is not None}}
