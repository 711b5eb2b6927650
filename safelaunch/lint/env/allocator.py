"""Reads PYTORCH_ALLOC_CONF and its older names as PyTorch's own parser does.

Sources: c10/core/AllocatorConfig.h of PyTorch 2.13, tried with `_accelerator_setAllocatorSettings`
on 2026-11-24. Other releases were not tried, and the names of keys are those of the documentation.
"""

from __future__ import annotations

import re

from safelaunch.config.schema.text_checks import shorten
from safelaunch.errors import did_you_mean
from safelaunch.lint.env import choices
from safelaunch.lint.env.model import VariableProblem
from safelaunch.lint.finding import ERROR

_FLAGS = (
    "expandable_segments",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "pinned_use_background_threads",
    "graph_capture_record_stream_reuse",
)
_OTHER_KEYS = (
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "backend",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "per_process_memory_fraction",
)
_KEYS = (*_FLAGS, *_OTHER_KEYS)
_MIN_SPLIT_MB = 20  # "max_split_size_mb too small, must be >= 20"
_ENTRY = re.compile(r"([^,\[]|\[[^\]]*\])+")  # a list in brackets has commas of its own


def check(name: str, value: str) -> VariableProblem | None:
    """Return the problem with a configuration of the allocator, or None."""
    for entry in _ENTRY.finditer(re.sub(r"\s", "", value)):
        problem = _entry_problem(entry[0])
        if problem is not None:
            what, fix = problem
            message = f"`{name}={shorten(value)}`: {what}"
            return VariableProblem("env-value", name, message, fix, ERROR)
    return None


def _entry_problem(entry: str) -> tuple[str, str] | None:  # noqa: C901, PLR0911 - one branch for each rule of the parser
    """Return what is wrong with `key:value`, and what to write."""
    key, colon, setting = entry.partition(":")
    if not colon:
        name, sign, rest = entry.partition("=")
        if sign and name in _KEYS:
            return "PyTorch ends with an internal assert, it expects `:`", f"write {name}:{rest}"
        return None
    if key not in _KEYS:
        if not choices.is_near(key, _KEYS):
            return None  # a key of another release
        return f"PyTorch does not read `{key}`", did_you_mean(key, _KEYS) or "remove it"
    if key in _FLAGS and setting not in ("True", "False"):
        first = re.split(r"[;|]", setting)[0]
        is_off = first.lower() in ("false", "0", "no", "off")
        word = f"{key}:{not is_off}"
        separator = ", and `,` between entries" if ";" in setting or "|" in setting else ""
        return f"PyTorch raises an error, `{key}` is True or False", f"write {word}{separator}"
    if key == "max_split_size_mb":
        if not re.match(r"\d", setting):
            return f"PyTorch raises an error, `{key}` is a number", f"write {key}:128"
        if setting.isdigit() and int(setting) < _MIN_SPLIT_MB:
            return "PyTorch raises an error, the minimum is 20", f"write {key}:128, or leave it out"
    if key == "garbage_collection_threshold" and re.fullmatch(r"\d+(\.\d+)?", setting):
        share = float(setting)
        if not 0 < share < 1:
            return "PyTorch raises an error, the threshold is between 0 and 1", f"write {key}:0.8"
    if key == "roundup_power2_divisions" and setting.isdigit():
        divisions = int(setting)
        if divisions < 1 or divisions & (divisions - 1):
            return "PyTorch raises an error, it must be a power of two", f"write {key}:4"
    return None
