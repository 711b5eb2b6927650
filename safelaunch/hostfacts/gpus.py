"""The cards of a host: what nvidia-smi said, and what the driver has in /proc."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from safelaunch.hostfacts import machine
from safelaunch.hostfacts.tools.report import Card, Mig, NvLink, Process, Report, Trouble

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def gpus(told: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cards of a host, from what nvidia-smi said and what the driver has in /proc."""
    said = {name: _said(one) for name, one in _dict(told.get("said")).items()}
    proc = _dict(told.get("proc"))
    xml, query = said.get("xml", Report()), said.get("query", Report())
    cards = _cards(query, xml, said.get("list", Report()))
    source = "nvidia-smi" if cards else None
    known = {bus: machine.card(str(text)) for bus, text in _dict(proc.get("cards")).items()}
    if not cards and known:
        source = "/proc"
        cards = [
            Card(at, one.get("name"), one.get("uuid"), one.get("bus_id") or bus)
            for at, (bus, one) in enumerate(sorted(known.items()))
        ]
    driver = query.driver or xml.driver or machine.driver(str(proc.get("version") or ""))
    # a table with a head alone may have been cut: that there are none is said in words
    has_none = not cards and any(one.kind == "no-devices" for one in query.troubles)
    if told.get("nvidia_smi") is None and told and not known and not proc.get("version"):
        has_none = True
    return {
        "count": len(cards) if cards or has_none else None,
        "source": source,
        "nvidia_smi": told.get("nvidia_smi"),
        "driver": driver,
        "cuda": xml.cuda,
        "models": _models(cards),
        "cards": [_card(card) for card in cards],
        "slices": None
        if xml.cards is None and "list" not in said
        else [asdict(one) for one in _slices(xml, said.get("list", Report()))],
        "processes": _processes(said, cards, _dict(told.get("users"))),
        "topology": _topology(said.get("topology")),
        "peers": _peers(said.get("peers")),
        "links": [asdict(one) for one in _links(said.get("links"))],
        "fabric_manager": _dict(told.get("fabric_manager")) or None,
        "troubles": [asdict(one) for one in _troubles(said)],
        "late": _late(_dict(told.get("said"))),
        "other_tools": {name: path for name, path in others.items() if path},
    }


def _said(one: Any) -> Report:
    from safelaunch.hostfacts.tools.recognise import read  # noqa: PLC0415 - 15 ms, not before a start

    one = _dict(one)
    return read(str(one.get("text") or ""), str(one.get("command") or ""))


def _cards(query: Report, xml: Report, listed: Report) -> list[Card]:
    """Return the cards, each fact from the tool that tells it."""
    by_bus = {_bus(card.bus_id): card for card in xml.cards or ()}
    found = []
    for card in query.cards or xml.cards or listed.cards or ():
        more = by_bus.get(_bus(card.bus_id))
        if more is not None and more is not card:
            fields = asdict(more) | {k: v for k, v in asdict(card).items() if v is not None}
            card = Card(**fields)  # noqa: PLW2901
        found.append(card)
    return found


def _bus(text: str | None) -> str:
    """Return a bus id as /proc and all drivers have it: a domain of four digits."""
    domain, _, rest = (text or "").lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _models(cards: Sequence[Card]) -> list[str]:
    """Return the platforms of the cards, each once."""
    if not cards:
        return []
    from safelaunch.hostfacts.gpu_models import models_of  # noqa: PLC0415 - compiles 40 patterns

    return [model for model in models_of([card.name for card in cards]) if model]


def _card(card: Card) -> dict[str, Any]:
    from safelaunch.hostfacts import gpu_models  # noqa: PLC0415 - as above

    return {**asdict(card), "model": gpu_models.model_of(card.name), "mig": card.is_mig}


def _slices(xml: Report, listed: Report) -> Sequence[Mig]:
    """Return the slices: names from the list, instances and memory from the XML."""
    if not listed.slices or not xml.slices:
        return listed.slices or xml.slices
    by_place = {(one.card, one.device): one for one in xml.slices}
    merged = []
    for one in listed.slices:
        more = by_place.get((one.card, one.device))
        fields = asdict(more) if more else {}
        merged.append(Mig(**(fields | {k: v for k, v in asdict(one).items() if v is not None})))
    return merged


def _processes(
    said: Mapping[str, Report], cards: Sequence[Card], users: Mapping[str, Any]
) -> list[dict[str, Any]] | None:
    """Return who holds memory of which card; None where it is not known."""
    apps, xml = said.get("apps", Report()).processes, said.get("xml", Report()).processes
    if apps is None and xml is None:
        return None
    by_uuid = {card.uuid: card.index for card in cards}
    found: dict[tuple[int, int | None], Process] = {}
    # those of the XML last: it knows the graphics of a desktop as well, and kinds
    for one in (*(apps or ()), *(xml or ())):
        card = by_uuid.get(one.uuid, one.card) if one.uuid else one.card
        found[(one.pid, card)] = one
    return [
        {
            "pid": pid,
            "card": card,
            "user": users.get(str(pid)),
            "name": one.name,
            "kind": one.kind,
            "used_mib": one.used_mib,
        }
        for (pid, card), one in sorted(found.items(), key=lambda item: _place(item[0]))
    ]


def _place(key: tuple[int, int | None]) -> tuple[int, int]:
    return -1 if key[1] is None else key[1], key[0]


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
        "ok": peers.ok,
        "of": peers.size * (peers.size - 1) // 2,
        "pairs": [[i, j, status] for (i, j), status in peers.pairs.items()],
    }


def _links(report: Report | None) -> Sequence[NvLink]:
    return (report.links if report else None) or ()


def _troubles(said: Mapping[str, Report]) -> list[Trouble]:
    found: dict[tuple[str, int | None, str | None], Trouble] = {}
    for name, report in said.items():
        for one in report.troubles:
            # only the matrix is missing where it is not supported
            if one.kind != "topo-unsupported" or name == "topology":
                found.setdefault((one.kind, one.index, one.bus_id), one)
    return list(found.values())


def _late(said: Mapping[str, Any]) -> dict[str, str]:
    """Return which questions were not answered, and why."""
    found = {}
    for name, one in said.items():
        why = _dict(one).get("why")
        code = _dict(one).get("exit")
        if why:
            found[name] = str(why)
        elif name == "query" and code not in (0, 14, None):  # 14: a warning, the table is right
            words = " ".join(str(one.get("text") or "").split())[:200]
            found[name] = f"exit code {code}: {words}"
    return found
