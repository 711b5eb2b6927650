"""Converts the stored facts of a host for the variable rules: versions, and names in libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.lint.env.model import Facts
from safelaunch.lint.env.names import table

if TYPE_CHECKING:
    from collections.abc import Mapping

# Names that show that a library was scanned: they are in every libnccl since 2.0, and in every
# libtorch_cuda since 2.2. Without them (a CPU build of torch) the library's names are not known.
_MARKER_NAMES = {"NCCL_": "NCCL_SHM_DISABLE", "TORCH_NCCL_": "TORCH_NCCL_DESYNC_DEBUG"}


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
