"""The signatures: signatures.json beside, which scripts/signatures writes from YAML.

Read only where something failed.
"""

from __future__ import annotations

import json

from safelaunch import runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_tables = []  # type: list[Table]


class Signature(object):
    """One mechanism of failure. `order` is its place in the table: of two the first counts."""

    __slots__ = (
        "cause",
        "even_as_warning",
        "id",
        "likely",
        "name",
        "order",
        "patterns",
        "remedy",
        "restart",
        "role",
        "source",
        "when",
    )

    def __init__(self, record: dict[str, Any], order: int) -> None:
        self.id = str(record["id"])
        self.name = str(record["class"])
        self.role = str(record["role"])
        self.patterns = [
            (str(one[0]), [str(text) for text in one[1:]]) for one in record["patterns"]
        ]
        self.cause = str(record["cause"])
        self.remedy = [str(step) for step in record["remedy"]]
        self.source = [str(url) for url in record["source"]]
        self.restart = str(record.get("restart") or "")
        self.likely = bool(record.get("likely"))
        self.even_as_warning = bool(record.get("even_as_warning"))
        self.when = dict(record.get("when") or {})
        self.order = order


class Table(object):
    """The signatures, and which patterns ask for which literal text."""

    __slots__ = ("by_id", "by_literal", "signatures")

    def __init__(self, records: Iterable[dict[str, Any]]) -> None:
        self.signatures = [Signature(record, order) for order, record in enumerate(records)]
        self.by_id = {one.id: one for one in self.signatures}
        self.by_literal = {}  # type: dict[str, list[tuple[Signature, str]]]
        for one in self.signatures:
            for pattern, texts in one.patterns:
                for text in texts:
                    self.by_literal.setdefault(text, []).append((one, pattern))


def records() -> list[dict[str, Any]]:
    """Return the records of the signatures that come with safelaunch."""
    found = json.loads(runtime.read_data("signatures/signatures.json"))
    assert isinstance(found, list)  # noqa: S101 - our own file
    return found


def load() -> Table:
    """Return the table of the signatures that come with safelaunch; it is read once."""
    if not _tables:
        _tables.append(Table(records()))
    return _tables[0]
