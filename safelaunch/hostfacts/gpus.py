"""Assembles the GPUs of a host from the output of nvidia-smi and the driver's files in /proc."""

# ruff: noqa: PLC0415 - the parsers (15 ms) and the 40 patterns of gpu_models are not needed before
# a start

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

from safelaunch.hostfacts import machine
from safelaunch.hostfacts.tools.report import Card, GpuError, GpuProcess, MigDevice, Report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_R = TypeVar("_R", Card, MigDevice)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def gpus(answers: Mapping[str, Any], other_tools: Mapping[str, Any]) -> dict[str, Any]:
    """Return the GPUs of a host, from the output of nvidia-smi and the driver's files in /proc."""
    reports = {name: _read_answer(answer) for name, answer in _dict(answers.get("said")).items()}
    proc = _dict(answers.get("proc"))
    xml, query = reports.get("xml", Report()), reports.get("query", Report())
    cards = _cards(query, xml, reports.get("list", Report()))
    source = "nvidia-smi" if cards else None
    proc_cards = {bus: machine.card(str(text)) for bus, text in _dict(proc.get("cards")).items()}
    if not cards and proc_cards:
        source = "/proc"
        rows = enumerate(sorted(proc_cards.items()))
        cards = [
            Card(index, row.get("name"), row.get("uuid"), row.get("bus_id") or bus)
            for index, (bus, row) in rows
        ]
    driver = query.driver or xml.driver or machine.driver(str(proc.get("version") or ""))
    # a table with only a header may be truncated: nvidia-smi reports "no devices" in words
    has_none = not cards and any(answer.kind == "no-devices" for answer in query.troubles)
    if answers.get("nvidia_smi") is None and answers and not proc_cards and not proc.get("version"):
        has_none = True
    return {
        "count": len(cards) if cards or has_none else None,
        "source": source,
        "nvidia_smi": answers.get("nvidia_smi"),
        "driver": driver,
        "cuda": xml.cuda,
        "models": _models(cards),
        "cards": [_card(card) for card in cards],
        "slices": None
        if xml.cards is None and "list" not in reports
        else [asdict(answer) for answer in _slices(xml, reports.get("list", Report()))],
        "processes": _processes(reports, cards, _dict(answers.get("users"))),
        "topology": _topology(reports.get("topology")),
        "peers": _peers(reports.get("peers")),
        "links": [asdict(link) for link in reports.get("links", Report()).links or ()],
        "fabric_manager": _dict(answers.get("fabric_manager")) or None,
        "troubles": [asdict(answer) for answer in _errors(reports)],
        "late": _unanswered(_dict(answers.get("said"))),
        "other_tools": {name: path for name, path in other_tools.items() if path},
    }


def _read_answer(answer: Any) -> Report:
    from safelaunch.hostfacts.tools.recognise import read_report

    answer = _dict(answer)
    return read_report(str(answer.get("text") or ""), str(answer.get("command") or ""))


def _cards(query: Report, xml: Report, listed: Report) -> list[Card]:
    """Return the GPUs, each fact from the first output that has it."""
    by_bus = {_bus(card.bus_id): card for card in xml.cards or ()}
    cards = query.cards or xml.cards or listed.cards or ()
    return [_merge(card, by_bus.get(_bus(card.bus_id))) for card in cards]


def _merge(first: _R, second: _R | None) -> _R:
    """Return a record with the fields of the first, and those of the second that it lacks."""
    if second is None:
        return first
    fields = {key: value for key, value in asdict(first).items() if value is not None}
    return replace(second, **fields)


def _bus(text: str | None) -> str:
    """Return a bus id in the format of /proc and all drivers: a domain of four digits."""
    domain, _, rest = (text or "").lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _models(cards: Sequence[Card]) -> list[str]:
    """Return the platform ids of the GPUs, each once."""
    if not cards:
        return []
    from safelaunch.hostfacts.gpu_models import models_of

    return [model for model in models_of([card.name for card in cards]) if model]


def _card(card: Card) -> dict[str, Any]:
    from safelaunch.hostfacts import gpu_models

    return {**asdict(card), "model": gpu_models.model_of(card.name), "mig": card.is_mig}


def _slices(xml: Report, listed: Report) -> Sequence[MigDevice]:
    """Return the MIG devices: names from the list, instances and memory from the XML."""
    if not listed.slices or not xml.slices:
        return listed.slices or xml.slices
    by_position = {(device.card, device.device): device for device in xml.slices}
    return [_merge(part, by_position.get((part.card, part.device))) for part in listed.slices]


def _processes(
    reports: Mapping[str, Report], cards: Sequence[Card], users: Mapping[str, Any]
) -> list[dict[str, Any]] | None:
    """Return the processes that use GPU memory; None if not known."""
    apps, xml = reports.get("apps", Report()).processes, reports.get("xml", Report()).processes
    if apps is None and xml is None:
        return None
    by_uuid = {card.uuid: card.index for card in cards}
    processes: dict[tuple[int, int | None], GpuProcess] = {}
    # the XML overrides: it also lists graphics processes, and the kinds
    for process in (*(apps or ()), *(xml or ())):
        card = by_uuid.get(process.uuid, process.card) if process.uuid else process.card
        processes[(process.pid, card)] = process
    return [
        {
            "pid": pid,
            "card": card,
            "user": users.get(str(pid)),
            "name": process.name,
            "kind": process.kind,
            "used_mib": process.used_mib,
        }
        for (pid, card), process in sorted(
            processes.items(),
            key=lambda item: (-1 if item[0][1] is None else item[0][1], item[0][0]),
        )
    ]


def _topology(report: Report | None) -> dict[str, Any] | None:
    matrix = report.matrix if report else None
    if matrix is None:
        return None
    nearest = {card: matrix.nearest(card) for card in range(matrix.size)}
    return {
        "fabric": matrix.fabric,
        "pairs": [[i, j, link] for (i, j), link in matrix.pairs.items()],
        "nics": list(matrix.nics),
        "nearest_nics": {str(c): [n[0], list(n[1])] for c, n in nearest.items() if n},
        "cpu_affinity": list(matrix.cpu_affinity or ()),
        "numa": list(matrix.numa or ()),
    }


def _peers(report: Report | None) -> dict[str, Any] | None:
    peers = report.peers if report else None
    if peers is None:
        return None
    return {
        "ok": peers.allowed_pairs,
        "of": peers.size * (peers.size - 1) // 2,
        "pairs": [[i, j, status] for (i, j), status in peers.pairs.items()],
    }


def _errors(reports: Mapping[str, Report]) -> list[GpuError]:
    errors: dict[tuple[str, int | None, str | None], GpuError] = {}
    for name, report in reports.items():
        for error in report.troubles:
            # an unsupported topology matters only for the matrix itself
            if error.kind != "topo-unsupported" or name == "topology":
                errors.setdefault((error.kind, error.index, error.bus_id), error)
    return list(errors.values())


def _unanswered(answers: Mapping[str, Any]) -> dict[str, str]:
    """Return {question: reason} for the questions without an answer."""
    reasons = {}
    for name, answer in answers.items():
        why = _dict(answer).get("why")
        code = _dict(answer).get("exit")
        if why:
            reasons[name] = str(why)
        elif name == "query" and code not in (0, 14, None):  # 14: a warning, the table is valid
            words = " ".join(str(answer.get("text") or "").split())[:200]
            reasons[name] = f"exit code {code}: {words}"
    return reasons
