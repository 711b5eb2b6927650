"""Contents of code that no commit has, by their hash, compressed, below safelaunch's folder.

Readable by their owner only. A content is written once, however many runs have it.
"""

from __future__ import annotations

import os
import zlib

from safelaunch.runtime import json_files
from safelaunch.runtime.code import manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator

_FOLDER = "code"
_LEVEL = 1  # half of the size at a fifth of the time of the default
_DIGITS = 64  # of a SHA-256


class ContentStore:
    """The contents below safelaunch's folder `home`."""

    def __init__(self, home: str) -> None:
        self._folder = os.path.join(home, _FOLDER)

    def _path(self, content: str) -> str:
        return os.path.join(self._folder, content[:2], content[2:])

    def has(self, content: str) -> bool:
        """Whether the content with a hash is there."""
        return os.path.exists(self._path(content))

    def put(self, data: bytes) -> str:
        """Write a content, if it is not there yet, and return its hash. Raises OSError."""
        content = manifest.digest(data)
        path = self._path(content)
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            os.chmod(self._folder, 0o700)  # makedirs gives its mode to the last folder only
            json_files.replace(path, zlib.compress(data, _LEVEL))
        return content

    def get(self, content: str) -> bytes | None:
        """Return the content with a hash; None where it is not there, or damaged."""
        try:
            with open(self._path(content), "rb") as file:
                data = zlib.decompress(file.read())
        except (OSError, zlib.error):
            return None
        return data if manifest.digest(data) == content else None

    def sweep(self, needed: Container[str]) -> int:
        """Remove the contents whose hash no run needs; return their bytes."""
        size = 0
        for content, path in self._contents():
            if content not in needed:
                size += os.path.getsize(path)
                json_files.remove(path)
        return size

    def _contents(self) -> Iterator[tuple[str, str]]:
        for folder, _, names in os.walk(self._folder):
            for name in names:
                content = os.path.basename(folder) + name
                if len(content) == _DIGITS:
                    yield content, os.path.join(folder, name)
