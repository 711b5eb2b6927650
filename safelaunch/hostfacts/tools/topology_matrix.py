"""Parses the tables of `nvidia-smi topo -m` and `topo -p2p`, and those of other vendors.

Columns cannot be counted by tabs or blanks: terminals, pastes and people change them. The cells of
a row are recognised by their possible values, from the left.
"""

from __future__ import annotations

import itertools
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.hostfacts.tools.report import Matrix, PeerAccess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NAME = r"(?:GPU|NPU)\d{1,3}"
_AFFINITY_COLUMNS = {
    "cpu": re.compile(r"CPU\s+Affinity", re.IGNORECASE),
    "gpu_numa": re.compile(r"GPU\s+NUMA\s+ID", re.IGNORECASE),
    "numa": re.compile(r"(?:NUMA|Node)\s+Affinity", re.IGNORECASE),
}
_ROW = re.compile(rf"(?:^|[#>|\s])({_NAME})(?=[\s:|])[:|]?(.*)$")
_LINK = re.compile(
    r"\s*\|?\s*(XGMI|X|SYS|NODE|PHB|PXB|PIX|PSB|SOC|NV\d{1,2}(?!\d)|C2C|PCIE|MX|ETH|"
    r"HCCS(?:_SW)?|SIO(?:_\w+)?|UB|0(?!\S)|N/?A\b)",
    re.IGNORECASE,
)
_STATUS = re.compile(r"\s*\|?\s*(X|OK|CNS|GNS|TNS|DR|NS|U)(?=\s|X|OK|CNS|GNS|TNS|NS|U|$)")
_LEGEND = re.compile(r"^\W*(NIC\d{1,3}|HCA\d{1,3}):[ \t]*(\S+)[ \t]*$", re.MULTILINE)
_CPUS = re.compile(r"[\d,\-]*\.{0,3}|N/?A", re.IGNORECASE)
_CAPABILITY = re.compile(r"-p2p\s+([a-z]{1,4})\b")
_DIAGONAL = ("X", "0")


class _Header(NamedTuple):
    cards: tuple[str, ...]
    others: tuple[str, ...]
    affinities: tuple[str, ...]  # cpu, numa, gpu_numa, in the order of the columns


class _MatrixRow(NamedTuple):
    card: int
    links: tuple[str, ...]
    rest: str


def read_matrix(text: str) -> Matrix | None:
    """Return the topology matrix of a text; None if there is none."""
    head, rows = _table(text, _LINK)
    if head is None or not rows:
        return None
    size = len(head.cards)
    pairs = _pairs(rows, size)
    if size > 1 and not pairs:
        return None
    entries = _LEGEND.findall(text)
    legend = {name: device for name, device in entries if re.fullmatch(r"[a-z][\w.\-]*", device)}
    columns = [_affinities(row.rest, head.affinities) for row in rows]
    return Matrix(
        size,
        pairs,
        tuple(legend.get(name, name) for name in head.others),
        MappingProxyType({row.card: row.links[size:] for row in rows if len(row.links) > size}),
        _column("cpu", head, columns),
        _column("numa", head, columns),
        _column("gpu_numa", head, columns),
    )


def read_peers(text: str, command: str = "") -> PeerAccess | None:
    """Return the pairs with peer access; None if a text has no such table."""
    head, rows = _table(text, _STATUS)
    if head is None or not rows:
        return None
    pairs = _pairs(rows, len(head.cards))
    if not pairs and not (len(head.cards) == 1 and rows[0].links == ("X",)):
        return None
    capability = _CAPABILITY.search(command) or _CAPABILITY.search(text)
    return PeerAccess(len(head.cards), pairs, capability[1] if capability else None)


def _table(text: str, cell: re.Pattern[str]) -> tuple[_Header | None, list[_MatrixRow]]:
    head: _Header | None = None
    raw: dict[str, str] = {}
    for line in text.splitlines():
        row = _ROW.search(line)
        if row is not None and cell.match(row[2]) is not None:
            raw.setdefault(row[1], row[2])
        elif head is None and not raw:
            head = _header(line)
    if head is None and raw:  # the header was cut off: there is a row for each GPU
        head = _Header(tuple(raw), (), ())
    if head is None:
        return None, []
    indexes = {name: index for index, name in enumerate(head.cards)}
    width = len(head.cards) + len(head.others)
    rows = [
        _row(indexes[name], cells, cell, width) for name, cells in raw.items() if name in indexes
    ]
    return head, sorted(rows)


def _header(line: str) -> _Header | None:
    first = re.search(rf"(?:^|[^\w-])({_NAME})(?=\s|$)", line)
    if first is None or re.search(r"\bX\b", line):
        return None
    line = line[first.start(1) :]
    columns = []
    for kind, sign in _AFFINITY_COLUMNS.items():
        match = sign.search(line)
        if match is not None:
            columns.append((match.start(), kind))
            line = line[: match.start()] + " " * len(match[0]) + line[match.end() :]
    words = line.split()
    cards = list(itertools.takewhile(lambda word: re.fullmatch(_NAME, word), words))
    others = [word for word in words[len(cards) :] if re.fullmatch(r"[\w.\-]+", word)]
    return _Header(tuple(cards), tuple(others), tuple(kind for _, kind in sorted(columns)))


def _row(card: int, rest: str, cell: re.Pattern[str], width: int) -> _MatrixRow:
    links: list[str] = []
    at = 0
    while len(links) < width and (match := cell.match(rest, at)) is not None:
        links.append(match[1].upper())
        at = match.end()
    return _MatrixRow(card, tuple(links), rest[at:])


def _pairs(rows: Sequence[_MatrixRow], size: int) -> Mapping[tuple[int, int], str]:
    """Return the upper half of the matrix; cells that were cut off come from the lower half."""
    cells = {
        (row.card, other): link
        for row in rows
        for other, link in enumerate(row.links[:size])
        if other != row.card and link not in _DIAGONAL
    }
    links = {
        pair: cells.get(pair) or cells.get(pair[::-1])
        for pair in itertools.combinations(range(size), 2)
    }
    return MappingProxyType({pair: link for pair, link in links.items() if link is not None})


def _affinities(text: str, kinds: Sequence[str]) -> dict[str, str]:
    words = text.split()
    if len(words) == len(kinds):
        return dict(zip(kinds, words, strict=True))
    cells = [cell.strip() for cell in re.sub(r"^ *\t", "", text).split("\t")]
    # nvidia-smi prints an extra tab before the last column, and before N/A in the second
    extra = len(cells) - len(kinds)
    while extra > 0 and "" in cells[2:-1] + cells[1:2]:
        del cells[2 if cells[3:] and not cells[2] else cells.index("", 1)]
        extra -= 1
    cells += [""] * (len(kinds) - len(cells))
    return dict(zip(kinds, cells, strict=False))


def _column(kind: str, head: _Header, columns: Sequence[dict[str, str]]) -> tuple[str, ...] | None:
    if kind not in head.affinities or len(columns) != len(head.cards):
        return None
    values = tuple(column.get(kind, "") for column in columns)
    return values if all(_CPUS.fullmatch(cell) for cell in values) else None
