"""Makes the record of the code that a run is launched with, and stores what no commit has.

A committed file that has not changed is left to git. The contents of all others go into the store:
but for what looks like a secret, large files, and more than a run may store.
"""

from __future__ import annotations

import os

from safelaunch.runtime.code import git, manifest, secret_files
from safelaunch.runtime.code.store import ContentStore
from safelaunch.runtime.records import CodeRecord
from safelaunch.runtime.units import transfer_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from safelaunch.runtime.code.git import GitState
    from safelaunch.runtime.code.manifest import CodeFile

MAX_SIZE = 1 << 20  # bytes of one file: a larger one is data
MAX_BYTES = 1 << 25  # bytes that one run adds
MAX_PATCH = 1 << 20  # bytes
_MAX_PATCH_NAMES = 1 << 16  # characters of all names: they are arguments of git
_MAX_LISTED = 100  # files without a copy that the record names
_ALL = "the list of all files"
_LEFT_OUT = "may hold secrets"
EDITED = "changed during the start"


def code_record(
    root: str, files: Sequence[CodeFile], home: str, state: GitState | None
) -> tuple[CodeRecord, bytes]:
    """Return record and patch of the files of a project, with their contents stored below `home`.

    `state` is that of git in `root`. Nothing raises: the record says what could not be stored.
    """
    text = manifest.to_bytes(files)
    record = CodeRecord(
        version=1,
        root=root,
        git=None if state is None else state.checkout,
        manifest=manifest.digest(text),
        files=len(files),
    )
    copier = _ContentCopier(ContentStore(home), root)
    copier.put_manifest(text, record.manifest)
    committed = frozenset() if state is None else state.committed - state.changed
    for file in files:
        if file.mode != manifest.LINK and file.path not in committed:
            copier.put(file)
    copier.close()
    if copier.problems:
        record.not_stored = dict(list(copier.problems.items())[:_MAX_LISTED])
    patch = b"" if state is None else _patch(root, state, files, copier.problems)
    record.patch = bool(patch)
    return record, patch


class _ContentCopier:
    def __init__(self, store: ContentStore, root: str) -> None:
        self._store = store
        self._root = root
        self._left = MAX_BYTES
        self._too_much = f"more than {transfer_size(MAX_BYTES)} that no commit has"
        self._copied: list[str] = []
        self.problems: dict[str, str] = {}  # file -> why its content is not stored

    def close(self) -> None:
        """Write what was put; on a full disk nothing of it."""
        try:
            self._store.close()
        except OSError as e:
            why = e.strerror or str(e)
            self.problems.update(dict.fromkeys([_ALL, *self._copied], why))

    def put_manifest(self, text: bytes, digest: str) -> None:
        try:
            self._store.put(text, digest)
        except OSError as e:
            self.problems[_ALL] = e.strerror or str(e)

    def put(self, file: CodeFile) -> None:
        """Store the content of a file, as its hash says it is."""
        if secret_files.may_be_secret(file.path):
            self.problems[file.path] = _LEFT_OUT
            return
        if self._store.has(file.content):
            return
        if not self._left:
            self.problems[file.path] = self._too_much
            return
        path = os.path.join(self._root, *file.path.split("/"))
        try:
            with open(path, "rb", buffering=0) as source:
                size = os.fstat(source.fileno()).st_size
                if size > MAX_SIZE:
                    why = f"larger than {transfer_size(MAX_SIZE)}"
                elif size > self._left:
                    self._left = 0  # what is still to come is not even opened: it may be thousands
                    why = self._too_much
                else:
                    why = self._put(source.read(), file.content)
                    self._copied.append(file.path)
        except OSError as e:
            why = e.strerror or str(e)
        if why:
            self.problems[file.path] = why

    def _put(self, data: bytes, content: str) -> str:
        if manifest.digest(data) != content:
            data = data.replace(b"\r\n", b"\n")  # as a sync sends a shell script
            if manifest.digest(data) != content:
                return EDITED
        if secret_files.holds_private_key(data):
            return _LEFT_OUT
        self._store.put(data, content)
        self._left -= len(data)
        return ""


def _patch(
    root: str, state: GitState, files: Sequence[CodeFile], problems: Container[str]
) -> bytes:
    """Return the patch from the commit to these files; empty where there is none, or too much."""
    paths = {file.path for file in files}
    changed = [
        path
        for path in sorted(state.changed & state.committed)
        if path in paths or not os.path.lexists(os.path.join(root, path))
    ]
    new = sorted(paths - state.committed)
    changed, new = ([p for p in ps if not _is_left_out(p, problems)] for ps in (changed, new))
    if not (changed or new) or sum(map(len, changed + new)) > _MAX_PATCH_NAMES:
        return b""
    patch = git.patch(root, changed, new) or b""
    is_safe = len(patch) <= MAX_PATCH and not secret_files.holds_private_key(patch)
    return patch if is_safe else b""


def _is_left_out(path: str, problems: Container[str]) -> bool:
    return path in problems or secret_files.may_be_secret(path)
