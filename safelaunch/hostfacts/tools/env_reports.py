"""Parses the environment reports of torch, vLLM and sglang: versions, GPUs and topology."""

from __future__ import annotations

import re

from safelaunch.hostfacts.tools.cells import cell_text
from safelaunch.hostfacts.tools.report import Card, Report
from safelaunch.hostfacts.tools.topology_matrix import read_matrix

_GPU = re.compile(r"^\W*(?:GPU models and configuration\s*:\s*)?GPU (\d[\d,]*): (.+?)\s*$")
# torch for ROCm names one GPU, with its instruction set, and not how many there are
_HIP_GPU = re.compile(r"^\W*GPU models and configuration\s*:\s*(AMD .+?)\s*(?:\(gfx\S*\))?\s*$")
_CAPABILITY = re.compile(r"^\W*GPU (\d[\d,]*) Compute Capability: (\d+\.\d+)")
_NONE = ("no cuda", "no gpu", "could not collect")
_VALUES = {
    "torch": r"PyTorch(?: version)?\s*:\s*(\d\S*)",
    "torch_cuda": r"CUDA used to build PyTorch\s*:\s*(\d\S*)",
    "driver": r"(?:Nvidia driver version|CUDA Driver Version)\s*:\s*(\d[\d.]*)",
    "nccl": r"(?:\[(?:pip3?|conda)\] )?nvidia-nccl-cu\d+(?:==|\s+)(\d[\w.]*)",
    "vllm": r"vLLM(?: Version)?\s*:\s*(\d\S*)",
}


def is_report(text: str) -> bool:
    """Whether a text is an environment report."""
    return re.search(r"^\W*(?:PyTorch version|PyTorch)\s*:\s", text, re.MULTILINE) is not None


def read(text: str) -> Report:
    """Return the contents of an environment report."""
    values = {}
    for name, pattern in _VALUES.items():
        flags = re.MULTILINE | (re.IGNORECASE if name == "vllm" else 0)
        match = re.search(rf"^\W*{pattern}", text, flags)
        if match is not None:
            values[name] = match[1]
    cards = _cards(text)
    none = re.search(r"^\W*GPU models and configuration\s*:\s*(.*)$", text, re.MULTILINE)
    says_none = none is not None and none[1].strip().lower() in _NONE[:2]
    available = re.search(r"^\W*(?:Is )?CUDA available\s*:\s*(No|False)\b", text, re.MULTILINE)
    return Report(
        vendor=_vendor(text, cards, has_driver="driver" in values),
        driver=values.pop("driver", None),
        cards=tuple(cards) if cards or says_none or available else None,
        matrix=read_matrix(text),
        versions=values,
    )


def _vendor(text: str, cards: list[Card], *, has_driver: bool) -> str | None:
    if any((card.name or "").upper().startswith("AMD ") for card in cards):
        return "amd"
    if cards or has_driver:
        return "nvidia"
    rocm = re.search(r"^\W*ROCM used to build PyTorch\s*:\s*\d", text, re.MULTILINE)
    return "amd" if rocm else None


def _cards(text: str) -> list[Card]:
    names: dict[int, str | None] = {}
    capabilities: dict[int, str] = {}
    for line in text.splitlines():
        capability, card, hip = _CAPABILITY.match(line), _GPU.match(line), _HIP_GPU.match(line)
        if capability is not None:
            capabilities |= dict.fromkeys(_numbers(capability[1]), capability[2])
        elif card is not None:
            for index in _numbers(card[1]):
                names.setdefault(index, cell_text(card[2]))
        elif hip is not None:
            names.setdefault(0, cell_text(hip[1]))
    return [
        Card(index, name, compute_capability=capabilities.get(index))
        for index, name in sorted(names.items())
    ]


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]
