"""Checks how libraries read a variable's value: NCCL never complains, PyTorch raises, HF false.

NCCL: strtoll with base 0 (NVIDIA/nccl src/misc/param.cc); PyTorch: c10d/Utils.hpp; huggingface_hub:
constants.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.config.schema.text_checks import shorten
from safelaunch.lint.env import allocator
from safelaunch.lint.env.model import VariableProblem
from safelaunch.lint.finding import ERROR, WARNING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class _ValueRule(NamedTuple):
    """A check of one kind of value; `text` follows `NAME=value` in the message."""

    is_valid: Callable[[str], object]
    text: str
    fix: str
    severity: str = ERROR

    def check(self, name: str, value: str) -> VariableProblem | None:
        """Return the problem with a value, or None."""
        if self.is_valid(value):
            return None
        message = f"`{name}={shorten(value)}`{self.text}"
        fix = self.fix.format(name=name)
        return VariableProblem("env-value", name, message, fix, self.severity)


_NUMBER = re.compile(r"[ \t]*[-+]?(0[xX][0-9a-fA-F]+|[0-9]+)")
_YES = ("true", "yes", "on", "y", "t", "enable", "enabled")
_NO = ("false", "no", "off", "n", "f", "disable", "disabled", "none")
_TORCH_TRUE = ("y", "yes", "1", "t", "true")
_TORCH_FALSE = ("n", "no", "0", "f", "false")
_HF_TRUE = ("1", "on", "yes", "true")
_LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
_DEBUG = ("VERSION", "WARN", "INFO", "ABORT", "TRACE")
_MAX_RETRIES, _MAX_TIMEOUT, _LARGE_CHUNK = 7, 31, 1 << 20


def check(name: str, value: str, entry: Mapping[str, Any]) -> VariableProblem | None:
    """Return the problem with the value of a variable in the table, or None."""
    if value.endswith("\r"):
        message = f"the value of `{name}` ends with a carriage return, which is part of the value"
        return VariableProblem("env-carriage-return", name, message, "save the file with LF", ERROR)
    special = _SPECIAL.get(name)
    if special is not None and (problem := special(name, value)) is not None:
        return problem
    kind = entry["type"]
    if entry["group"] == "nccl" and (kind in ("bool01", "int", "bytes") or _is_numeric(entry)):
        return _nccl_number(name, value, kind)
    rule = _BY_TYPE.get(kind) if kind != "int" or name.startswith("TORCH_") else None
    return rule.check(name, value) if rule is not None else None


def _is_numeric(entry: Mapping[str, Any]) -> bool:
    """Whether a variable is an enumeration of numbers."""
    allowed = entry.get("allowed")
    first = allowed[0] if isinstance(allowed, list) else str(allowed or "")
    return entry["type"] == "enum" and re.match(r"-?\d", first) is not None


def _nccl_number(name: str, value: str, kind: str) -> VariableProblem | None:
    match = _NUMBER.match(value)
    shown = f"`{name}={shorten(value)}`"
    if match is None:
        return _nccl_word(name, value) if value else None
    digits = match.group().strip()
    if match.end() < len(value.rstrip()):
        message = f"{shown}: NCCL reads {digits} and ignores the rest"
        fix = "write the number of bytes" if kind == "bytes" else "write digits only"
        return VariableProblem("env-number", name, message, fix, ERROR)
    plain = digits.lstrip("+-")
    octal = re.match(r"0[0-7]*", plain) if plain.isdigit() else None
    if octal is not None and int(octal.group(), 8) != int(plain):
        message = f"{shown}: a leading 0 makes it octal, NCCL reads {int(octal.group(), 8)}"
        return VariableProblem("env-number", name, message, f"write {plain.lstrip('0')}", ERROR)
    return None


def _nccl_word(name: str, value: str) -> VariableProblem:
    """Return the problem of a word where NCCL expects a number."""
    is_yes, is_no = value.lower() in _YES, value.lower() in _NO
    harm, fix = "words count as 0", "write digits"
    if is_yes:
        harm = "nothing is disabled" if name.endswith("DISABLE") else "it is off"
    if is_yes or is_no:
        fix = f"write {name}={int(is_yes)}"
    return VariableProblem(
        "env-number", name, f"`{name}={shorten(value)}` means 0 to NCCL: {harm}", fix, ERROR
    )


_BY_TYPE = {
    "int": _ValueRule(
        lambda value: re.fullmatch(r"[-+]?\d+", value),
        ": PyTorch raises an error, it expects a number",
        "write digits only",
    ),
    # some of these accept larger numbers in some releases
    "bool_torch": _ValueRule(
        lambda value: value.lower() in (*_TORCH_TRUE, *_TORCH_FALSE) or re.fullmatch(r"\d+", value),
        ": PyTorch raises an error when the process group is created",
        "write {name}=1 or {name}=0",
    ),
    "bool_hf": _ValueRule(
        lambda value: value.lower() in (*_HF_TRUE, *_NO, "0", ""),
        " is false: only 1, ON, YES and TRUE are true",
        "write {name}=1 or {name}=0",
    ),
}


def _level(name: str, value: str) -> VariableProblem | None:
    if value in _LEVELS or value.isdigit():
        return None
    fix = f"write {value.upper()}" if value.upper() in _LEVELS else f"one of {', '.join(_LEVELS)}"
    message = f"`{name}={shorten(value)}`: not a level, NCCL silently ignores it"
    return VariableProblem("env-value", name, message, fix, ERROR)


def _debug_file(name: str, value: str) -> VariableProblem | None:
    if "%h" in value or "%p" in value or value.startswith("/dev/"):
        return None
    message = f"`{name}` without %h and %p: all ranks overwrite the same file"
    return VariableProblem("env-value", name, message, f"{name}={shorten(value)}.%h.%p", WARNING)


_CHUNK = _ValueRule(
    lambda value: not value.isdigit() or int(value) < _LARGE_CHUNK,
    ": 1 MiB and more gave wrong results with NCCL 2.31.2",
    "use 524288, as cloud recipes do",
    WARNING,  # NVIDIA's own recipes set 2 MiB
)
_SPECIAL = {
    "PYTORCH_ALLOC_CONF": allocator.check,
    "PYTORCH_CUDA_ALLOC_CONF": allocator.check,
    "PYTORCH_HIP_ALLOC_CONF": allocator.check,
    "NCCL_P2P_LEVEL": _level,
    "NCCL_NET_GDR_LEVEL": _level,
    "NCCL_DEBUG_FILE": _debug_file,
    "NCCL_DEBUG": _ValueRule(
        lambda value: value.upper() in _DEBUG or not value,
        ": not a level, NCCL then prints nothing",
        f"one of {', '.join(_DEBUG)}",
        WARNING,
    ).check,
    "NCCL_IB_RETRY_CNT": _ValueRule(
        lambda value: not value.isdigit() or int(value) <= _MAX_RETRIES,
        ": the field has three bits, the maximum is 7",
        "write 7, and raise NCCL_IB_TIMEOUT instead",
    ).check,
    "NCCL_IB_TIMEOUT": _ValueRule(
        lambda value: not value.isdigit() or 0 < int(value) <= _MAX_TIMEOUT,
        ": 0 or above 31 waits forever (4.096 us * 2^value)",
        "22 is about two minutes with 7 retries",
        WARNING,
    ).check,
    "NCCL_CHUNK_SIZE": _CHUNK.check,
    "NCCL_P2P_NET_CHUNKSIZE": _CHUNK.check,
    "NCCL_P2P_DISABLE": _ValueRule(
        lambda value: not value.isdigit() or int(value) in (0, 1),
        ": has an effect only if it is exactly 1",
        "write {name}=1",
        WARNING,
    ).check,
    "GLOO_SOCKET_IFNAME": _ValueRule(
        lambda value: not re.search(r"[\^=]", value),
        ": gloo accepts exact names only, no `^` and no `=`",
        "use the name that `ip -br link` shows",
    ).check,
    "WANDB_MODE": _ValueRule(
        lambda value: value != "dryrun",
        " is the old name of offline",
        "write {name}=offline",
        WARNING,
    ).check,
}
