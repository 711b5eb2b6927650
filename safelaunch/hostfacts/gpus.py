"""Assembles the GPUs of a host: what nvidia-smi, /proc and the tools of other makers say."""

# ruff: noqa: PLC0415 - the parsers (15 ms) and the 40 patterns of gpu_models are not needed before
# a start

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

from safelaunch.hostfacts import machine
from safelaunch.hostfacts.tools.report import Card, GpuError, GpuProcess, MigDevice, Report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.hostfacts.tools.report import Matrix, PeerAccess

_Record = TypeVar("_Record", Card, MigDevice)


def as_dict(value: Any) -> dict[str, Any]:
    """Return a value that is a dict; an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


def gpus(answers: Mapping[str, Any], other_tools: object) -> dict[str, Any]:
    """Return the GPUs of a host; those of other makers than NVIDIA in `others`, None: not asked."""
    tools = {name: as_dict(tool) for name, tool in as_dict(other_tools).items()}
    reports = {name: _read_answer(answer) for name, answer in as_dict(answers.get("said")).items()}
    proc = as_dict(answers.get("proc"))
    xml, query = reports.get("xml", Report()), reports.get("query", Report())
    listed = reports.get("list", Report())
    cards = _cards(query, xml, listed)
    source = "nvidia-smi" if cards else None
    proc_cards = {bus: machine.card(str(text)) for bus, text in as_dict(proc.get("cards")).items()}
    if not cards and proc_cards:
        source = "/proc"
        cards = [
            Card(index, answer.get("name"), answer.get("uuid"), answer.get("bus_id") or bus)
            for index, (bus, answer) in enumerate(sorted(proc_cards.items()))
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
        **_cards_and_models(cards),
        "slices": [asdict(device) for device in _slices(xml, listed)]
        if xml.cards is not None or "list" in reports
        else None,
        "health": _health(xml, cards),
        "processes": _processes(reports, cards, as_dict(answers.get("users"))),
        "topology": _topology(reports.get("topology", Report()).matrix),
        "peers": _peers(reports.get("peers", Report()).peers),
        "links": _links(reports),
        "fabric_manager": as_dict(answers.get("fabric_manager")) or None,
        "troubles": [asdict(error) for error in _errors(reports)],
        "late": _unanswered(as_dict(answers.get("said"))),
        "other_tools": {name: tool.get("path") for name, tool in tools.items()},
        "others": None
        if other_tools is None
        else [card for tool in tools.values() for card in _other_cards(tool)],
    }


def _links(reports: Mapping[str, Report]) -> list[dict[str, Any]]:
    """Return the NVLinks of each GPU, with the errors that another command counts."""
    links = reports.get("links", Report()).links or ()
    counted = reports.get("link_errors", Report()).links or ()
    recoveries = {link.card: link.recoveries for link in counted}
    return [asdict(link) | {"recoveries": recoveries.get(link.card)} for link in links]


def _read_answer(answer: Any) -> Report:
    from safelaunch.hostfacts.tools.recognise import read_report

    answer = as_dict(answer)
    return read_report(str(answer.get("text") or ""), str(answer.get("command") or ""))


def _cards(query: Report, xml: Report, listed: Report) -> list[Card]:
    """Return the GPUs, each fact from the first output that has it."""
    by_bus = {_bus(card.bus_id): card for card in xml.cards or ()}
    cards = query.cards or xml.cards or listed.cards or ()
    return [_merge(by_bus.get(_bus(card.bus_id)), card) for card in cards]


def _merge(details: _Record | None, record: _Record) -> _Record:
    """Return a record, with the fields that it lacks from another one of the same device."""
    if details is None:
        return record
    return replace(details, **{k: v for k, v in asdict(record).items() if v is not None})


def _bus(text: str | None) -> str:
    """Return a bus id in the format of /proc and all drivers: a domain of four digits."""
    domain, _, rest = (text or "").lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _cards_and_models(cards: Sequence[Card]) -> dict[str, Any]:
    if not cards:
        return {"models": [], "cards": []}
    from safelaunch.hostfacts.gpu_models import model_of, models_of

    models = [model for model in models_of(card.name for card in cards) if model]
    shown = [{**asdict(c), "model": model_of(c.name), "mig": c.is_mig} for c in cards]
    return {"models": models, "cards": shown}


# the maker that a tool's output names -> the kind of accelerator
_KINDS = {"amd": "rocm", "huawei": "npu"}


def _other_cards(tool: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the devices that the tool of another maker lists."""
    report = _read_answer(tool) if tool.get("text") else Report()
    kind = _KINDS.get(report.vendor or "")
    if kind is None:
        return []
    from safelaunch.hostfacts.gpu_models import model_of

    return [
        {**asdict(c), "model": model_of(c.name, report.vendor), "mig": False, "accelerator": kind}
        for c in report.cards or ()
    ]


def _slices(xml: Report, listed: Report) -> Sequence[MigDevice]:
    """Return the MIG devices: names from the list, instances and memory from the XML."""
    if not listed.slices or not xml.slices:
        return listed.slices or xml.slices
    by_position = {(device.card, device.device): device for device in xml.slices}
    return [_merge(by_position.get((d.card, d.device)), d) for d in listed.slices]


def _health(xml: Report, cards: Sequence[Card]) -> list[dict[str, Any]]:
    """Return the health of the GPUs that the XML has; the query may list others before them."""
    by_bus = {_bus(card.bus_id): card.index for card in cards}
    buses = {card.index: _bus(card.bus_id) for card in xml.cards or ()}
    return [
        {**asdict(health), "card": by_bus.get(buses.get(health.card, ""), health.card)}
        for health in xml.health
    ]


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
            processes.items(), key=lambda item: (-1 if item[0][1] is None else item[0][1], item[0])
        )
    ]


def _topology(matrix: Matrix | None) -> dict[str, Any] | None:
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


def _peers(peers: PeerAccess | None) -> dict[str, Any] | None:
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
    reasons = {n: str(a["why"]) for n, a in answers.items() if as_dict(a).get("why")}
    query = as_dict(answers.get("query"))
    if query.get("exit") not in (0, 14, None):  # 14: a warning, the table is valid
        words = " ".join(str(query.get("text") or "").split())[:200]
        reasons.setdefault("query", f"exit code {query['exit']}: {words}")
    return reasons
