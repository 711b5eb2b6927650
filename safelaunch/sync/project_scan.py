"""The files of a project with their hashes, read in a thread: a login waits most of its time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.sync import file_hashes
from safelaunch.sync.manifest import manifest_hash
from safelaunch.sync.project_tree import Tree, scan

if TYPE_CHECKING:
    from safelaunch.sync.ignore import Rules

_FEW = 1 << 20  # bytes of files that may be read twice: to compare them, and to send them


class ScanResult(NamedTuple):
    """What a project has; `digest` is that of the whole tree, "" where hashes are missing."""

    tree: Tree
    cache: file_hashes.HashCache
    digest: str


class ProjectScan:
    """A scan of a project that goes on beside other work. `cache`: the folder of the hash cache."""

    def __init__(self, rules: Rules, cache: str | None) -> None:
        self._rules = rules
        self._cache = cache
        self._result: ScanResult | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            cache = file_hashes.HashCache(self._cache, self._rules.root)
            tree = scan_tree(self._rules)
            self._result = ScanResult(tree, cache, tree_digest(tree, cache))
        except Exception as e:  # noqa: BLE001 - raised by `result`
            self._error = e

    def is_done(self, seconds: float) -> bool:
        """Wait for a while; return whether it has ended."""
        self._thread.join(min(seconds, threading.TIMEOUT_MAX))
        return not self._thread.is_alive()

    def result(self) -> ScanResult:
        """Wait for the end. Raises ConfigError for a project that cannot be read."""
        self._thread.join()
        if self._result is None:
            raise self._error or RuntimeError("the scan has no result")
        return self._result


def scan_tree(rules: Rules) -> Tree:
    """Return the entries of a project. Raises ConfigError for one that cannot be read."""
    try:
        return scan(rules)
    except OSError as e:
        raise ConfigError(f"cannot be read: {e.strerror}", where=rules.root) from e


def tree_digest(tree: Tree, cache: file_hashes.HashCache) -> str:
    """Set the hashes that are cached, and those of an edit; return the digest if that is all."""
    if not cache.fill_hashes(tree.files):
        missing = [item for item in tree.files if not item.hash]
        if sum(item.size for item in missing) > _FEW:
            return ""  # they are read only where they are sent
        try:
            for item in missing:
                file_hashes.store_hash(item, file_hashes.read(item))
        except OSError:  # reported where it is sent
            return ""
    return manifest_hash(tree.items.values())
