"""Judges environment variables: names that nothing reads, values that are read otherwise.

Pure: variables and what is known of the machine come as arguments. The table (variables.json, with
its sources) is read when the first question is asked.
"""

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING, Any

from safelaunch import launchers
from safelaunch.errors import did_you_mean
from safelaunch.launchers import common
from safelaunch.lint.env import combinations, values
from safelaunch.lint.env.model import Facts, Problem, Table
from safelaunch.lint.finding import ERROR, NOTE, WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "variables.json")
_CHECKED = ("NCCL_", "TORCH_NCCL_", "TORCH_FR_")  # all names with these are known
_SCANNED = ("NCCL_", "TORCH_NCCL_")  # of which the names in a library are known
_LIBRARIES = ("nccl", "torch_distributed")  # groups of the table; plugins have their own files
_NEAR = (
    "CUDA_", "PYTORCH_", "TORCH_", "GLOO_", "OMP_", "HF_", "TRANSFORMERS_", "TOKENIZERS_", "WANDB_",
)  # fmt: skip
_RECENT = (2, 29)  # an NCCL that many still have not
# programs that start ranks, and are no launcher of ours
_OTHER_TIMEOUTS = {
    "deepspeed": "`deepspeed.init_distributed(timeout=...)`, or DEEPSPEED_TIMEOUT (minutes)",
}


@functools.cache
def table() -> Table:
    """Return the table of variables."""
    import json  # noqa: PLC0415 - with the table: only who asks pays for it

    with open(_TABLE, encoding="utf-8") as file:
        data = json.load(file)
    return Table(data["variables"], data["gone"], tuple(data["families"]))


def check(variables: Mapping[str, str | None], facts: Facts | None = None) -> Iterator[Problem]:
    """Yield what is wrong with variables, one by one and together; None is a value not known."""
    known = Facts() if facts is None else facts
    for name, value in variables.items():
        yield from check_one(name, value, known)
    yield from check_together(variables, known)


def check_one(name: str, value: str | None, facts: Facts) -> Iterator[Problem]:
    """Yield what is wrong with one variable's name, or else with its value."""
    problem = _name(name, facts)
    if problem is not None:
        yield problem
    entry = table().variables.get(name)
    if value is None or entry is None:
        return
    found = values.check(name, value, entry)
    if found is not None:
        yield Problem(f"env-{found.id}", name, found.message, found.fix, found.severity)


def check_together(variables: Mapping[str, str | None], facts: Facts) -> Iterator[Problem]:
    """Yield what variables do to each other, and to what is known of the machines."""
    for found in combinations.check(variables, facts):
        yield Problem(f"env-{found.id}", found.name, found.message, found.fix, found.severity)


def _name(name: str, facts: Facts) -> Problem | None:
    gone = table().gone.get(name)
    if gone is not None:
        return None if _is_before(gone, facts) else _gone(name, gone, facts)
    entry = table().variables.get(name)
    if entry is not None:
        return _not_there(name, entry, facts)
    if name.startswith(_CHECKED) and not name.startswith(table().families):
        if facts.library is not None and name in facts.library:
            return None
        message = f"`{name}`: no version of NCCL or PyTorch is known to read it"
        fix = did_you_mean(name, (n for n in table().variables if n.startswith(_CHECKED)))
        return Problem("env-unknown", name, message, fix or "check the name, or remove it")
    near = _near(name) if name.startswith(_NEAR) else None
    if near is None:
        return None
    return Problem("env-unknown", name, f"`{name}`: is `{near}` meant?", f"write {near}")


def _gone(name: str, entry: Mapping[str, str], facts: Facts) -> Problem | None:
    kind, why = entry["kind"], f": {entry['why']}" if entry.get("why") else ""
    use = entry.get("use", "remove it")
    fix = use if use.startswith(("remove", "leave")) else f"use {use}"
    rename = entry.get("rename")
    if kind == "renamed":
        return _renamed(name, entry)
    if kind == "never":
        if name == "NCCL_TIMEOUT":
            fix = "set " + _timeout(facts.launcher)
        return Problem("env-never-existed", name, f"`{name}` never existed{why}", fix, ERROR)
    if kind == "misspelt":
        return Problem("env-unknown", name, f"`{name}` is misspelt{why}", fix, WARNING, rename)
    if kind == "keep":
        return Problem("env-renamed", name, f"`{name}`{why}", "keep this name", NOTE)
    severity = NOTE if kind in ("build", "vendor", "outdated") else _removed(entry, facts)
    if severity is None:
        return None
    return Problem("env-removed", name, f"`{name}`{why}", fix, severity, rename)


def _timeout(launcher: str | None) -> str:
    """Return how the timeout of collectives is set under a launcher."""
    if launcher in launchers.NAMES:
        return launchers.load(launcher).TIMEOUT
    return _OTHER_TIMEOUTS.get(launcher or "", common.TIMEOUT)


def _removed(entry: Mapping[str, str], facts: Facts) -> str | None:
    """Return how bad a removed name is; None where the installed NCCL still reads it."""
    if "last" not in entry:
        is_open = entry.get("since", "").startswith("torch ") and facts.torch is None
        return NOTE if is_open else WARNING
    last = version(entry["last"].partition(" ")[2])
    if facts.nccl is not None:
        return None if version(facts.nccl) <= last else WARNING
    return NOTE if last >= _RECENT else WARNING


def _is_before(entry: Mapping[str, str], facts: Facts) -> bool:
    """Whether the installed library is known to be older than the change: it reads the name."""
    library, _, since = entry.get("since", "").partition(" ")
    installed = {"nccl": facts.nccl, "torch": facts.torch}.get(library.lower())
    return bool(installed and version(since)) and version(installed or "") < version(since)


def _renamed(name: str, entry: Mapping[str, str]) -> Problem:
    use, since = entry["use"], entry["since"]
    rename = entry.get("rename")
    message = f"`{name}` is the old name of {use} (since {since})"
    fix = f"use {use}"
    if rename is None:
        fix += f" where all machines have {since} or newer; older ones read only this name"
    return Problem("env-renamed", name, message, fix, WARNING if rename else NOTE, rename)


def _not_there(name: str, entry: Mapping[str, Any], facts: Facts) -> Problem | None:
    """Return that the host's library lacks a name, or is known to be older than it."""
    group = entry["group"]
    is_theirs = group in _LIBRARIES and name.startswith(_SCANNED)
    if facts.library is not None and is_theirs and name not in facts.library:
        message = f"`{name}`: the libraries of {facts.machine} do not hold the name"
        return Problem("env-not-there", name, message, "remove it, or use a newer version")
    installed = dict(zip(_LIBRARIES, (facts.nccl, facts.torch), strict=True)).get(group)
    since = re.match(r"\d+(\.\d+)+", str(entry.get("since", "")))
    if not installed or since is None or version(installed) >= version(since.group()):
        return None
    library = "NCCL" if group == "nccl" else "PyTorch"
    message = (
        f"`{name}` came with {library} {since.group()}; {installed} of {facts.machine} ignores it"
    )
    return Problem("env-not-there", name, message, f"remove it, or use a newer {library}")


def version(text: str) -> tuple[int, ...]:
    """Return the numbers at the beginning of a version, to compare."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def _near(name: str) -> str | None:
    """Return the known name that differs by one character."""
    return next((known for known in table().variables if _one_apart(name, known)), None)


def _one_apart(one: str, other: str) -> bool:
    if abs(len(one) - len(other)) > 1:
        return False
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    rest, other_rest = one[at:], other[at:]
    return rest[1:] in (other_rest, other_rest[1:]) or rest == other_rest[1:]
