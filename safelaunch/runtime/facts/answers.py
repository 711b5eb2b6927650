"""Answers questions of checks about a machine: paths, free space, ports, models, names."""

# ruff: noqa: PLC0415 - imported by each start; few jobs ask what needs another module

from __future__ import annotations

import os
import stat
import time

from safelaunch.runtime.facts.commands import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


SHOWN = 50  # matches of a pattern that are listed
_MODEL_FILES = 2000  # files of a folder of weights that are read
_PAUSES = (0.02, 0.05, 0.0)  # seconds between tries: another start may probe the port meanwhile
_KERNEL = ("proc", "sysfs", "cgroup", "cgroup2", "devpts", "debugfs", "tracefs", "securityfs",
           "configfs", "bpf", "pstore", "autofs", "efivarfs", "binfmt_misc")  # fmt: skip
_POINTER = b"version https://git-lfs.github.com/spec/v1"  # first line of a pointer file of Git LFS
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_MODEL_TEXTS = ("config.json", "adapter_config.json", "tokenizer.json", "tokenizer_config.json")
_TOKENIZER = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model",
              "sentencepiece.bpe.model", "tekken.json", "tokenizer_config.json")  # fmt: skip


def path(cwd: str, word: str) -> dict[str, Any]:
    """Return `kind` (file, folder, other; None if missing), `size` and permissions."""
    file = absolute(cwd, word)
    try:
        about = os.stat(file)
    except OSError as e:
        link = os.readlink(file) if os.path.islink(file) else None
        return {"kind": None, "why": e.strerror, "link": link}
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"))
    kind = next((name for test, name in kinds if test(about.st_mode)), "other")
    answer = {
        "kind": kind,
        "size": about.st_size,
        "readable": os.access(file, os.R_OK),
        "writable": os.access(file, os.W_OK),
        "executable": os.access(file, os.X_OK),
    }
    if kind == "folder" and answer["readable"]:
        answer["empty"] = not os.listdir(file)
    return answer


def matches(cwd: str, pattern: str) -> dict[str, Any]:
    """Return how many paths match a glob, and the first of them. Raises Skip: it takes long."""
    from safelaunch.runtime.facts import glob

    paths = glob.paths(absolute(cwd, pattern))
    return {"count": len(paths), "found": paths[:SHOWN]}


def room(cwd: str, word: str) -> dict[str, Any]:
    """Return whether the nearest existing folder is writable, its free bytes and inodes.

    `why` says why it is not, where that is no missing permission. Bytes are None on a file system
    that counts none.
    """
    folder = absolute(cwd, word)
    while not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        if os.path.islink(folder):
            why = f"is a link to {os.readlink(folder)}, which does not exist"
            return {"folder": folder, "writable": False, "why": why}
        if os.path.lexists(folder):
            return {"folder": folder, "is_file": True, "writable": False}
        folder = os.path.dirname(folder)
    disk = os.statvfs(folder)
    why, is_counted = "", disk.f_blocks > 0
    if disk.f_flag & os.ST_RDONLY:
        why = "is on a file system that is mounted read-only"
    elif not is_counted and file_system(folder) in _KERNEL:
        why = f"is on {file_system(folder)}, which keeps no files"
    return {
        "folder": folder,
        "writable": not why and os.access(folder, os.W_OK | os.X_OK),
        "why": why,
        "free": disk.f_bavail * disk.f_frsize if is_counted else None,
        "total": disk.f_blocks * disk.f_frsize if is_counted else None,
        # many network file systems count none
        "inodes": disk.f_favail if disk.f_files else None,
        "device": os.stat(folder).st_dev,
    }


def file_system(folder: str) -> str:
    """Return the type of the file system that has a folder; "" where it is not known."""
    path, best = os.path.realpath(folder), ("", "")
    for line in read("/proc/self/mounts", 1 << 20).splitlines():
        _, place, kind, *_ = [*line.split(" "), "", "", ""]
        place = place.replace("\\040", " ")
        is_above = path == place or path.startswith(place.rstrip("/") + "/")
        if place and is_above and len(place) >= len(best[0]):
            best = (place, kind)
    return best[1]


def port(_: str, number: int) -> dict[str, Any]:
    """Return whether a port can be bound on all interfaces, as a server needs it.

    Of one that cannot: `instead`, a port that can, and what `port_holders.holders_of` returns.
    """
    from safelaunch.runtime.start import start_probe

    number = int(number)
    for pause in _PAUSES:
        if start_probe.can_bind(number):
            return {"free": True}
        time.sleep(pause)
    from safelaunch.runtime.facts import port_holders

    holders = port_holders.holders_of(number)
    return dict(holders, free=False, instead=start_probe.free_port(number))


def model(cwd: str, word: str) -> dict[str, Any]:
    """Return the Git LFS pointers, weights and missing parts of a folder of weights.

    `flaws` are weights that are empty or cut off: [name, why].
    """
    from safelaunch.runtime.progress.checkpoints import file_flaw, missing_parts

    folder = absolute(cwd, word)
    names = os.listdir(folder)
    pointers, weights, files = [], 0, []
    for name in sorted(names)[:_MODEL_FILES]:
        file = os.path.join(folder, name)
        if is_pointer(file):
            pointers.append(name)
        elif name.endswith(_WEIGHTS) and os.path.isfile(file):
            weights += 1
            files.append((name, file))
        elif name in _MODEL_TEXTS or name.endswith(".index.json"):
            files.append((name, file))
    reasons = (
        (name, file_flaw(file) if os.access(file, os.R_OK) else "cannot be read")
        for name, file in files
        if os.path.isfile(file)
    )
    # an adapter of peft, a pipeline of diffusers, weights as Meta distributes them
    marks = ("adapter_config.json", "model_index.json", "params.json")
    return {
        "pointers": pointers,
        "weights": weights,
        "flaws": [[name, why] for name, why in reasons if why],
        "missing": missing_parts(folder, names),
        "config": "config.json" in names,
        "tokenizer": any(name in names for name in _TOKENIZER),
        "other": next((name for name in marks if name in names), None),
    }


def is_pointer(file: str) -> bool:
    """Return whether a file is the pointer that Git LFS leaves in place of a large one."""
    try:
        about = os.stat(file)
        # opening a pipe would block; the specification: less than 1024 bytes
        if not stat.S_ISREG(about.st_mode) or about.st_size > 1024:  # noqa: PLR2004
            return False
        with open(file, "rb") as opened:
            return opened.read(len(_POINTER)) == _POINTER
    except OSError:
        return False


def name(_: str, host: str) -> dict[str, Any]:
    """Return the addresses to which this machine resolves a host; `why` if it cannot."""
    import socket

    try:
        entries = socket.getaddrinfo(host, None, 0, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as e:
        return {"addresses": [], "why": getattr(e, "strerror", None) or str(e)}
    return {"addresses": sorted({str(address[0]) for *_, address in entries})}


def real_path(cwd: str, word: str) -> str:
    """Return the path without links, whether it exists or not."""
    return os.path.realpath(absolute(cwd, word))


def runs(_: str) -> dict[str, Any]:
    """Return the live runs of this machine (runtime/start/live_runs.py)."""
    from safelaunch.runtime.home import home
    from safelaunch.runtime.start import live_runs

    return live_runs.look(home()).to_json()


def absolute(cwd: str, word: str) -> str:
    """Return the absolute path for a path of the job on this machine."""
    return os.path.normpath(os.path.join(os.path.expanduser(cwd), os.path.expanduser(word)))
