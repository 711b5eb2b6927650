"""One copy of the runtime for each version on a machine, which the run directories share.

It lies in `runtime/<digest>-<Python>/` of safelaunch's folder: all files that travel, their
bytecode for that Python, and a list of their sizes. It is made beside its place and renamed, and
nothing is written there afterwards: a disk that fills up cannot damage it. A run directory has hard
links to its files, so a run goes on where the copy is replaced or removed.

A start on a host imports this from memory before anything of ours is on the disk.
"""

# ruff: noqa: PLC0415 - compiling: once for each version

from __future__ import annotations

import errno
import os
import sys
import time

from safelaunch import runtime
from safelaunch.runtime import json_files
from safelaunch.runtime.start.hashes import blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PLACE = "runtime"  # of all copies, in safelaunch's folder
RECORD = "runtime.json"  # in safelaunch's folder: the version of the installed files
SIZES = "sizes"  # the list: a size and a name in each line, and its END
END = "end\n"  # behind the last line: a list that was cut off is none
EARLIER = "agent"  # where earlier versions put the agent's files
PART = "new-"  # begins the name of a copy that is being made
SPACE = 16 << 20  # free bytes that a copy, 2.9 MB, is worth: records and logs need the rest
_HEAD = 16  # bytes of a bytecode file before its code: magic number, flags, time and size
UNCHECKED = 1  # PEP 552: bytecode that Python uses without a look at its source
DAY = 86400.0  # seconds
AGE = 30 * DAY  # after which a version that nobody uses is removed by the start of another one
TICK = 2.0  # seconds in which a file may change twice and look the same; FAT has the longest


def digest(contents: Mapping[str, bytes]) -> str:
    """Return the hash of the names and contents of files: what a version is called."""
    total = blake2b(digest_size=12)
    for name, data in sorted(contents.items()):
        total.update(name.encode() + b"\0" + blake2b(data).digest())
    return total.hexdigest()


def version(home: str, paths: Mapping[str, str]) -> str:
    """Return the digest of files by their paths. Raises OSError.

    It is read from the record of an earlier start while the files stay as they were: to read and
    hash all of them takes a tenth of a start.
    """
    state, path = _state(paths), os.path.join(home, RECORD)
    record = json_files.read_json(path) or {}
    if record.get("state") == state and isinstance(record.get("digest"), str):
        return str(record["digest"])
    value = digest(_read(paths))
    is_settled = max(os.stat(file).st_ctime for file in paths.values()) < time.time() - TICK
    if is_settled and _state(paths) == state:
        try:
            json_files.write_json(path, {"state": state, "digest": value})
        except OSError:
            pass  # the next start reads the files again
    return value


def _state(paths: Mapping[str, str]) -> str:
    """Return the hash of what changes where a file does. Raises OSError."""
    total = blake2b(digest_size=12)
    for name, path in sorted(paths.items()):
        info = os.stat(path)
        stamp = (name, info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino)
        total.update(repr(stamp).encode())
    return total.hexdigest()


def contents() -> dict[str, bytes]:
    """Return the runtime's files by their path in a run directory. Raises OSError."""
    return dict(runtime.memory) if runtime.memory else _read(runtime.files())


def _read(paths: Mapping[str, str]) -> dict[str, bytes]:
    files = {}
    for name, path in paths.items():
        with open(path, "rb") as source:
            files[name] = source.read()
    return files


def place_of(home: str, version: str) -> str:
    """Return the place of a version's copy for this Python."""
    return os.path.join(home, PLACE, f"{version}-{sys.implementation.cache_tag}")


def put_into(node_dir: str, home: str) -> None:
    """Put the runtime into a run directory. Raises OSError.

    Where no copy can be made or linked, the files are written without bytecode: on a disk that is
    nearly full the records and logs need the space.
    """
    place = find(home)
    if place is not None:
        names = [name for name in names_in(place) if _is_for_runs(name)]
        try:
            _make_folders(node_dir, names)
            for name in names:
                os.link(os.path.join(place, name), os.path.join(node_dir, name))
        except OSError:  # another disk, one without links, a copy that has just been removed
            import shutil

            shutil.rmtree(os.path.join(node_dir, PLACE), ignore_errors=True)
        else:
            return
    files = {name: data for name, data in contents().items() if _is_for_runs(name)}
    _make_folders(node_dir, files)
    for name, data in files.items():
        _write(os.path.join(node_dir, name), data)


def _is_for_runs(name: str) -> bool:
    return not name.startswith(tuple(f"{runtime.PLACE}/{part}/" for part in runtime.AGENT_ONLY))


def _make_folders(root: str, names: Iterable[str]) -> None:
    """Make the folders of files below a folder, for this user alone. Raises OSError."""
    folders = set()
    for name in names:
        folder = os.path.dirname(name)
        while folder and folder not in folders:
            folders.add(folder)
            folder = os.path.dirname(folder)
    for folder in sorted(folders):
        os.mkdir(os.path.join(root, folder), 0o700)


def find(home: str) -> str | None:
    """Return a whole copy of this version, made if need be; None where the disk refuses it."""
    own = own_place()
    if own is not None and is_whole(own):
        return own
    memory = runtime.memory
    try:
        place = place_of(home, digest(memory) if memory else version(home, runtime.files()))
        if is_whole(place):
            _touch(place)
        else:
            files = contents()
            place = place_of(home, digest(files))  # they may have changed meanwhile
            make(place, files)
            sweep(home, AGE, place)
    except OSError:
        return None
    return place


def own_place() -> str | None:
    """Return the copy that this program runs from; None where that is an installed package."""
    tail = "/" + runtime.PLACE
    return runtime.FOLDER[: -len(tail)] if runtime.FOLDER.endswith(tail) else None


def names_in(place: str) -> list[str]:
    """Return the names of the files of a copy; none where its list is missing or cut off."""
    return [name for _, name in _rows(place)]


def is_whole(place: str) -> bool:
    """Whether all files of a copy are there in their sizes."""
    rows = _rows(place)
    try:
        return bool(rows) and all(os.stat(f"{place}/{name}").st_size == size for size, name in rows)
    except OSError:
        return False


def _rows(place: str) -> list[tuple[int, str]]:
    try:
        with open(os.path.join(place, SIZES), encoding="utf-8") as file:
            text = file.read()
        if not text.endswith("\n" + END):
            return []
        rows = [line.split(" ", 1) for line in text[: -len(END)].splitlines()]
        return [(int(size), name) for size, name in rows]
    except (OSError, ValueError):
        return []


def make(place: str, files: Mapping[str, bytes]) -> None:
    """Put a copy in its place, with bytecode, over one that is damaged. Raises OSError."""
    import shutil
    import tempfile

    base = os.path.dirname(os.path.dirname(place))
    for parent in (base, os.path.dirname(place)):
        os.makedirs(parent, 0o700, exist_ok=True)  # only the last one gets this mode
    if shutil.disk_usage(base).free < SPACE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), base)
    part = tempfile.mkdtemp(prefix=PART, dir=os.path.dirname(place))
    try:
        rows = {**files, **_bytecode(files)}
        _make_folders(part, rows)
        for name, data in rows.items():
            _write(os.path.join(part, name), data)
        sizes = "".join(f"{len(data)} {name}\n" for name, data in rows.items())
        _write(os.path.join(part, SIZES), (sizes + END).encode())
        if os.path.isdir(place) and not is_whole(place):
            os.rename(place, os.path.join(part, "damaged"))
        os.rename(part, place)
        shutil.rmtree(os.path.join(place, "damaged"), ignore_errors=True)
    except BaseException as e:
        shutil.rmtree(part, ignore_errors=True)
        # another start was faster
        if not isinstance(e, OSError) or not is_whole(place):
            raise


def _write(path: str, data: bytes) -> None:
    """Write a new file, whole. Raises OSError, where it is not whole too."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def _bytecode(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return bytecode of this Python for modules: it halves the CPU time of what imports them."""
    import importlib.util

    cached = importlib.util.cache_from_source
    paths = {} if runtime.memory else runtime.files()
    rows = {}
    try:
        for name, data in files.items():
            if name.endswith(".py"):
                body = _installed_bytecode(paths[name], data) if name in paths else b""
                rows[cached(name)] = _bytecode_head(data) + body if body else bytecode(name, data)
    except NotImplementedError:  # a Python without bytecode files
        return {}
    return rows


def _installed_bytecode(path: str, source: bytes) -> bytes:
    """Return the code in the bytecode file of an installed module, if it is of that source.

    It names another path, which an import replaces; compiling all modules takes half a second.
    """
    import importlib.util

    try:
        with open(importlib.util.cache_from_source(path), "rb") as file:
            head, body = file.read(_HEAD), file.read()
        modified = int(os.stat(path).st_mtime) & 0xFFFFFFFF
    except OSError:
        return b""
    stamp = importlib.util.MAGIC_NUMBER + b"\0" * 4 + modified.to_bytes(4, "little")
    return body if head == stamp + len(source).to_bytes(4, "little") else b""


def _bytecode_head(source: bytes) -> bytes:
    """Return the first bytes of a bytecode file that is valid for a source of any time."""
    import importlib.util

    flags = UNCHECKED.to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + flags + importlib.util.source_hash(source)


def bytecode(name: str, source: bytes) -> bytes:
    """Return the content of a bytecode file, as valid for a source of any time (PEP 552)."""
    import marshal

    code = compile(source, name, "exec", dont_inherit=True)
    return _bytecode_head(source) + marshal.dumps(code)


def compile_file(path: str) -> None:
    """Write the bytecode of a module for this Python, whole, if there is none. Raises OSError."""
    import importlib.util

    target = importlib.util.cache_from_source(path)
    if os.path.exists(target):
        return
    with open(path, "rb") as file:  # first: where it is gone, so is the run directory
        data = bytecode(path, file.read())
    os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
    part = f"{target}.{os.getpid()}"
    try:
        _write(part, data)
        os.replace(part, target)
    except OSError:
        json_files.remove(part)
        raise


def mark_damaged() -> None:
    """Have the copy that this program runs from replaced by the next agent."""
    place = own_place()
    if place is not None:
        json_files.remove(os.path.join(place, SIZES))


# -- which copies are in use -----------------------------------------------------------------------


def hold(place: str) -> None:
    """Keep a copy from being swept while this process lives: it imports more of it later."""
    try:
        import fcntl

        locks.append(os.open(os.path.join(place, SIZES), os.O_RDONLY | os.O_CLOEXEC))
        fcntl.flock(locks[-1], fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (ImportError, OSError):
        pass  # a file system without locks: the next command makes it again
    _touch(place)


def _touch(place: str) -> None:
    """Note that a copy is used."""
    try:
        os.utime(os.path.join(place, SIZES))
    except OSError:
        pass  # another user's, or a disk that is read-only now


locks: list[int] = []  # descriptors


def sweep(home: str, age: float, own: str | None = None) -> None:
    """Remove copies of other versions that no agent uses or has used for `age` seconds.

    `own`: the copy of this version, where the caller has its name.
    """
    import shutil

    for place in unused(home, age, own):
        shutil.rmtree(place, ignore_errors=True)


def unused(home: str, age: float, own: str | None = None) -> list[str]:
    """Return the copies of other versions that no agent uses or has used for `age` seconds.

    Of an earlier version's agent and of a copy that is being made only the age is known: those
    have a day at least.
    """
    own = own or own_place() or place_of(home, digest(contents()))
    version = os.path.basename(own).partition("-")[0]
    places = []
    for parent in (PLACE, EARLIER):
        for path in _entries(os.path.join(home, parent)):
            name = os.path.basename(path)
            if parent == EARLIER or name.startswith(PART):
                is_unused = _unused_for(path) > max(age, DAY)
            else:
                is_own = name.startswith(version + "-")
                is_unused = not is_own and _unused_for(path, SIZES) >= age and _is_free(path)
            if is_unused:
                places.append(path)
    return places


def _entries(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    except OSError:
        return []


def _unused_for(path: str, name: str = "") -> float:
    try:
        return time.time() - os.stat(os.path.join(path, name)).st_mtime
    except OSError:
        return float("inf")  # damaged, or gone


def _is_free(place: str) -> bool:
    """Whether no agent holds a copy."""
    try:
        import fcntl

        with open(os.path.join(place, SIZES), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True  # damaged
    except (ImportError, OSError):
        return False
    return True
