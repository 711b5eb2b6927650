"""Finds error messages anywhere in the output of nvidia-smi."""

from __future__ import annotations

import re

from safelaunch.hostfacts.tools.report import GpuError

_BUS = r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])"
_CARD = rf"(?:GPU\s?)?(?:(?P<index>\d{{1,3}})(?=:\s|\s|$):?\s*)?(?:{_BUS})?"
_HANDLE = rf"Unable to determine the device handle for (?:gpu )?{_CARD}"

# (kind, pattern); the first match in a line counts
_PATTERNS = tuple(
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
# each match contains one of these: to search for them is fast, and most lines are cells of a table
_HINTS = ("nvidia", "nvml", "mismatch", "handle", "lost", "fallen", "devices were", "topo")
KINDS = tuple(dict.fromkeys(kind for kind, _ in _PATTERNS))
# a legend line such as "P2P topology not supported" is not an error
_LEGEND = re.compile(r"^\s*`?(?:[A-Z][A-Z0-9#+]*)\s*=\s")


def read_errors(text: str) -> tuple[GpuError, ...]:
    """Return each error once, in the order of the text."""
    errors: dict[tuple[str, int | None, str | None], GpuError] = {}
    for line in text.splitlines():
        error = None if _LEGEND.match(line) else _error_in_line(line)
        if error is not None:
            errors.setdefault((error.kind, error.index, error.bus_id), error)
    return tuple(errors.values())


def _error_in_line(line: str) -> GpuError | None:
    low = line.lower()
    if not any(hint in low for hint in _HINTS):
        return None
    for kind, sign in _PATTERNS:
        match = sign.search(line)
        if match is not None:
            groups = match.groupdict()
            index = groups.get("index")
            number = int(index) if index else None
            return GpuError(kind, number, groups.get("bus"), " ".join(line.split())[:300])
    return None
