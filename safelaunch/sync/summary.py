"""What a sync did, and how people are told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from safelaunch.runtime.plain_text import printable
from safelaunch.runtime.units import quantity, transfer_size

if TYPE_CHECKING:
    from safelaunch.sync.project_tree import Skipped


@dataclass(frozen=True, slots=True)
class Summary:
    """What a sync did. `target` is the folder's real path on the host."""

    target: str
    files: int  # of the project
    size: int
    sent: int
    sent_size: int
    wire_size: int
    removed: int
    left: int  # files of earlier syncs that the project no longer has
    kept: tuple[tuple[str, str], ...]  # were to be removed, and why they stay
    skipped: tuple[Skipped, ...]
    skipped_sizes: dict[str, tuple[int, bool]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    def lines(self, host: str, *, removes: bool = True) -> list[str]:
        """Return what people want to know of it, a line each; `removes`: there is a `--delete`."""
        total = f"{quantity(self.files, 'file')}, {transfer_size(self.size)}"
        place = f"{host}:{self.target}"
        if not self.sent and not self.removed:
            said = [f"{place} is up to date ({total})"]
        else:
            how = f"{transfer_size(self.sent_size)} in {self.seconds:.1f} s"
            said = [f"synced {place}: {quantity(self.sent, 'file')} sent ({how}) of {total}"]
        if self.removed:
            said.append(f"removed there: {quantity(self.removed, 'file')}")
        if self.left:
            text = f"{quantity(self.left, 'file')} of earlier syncs stay there"
            said.append(text + ("; --delete removes them" if removes else ""))
        said += [f"kept there: {path} {why}" for path, why in self.kept]
        return said + _skips(self) + [f"note: {note}" for note in self.notes]


def _skips(summary: Summary) -> list[str]:
    sizes = summary.skipped_sizes
    if not sizes:
        return []
    largest = sorted(summary.skipped, key=lambda s: -sizes[s.path][0])
    shown = [s for s in largest if sizes[s.path][0]][:5]
    named = [f"{printable(s.path)} ({_about(sizes[s.path])}, {s.why})" for s in shown]
    rest = len(largest) - len(shown)
    text = ", ".join(named) + (f" and {rest} more" if rest and named else "")
    return [f"not sent: {text}"] if named else []


def _about(size: tuple[int, bool]) -> str:
    return transfer_size(size[0]) if size[1] else f"more than {transfer_size(size[0])}"
