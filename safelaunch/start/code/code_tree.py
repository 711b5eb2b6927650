"""Gets the code of a run back: the tree that it was launched with, each file verified by its hash.

The content of a file comes from the project as it is now, from the store, from git, or from the
place on the host: wherever it has the hash that was recorded.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import ConfigError, RunError
from safelaunch.runtime.code import git, manifest
from safelaunch.runtime.code.store import ContentStore
from safelaunch.runtime.plain_text import printable
from safelaunch.runtime.records import Checkout, CodeRecord
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import TypeAlias

    from safelaunch.runs.store import Run
    from safelaunch.runtime.code.manifest import CodeFile

    Files: TypeAlias = dict[str, CodeFile]  # by path
    # copies files of a host's place into a folder: (paths, folder)
    Fetch: TypeAlias = Callable[[list[str], str], None]

_CHUNK = 1 << 20  # bytes
_BATCH = 1000  # files of a commit that are in memory at once
_SHOWN = 5  # files that a message names


class RunCode(NamedTuple):
    """The recorded code of a run, and safelaunch's folder `home`, which has contents of it."""

    run_id: str
    record: CodeRecord
    home: str

    def files(self) -> list[CodeFile]:
        """Return the files that the run was launched with. Raises RunError."""
        text = ContentStore(self.home).get(self.record.manifest)
        if text is None:
            raise RunError(
                f"the list of files that {self.run_id} was launched with is not on this machine",
                hint="the machine that launched it has it, in the folder `code` of safelaunch's",
            )
        try:
            return manifest.from_bytes(text)
        except (ValueError, TypeError) as e:
            raise RunError(f"the list of files of {self.run_id} is damaged: {e}") from e

    def restore(self, folder: str, fetch: Fetch | None = None) -> dict[str, str]:
        """Write the tree into a new or empty folder; return {file: why it is missing}.

        Raises ConfigError, RunError.
        """
        files = self.files()
        try:
            if os.path.lexists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
                raise ConfigError("this is no empty folder", where=folder, hint="name a new folder")
            os.makedirs(folder, exist_ok=True)
            return self._restore(files, folder, fetch)
        except OSError as e:
            message = f"cannot be written: {e.strerror or e}"
            raise RunError(message, where=e.filename or folder) from e

    def _restore(
        self, files: Iterable[CodeFile], folder: str, fetch: Fetch | None
    ) -> dict[str, str]:
        problems = {f.path: "no path below the project" for f in files if not _is_inside(f.path)}
        links = [f for f in files if f.mode == manifest.LINK and f.path not in problems]
        missing = {f.path: f for f in files if f.path not in problems and f not in links}
        self._copy(self.record.root, missing, folder)
        for source in (self._from_store, self._from_git):
            for path, data in source(dict(missing)):
                if path in missing and _write(folder, missing[path], [data]):
                    del missing[path]
        if missing and fetch is not None:
            with tempfile.TemporaryDirectory(prefix="safelaunch-") as temporary:
                fetch(list(missing), temporary)
                self._copy(temporary, missing, folder)
        for link in links:  # last: no file is written through one
            path = _join(folder, link.path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(link.content, path)
        reasons = self.record.not_stored
        return problems | {path: reasons.get(path, "git lacks its commit") for path in missing}

    @staticmethod
    def _copy(source: str, missing: Files, folder: str) -> None:
        """Copy from a folder the files that have the missing content."""
        for file in list(missing.values()):
            if any(_write(folder, file, chunks) for chunks in _contents(_join(source, file.path))):
                del missing[file.path]

    def _from_store(self, files: Files) -> Iterator[tuple[str, bytes]]:
        store = ContentStore(self.home)
        for file in files.values():
            data = store.get(file.content)
            if data is not None:
                yield file.path, data

    def _from_git(self, files: Files) -> Iterator[tuple[str, bytes]]:
        """Yield contents of the commit: as git has them, and as a checkout would write them."""
        commit, paths = (self.record.git or Checkout()).commit, list(files)
        for at in range(0, len(paths) if commit else 0, _BATCH):
            batch = set(paths[at : at + _BATCH])
            for is_filtered in (False, True):
                contents = git.contents(self.record.root, str(commit), batch, filters=is_filtered)
                for path, data in contents.items():
                    yield path, data
                    yield path, _with_lf(data)
                    if manifest.digest(data) == files[path].content:
                        batch.discard(path)


def run_code(run: Run, home: str) -> RunCode:
    """Return the recorded code of a run; `home` is safelaunch's folder. Raises RunError."""
    record = CodeRecord.read(run.node_dir)
    if record is None or not record.manifest:
        raise RunError(
            f"the code that {run.id} was launched with is not recorded on this machine",
            hint="it is for a run of this machine, and for one that was synced from it",
        )
    return RunCode(run.id, record, home)


def missing_text(missing: Mapping[str, str], count: int) -> str:
    """Return in one line what of a tree of `count` files cannot be given back."""
    rows = [printable(f"{path} ({why})") for path, why in list(missing.items())[:_SHOWN]]
    more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    number = f"{len(missing)} of {quantity(count, 'file')}"
    return f"{number} cannot be given back: {', '.join(rows)}{more}"


def _is_inside(path: str) -> bool:
    return not any(name in ("", ".", "..") or "\0" in name for name in path.split("/"))


def _join(folder: str, path: str) -> str:
    return os.path.join(folder, *path.split("/"))


def _with_lf(data: bytes) -> bytes:
    """Return a content as a sync sends a shell script."""
    return data.replace(b"\r\n", b"\n")


def _contents(path: str) -> Iterator[Iterable[bytes]]:
    """Yield the forms in which a file may be the recorded one, each in chunks; none without it."""
    if not os.path.isfile(path):
        return
    try:
        with open(path, "rb") as file:
            yield iter(lambda: file.read(_CHUNK), b"")
            if os.fstat(file.fileno()).st_size <= _CHUNK:
                file.seek(0)
                yield [_with_lf(file.read())]
    except OSError:
        return


def _write(folder: str, file: CodeFile, chunks: Iterable[bytes]) -> bool:
    """Write a file, and return whether its content is the recorded one; else it is removed."""
    path, hasher = _join(folder, file.path), hashlib.sha256()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags, file.mode), "wb") as target:
        for chunk in chunks:
            hasher.update(chunk)
            target.write(chunk)
    if hasher.hexdigest() != file.content:
        os.unlink(path)
    return hasher.hexdigest() == file.content
