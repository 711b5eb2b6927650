"""The manifest of a project: each file with its mode and the hash of its content, as one text.

Its own hash names the whole tree: two trees with one hash have the same files.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

LINK, SCRIPT, PLAIN = 0o120000, 0o755, 0o644  # as in git: only the execute bit counts


class CodeFile:
    """A file of a project: its path from the root on, its mode, and the SHA-256 of its content.

    Of a link the content is its target.
    """

    __slots__ = ("content", "mode", "path")

    def __init__(self, path: str, mode: int, content: str) -> None:
        self.path = path
        self.mode = mode if mode == LINK else SCRIPT if mode & 0o111 else PLAIN
        self.content = content

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CodeFile) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"CodeFile{self._key()!r}"

    def _key(self) -> tuple[str, int, str]:
        return self.path, self.mode, self.content


def to_bytes(files: Iterable[CodeFile]) -> bytes:
    """Return the text of a manifest: a JSON list of path, mode and content, sorted by path."""
    rows = sorted([file.path, file.mode, file.content] for file in files)
    return json.dumps(rows, separators=(",", ":")).encode()


def from_bytes(data: bytes) -> list[CodeFile]:
    """Return the files of a manifest. Raises ValueError or TypeError for a text that is none."""
    files = [CodeFile(path, mode, content) for path, mode, content in json.loads(data.decode())]
    if not all(isinstance(text, str) for file in files for text in (file.path, file.content)):
        raise ValueError("no manifest")
    return files


def digest(data: bytes) -> str:
    """Return the hash of a manifest's text, or of a file's content."""
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, which a supervisor seldom needs

    return hashlib.sha256(data).hexdigest()
