"""Formats facts for a terminal: one subject a line, within its width."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

from safelaunch.cli.output import escape, wrap
from safelaunch.runtime.units import brief_duration, size

if TYPE_CHECKING:
    from collections.abc import Iterator

_LABEL = 9  # columns
_MAX_LISTED = 12  # processes, and environments
_CLOCK_TOLERANCE = 2.0  # seconds
_ERRORS = {
    "driver-not-running": "the NVIDIA driver is not running: load it (modprobe nvidia) or "
    "reinstall it for this kernel",
    "driver-library-mismatch": "the loaded driver and its library have different versions: reboot, "
    "or reload the nvidia modules, after an update of the driver",
    "gpu-lost": "a GPU is lost: reboot; if it happens again, check its power, then replace it",
    "gpu-handle-unknown": "a GPU does not respond: reboot",
    "nvml-unknown": "the container has lost its GPUs: restart it",
    "no-library": "the driver's library is missing: in a container, start it with --gpus all",
    "no-permission": "this user may not use the GPUs: check the permissions of /dev/nvidia*",
}
_TOOLS = ("tmux", "tar", "sftp", "git", "git-lfs", "nvcc", "ninja", "docker", "nvidia-ctk")


def lines(facts: dict[str, Any], width: int) -> Iterator[str]:
    """Yield the lines that show the facts of a machine."""
    age, hostname = facts.get("age") or 0.0, facts["system"].get("hostname")
    name = facts["host"] + (f" ({hostname})" if hostname and hostname != facts["host"] else "")
    when = "now" if age < 1 else f"{brief_duration(age)} ago; --refresh probes again"
    yield escape(f"{name}: probed {when}")
    for label, text in (
        ("system", _system(facts)),
        ("cores", _cores(facts["cores"])),
        ("memory", _memory(facts["memory"])),
        *(("disk", text) for text in _disks(facts["disks"])),
        *_gpus(facts["gpus"]),
        *_network(facts),
        ("tools", _tools(facts["tools"])),
        *_software(facts),
        *(("other env", text) for text in _environments(facts["environments"])),
        ("container", facts["system"].get("container")),
        *(("skipped", f"{name}: {why}") for name, why in facts["skipped"].items()),
    ):
        if text:
            first = f"{label:<{_LABEL}}  "
            indent = " " * len(first)
            yield from wrap(" ".join(text.split()), width, first, indent, break_words=True)


def image_lines(facts: dict[str, Any], width: int) -> Iterator[str]:
    """Yield the lines that show what is in an image on a machine."""
    packages = facts.get("packages") or {}
    nccl = [f"{name} {packages[name]}" for name in packages if "nccl" in name]
    others = [f"{n} {v}" for n, v in packages.items() if n != "torch" and "nccl" not in n]
    python, engine = facts.get("python"), facts.get("engine")
    yield escape(f"{facts['host']}: {facts['image']}" + (f", in {engine}" if engine else ""))
    for label, text in (
        ("error", facts.get("error")),
        ("hint", facts.get("hint")),
        ("image", facts.get("image_id")),
        ("bash", "yes" if facts.get("bash") else ""),
        ("python", f"{python['version']}, {python['executable']}" if python else ""),
        ("torch", packages.get("torch") or ("none" if python else "")),
        ("nccl", ", ".join(nccl)),
        ("packages", ", ".join(others)),
        *(("note", note) for note in facts.get("notes") or ()),
    ):
        if text:
            first = f"{label:<{_LABEL}}  "
            yield from wrap(str(text), width, first, " " * len(first), break_words=True)


# -- the machine -----------------------------------------------------------------------------------


def _system(facts: dict[str, Any]) -> str:
    system = facts["system"]
    parts = [system.get("distribution"), f"{system.get('os')} {system.get('kernel')}",
             system.get("machine"), system.get("libc")]  # fmt: skip
    if system.get("uptime"):
        parts.append(f"up {brief_duration(system['uptime'])}")
    offset = facts.get("clock_offset")
    if offset is not None and abs(offset) >= _CLOCK_TOLERANCE:
        direction = "ahead" if offset > 0 else "behind"
        parts.append(f"its clock is {brief_duration(abs(offset))} {direction}")
    return ", ".join(str(part) for part in parts if part)


def _cores(cores: dict[str, Any]) -> str:
    text = f"{cores['usable']} usable of {cores['present']}"
    if cores["quota"]:
        text += f" (a cgroup allows {cores['quota']:g})"
    return text if cores["present"] else ""


def _size(count: float | None) -> str:
    return "?" if count is None else size(count)


def _memory(memory: dict[str, Any]) -> str:
    if memory["total"] is None:
        return ""
    text = f"{_size(memory['total'])}, {_size(memory['available'])} available"
    if memory["limit"] is not None:
        used = f", {_size(memory['used_of_limit'])} used" if memory["used_of_limit"] else ""
        text += f"; a cgroup allows {_size(memory['limit'])}{used}"
    return text


def _disks(disks: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each file system, with all paths on it."""
    paths: dict[tuple[Any, ...], dict[str, None]] = {}
    by_key = {(disk.get("mount"), disk.get("free")): disk for disk in disks.values()}
    for name, disk in disks.items():
        path = "/dev/shm" if name == "shm" else str(disk.get("path"))  # noqa: S108 - a path to show
        paths.setdefault((disk.get("mount"), disk.get("free")), {})[path] = None
    for key, disk in by_key.items():
        text = f"{', '.join(paths[key])}: {_size(disk['free'])} free of {_size(disk['total'])}"
        text += f" ({disk.get('type') or '?'} at {disk.get('mount') or '?'})"
        if disk.get("inodes") and disk["inodes_free"] * 20 < disk["inodes"]:
            text += f", only {disk['inodes_free']:,} inodes left"
        yield text + ("" if disk.get("writable") else ", not writable")


# -- GPUs ------------------------------------------------------------------------------------------


def _gpus(gpus: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _others(gpus.get("others") or [])
    if gpus["count"] == 0 and not gpus.get("others"):
        yield "gpus", "none" + (" (no nvidia-smi here)" if gpus["nvidia_smi"] is None else "")
    elif gpus["count"] is None:
        yield "gpus", "not known"
    models = Counter((g["name"], g["memory_mib"], g["compute_capability"]) for g in gpus["cards"])
    for (name, memory, capability), count in models.items():
        parts = [f"{count} x {name or 'a GPU without a name'}"]
        parts += [size(memory << 20)] if memory else []
        parts += [f"sm_{capability.replace('.', '')}"] if capability else []
        yield "gpus", ", ".join(parts)
    if gpus["driver"]:
        newest = f", CUDA up to {gpus['cuda']}" if gpus["cuda"] else ""
        yield "driver", f"{gpus['driver']}{newest}"
    if gpus["source"] == "/proc":
        yield "gpus", "from /proc: nvidia-smi does not respond"
    if gpus["slices"]:
        profiles = Counter(device["profile"] or "a MIG device" for device in gpus["slices"])
        yield "mig", ", ".join(f"{count} x {name}" for name, count in profiles.items())
    elif gpus["slices"] is not None and any(gpu["mig"] for gpu in gpus["cards"]):
        yield "mig", "enabled without MIG devices: no job can use such a GPU"
    yield "links", "; ".join(_links(gpus))
    yield from (("in use", text) for text in _processes(gpus["processes"] or []))
    for error in gpus["troubles"]:
        remedy = _ERRORS.get(error["kind"], error["text"])
        yield "error", f"{remedy} (`{error['text'][:90]}`)"
    if not gpus["troubles"]:
        yield from (("error", f"nvidia-smi, {name}: {why}") for name, why in gpus["late"].items())
    yield from (("gpus", f"{name} exists: {at}") for name, at in gpus["other_tools"].items())


def _others(cards: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the devices of other makers than NVIDIA."""
    for (name, memory), count in Counter((c["name"], c["memory_mib"]) for c in cards).items():
        parts = [f"{count} x {name or 'a device without a name'}"]
        yield "gpus", ", ".join([*parts, *([size(memory << 20)] if memory else [])])


def _links(gpus: dict[str, Any]) -> Iterator[str]:
    topology, peers = gpus["topology"], gpus["peers"]
    if topology is not None and topology["fabric"] != "single":
        kinds = Counter(pair[2] for pair in topology["pairs"])
        pairs = ", ".join(f"{count} pairs {kind}" for kind, count in kinds.items())
        yield f"{topology['fabric']} ({pairs})"
    if peers is not None and peers["of"]:
        yield f"peer access for {peers['ok']} of {peers['of']} pairs"
    active = sum(link["state"] == "active" for link in gpus["links"])
    if active:
        yield f"NVLink active on {active} GPUs"
    manager = gpus["fabric_manager"] or {}
    if manager.get("switches"):
        state = "is running" if manager.get("running") else "was not found running"
        yield f"{manager['switches']} NVSwitches, the fabric manager {state}"


def _processes(processes: list[dict[str, Any]]) -> Iterator[str]:
    for process in processes[:_MAX_LISTED]:
        used = f", {size(process['used_mib'] << 20)}" if process["used_mib"] else ""
        user = process["user"] or "unknown user"
        name = os.path.basename(str(process["name"] or "?"))
        yield f"GPU {process['card']}: {user}, process {process['pid']} ({name}){used}"
    yield _more(processes)


def _more(items: list[dict[str, Any]]) -> str:
    count = len(items) - _MAX_LISTED
    return f"and {count} more; --json lists them all" if count > 0 else ""


# -- network and programs --------------------------------------------------------------------------


def _network(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    network = facts["network"]
    routes = network["routes"]
    default = {route["interface"] for route in routes if route["destination"] == "default"}
    texts = []
    for address in network["addresses"]:
        name, speed = address.get("interface"), address.get("speed")
        marks = [f"{speed / 1000:g} Gbit/s"] if speed else []
        marks += ["default route"] if name in default else []
        mark = f" ({', '.join(marks)})" if marks else ""
        texts.append(f"{name} {address.get('address')}{mark}")
    yield "network", "; ".join(texts)
    for device in network["infiniband"]:
        ports = [f"{p.get('link_layer')} {p.get('state')} {p.get('rate')}" for p in device["ports"]]
        yield "rdma", f"{device['name']}: {', '.join(ports) or 'no port'}"
    for name, value in network["proxies"].items():
        yield "proxy", f"{name}={value}"
    for path, text in facts["nccl_conf"].items():
        yield "nccl conf", f"{path}: {'; '.join(text.split(chr(10))).strip('; ')[:300]}"


def _tools(tools: dict[str, Any]) -> str:
    present = [f"{name} {tools[name].get('version') or ''}" for name in _TOOLS if tools.get(name)]
    missing = [name for name in _TOOLS[:4] if tools and not tools.get(name)]
    text = ", ".join(map(str.strip, present))
    return text + (f"; missing: {', '.join(missing)}" if missing else "")


def _software(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    python, torch, deep = facts["python"], facts["torch"], facts["deep"]
    if python is not None:
        yield "python", f"{python['version']} ({python['kind']}), {python['executable']}"
    if torch is not None:
        build = f"ROCm {torch['hip']}" if torch["hip"] else "built without CUDA"
        build = f"CUDA {torch['cuda']}" if torch["cuda"] else build
        parts = [f"{torch['version']}, {build}"]
        parts += [f"cuDNN {torch['cudnn']}"] if torch["cudnn"] else []
        parts += [f"for {' '.join(torch['archs'])}"] if torch["archs"] else []
        yield "torch", ", ".join(parts)
        nccl = torch["nccl"]
        if nccl:
            cuda = f", built with CUDA {nccl['cuda']}" if nccl["cuda"] else ""
            yield "nccl", f"{nccl['version']}{cuda}"
    if facts["names"]:
        count = len({n for names in facts["names"].values() for n in names or ()})
        yield "variables", f"the installed libraries read {count} NCCL_ and TORCH_ variables"
    if python is not None:
        others = [f"{n} {v}" for n, v in python["training"].items() if n != "torch"]
        yield "packages", ", ".join(others)
    if deep is not None:
        gpus = f"{len(deep['devices'])} GPUs" if deep["available"] else "no GPU that it can use"
        yield "imported", f"torch {deep['version']} in {deep['seconds']:.1f} s: {gpus}"


def _environments(environments: list[dict[str, Any]]) -> Iterator[str]:
    useful = [environment for environment in environments if environment["packages"]]
    for env in useful[:_MAX_LISTED]:
        packages = ", ".join(f"{name} {version}" for name, version in env["packages"].items())
        yield f"{env['prefix']} ({env['kind']}, Python {env['version'] or '?'}): {packages}"
    yield _more(useful)
