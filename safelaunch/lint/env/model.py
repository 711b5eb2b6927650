"""The table of environment variables, what is declared of the machines, and a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.lint.finding import WARNING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Facts(NamedTuple):
    """What is known of the job and its machines; None where it is not."""

    launcher: str | None = None
    nodes: int | None = None
    nccl: str | None = None
    torch: str | None = None
    nvlink: bool | None = None
    rdma: bool | None = None
    library: frozenset[str] | None = None  # the names in the host's own libnccl and libtorch
    machine: str = "this machine"  # whose libraries and versions these are


class Problem(NamedTuple):
    """What is wrong with a variable. `rename` is a name to write instead, as it stands."""

    id: str
    name: str
    message: str
    fix: str | None = None
    severity: str = WARNING
    rename: str | None = None


class Table(NamedTuple):
    """What is known of variables."""

    variables: Mapping[str, Mapping[str, Any]]
    gone: Mapping[str, Mapping[str, str]]
    families: tuple[str, ...]
