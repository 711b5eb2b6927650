"""The signatures: signatures.json beside this file, which scripts/signatures writes from YAML."""

from __future__ import annotations

import functools
import json

from safelaunch import runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


class Signature:
    """One mechanism of failure; `order` is its place in the table: of two the first counts."""

    def __init__(self, record: dict[str, Any], order: int) -> None:
        self.id = str(record["id"])
        self.name = str(record["class"])
        self.role = str(record["role"])
        # (pattern, literal texts of which one stands in each line that it matches)
        self.patterns: list[tuple[str, list[str]]] = [
            (pattern, literals) for pattern, *literals in record["patterns"]
        ]
        self.cause = str(record["cause"])
        self.remedy: list[str] = record["remedy"]
        self.source: list[str] = record["source"]
        self.restart = str(record.get("restart") or "")
        self.likely = bool(record.get("likely"))
        self.even_as_warning = bool(record.get("even_as_warning"))
        self.when: dict[str, Any] = record.get("when") or {}
        self.order = order


class SignatureTable:
    """The signatures, the patterns to try for each literal text, the literals by their start."""

    def __init__(self, records: Iterable[dict[str, Any]]) -> None:
        self.signatures = [Signature(record, order) for order, record in enumerate(records)]
        self.by_id = {signature.id: signature for signature in self.signatures}
        self.by_literal: dict[str, list[tuple[Signature, str]]] = {}
        for signature in self.signatures:
            for pattern, literals in signature.patterns:
                for literal in literals:
                    self.by_literal.setdefault(literal, []).append((signature, pattern))
        self.start_size = min(map(len, self.by_literal), default=1)
        self.literals_by_start: dict[str, list[str]] = {}
        for literal in self.by_literal:
            self.literals_by_start.setdefault(literal[: self.start_size], []).append(literal)


def records() -> list[dict[str, Any]]:
    """Return the records of the signatures that come with safelaunch."""
    signatures: list[dict[str, Any]] = json.loads(runtime.read_data("signatures/signatures.json"))
    return signatures


@functools.lru_cache(maxsize=None)
def load() -> SignatureTable:
    """Return the table of the signatures that come with safelaunch; it is read once."""
    return SignatureTable(records())
