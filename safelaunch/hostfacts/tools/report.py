"""What was read off a tool's text: frozen data. `None` always means: the text does not tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# from the nearest to the farthest, as `nvidia-smi topo -m` names the way between two devices
LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")


@dataclass(frozen=True, slots=True)
class Mig:
    """A slice of a card (multi-instance GPU)."""

    card: int
    device: int | None = None
    profile: str | None = None  # 3g.40gb
    uuid: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """One device of a host."""

    index: int
    name: str | None = None
    uuid: str | None = None
    bus_id: str | None = None
    device_id: str | None = None  # of PCI, where a tool gives no name
    memory_mib: int | None = None
    used_mib: int | None = None
    compute_capability: str | None = None
    mig_mode: str | None = None  # as printed: Enabled, Disabled, N/A, [N/A]
    power_cap_w: float | None = None
    fabric_state: str | None = None
    fabric_status: str | None = None

    @property
    def is_mig(self) -> bool:
        """Whether the card is cut into slices."""
        return (self.mig_mode or "").lower() == "enabled"


@dataclass(frozen=True, slots=True)
class Process:
    """A process that holds memory of a card."""

    pid: int
    card: int | None = None
    bus_id: str | None = None
    uuid: str | None = None
    card_name: str | None = None
    name: str | None = None
    kind: str | None = None  # C, G, C+G
    used_mib: int | None = None
    gpu_instance: int | None = None


@dataclass(frozen=True, slots=True)
class NvLink:
    """How many NVLinks of a card are up. `state`: active, inactive, unsupported, unknown."""

    card: int
    state: str = "unknown"
    active: int | None = None
    gb_s: float | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error that a tool reports; `kind` is one of trouble.KINDS."""

    kind: str
    index: int | None = None
    bus_id: str | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Matrix:
    """What stands between each two cards, and between cards and network cards."""

    size: int
    pairs: Mapping[tuple[int, int], str] = field(default_factory=lambda: MappingProxyType({}))
    nics: tuple[str, ...] = ()
    nic_levels: Mapping[int, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    cpu_affinity: tuple[str, ...] | None = None
    numa: tuple[str, ...] | None = None
    gpu_numa_id: tuple[str, ...] | None = None

    @property
    def fabric(self) -> str:
        """Return how the cards are joined: single, nvlink-full, nvlink-partial, pcie, ..."""
        if self.size == 1:
            return "single"
        kinds = {_family(link) for link in self.pairs.values()}
        whole = len(self.pairs) == self.size * (self.size - 1) // 2
        if kinds == {"pcie"} and whole:
            return "pcie"
        for family in ("nvlink", "xgmi", "hccs"):
            if family in kinds and kinds <= {family, "pcie"}:
                return f"{family}-full" if kinds == {family} and whole else f"{family}-partial"
        return "unknown"

    def nearest(self, card: int) -> tuple[str, tuple[str, ...]] | None:
        """Return the best level of a card's network cards, and those at it."""
        levels = self.nic_levels.get(card, ())
        known = [level for level in levels if level in LEVELS]
        if not known or len(levels) != len(self.nics):
            return None
        best = min(known, key=LEVELS.index)
        names = zip(self.nics, levels, strict=True)
        return best, tuple(name for name, level in names if level == best)


@dataclass(frozen=True, slots=True)
class Peers:
    """Which pairs of cards may read or write each other's memory directly."""

    size: int
    pairs: Mapping[tuple[int, int], str]
    capability: str | None = None  # r, w, rw, ...

    @property
    def ok(self) -> int:
        """Return how many pairs may."""
        return sum(status == "OK" for status in self.pairs.values())


@dataclass(frozen=True, slots=True)
class Report:
    """All that one text tells."""

    vendor: str | None = None
    tool: str | None = None  # the version of the tool that said it
    driver: str | None = None
    cuda: str | None = None  # the newest that the driver supports
    nvml: str | None = None
    attached: int | None = None
    cards: tuple[Card, ...] | None = None
    slices: tuple[Mig, ...] = ()
    processes: tuple[Process, ...] | None = None
    matrix: Matrix | None = None
    peers: Peers | None = None
    links: tuple[NvLink, ...] | None = None
    troubles: tuple[Trouble, ...] = ()
    warnings: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def _family(link: str) -> str:
    if link in LEVELS:
        return "pcie"
    for prefix, family in (("NV", "nvlink"), ("XGMI", "xgmi"), ("HCCS", "hccs")):
        if link.startswith(prefix):
            return family
    return link
