"""The conditions of a signature: what stands around a line, and on what machine the job ran.

A condition on what is unknown does not hold: the general signature matches then.
"""

from __future__ import annotations

import functools
import re

from safelaunch.runtime.signatures import match

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NEAR = 60  # lines either way
_OP = r"OpType=(\w+)"
_GPU = (
    r"(?:NVIDIA|GeForce|Tesla|Quadro|RTX|AMD Instinct)[ \w]{0,20}"
    r"(?:RTX ?(?:PRO )?\d{4}|[ABHLTV]\d{1,4}\b|GH200|GB\d{3}|MI\d{3})[ \w-]{0,30}"
)
_VERSION = (
    r"(?i)\b(nccl|torch|pytorch|vllm|transformers|accelerate|deepspeed|trl|ray|cuda|triton"
    r"|flash[_-]attn|xformers|numpy|sglang|peft|datasets)"
    r"(?: version)?[ =:v(]{1,4}(\d+\.\d+(?:\.\d+)*)"
)
# the last of these above a line shows what the job was doing there
_PHASES = (
    ("meet", r"init_process_group|[Rr]endezvous|Connecting to|TCPStore|NCCL INFO Bootstrap"),
    ("load", r"Loading (?:checkpoint|model|weights|dataset|safetensors)|from_pretrained"),
    ("train", r"\d+/\d+ \[|'loss'|\b[Ss]tep[ =:]+\d|\b[Ee]poch[ =:]+\d|\bbackward\b"),
    ("generate", r"[Gg]enerat(?:e|ing|ion)|[Rr]ollout|Processed prompts|vllm/engine"),
    ("save", r"[Ss]aving (?:model|checkpoint)|save_(?:checkpoint|pretrained|model|state)"),
    ("evaluate", r"[Ee]valuat(?:e|ing|ion)|\beval(?:uate)?_|Running Evaluation"),
)


class LogEnvironment:
    """The GPUs and the versions of libraries that lines name; they are searched when needed."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    @functools.cached_property
    def gpus(self) -> list[str]:
        """Names of GPUs, in the order of the lines."""
        return match.compiled(_GPU).findall("\n".join(self.lines))

    @functools.cached_property
    def versions(self) -> dict[str, str]:
        """{library: version}; the first line that names one counts."""
        versions: dict[str, str] = {}
        for name, version in match.compiled(_VERSION).findall("\n".join(self.lines)):
            library = name.lower().replace("-", "_")
            versions.setdefault("torch" if library == "pytorch" else library, version)
        return versions


def version(lines: list[str], library: str) -> str:
    """Return the version of a library that lines name, "" if none does."""
    name = re.escape(library).replace("_", "[_-]")
    # also of `pip list`, "Successfully installed trl-1.16.0", "vLLM API server version 0.11.0"
    number = r"`?(?: API server)?(?: version)?[ =:v(-]{1,40}(\d+\.\d+(?:\.\d+)*)"
    hit = match.compiled(rf"(?i)\b{name}{number}").search("\n".join(lines))
    return hit.group(1) if hit else ""


def holds(when: dict[str, Any], index: int, rank: int | None, log: LogEnvironment) -> bool:
    """Whether all conditions of a signature hold at a line."""
    return all(_holds(name, value, index, rank, log) for name, value in when.items())


def _holds(name: str, value: Any, index: int, rank: int | None, log: LogEnvironment) -> bool:
    lines = log.lines
    if name in ("near", "not_near", "before", "after"):
        near = slice(max(0, index - NEAR), index + NEAR + 1)
        part = {"before": slice(index), "after": slice(index + 1, None)}.get(name, near)
        matches = match.compiled(value).search("\n".join(lines[part])) is not None
        return matches is (name != "not_near")
    if name == "op":
        op = match.compiled(_OP).search("\n".join(lines[max(0, index - 3) : index + 4]))
        return op is not None and match.compiled(value).search(op.group(1)) is not None
    if name == "rank":
        return rank is not None and rank in (value if isinstance(value, list) else [value])
    if name == "phase":
        return phase(lines, index) == str(value)
    if name == "gpu":
        return any(match.compiled(value).search(gpu) for gpu in log.gpus)
    return all(_fits(log.versions.get(library), limits) for library, limits in value.items())


def phase(lines: list[str], index: int) -> str:
    """Return what the job was doing at a line; `start` where nothing above shows it."""
    for above in range(index, max(-1, index - 400), -1):
        for name, pattern in _PHASES:
            if match.compiled(pattern).search(lines[above]):
                return name
    return "start"


def _fits(version: str | None, limits: str) -> bool:
    """Whether a version meets `<2.26.3`, `>=2.24,<2.27` or `2.21.5`."""
    if not version:
        return False
    return all(_compare(version, limit.strip()) for limit in str(limits).split(","))


def _compare(version: str, limit: str) -> bool:
    sign = limit.rstrip("0123456789.")
    own, other = _numbers(version), _numbers(limit[len(sign) :])
    length = max(len(own), len(other))
    own += [0] * (length - len(own))
    other += [0] * (length - len(other))
    tests = {"<": own < other, "<=": own <= other, ">": own > other, ">=": own >= other}
    return tests.get(sign, own == other)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]
