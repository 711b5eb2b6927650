"""The result of a sync, and its lines of output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from safelaunch.runtime.plain_text import printable
from safelaunch.runtime.units import quantity, transfer_size

if TYPE_CHECKING:
    from safelaunch.sync.project_tree import Skipped


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a sync. `target` is the resolved path of the folder on the host."""

    target: str
    files: int  # of the project
    size: int
    sent: int
    sent_size: int
    wire_size: int
    removed: int
    left: int  # files of earlier syncs that the project no longer has
    not_removed: tuple[tuple[str, str], ...]  # paths that could not be removed, and the reason
    skipped: tuple[Skipped, ...]
    skipped_sizes: dict[str, tuple[int, bool]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    def lines(self, host: str, *, removes: bool = True) -> list[str]:
        """Return the lines of output; `removes`: the command has the option `--delete`."""
        total = f"{quantity(self.files, 'file')}, {transfer_size(self.size)}"
        place = f"{host}:{self.target}"
        if not self.sent and not self.removed:
            output = [f"{place} is up to date ({total})"]
        else:
            how = f"{transfer_size(self.sent_size)} in {self.seconds:.1f} s"
            output = [f"synced {place}: {quantity(self.sent, 'file')} sent ({how}) of {total}"]
        if self.removed:
            output.append(f"removed on the host: {quantity(self.removed, 'file')}")
        if self.left:
            text = f"{quantity(self.left, 'file')} of earlier syncs remain on the host"
            output.append(text + ("; --delete removes them" if removes else ""))
        output += [f"not removed on the host: {path} {why}" for path, why in self.not_removed]
        return output + _skipped_lines(self) + [f"note: {note}" for note in self.notes]


def _skipped_lines(summary: Summary) -> list[str]:
    sizes = summary.skipped_sizes
    if not sizes:
        return []
    largest = sorted(summary.skipped, key=lambda s: -sizes[s.path][0])
    shown = [s for s in largest if sizes[s.path][0]][:5]
    named = [f"{printable(s.path)} ({_size_text(sizes[s.path])}, {s.why})" for s in shown]
    remaining = len(largest) - len(shown)
    text = ", ".join(named) + (f" and {remaining} more" if remaining and named else "")
    return [f"not sent: {text}"] if named else []


def _size_text(size: tuple[int, bool]) -> str:
    return transfer_size(size[0]) if size[1] else f"more than {transfer_size(size[0])}"
