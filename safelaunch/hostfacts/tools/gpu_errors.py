"""Errors in what nvidia-smi prints, wherever in a text they stand."""

from __future__ import annotations

import re

from safelaunch.hostfacts.tools.report import Trouble

_BUS = r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])"
_CARD = rf"(?:GPU\s?)?(?:(?P<index>\d{{1,3}})(?=:\s|\s|$):?\s*)?(?:{_BUS})?"
_HANDLE = rf"Unable to determine the device handle for (?:gpu )?{_CARD}"

# kind -> the fragment that says it; the first of a line counts
_SIGNS = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("driver-not-running", r"couldn\W{0,3}t communicate with the NVIDIA driver"),
        ("driver-not-running", r"NVML: Driver Not Loaded|nvidia driver is not loaded"),
        ("driver-library-mismatch", r"Driver/library version mismatch|API mismatch: "),
        ("gpu-lost", rf"{_HANDLE}:? *:?[^\n]*(?:GPU is lost|fallen off the bus)"),
        ("gpu-handle-unknown", rf"{_HANDLE}"),
        ("gpu-lost", rf"(?:{_CARD}[^\n]{{0,40}})?(?:GPU is lost\b|has fallen off the bus)"),
        ("no-devices", r"No devices were found|No NVIDIA GPUs? (?:was |were )?found"),
        ("nvml-unknown", r"Failed to initialize NVML: Unknown Error"),
        ("no-library", r"couldn\W{0,3}t find (?:the )?(?:libnvidia-ml|nvml\.dll)"),
        ("no-permission", r"NVML: Insufficient Permissions"),
        ("nvml-failed", r"Failed to initialize NVML"),
        ("topo-unsupported", r"topo\w*[^\n]{0,60}(?:not supported|unsupported|not available)"),
        ("topo-unsupported", r"(?:Not Supported|Failed to|Unable to)[^\n]{0,60}\btopolog"),
        ("topo-unsupported", r"Option \W?topo\W? is not recogni[sz]ed"),
    )
)
KINDS = tuple(dict.fromkeys(kind for kind, _ in _SIGNS))
# "P2P topology not supported" explains a mark of a matrix
_LEGEND = re.compile(r"^\s*`?(?:[A-Z][A-Z0-9#+]*)\s*=\s")


def read(text: str) -> tuple[Trouble, ...]:
    """Return each error once, in the order of the text."""
    found: dict[tuple[str, int | None, str | None], Trouble] = {}
    for line in text.splitlines():
        one = None if _LEGEND.match(line) else _of(line)
        if one is not None:
            found.setdefault((one.kind, one.index, one.bus_id), one)
    return tuple(found.values())


def _of(line: str) -> Trouble | None:
    for kind, sign in _SIGNS:
        match = sign.search(line)
        if match is not None:
            said = match.groupdict()
            index = said.get("index")
            number = int(index) if index else None
            return Trouble(kind, number, said.get("bus"), " ".join(line.split())[:300])
    return None
