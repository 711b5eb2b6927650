"""`nvidia-smi -L`, `--version` and `nvlink -s`: lines, no table."""

from __future__ import annotations

import re

from safelaunch.hostfacts.tools.cells import told, version
from safelaunch.hostfacts.tools.report import Card, Mig, NvLink, Report

_GPU = re.compile(r"^\W*GPU (\d{1,3}): (.+?)(?: \(UUID: ([^)\s]+)\)?)?\s*$")
_MIG = re.compile(r"^\W*MIG (\S+)\s+Device\s+(\d+): (?:\(UUID: ([^)\s]+)\)?)?")
_LINK = re.compile(r"^\W*Link (\d+): (?:<?(inactive)>?|(\d+(?:\.\d+)?) ?GB/s)", re.IGNORECASE)
_FIELD = re.compile(
    r"^\W*(NVIDIA-SMI|NVML|DRIVER|CUDA|KMD|CUDA UMD) version\s*:\s*(.*?)\s*$",
    re.MULTILINE | re.IGNORECASE,
)
# what nvidia-smi says instead of links: state and how many are up
_SAID = (
    (re.compile(r"MIG mode", re.IGNORECASE), "unknown", None),
    (re.compile(r"all links are inactive", re.IGNORECASE), "inactive", 0),
    (re.compile(r"not have or support|not supported|no nvlink", re.IGNORECASE), "unsupported", 0),
)


def read_list(text: str) -> Report | None:
    """Return the cards and slices of `nvidia-smi -L`; None where there are none."""
    cards: list[Card] = []
    slices: list[Mig] = []
    for line in text.splitlines():
        card, mig = _GPU.match(line), _MIG.match(line)
        if mig is not None and cards:
            slices.append(Mig(cards[-1].index, int(mig[2]), mig[1], mig[3]))
        elif card is not None:
            cards.append(Card(int(card[1]), told(card[2]), card[3]))
    if not cards:
        return None
    return Report(vendor="nvidia", cards=tuple(cards), slices=tuple(slices))


def read_version(text: str) -> Report | None:
    """Return the versions of `nvidia-smi --version`; None where there are none."""
    found = {name.upper(): version(value) for name, value in _FIELD.findall(text)}
    if not found.get("NVIDIA-SMI"):
        return None
    return Report(
        vendor="nvidia",
        tool=found["NVIDIA-SMI"],
        driver=found.get("KMD") or found.get("DRIVER"),
        cuda=found.get("CUDA UMD") or found.get("CUDA"),
        nvml=found.get("NVML"),
    )


def read_links(text: str) -> Report | None:
    """Return the NVLinks of `nvidia-smi nvlink -s`; None where no card is named."""
    cards: list[Card] = []
    said: list[list[str]] = []
    for line in text.splitlines():
        card = _GPU.match(line)
        if card is not None:
            cards.append(Card(int(card[1]), told(card[2]), card[3]))
            said.append([])
        elif said:
            said[-1].append(line)
    if not cards:
        return None
    links = tuple(_links(card.index, lines) for card, lines in zip(cards, said, strict=True))
    return Report(vendor="nvidia", cards=tuple(cards), links=links)


def _links(card: int, lines: list[str]) -> NvLink:
    found = [match for match in map(_LINK.match, lines) if match is not None]
    if found:
        speeds = [float(match[3]) for match in found if match[3]]
        state = "active" if speeds else "inactive"
        return NvLink(card, state, len(speeds), max(speeds) if speeds else None)
    text = "\n".join(lines)
    for sign, state, active in _SAID:
        if sign.search(text):
            return NvLink(card, state, active)
    return NvLink(card)
