"""Data classes of the variable rules: the table of variables, machine facts, and problems."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.lint.finding import WARNING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Facts(NamedTuple):
    """Facts about the job and its machines; None is not known."""

    launcher: str | None = None
    nodes: int | None = None
    nccl: str | None = None
    torch: str | None = None
    nvlink: bool | None = None
    rdma: bool | None = None
    library: frozenset[str] | None = None  # the names in the host's libnccl and libtorch
    machine: str = "this machine"  # the machine with these libraries and versions
    uses_pyyaml: bool = False  # the job's program reads its settings with PyYAML


class VariableProblem(NamedTuple):
    """A problem with a variable. `rename` is a name that can simply replace it."""

    id: str
    name: str
    message: str
    fix: str | None = None
    severity: str = WARNING
    rename: str | None = None


class VariableTable(NamedTuple):
    """The table of variables: current ones, retired ones, and prefixes of open families."""

    variables: Mapping[str, Mapping[str, Any]]
    retired: Mapping[str, Mapping[str, str]]
    families: tuple[str, ...]


def parse_version(text: str | None) -> tuple[int, ...]:
    """Return the leading numbers of a version, for comparison."""
    match = re.match(r"\d+(\.\d+)*", text or "")
    return tuple(int(part) for part in match.group().split(".")) if match else ()
