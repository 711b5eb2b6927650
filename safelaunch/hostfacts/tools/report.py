"""Data classes for the contents of a tool's output. `None` always means: not in the text."""

from __future__ import annotations

from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING

from safelaunch.frozen_dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

# PCIe connections between two devices in `nvidia-smi topo -m`, from nearest to farthest
PCIE_LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")


@dataclass(frozen=True, slots=True)
class MigDevice:
    """A MIG device: a slice of a GPU."""

    card: int
    device: int | None = None
    profile: str | None = None  # 3g.40gb
    uuid: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU or NPU of a host."""

    index: int
    name: str | None = None
    uuid: str | None = None
    bus_id: str | None = None
    device_id: str | None = None  # PCI device id, for tools that give no name
    memory_mib: int | None = None
    used_mib: int | None = None
    compute_capability: str | None = None
    mig_mode: str | None = None  # as printed: Enabled, Disabled, N/A, [N/A]
    power_cap_w: float | None = None
    fabric_state: str | None = None
    fabric_status: str | None = None

    @property
    def is_mig(self) -> bool:
        """Whether the GPU is divided into MIG devices."""
        return (self.mig_mode or "").lower() == "enabled"


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """Errors, limits and modes of a GPU that slow a job down or end it."""

    card: int
    uncorrected: int | None = None  # memory errors since the driver was loaded
    ecc: str | None = None  # Enabled, Disabled
    ecc_pending: str | None = None
    remap_pending: bool = False  # a row of memory, or a page, is replaced by the next reset
    remap_failed: bool = False
    reset_required: bool = False
    slowdowns: tuple[str, ...] = ()  # active reasons: hw_thermal_slowdown, ...
    power_limit_w: float | None = None
    power_default_w: float | None = None
    width: int | None = None  # PCIe lanes
    width_max: int | None = None
    compute_mode: str | None = None  # Default, Exclusive_Process, Prohibited
    cluster: str | None = None  # UUID of the NVLink domain, of zeros where there is none


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that uses memory of a GPU."""

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
    """The active NVLinks of a GPU. `state`: active, inactive, unsupported, unknown."""

    card: int
    state: str = "unknown"
    active: int | None = None
    gb_s: float | None = None
    recoveries: int | None = None  # how often links were trained anew since the driver was loaded


@dataclass(frozen=True, slots=True)
class GpuError:
    """An error that a tool reports; `kind` is one of gpu_errors.KINDS."""

    kind: str
    index: int | None = None
    bus_id: str | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Matrix:
    """The connections between each two GPUs, and between GPUs and network cards."""

    size: int
    pairs: Mapping[tuple[int, int], str] = field(default_factory=lambda: MappingProxyType({}))
    nics: tuple[str, ...] = ()
    nic_levels: Mapping[int, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    cpu_affinity: tuple[str, ...] | None = None
    numa: tuple[str, ...] | None = None
    gpu_numa_id: tuple[str, ...] | None = None
    is_pcie_only: bool = False  # of `topo -mp`, which shows no other connection

    @property
    def fabric(self) -> str:
        """Return how the GPUs are connected: single, nvlink-full, nvlink-partial, pcie, ..."""
        if self.size == 1:
            return "single"
        kinds = {_family(link) for link in self.pairs.values()}
        whole = len(self.pairs) == self.size * (self.size - 1) // 2
        if kinds == {"pcie"} and whole:
            return "unknown" if self.is_pcie_only else "pcie"
        for family in ("nvlink", "xgmi", "hccs"):
            if family in kinds and kinds <= {family, "pcie"}:
                return f"{family}-full" if kinds == {family} and whole else f"{family}-partial"
        return "unknown"

    def nearest(self, card: int) -> tuple[str, tuple[str, ...]] | None:
        """Return the best connection level of a GPU's network cards, and the cards with it."""
        levels = self.nic_levels.get(card, ())
        pcie_levels = [level for level in levels if level in PCIE_LEVELS]
        if not pcie_levels or len(levels) != len(self.nics):
            return None
        best = min(pcie_levels, key=PCIE_LEVELS.index)
        names = zip(self.nics, levels, strict=True)
        return best, tuple(name for name, level in names if level == best)


@dataclass(frozen=True, slots=True)
class PeerAccess:
    """Which pairs of GPUs can access each other's memory directly (`topo -p2p`)."""

    size: int
    pairs: Mapping[tuple[int, int], str]
    capability: str | None = None  # r, w, rw, ...

    @property
    def allowed_pairs(self) -> int:
        """Return the number of pairs with access."""
        return sum(status == "OK" for status in self.pairs.values())


@dataclass(frozen=True, slots=True)
class Report:
    """The contents of one tool's output."""

    vendor: str | None = None
    tool: str | None = None  # version of the tool
    driver: str | None = None
    cuda: str | None = None  # the newest version that the driver supports
    nvml: str | None = None
    attached: int | None = None
    cards: tuple[Card, ...] | None = None
    slices: tuple[MigDevice, ...] = ()
    health: tuple[GpuHealth, ...] = ()
    processes: tuple[GpuProcess, ...] | None = None
    matrix: Matrix | None = None
    peers: PeerAccess | None = None
    links: tuple[NvLink, ...] | None = None
    troubles: tuple[GpuError, ...] = ()
    warnings: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def _family(link: str) -> str:
    if link in PCIE_LEVELS:
        return "pcie"
    for prefix, family in (("NV", "nvlink"), ("XGMI", "xgmi"), ("HCCS", "hccs")):
        if link.startswith(prefix):
            return family
    return link
