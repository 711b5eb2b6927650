"""`nvidia-smi topo -m` and `topo -p2p`, and the same of other vendors: tables of cards by cards.

Columns cannot be counted by tabs or blanks: terminals, pastes and people have changed them. What
stands in a row is found by what it can be, from the left.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.hostfacts.tools.report import Matrix, Peers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NAME = r"(?:GPU|NPU)\d{1,3}"
_WORDS = {
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


class _Head(NamedTuple):
    cards: tuple[str, ...]
    others: tuple[str, ...]
    affinities: tuple[str, ...]  # cpu, numa, gpu_numa, in the order of the columns


class _Row(NamedTuple):
    card: int
    links: tuple[str, ...]
    rest: str


def read_matrix(text: str) -> Matrix | None:
    """Return the matrix of a text; None where there is none."""
    head, rows = _table(text, _LINK)
    if head is None or not rows:
        return None
    size = len(head.cards)
    pairs = _pairs(rows, size)
    if size > 1 and not pairs:
        return None
    legend = {name: told for name, told in _LEGEND.findall(text) if _is_device(told)}
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


def read_peers(text: str, command: str = "") -> Peers | None:
    """Return which pairs have peer access; None where a text has no such table."""
    head, rows = _table(text, _STATUS)
    if head is None or not rows:
        return None
    pairs = _pairs(rows, len(head.cards))
    if not pairs and not (len(head.cards) == 1 and rows[0].links == ("X",)):
        return None
    asked = _CAPABILITY.search(command) or _CAPABILITY.search(text)
    return Peers(len(head.cards), pairs, asked[1] if asked else None)


def _table(text: str, cell: re.Pattern[str]) -> tuple[_Head | None, list[_Row]]:
    head: _Head | None = None
    raw: dict[str, str] = {}
    for line in text.splitlines():
        row = _ROW.search(line)
        is_row = row is not None and cell.match(row[2]) is not None
        if is_row and row is not None:
            raw.setdefault(row[1], row[2])
        elif head is None and not raw:
            head = _head(line)
    if head is None and raw:  # the head was cut away: there is a row for each card
        head = _Head(tuple(raw), (), ())
    if head is None:
        return None, []
    known = {name: at for at, name in enumerate(head.cards)}
    width = len(head.cards) + len(head.others)
    rows = [_row(known[name], rest, cell, width) for name, rest in raw.items() if name in known]
    return head, sorted(rows)


def _head(line: str) -> _Head | None:
    first = re.search(rf"(?:^|[^\w-])({_NAME})(?=\s|$)", line)
    if first is None or re.search(r"\bX\b", line):
        return None
    line = line[first.start(1) :]
    found = []
    for kind, sign in _WORDS.items():
        match = sign.search(line)
        if match is not None:
            found.append((match.start(), kind))
            line = line[: match.start()] + " " * len(match[0]) + line[match.end() :]
    words = line.split()
    cards = []
    for word in words:
        if re.fullmatch(_NAME, word) is None:
            break
        cards.append(word)
    others = [word for word in words[len(cards) :] if re.fullmatch(r"[\w.\-]+", word)]
    return _Head(tuple(cards), tuple(others), tuple(kind for _, kind in sorted(found)))


def _row(card: int, rest: str, cell: re.Pattern[str], width: int) -> _Row:
    links: list[str] = []
    at = 0
    while len(links) < width:
        match = cell.match(rest, at)
        if match is None:
            break
        links.append(match[1].upper())
        at = match.end()
    return _Row(card, tuple(links), rest[at:])


def _pairs(rows: Sequence[_Row], size: int) -> Mapping[tuple[int, int], str]:
    """Return the upper half; a cell that was cut off there is taken from the lower one."""
    cells = {
        (row.card, other): link
        for row in rows
        for other, link in enumerate(row.links[:size])
        if other != row.card and link not in _DIAGONAL
    }
    whole = {}
    for i in range(size):
        for j in range(i + 1, size):
            link = cells.get((i, j)) or cells.get((j, i))
            if link is not None:
                whole[(i, j)] = link
    return MappingProxyType(whole)


def _affinities(rest: str, kinds: Sequence[str]) -> dict[str, str]:
    words = rest.split()
    if len(words) == len(kinds):
        return dict(zip(kinds, words, strict=True))
    cells = [cell.strip() for cell in re.sub(r"^ *\t", "", rest).split("\t")]
    # nvidia-smi writes one tab more before the last column, and before N/A in the second
    extra = len(cells) - len(kinds)
    while extra > 0 and "" in cells[2:-1] + cells[1:2]:
        del cells[2 if len(cells) > 3 and not cells[2] else cells.index("", 1)]  # noqa: PLR2004
        extra -= 1
    cells += [""] * (len(kinds) - len(cells))
    return dict(zip(kinds, cells, strict=False))


def _column(kind: str, head: _Head, columns: Sequence[dict[str, str]]) -> tuple[str, ...] | None:
    if kind not in head.affinities or len(columns) != len(head.cards):
        return None
    found = tuple(column.get(kind, "") for column in columns)
    return found if all(_CPUS.fullmatch(cell) for cell in found) else None


def _is_device(name: str) -> bool:
    return re.fullmatch(r"[a-z][\w.\-]*", name) is not None
