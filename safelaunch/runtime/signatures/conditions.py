"""Judges the conditions of a signature: what stands round a line, and what is known of the machine.

A condition on what is not known does not hold: the general signature says it then.
"""

from __future__ import annotations

from safelaunch.runtime.signatures import match

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NEAR = 60  # lines either way
_OP = r"OpType=(\w+)"
_CARD = (
    r"(?:NVIDIA|GeForce|Tesla|Quadro|RTX|AMD Instinct)[ \w]{0,20}"
    r"(?:RTX ?(?:PRO )?\d{4}|[ABHLTV]\d{1,4}\b|GH200|GB\d{3}|MI\d{3})[ \w-]{0,30}"
)
_VERSION = (
    r"(?i)\b(nccl|torch|pytorch|vllm|transformers|accelerate|deepspeed|trl|ray|cuda|triton"
    r"|flash[_-]attn|xformers|numpy|sglang|peft|datasets)"
    r"(?: version)?[ =:v(]{1,4}(\d+\.\d+(?:\.\d+)*)"
)
# the last of these above a line tells what the job was doing there
_PHASES = (
    ("meet", r"init_process_group|[Rr]endezvous|Connecting to|TCPStore|NCCL INFO Bootstrap"),
    ("load", r"Loading (?:checkpoint|model|weights|dataset|safetensors)|from_pretrained"),
    ("train", r"\d+/\d+ \[|'loss'|\b[Ss]tep[ =:]+\d|\b[Ee]poch[ =:]+\d|\bbackward\b"),
    ("generate", r"[Gg]enerat(?:e|ing|ion)|[Rr]ollout|Processed prompts|vllm/engine"),
    ("save", r"[Ss]aving (?:model|checkpoint)|save_(?:checkpoint|pretrained|model|state)"),
    ("evaluate", r"[Ee]valuat(?:e|ing|ion)|\beval(?:uate)?_|Running Evaluation"),
)


class Known(object):
    """What is known of machine and software: names of GPUs, versions of libraries."""

    __slots__ = ("gpus", "versions")

    def __init__(self, gpus: tuple[str, ...] = (), versions: dict[str, str] | None = None) -> None:
        self.gpus = gpus
        self.versions = dict(versions or {})


class Told(object):
    """What is known, together with what the lines tell; they are read when that is asked for."""

    def __init__(self, lines: list[str], known: Known | None = None) -> None:
        self.lines = lines
        self.known = known or Known()
        self._read = None  # type: Known | None

    @property
    def gpus(self) -> tuple[str, ...]:
        """Names of the cards: those that are known, else those in the lines."""
        return self.known.gpus or self._of_lines().gpus

    def version(self, name: str) -> str | None:
        """Return the version of a library: the one that is known, else the first in the lines."""
        return self.known.versions.get(name) or self._of_lines().versions.get(name)

    def _of_lines(self) -> Known:
        if self._read is None:
            text = "\n".join(self.lines)
            cards = tuple(dict.fromkeys(match.compiled(_CARD).findall(text)))
            versions = {}  # type: dict[str, str]
            for name, version in match.compiled(_VERSION).findall(text):
                versions.setdefault(_name(name), version)
            self._read = Known(cards, versions)
        return self._read


def _name(name: str) -> str:
    low = name.lower().replace("-", "_")
    return "torch" if low == "pytorch" else low


def holds(when: dict[str, Any], lines: list[str], index: int, rank: int | None, told: Told) -> bool:
    """Whether all conditions of a signature hold at a line."""
    return all(_one(name, value, lines, index, rank, told) for name, value in when.items())


def _one(name: str, value: Any, lines: list[str], index: int, rank: int | None, told: Told) -> bool:  # noqa: PLR0917 - as `holds`
    if name in ("near", "not_near"):
        around = lines[max(0, index - NEAR) : index + NEAR + 1]
        return _stands(value, around) is (name == "near")
    if name in ("before", "after"):
        return _stands(value, lines[:index] if name == "before" else lines[index + 1 :])
    if name == "op":
        found = match.compiled(_OP).search("\n".join(lines[max(0, index - 3) : index + 4]))
        return found is not None and match.compiled(value).search(found.group(1)) is not None
    if name == "rank":
        return rank is not None and rank in (value if isinstance(value, list) else [value])
    if name == "phase":
        return phase(lines, index) == str(value)
    return _of_machine(name, value, told)


def _of_machine(name: str, value: Any, told: Told) -> bool:
    if name == "gpu":
        return any(match.compiled(value).search(card) for card in told.gpus)
    return all(_fits(told.version(key), said) for key, said in value.items())


def _stands(pattern: str, lines: list[str]) -> bool:
    return match.compiled(pattern).search("\n".join(lines)) is not None


def phase(lines: list[str], index: int) -> str:
    """Return what the job was doing at a line; `start` where nothing above tells it."""
    for above in range(index, max(-1, index - 400), -1):
        for name, pattern in _PHASES:
            if match.compiled(pattern).search(lines[above]):
                return name
    return "start"


def _fits(version: str | None, said: str) -> bool:
    """Whether a version meets `<2.26.3`, `>=2.24,<2.27` or `2.21.5`."""
    if not version:
        return False
    return all(_compare(version, one.strip()) for one in str(said).split(","))


def _compare(version: str, said: str) -> bool:
    sign = said.rstrip("0123456789.")
    own, other = _numbers(version), _numbers(said[len(sign) :])
    length = max(len(own), len(other))
    own += [0] * (length - len(own))
    other += [0] * (length - len(other))
    tests = {"<": own < other, "<=": own <= other, ">": own > other, ">=": own >= other}
    return tests.get(sign, own == other)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]
