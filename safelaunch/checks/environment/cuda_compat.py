"""Which GPUs a CUDA build runs on, and which drivers it runs with.

Sources: the compatibility of binaries and PTX is that of the CUDA programming guide (1.3, The CUDA
platform); drivers are those of NVIDIA's CUDA Compatibility (minor version compatibility) and, of
full versions, the CUDA Toolkit release notes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

BINARIES = "https://docs.nvidia.com/cuda/cuda-programming-guide/01-introduction/cuda-platform.html"
DRIVERS = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
NCCL = "NVIDIA/nccl issue 1637; nccl-tests issue 287; pytorch issue 152780"

# From 11 on a driver runs what was built with any release of the same major version.
_OLDEST_DRIVER = {
    (10, 0): "410.48",
    (10, 1): "418.39",
    (10, 2): "440.33",
    (11,): "450.80.02",
    (12,): "525.60.13",
    (13,): "580.65.06",
}
BLACKWELL = 10  # major compute capability: 10.x and 12.x need an NCCL that was built for them
_BLACKWELL_CUDA = (12, 8)
_BLACKWELL_WHEELS = ("2.25.1.post1", "2.26.2.post1")
_BLACKWELL_NCCL = (2, 26, 5)


class Arch(NamedTuple):
    """An architecture that a library has code for."""

    is_ptx: bool
    major: int
    minor: int
    kind: str  # "", "a" (this capability alone) or "f" (its family)

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Whether a GPU of this compute capability can run that code."""
        own = (self.major, self.minor)
        if self.kind == "a":
            return capability == own
        if self.is_ptx and not self.kind:
            return capability >= own
        return capability[0] == self.major and capability >= own


def arch(word: str) -> Arch | None:
    """Parse `sm_90a` or `compute_120`; return None for anything else."""
    match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", word)
    return match and Arch(match[1] == "compute", int(match[2]), int(match[3]), match[4])


def code_for(words: list[str], capability: tuple[int, int]) -> str | None:
    """Return which of these a GPU runs: machine code if it can, else PTX; or None."""
    usable = [(a.is_ptx, word) for word in words if (a := arch(word)) and a.runs_on(capability)]
    best = min((is_ptx for is_ptx, _ in usable), default=False)
    return next((word for is_ptx, word in reversed(usable) if is_ptx == best), None)


def number(version: str | None) -> tuple[int, ...]:
    """Return the numbers that a version starts with: (2, 26, 2) of `2.26.2.post1`."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", version or "")
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def capability(text: str | None) -> tuple[int, int] | None:
    """Return a compute capability such as `12.0` as two numbers."""
    numbers = number(text)
    return (numbers[0], numbers[1]) if len(numbers) > 1 else None


def oldest_driver(cuda: str) -> str | None:
    """Return the oldest driver that runs what was built with this CUDA, if it is known."""
    version = number(cuda)
    return _OLDEST_DRIVER.get(version[:1]) or _OLDEST_DRIVER.get((*version, 0)[:2])


def newest_cuda(driver: str | None) -> int | None:
    """Return the newest major version of CUDA that a driver runs, if it is one from 11 on."""
    version = number(driver)
    majors = (cuda[0] for cuda, oldest in _OLDEST_DRIVER.items()
              if len(cuda) == 1 and version >= number(oldest))  # fmt: skip
    return max(majors, default=None)


def nccl_has_blackwell(version: str, cuda: str | None, wheel: str | None) -> bool:
    """Whether an NCCL has code for Blackwell, by the CUDA that it was built with.

    Without that the wheel's version decides: 2.26.2 has none, 2.26.2.post1 and 2.26.5 have.
    """
    if cuda is not None:
        return number(cuda)[:2] >= _BLACKWELL_CUDA
    return wheel in _BLACKWELL_WHEELS or number(version) >= _BLACKWELL_NCCL
