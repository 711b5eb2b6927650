"""Answers to rarer questions of checks (questions.py): servers, checkpoints, caches, images.

Nothing is changed; `reach` opens a connection and closes it without a word.
"""

# ruff: noqa: PLC0415 - socket, containers: few ask

from __future__ import annotations

import os
import re
import time

from safelaunch.runtime import home as safelaunch_home
from safelaunch.runtime.facts import answers
from safelaunch.runtime.facts.commands import folders, read
from safelaunch.runtime.progress import checkpoints

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PATIENCE = 3.0  # seconds for a connection: a second for a lost SYN, and once more
_MAX_FILES = 50_000  # that are counted
_MAX_SECONDS = 5.0  # for counting them
# what the trainers leave in a checkpoint that a run can resume from: transformers, DeepSpeed and
# Megatron (`latest...`), torch.distributed.checkpoint, Lightning and plain torch
_MARKS = ("trainer_state.json", "latest", "latest_checkpointed_iteration.txt", ".metadata",
          "model_index.json", "config.json", "adapter_config.json")  # fmt: skip
# what only a trainer leaves there: a pretrained model has none of it
_TRAINER = (*_MARKS[:4], "optimizer", "random_states", "rng_state", "scheduler", "training_state",
            "global_step", "mp_rank", "__0_")  # fmt: skip
# what the Trainer leaves there beside the model, and texts: none of them has weights
_WEIGHTLESS = re.compile(
    r"(optimizer|scheduler|scaler|rng_state|random_states|training_args)(_\d+)?\.\w+"
    r"|.*(?<!\.index)\.(json|jsonl|txt|model|jinja|md|ya?ml|py|csv|log)"
)
_MAKERS = ("0x10de", "0x1002")  # of NVIDIA, AMD
_DISPLAY = ("0x03", "0x12")  # PCI classes: display controller, processing accelerator
_PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")
_MAX_DEVICES = 512
_STEP = ("checkpoint-", "global_step", "iter_", "step_", "epoch")


def reach(_: str, host: str, number: int) -> dict[str, Any]:
    """Return whether a server accepts connections at an address, and `why` not."""
    import socket

    try:
        socket.create_connection((host, int(number)), _PATIENCE).close()
    except socket.timeout:
        return {"reached": False, "why": f"no answer within {_PATIENCE:g} s"}
    except (OSError, UnicodeError, OverflowError) as e:
        why = getattr(e, "strerror", None) or str(e)
        return {"reached": False, "why": why.lower()}
    return {"reached": True}


def hostname(_: str) -> dict[str, Any]:
    """Return the machine's own name, and the addresses that it stands for there."""
    own = os.uname().nodename
    return dict(answers.name("", own), name=own)


def home(cwd: str) -> dict[str, Any]:
    """Return the room where runs are kept; its `path` too."""
    path = os.path.join(safelaunch_home.home(), "runs")
    return dict(answers.room(cwd, path), path=path)


def checkpoint(cwd: str, word: str) -> dict[str, Any]:
    """Return what is in a checkpoint: `kind`, `marks` (files that show it is one), its steps.

    `states` counts the files of weights and states, `trainer` says if any is a trainer's. `latest`
    is the text of DeepSpeed's or Megatron's file of that name, `latest_found` whether the folder
    that it names is there, `flaw` why it is not whole. `weightless` are those of `steps`, or `.`
    for the folder itself, that have the Trainer's state and no model: it refuses them.
    """
    root = answers.absolute(cwd, word)
    if not os.path.isdir(root):
        kind = answers.path(cwd, word)["kind"]
        return {"kind": kind, "flaw": checkpoints.flaw(root)} if kind == "file" else {"kind": kind}
    names = os.listdir(root)
    result: dict[str, Any] = {
        "kind": "folder",
        "count": len(names),
        "marks": [name for name in _MARKS if name in names],
        "trainer": any(name.startswith(_TRAINER) for name in names),
        "states": sum(name.endswith(checkpoints.STATES) for name in names),
        "steps": sorted(
            name
            for name in names
            if name.startswith(_STEP) and os.path.isdir(os.path.join(root, name))
        )[: answers.SHOWN],
        "latest": None,
        "flaw": checkpoints.flaw(root),
    }
    places = (".", *result["steps"])
    result["weightless"] = [name for name in places if _is_weightless(os.path.join(root, name))]
    for name in checkpoints.TRACKERS:
        text = read(os.path.join(root, name), 256).strip() if name in names else ""
        if text:
            folder = checkpoints.tracked_folder(name, text)
            result["latest"] = text
            result["latest_found"] = os.path.isdir(os.path.join(root, folder))
    return result


def _is_weightless(folder: str) -> bool:
    """Whether a checkpoint has the Trainer's state and, by their names, no file of a model."""
    names = folders(folder)
    return _MARKS[0] in names and all(_WEIGHTLESS.fullmatch(name) for name in names)


def newest_checkpoints(cwd: str, pattern: str) -> dict[str, Any]:
    """Return the whole checkpoints that match a glob, the newest first, and a newer one's flaw."""
    paths, flaw = checkpoints.whole(pattern, os.path.expanduser(cwd))
    return {"paths": paths, "flaw": flaw}


def hub(_: str, kind: str, repo: str, *settings: str) -> dict[str, Any]:
    """Return whether a repository of the hub is in this machine's cache, and where that is.

    `kind` is models or datasets; `settings` are variables `NAME=value` that the job sets beyond
    the environment. As huggingface_hub looks for it (its documentation, "Environment variables").
    """
    env = {**os.environ, **dict(setting.partition("=")[::2] for setting in settings)}
    cache = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE")
    if not cache:
        shared = os.path.join(env.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
        cache = os.path.join(env.get("HF_HOME") or shared, "hub")
    folder = os.path.join(os.path.expanduser(cache), "--".join([kind, *repo.split("/")]))
    snapshots = os.path.join(folder, "snapshots")
    whole = [name for name in folders(snapshots) if folders(os.path.join(snapshots, name))]
    return {"folder": folder, "cached": bool(whole)}


def size(cwd: str, word: str) -> dict[str, Any]:
    """Return bytes and files of a path; `whole` is false where there were too many to count."""
    root = answers.absolute(cwd, word)
    until, total, count, is_whole = time.monotonic() + _MAX_SECONDS, 0, 0, True
    stack = [root]
    while stack and is_whole:
        path = stack.pop()
        try:
            if os.path.isdir(path):
                if not os.path.islink(path) or path == root:
                    stack += [os.path.join(path, name) for name in os.listdir(path)]
                continue
            total += os.stat(path).st_size
        except OSError:
            continue
        count += 1
        is_whole = count < _MAX_FILES and time.monotonic() <= until
    return {"bytes": total, "files": count, "whole": is_whole}


def kernel(_: str, root: str = "/") -> dict[str, Any]:
    """Return what the kernel says of the ways between devices.

    `iommu` is {bus id of a GPU: type of its group}, DMA or DMA-FQ where addresses are translated,
    identity where they are not; `is_open` whether NVIDIA's driver is the open one.
    """
    words = read(os.path.join(root, "proc/cmdline"), 1 << 14).split()
    modules = read(os.path.join(root, "proc/modules"), 1 << 18)
    names = {line.split(" ")[0] for line in modules.splitlines()}
    version = read(os.path.join(root, "proc/driver/nvidia/version"), 1 << 14)
    channels = os.path.join(root, "dev/nvidia-caps-imex-channels")
    return {
        "iommu": _iommu(os.path.join(root, "sys/bus/pci/devices")),
        "options": [word for word in words if "iommu" in word.lower()],
        "peer_modules": [name for name in _PEER_MODULES if name in names],
        "modules_seen": bool(names),
        "is_open": "Open Kernel Module" in version,
        "imex": any(
            read(os.path.join(root, "proc", pid, "comm"), 64).startswith("nvidia-imex")
            for pid in folders(os.path.join(root, "proc"))
            if pid.isdigit()
        ),
        "imex_channels": len(folders(channels)),
        "cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
    }


def _iommu(folder: str) -> dict[str, str]:
    types = {}
    for bus in sorted(folders(folder))[:_MAX_DEVICES]:
        device = os.path.join(folder, bus)
        if read(os.path.join(device, "vendor"), 16).strip() not in _MAKERS:
            continue
        if not read(os.path.join(device, "class"), 16).startswith(_DISPLAY):
            continue
        kind = read(os.path.join(device, "iommu_group", "type"), 32).strip()
        if kind:
            types[bus] = kind
    return types


def image(cwd: str, name: str, spec: str, folder: str) -> dict[str, Any]:
    """Return what docker or podman says of a container, and `absent`, mounts that are not here.

    `spec` is the container as JSON, with `folder` where safelaunch's own is meant.
    """
    import json

    from safelaunch.runtime.containers import image_probe
    from safelaunch.runtime.records import ContainerSpec

    own = safelaunch_home.home()
    record = ContainerSpec.from_json(json.loads(spec.replace(folder, own)))
    for mount in record.mounts:
        mount.source = os.path.expanduser(mount.source)
    inside = (record.home, os.path.join(own, "runs"))  # the probe makes these
    absent = [m.source for m in record.mounts if not os.path.exists(m.source)]
    absent = [path for path in absent if path not in inside]
    record.mounts = [mount for mount in record.mounts if mount.source not in absent]
    report = image_probe.probe_image(record, ["1", cwd, ""], name, os.environ)
    return {**report.to_json(), "absent": absent}
