"""Parses the lines of `nvidia-smi -L`, `--version`, `nvlink -s` and `nvlink -e`."""

from __future__ import annotations

import re

from safelaunch.hostfacts.tools.cells import cell_text, parse_version
from safelaunch.hostfacts.tools.report import Card, MigDevice, NvLink, Report

_GPU = re.compile(r"^\W*GPU (\d{1,3}): (.+?)(?: \(UUID: ([^)\s]+)\)?)?\s*$")
_MIG = re.compile(r"^\W*MIG (\S+)\s+Device\s+(\d+): (?:\(UUID: ([^)\s]+)\)?)?")
_LINK = re.compile(r"^\W*Link (\d+): (?:<?(inactive)>?|(\d+(?:\.\d+)?) ?GB/s)", re.IGNORECASE)
_RECOVERIES = re.compile(r"^\W*Link \d+: Recovery Errors: (\d{1,19})\s*$", re.IGNORECASE)
_FIELD = re.compile(
    r"^\W*(NVIDIA-SMI|NVML|DRIVER|CUDA|KMD|CUDA UMD) version\s*:\s*(.*?)\s*$",
    re.MULTILINE | re.IGNORECASE,
)
# messages of nvidia-smi in place of links: (pattern, state, number of active links)
_LINK_STATES = (
    (re.compile(r"MIG mode", re.IGNORECASE), "unknown", None),
    (re.compile(r"all links are inactive", re.IGNORECASE), "inactive", 0),
    (re.compile(r"not have or support|not supported|no nvlink", re.IGNORECASE), "unsupported", 0),
)


def read_list(text: str) -> Report | None:
    """Return the GPUs and MIG devices of `nvidia-smi -L`; None if there are none."""
    cards: list[Card] = []
    slices: list[MigDevice] = []
    for line in text.splitlines():
        card, mig = _GPU.match(line), _MIG.match(line)
        if mig is not None and cards:
            slices.append(MigDevice(cards[-1].index, int(mig[2]), mig[1], mig[3]))
        elif card is not None:
            cards.append(Card(int(card[1]), cell_text(card[2]), card[3]))
    if not cards:
        return None
    return Report(vendor="nvidia", cards=tuple(cards), slices=tuple(slices))


def read_version(text: str) -> Report | None:
    """Return the versions of `nvidia-smi --version`; None if there are none."""
    versions = {name.upper(): parse_version(value) for name, value in _FIELD.findall(text)}
    if not versions.get("NVIDIA-SMI"):
        return None
    return Report(
        vendor="nvidia",
        tool=versions["NVIDIA-SMI"],
        driver=versions.get("KMD") or versions.get("DRIVER"),
        cuda=versions.get("CUDA UMD") or versions.get("CUDA"),
        nvml=versions.get("NVML"),
    )


def read_links(text: str) -> Report | None:
    """Return the NVLinks of `nvidia-smi nvlink -s` or `-e`; None if it names no GPU."""
    cards: list[tuple[Card, list[str]]] = []
    for line in text.splitlines():
        card = _GPU.match(line)
        if card is not None:
            cards.append((Card(int(card[1]), cell_text(card[2]), card[3]), []))
        elif cards:
            cards[-1][1].append(line)
    if not cards:
        return None
    links = tuple(_links(card.index, lines) for card, lines in cards)
    return Report(vendor="nvidia", cards=tuple(card for card, _ in cards), links=links)


def _links(card: int, lines: list[str]) -> NvLink:
    matches = [match for match in map(_LINK.match, lines) if match is not None]
    if matches:
        speeds = [float(match[3]) for match in matches if match[3]]
        state = "active" if speeds else "inactive"
        return NvLink(card, state, len(speeds), max(speeds) if speeds else None)
    recoveries = [int(match[1]) for match in map(_RECOVERIES.match, lines) if match is not None]
    if recoveries:
        return NvLink(card, recoveries=sum(recoveries))
    text = "\n".join(lines)
    for sign, state, active in _LINK_STATES:
        if sign.search(text):
            return NvLink(card, state, active)
    return NvLink(card)
