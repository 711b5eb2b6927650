"""What the kept facts of a host say to the rules about variables: versions, and known names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.lint.env.model import Facts
from safelaunch.lint.env.names import table

if TYPE_CHECKING:
    from collections.abc import Mapping

# Names that tell that a library was among those looked at: in every libnccl from 2.0 on, and in
# every libtorch_cuda from 2.2 on. Without it (a CPU build of torch) its names are not known.
_SHOWS = {"NCCL_": "NCCL_SHM_DISABLE", "TORCH_NCCL_": "TORCH_NCCL_DESYNC_DEBUG"}


def facts_of(told: Mapping[str, Any], machine: str) -> Facts:
    """Return what `safelaunch facts` told of a host; what is not as it writes it is not known."""
    torch = told.get("torch")
    torch = torch if isinstance(torch, dict) else {}
    nccl = torch.get("nccl")
    return Facts(
        nccl=_text(nccl.get("version")) if isinstance(nccl, dict) else None,
        torch=_text(torch.get("version")),
        library=_library(told.get("names")),
        machine=machine,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _library(files: Any) -> frozenset[str] | None:
    """Return the names in a host's libraries; those of one that was not read to its end, as well.

    What was not looked at counts as there, so that nothing is said about it.
    """
    if not isinstance(files, dict) or not files:
        return None
    if not all(isinstance(names, list) for names in files.values()):
        return None  # one was not read to its end
    found = {name for names in files.values() for name in names if isinstance(name, str)}
    unseen = tuple(prefix for prefix, name in _SHOWS.items() if name not in found)
    if len(unseen) == len(_SHOWS):
        return None
    return frozenset(found | {name for name in table().variables if name.startswith(unseen)})
