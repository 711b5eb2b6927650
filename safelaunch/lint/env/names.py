"""Checks environment variables: names that no library reads, and values that are misread.

Pure: variables and facts about the machine are parameters. The table (variables.json, with its
sources) is read at the first use.
"""

# ruff: noqa: PLC0415 - json is imported only to read the table of variables

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING, Any

from safelaunch import launchers
from safelaunch.errors import did_you_mean
from safelaunch.lint.env import choices, combinations, values
from safelaunch.lint.env.model import Facts, VariableProblem, VariableTable, parse_version
from safelaunch.lint.finding import ERROR, NOTE, WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "variables.json")
_COMPLETE_PREFIXES = ("NCCL_", "TORCH_NCCL_", "TORCH_FR_")  # prefixes with a complete list of names
_LIBRARY_PREFIXES = ("NCCL_", "TORCH_NCCL_")  # prefixes that are scanned in a library
_LIBRARIES = ("nccl", "torch_distributed")  # groups of the table; plugins are in other files
_SPELLCHECKED = (
    "CUDA_", "PYTORCH_", "TORCH_", "GLOO_", "OMP_", "HF_", "TRANSFORMERS_", "TOKENIZERS_", "WANDB_",
)  # fmt: skip
_RECENT = (2, 29)  # an NCCL release that many installations do not have yet
# Names that show that a library was scanned: they are in every libnccl since 2.0, and in every
# libtorch_cuda since 2.2. Without them (a CPU build of torch) the library's names are not known.
_MARKER_NAMES = {"NCCL_": "NCCL_SHM_DISABLE", "TORCH_NCCL_": "TORCH_NCCL_DESYNC_DEBUG"}


@functools.cache
def table() -> VariableTable:
    """Return the table of variables."""
    import json

    with open(_TABLE, encoding="utf-8") as file:
        data = json.load(file)
    return VariableTable(data["variables"], data["gone"], tuple(data["families"]))


def check(
    variables: Mapping[str, str | None], facts: Facts | None = None
) -> Iterator[VariableProblem]:
    """Yield the problems of variables, alone and in combination; None is an unknown value."""
    declared = Facts() if facts is None else facts
    for name, value in variables.items():
        yield from check_variable(name, value, declared)
    yield from combinations.check(variables, declared)


def check_variable(name: str, value: str | None, facts: Facts) -> Iterator[VariableProblem]:
    """Yield the problems of one variable's name and value."""
    problem = _check_name(name, facts)
    if problem is not None:
        yield problem
    entry = table().variables.get(name)
    if value is None:
        return
    value_problem = values.check(name, value, entry) if entry is not None else None
    value_problem = value_problem or choices.check(name, value)
    if value_problem is not None:
        yield value_problem


def _check_name(name: str, facts: Facts) -> VariableProblem | None:
    retired = table().retired.get(name)
    if retired is not None:
        still_read = _is_older_than_change(retired, facts)
        return None if still_read else _retired_name(name, retired, facts)
    entry = table().variables.get(name)
    if entry is not None:
        return _not_in_library(name, entry, facts)
    if name.startswith(_COMPLETE_PREFIXES) and not name.startswith(table().families):
        if facts.library is not None and name in facts.library:
            return None
        message = f"`{name}`: no known version of NCCL or PyTorch reads it"
        fix = did_you_mean(name, (n for n in table().variables if n.startswith(_COMPLETE_PREFIXES)))
        return VariableProblem("env-unknown", name, message, fix or "check the name, or remove it")
    names = table().variables if name.startswith(_SPELLCHECKED) else ()
    similar = next((other for other in names if _differ_by_one(name, other)), None)
    if similar is None:
        return None
    message = f"`{name}`: did you mean `{similar}`?"
    return VariableProblem("env-unknown", name, message, f"write {similar}")


def _retired_name(name: str, entry: Mapping[str, str], facts: Facts) -> VariableProblem | None:
    kind, reason = entry["kind"], f": {entry['why']}" if entry.get("why") else ""
    use = entry.get("use", "remove it")
    fix = use if use.startswith(("remove", "leave")) else f"use {use}"
    rename = entry.get("rename")
    if kind == "renamed":
        return _renamed_name(name, entry)
    if kind == "never":
        if name == "NCCL_TIMEOUT":
            fix = "set " + _timeout_setting(facts.launcher)
        message = f"`{name}` never existed{reason}"
        return VariableProblem("env-never-existed", name, message, fix, ERROR)
    if kind == "misspelt":
        message = f"`{name}` is misspelt{reason}"
        return VariableProblem("env-unknown", name, message, fix, WARNING, rename)
    severity = NOTE if kind in ("build", "vendor", "outdated") else _removal_severity(entry, facts)
    if severity is None:
        return None
    return VariableProblem("env-removed", name, f"`{name}`{reason}", fix, severity, rename)


def _timeout_setting(launcher: str | None) -> str:
    """Return how a launcher sets the timeout of collectives."""
    if launcher in launchers.NAMES:
        return launchers.load(launcher).TIMEOUT
    return launchers.load("python").TIMEOUT


def _removal_severity(entry: Mapping[str, str], facts: Facts) -> str | None:
    """Return the severity for a removed name; None if the installed NCCL still reads it."""
    if "last" not in entry:
        library = entry.get("since", "").partition(" ")[0]
        # the installed one may be older than the removal; no NCCL in use is as old as those here
        is_open = library not in ("", "NCCL") and not (library == "torch" and facts.torch)
        return NOTE if is_open else WARNING
    last = parse_version(entry["last"].partition(" ")[2])
    if facts.nccl is not None:
        return None if parse_version(facts.nccl) <= last else WARNING
    return NOTE if last >= _RECENT else WARNING


def _is_older_than_change(entry: Mapping[str, str], facts: Facts) -> bool:
    """Whether the installed library is older than the change, and so still reads the name."""
    library, _, since = entry.get("since", "").partition(" ")
    installed = {"nccl": facts.nccl, "torch": facts.torch}.get(library.lower())
    first = parse_version(since)
    return bool(installed and first) and parse_version(installed) < first


def _renamed_name(name: str, entry: Mapping[str, str]) -> VariableProblem:
    use, since = entry["use"], entry["since"]
    rename, reader = entry.get("rename"), entry.get("read_by")
    message = f"`{name}` is the old name of {use} (since {since})"
    fix = f"use {use}"
    if reader is not None:
        message += f"; {reader} still reads it"
        return VariableProblem("env-renamed", name, message, fix, NOTE, rename)
    if rename is None:
        fix += f" if all machines have {since} or newer; older versions read only this name"
    return VariableProblem("env-renamed", name, message, fix, WARNING if rename else NOTE, rename)


def _not_in_library(name: str, entry: Mapping[str, Any], facts: Facts) -> VariableProblem | None:
    """Return the problem if the host's library lacks a name, or is older than it."""
    group = entry["group"]
    is_theirs = group in _LIBRARIES and name.startswith(_LIBRARY_PREFIXES)
    if facts.library is not None and is_theirs and name not in facts.library:
        message = f"`{name}`: the libraries of {facts.machine} do not contain this name"
        return VariableProblem("env-not-there", name, message, "remove it, or use a newer version")
    installed = dict(zip(_LIBRARIES, (facts.nccl, facts.torch), strict=True)).get(group)
    since = re.match(r"\d+(\.\d+)+", str(entry.get("since", "")))
    if not installed or since is None or parse_version(installed) >= parse_version(since.group()):
        return None
    library = "NCCL" if group == "nccl" else "PyTorch"
    added = f"`{name}` was added in {library} {since.group()}"
    message = f"{added}; {installed} on {facts.machine} ignores it"
    return VariableProblem("env-not-there", name, message, f"remove it, or use a newer {library}")


def _differ_by_one(first: str, second: str) -> bool:
    """Whether two names differ by one character: another, a missing or an additional one."""
    pairs = enumerate(zip(first, second, strict=False))
    index = next((n for n, (a, b) in pairs if a != b), min(len(first), len(second)))
    first_rest, second_rest = first[index:], second[index:]
    return first_rest[1:] in (second_rest, second_rest[1:]) or first_rest == second_rest[1:]


def facts_from_probe(probe_result: Mapping[str, Any], machine: str) -> Facts:
    """Return the facts in the output of `safelaunch facts`; unexpected values count as unknown."""
    torch = probe_result.get("torch")
    torch = torch if isinstance(torch, dict) else {}
    nccl = torch.get("nccl")
    return Facts(
        nccl=_text(nccl.get("version")) if isinstance(nccl, dict) else None,
        torch=_text(torch.get("version")),
        library=_library_names(probe_result.get("names")),
        machine=machine,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _library_names(files: Any) -> frozenset[str] | None:
    """Return the names in a host's libraries; None if a library was not read completely.

    Names of a library that was not scanned count as present, so that they are not reported.
    """
    if not isinstance(files, dict) or not files:
        return None
    if not all(isinstance(names, list) for names in files.values()):
        return None  # a library was not read completely
    names_read = {name for names in files.values() for name in names if isinstance(name, str)}
    unread = tuple(prefix for prefix, name in _MARKER_NAMES.items() if name not in names_read)
    if len(unread) == len(_MARKER_NAMES):
        return None
    return frozenset(names_read | {name for name in table().variables if name.startswith(unread)})
