"""Answers questions of checks about a machine: paths, free space, ports, models, names."""

from __future__ import annotations

import os
import stat
import time

from safelaunch.runtime.facts import commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


SHOWN = 50  # matches of a pattern that are listed


_WALKED = 2000  # files of a folder that are read


_PAUSES = (
    0.02,
    0.05,
    0.0,
)  # seconds between tries: another start may probe the same port meanwhile


_POINTER = b"version https://git-lfs.github.com/spec/v1"  # first line of a pointer file of Git LFS


_VISIBLE = "CUDA_VISIBLE_DEVICES"


_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


_TOKENIZER = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model",
              "sentencepiece.bpe.model", "tekken.json", "tokenizer_config.json")  # fmt: skip


def path(cwd: str, word: str) -> dict[str, Any]:
    """Return `kind` (file, folder, other; None if missing), `size` and permissions."""
    at = place(cwd, word)
    try:
        found = os.stat(at)
    except OSError as e:
        link = os.readlink(at) if os.path.islink(at) else None
        return {"kind": None, "why": e.strerror, "link": link}
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"))
    kind = next((name for test, name in kinds if test(found.st_mode)), "other")
    told = {"kind": kind, "size": found.st_size}
    for name, mode in (("readable", os.R_OK), ("writable", os.W_OK), ("executable", os.X_OK)):
        told[name] = os.access(at, mode)
    if kind == "folder" and told["readable"]:
        told["empty"] = not os.listdir(at)
    return told


def matches(cwd: str, pattern: str) -> dict[str, Any]:
    """Return how many paths match a glob, and the first of them. Raises Skip: it takes long."""
    from safelaunch.runtime.facts import glob  # noqa: PLC0415 - few ask

    found = glob.paths(place(cwd, pattern))
    return {"count": len(found), "found": found[:SHOWN]}


def room(cwd: str, word: str) -> dict[str, Any]:
    """Return whether the nearest existing folder is writable, its free bytes and inodes."""
    at = place(cwd, word)
    while not os.path.isdir(at) and os.path.dirname(at) != at:
        if os.path.lexists(at) and not os.path.islink(at):
            return {"folder": at, "is_file": True, "writable": False}
        at = os.path.dirname(at)
    found = os.statvfs(at)
    return {
        "folder": at,
        "writable": os.access(at, os.W_OK | os.X_OK),
        "free": found.f_bavail * found.f_frsize,
        "total": found.f_blocks * found.f_frsize,
        # many network file systems count none
        "inodes": found.f_favail if found.f_files else None,
        "device": os.stat(at).st_dev,
    }


def port(_: str, number: int) -> dict[str, Any]:
    """Return whether a port can be bound on all interfaces, as a server needs it.

    Of one that cannot: `instead`, a port that can, and what `holders.of` tells.
    """
    from safelaunch.runtime.start import start_probe  # noqa: PLC0415 - few ask

    for pause in _PAUSES:
        if start_probe.can_bind(int(number)):
            return {"free": True}
        time.sleep(pause)
    from safelaunch.runtime import port_holders  # noqa: PLC0415 - as above

    return dict(
        port_holders.holders_of(int(number)), free=False, instead=start_probe.free_port(int(number))
    )


def model(cwd: str, word: str) -> dict[str, Any]:
    """Return the Git LFS pointers, weights and missing parts of a folder of weights."""
    at = place(cwd, word)
    names = os.listdir(at)
    told: dict[str, Any] = {"pointers": [], "weights": 0, "missing": [], "config": False}
    told["config"] = "config.json" in names
    for name in sorted(names)[:_WALKED]:
        file = os.path.join(at, name)
        if not os.path.isfile(file):
            continue
        if is_pointer(file):
            told["pointers"].append(name)
        elif name.endswith(_WEIGHTS):
            told["weights"] += 1
    told["missing"] = _missing(at, names)
    told["tokenizer"] = any(name in names for name in _TOKENIZER)
    # an adapter of peft, a pipeline of diffusers, weights as Meta gives them
    marks = ("adapter_config.json", "model_index.json", "params.json")
    told["other"] = next((name for name in marks if name in names), None)
    return told


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


def _missing(folder: str, names: list[str]) -> list[str]:
    """Return the parts that an index of weights names but the folder lacks."""
    import json  # noqa: PLC0415 - few ask

    found = set()
    for name in names:
        if name.endswith(".index.json"):
            try:
                index = json.loads(commands.read(os.path.join(folder, name), 1 << 24))
                found |= set(index["weight_map"].values())
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue
    return sorted(str(one) for one in found if one not in names)


def name(_: str, host: str) -> dict[str, Any]:
    """Return the addresses to which this machine resolves a host; `why` if it cannot."""
    import socket  # noqa: PLC0415 - few ask

    try:
        found = socket.getaddrinfo(host, None, 0, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as e:
        return {"addresses": [], "why": getattr(e, "strerror", None) or str(e)}
    return {"addresses": sorted({str(one[4][0]) for one in found})}


def runs(_: str) -> list[dict[str, Any]]:
    """Return the runs that live on this machine: id, name, and of their plans words and cards.

    No more of those: the values of their environment concern nobody.
    """
    from safelaunch.runtime import json_files, run_state  # noqa: PLC0415 - few ask
    from safelaunch.runtime.home import home  # noqa: PLC0415 - few ask
    from safelaunch.runtime.records import Status  # noqa: PLC0415 - few ask

    folder, found = os.path.join(home(), "runs"), []
    for run_id in commands.folders(folder):
        for node in commands.folders(os.path.join(folder, run_id)):
            at = os.path.join(folder, run_id, node)
            status = Status.read(at)
            if status is not None and status.state in run_state.ENDED:
                continue  # only runs that have not ended need a look at their processes
            if run_state.current_status(at).state not in ("running", "pending"):
                continue
            plan = json_files.read_json(os.path.join(at, "plan.json")) or {}
            nodes = plan.get("nodes")
            node_plans = [_brief(one) for one in nodes] if isinstance(nodes, list) else []
            told = {"id": run_id, "node": node, "name": None if status is None else status.name}
            found.append(dict(told, plan={"nodes": node_plans}))
    return found


def _brief(node: Any) -> dict[str, Any]:
    """Return the fields of a node's plan that other jobs need."""
    if not isinstance(node, dict):
        return {}
    told = {key: node.get(key) for key in ("argv", "cwd", "node_rank")}
    env = node.get("env")
    visible = env.get(_VISIBLE) if isinstance(env, dict) else None
    return dict(told, env={} if visible is None else {_VISIBLE: visible})


def place(cwd: str, word: str) -> str:
    """Return the path that a word means on this machine."""
    return os.path.normpath(os.path.join(os.path.expanduser(cwd), os.path.expanduser(word)))
