"""How facts are shown to people: short, a subject a line, within the width of the terminal."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

from safelaunch.cli.output import wrap
from safelaunch.runtime.units import brief_duration, size

if TYPE_CHECKING:
    from collections.abc import Iterator

_LABEL = 9
_MOST_PROCESSES = 12
_MOST_ENVIRONMENTS = 12
_CLOCKS_DIFFER = 2.0  # seconds
_TROUBLES = {
    "driver-not-running": "the NVIDIA driver does not run: load it (modprobe nvidia) or reinstall "
    "it for this kernel",
    "driver-library-mismatch": "the driver that is loaded and its library differ: reboot, or "
    "reload the nvidia modules, after an update of the driver",
    "gpu-lost": "a card is lost: reboot; if it comes again, power or the card itself",
    "gpu-handle-unknown": "a card does not answer: reboot",
    "nvml-unknown": "the container has lost its cards: restart it",
    "no-library": "the driver's library is missing: in a container, start it with --gpus all",
    "no-permission": "this user may not use the cards: look at the modes of /dev/nvidia*",
}
_TOOLS = ("tmux", "tar", "sftp", "git", "git-lfs", "nvcc", "ninja", "docker", "nvidia-ctk")


def lines(found: dict[str, Any], width: int) -> Iterator[str]:
    """Yield the lines that show the facts of a host."""
    system = found["system"]
    yield _head(found)
    for label, text in (
        ("system", _system(found)),
        ("cores", _cores(found["cores"])),
        ("memory", _memory(found)),
        *(("disk", text) for text in _disks(found["disks"])),
        *_cards(found["gpus"]),
        *_network(found),
        ("tools", _tools(found["tools"])),
        *_software(found),
        *(("other env", text) for text in _environments(found["environments"])),
        ("container", system.get("container")),
        *(("skipped", f"{name}: {why}") for name, why in found["skipped"].items()),
    ):
        if text:
            one_line = " ".join(text.split())
            first = f"{label:<{_LABEL}}  "
            yield from wrap(one_line, width, first, " " * len(first), break_words=True)


def _size(count: float | None) -> str:
    return "?" if count is None else size(count)


def _head(found: dict[str, Any]) -> str:
    age = found.get("age") or 0.0
    hostname = found["system"].get("hostname")
    name = found["host"] + (f" ({hostname})" if hostname and hostname != found["host"] else "")
    when = "now" if age < 1 else f"{brief_duration(age)} ago; --refresh asks anew"
    return f"{name}: asked {when}"


# -- the machine -----------------------------------------------------------------------------------


def _system(found: dict[str, Any]) -> str:
    system = found["system"]
    parts = [system.get("distribution"), f"{system.get('os')} {system.get('kernel')}",
             system.get("machine"), system.get("libc")]  # fmt: skip
    if system.get("uptime"):
        parts.append(f"up {brief_duration(system['uptime'])}")
    offset = found.get("clock_offset")
    if offset is not None and abs(offset) >= _CLOCKS_DIFFER:
        way = "ahead" if offset > 0 else "behind"
        parts.append(f"its clock is {brief_duration(abs(offset))} {way}")
    return ", ".join(str(part) for part in parts if part)


def _cores(cores: dict[str, Any]) -> str:
    text = f"{cores['usable']} usable of {cores['present']}"
    if cores["quota"]:
        text += f" (a cgroup allows {cores['quota']:g})"
    return text if cores["present"] else ""


def _memory(found: dict[str, Any]) -> str:
    memory = found["memory"]
    if memory["total"] is None:
        return ""
    text = f"{_size(memory['total'])}, {_size(memory['available'])} available"
    if memory["limit"] is not None:
        used = f", {_size(memory['used_of_limit'])} used" if memory["used_of_limit"] else ""
        text += f"; a cgroup allows {_size(memory['limit'])}{used}"
    return text


def _disks(disks: dict[str, dict[str, Any]]) -> Iterator[str]:
    shown: dict[tuple[Any, ...], list[str]] = {}
    for name, disk in disks.items():
        key = (disk.get("mount"), disk.get("free"))
        path = "/dev/shm" if name == "shm" else str(disk.get("path"))  # noqa: S108 - a path to show
        if path not in shown.setdefault(key, []):
            shown[key].append(path)
    by_key = {(disk.get("mount"), disk.get("free")): disk for disk in disks.values()}
    for key, paths in shown.items():
        disk = by_key[key]
        text = f"{', '.join(paths)}: {_size(disk['free'])} free of {_size(disk['total'])}"
        text += f" ({disk.get('type') or '?'} at {disk.get('mount') or '?'})"
        if disk.get("inodes") and disk["inodes_free"] * 20 < disk["inodes"]:
            text += f", only {disk['inodes_free']:,} inodes left"
        yield text + ("" if disk.get("writable") else ", not writable")


# -- cards -----------------------------------------------------------------------------------------


def _cards(gpus: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if gpus["count"] == 0:
        yield "gpus", "none" + (" (no nvidia-smi here)" if gpus["nvidia_smi"] is None else "")
    elif gpus["count"] is None:
        yield "gpus", "not known"
    yield from (("gpus", text) for text in _kinds(gpus["cards"]))
    if gpus["driver"]:
        newest = f", CUDA up to {gpus['cuda']}" if gpus["cuda"] else ""
        yield "driver", f"{gpus['driver']}{newest}"
    if gpus["source"] == "/proc":
        yield "gpus", "from /proc: nvidia-smi does not answer"
    yield "mig", _slices(gpus)
    yield from _joined(gpus)
    yield from _processes(gpus)
    yield from (("trouble", text) for text in _troubles(gpus))
    yield from (("gpus", f"{name} is there: {at}") for name, at in gpus["other_tools"].items())


def _kinds(cards: list[dict[str, Any]]) -> Iterator[str]:
    kinds = Counter((c["name"], c["memory_mib"], c["compute_capability"]) for c in cards)
    for (name, memory, capability), count in kinds.items():
        parts = [f"{count} x {name or 'a card without a name'}"]
        parts += [size(memory << 20)] if memory else []
        parts += [f"sm_{capability.replace('.', '')}"] if capability else []
        yield ", ".join(parts)


def _slices(gpus: dict[str, Any]) -> str:
    if gpus["slices"]:
        profiles = Counter(one["profile"] or "a slice" for one in gpus["slices"])
        return ", ".join(f"{count} x {name}" for name, count in profiles.items())
    is_cut = gpus["slices"] is not None and any(card["mig"] for card in gpus["cards"])
    return "on, without slices: no job can use such a card" if is_cut else ""


def _troubles(gpus: dict[str, Any]) -> Iterator[str]:
    for one in gpus["troubles"]:
        yield _TROUBLES.get(one["kind"], one["text"]) + f" (`{one['text'][:90]}`)"
    if not gpus["troubles"]:
        yield from (f"nvidia-smi, {name}: {why}" for name, why in gpus["late"].items())


def _joined(gpus: dict[str, Any]) -> Iterator[tuple[str, str]]:
    parts = []
    topology, peers, links = gpus["topology"], gpus["peers"], gpus["links"]
    if topology is not None and topology["fabric"] != "single":
        kinds = Counter(pair[2] for pair in topology["pairs"])
        ways = ", ".join(f"{count} pairs {kind}" for kind, count in kinds.items())
        parts.append(f"{topology['fabric']} ({ways})")
    if peers is not None and peers["of"]:
        parts.append(f"peer access for {peers['ok']} of {peers['of']} pairs")
    if any(link["state"] == "active" for link in links):
        parts.append(f"NVLink up on {sum(link['state'] == 'active' for link in links)} cards")
    manager = gpus["fabric_manager"] or {}
    if manager.get("switches"):
        state = "runs" if manager.get("running") else "is not seen to run"
        parts.append(f"{manager['switches']} NVSwitches, the fabric manager {state}")
    if parts:
        yield "joined", "; ".join(parts)


def _processes(gpus: dict[str, Any]) -> Iterator[tuple[str, str]]:
    found = gpus["processes"] or []
    for one in found[:_MOST_PROCESSES]:
        used = f", {size(one['used_mib'] << 20)}" if one["used_mib"] else ""
        user = one["user"] or "a user not seen from here"
        name = os.path.basename(str(one["name"] or "?"))
        yield "in use", f"card {one['card']}: {user}, process {one['pid']} ({name}){used}"
    if len(found) > _MOST_PROCESSES:
        yield "in use", f"and {len(found) - _MOST_PROCESSES} more; --json has them all"


# -- network and programs --------------------------------------------------------------------------


def _network(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    network = found["network"]
    out = {route["interface"] for route in network["routes"] if route["destination"] == "default"}
    texts = []
    for one in network["addresses"]:
        name, speed = one.get("interface"), one.get("speed")
        marks = [f"{speed / 1000:g} Gbit/s"] if speed else []
        marks += ["default route"] if name in out else []
        texts.append(f"{name} {one.get('address')}" + (f" ({', '.join(marks)})" if marks else ""))
    if texts:
        yield "network", "; ".join(texts)
    for device in network["infiniband"]:
        ports = [f"{p.get('link_layer')} {p.get('state')} {p.get('rate')}" for p in device["ports"]]
        yield "rdma", f"{device['name']}: {', '.join(ports) or 'no port'}"
    for name, value in network["proxies"].items():
        yield "proxy", f"{name}={value}"
    for path, text in found["nccl_conf"].items():
        yield "nccl conf", f"{path}: {'; '.join(text.split(chr(10))).strip('; ')[:300]}"


def _tools(tools: dict[str, Any]) -> str:
    if not tools:
        return ""
    there = [_tool(name, tools[name]) for name in _TOOLS if tools.get(name)]
    missing = [name for name in _TOOLS[:4] if not tools.get(name)]
    text = ", ".join(there)
    return text + (f"; missing: {', '.join(missing)}" if missing else "")


def _tool(name: str, told: dict[str, Any]) -> str:
    return f"{name} {told['version']}" if told.get("version") else name


def _software(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    python, torch = found["python"], found["torch"]
    if python is not None:
        yield "python", f"{python['version']} ({python['kind']}), {python['executable']}"
    if torch is not None:
        parts = [f"{torch['version']}, {_built(torch)}"]
        parts += [f"cuDNN {torch['cudnn']}"] if torch["cudnn"] else []
        parts += [f"for {' '.join(torch['archs'])}"] if torch["archs"] else []
        yield "torch", ", ".join(parts)
        nccl = torch["nccl"]
        if nccl:
            cuda = f", built with CUDA {nccl['cuda']}" if nccl["cuda"] else ""
            yield "nccl", f"{nccl['version']}{cuda}"
    if found["names"]:
        known = {n for names in found["names"].values() for n in names or ()}
        yield (
            "variables",
            f"{len(known)} NCCL_ and TORCH_ variables are known to the installed versions",
        )
    if python is not None:
        others = [f"{n} {v}" for n, v in python["training"].items() if n != "torch"]
        yield "packages", ", ".join(others)
    deep = found["deep"]
    if deep is not None:
        ready = f"{len(deep['devices'])} cards" if deep["available"] else "no card that it can use"
        yield "imported", f"torch {deep['version']} in {deep['seconds']:.1f} s: {ready}"


def _built(torch: dict[str, Any]) -> str:
    if torch["cuda"]:
        return f"CUDA {torch['cuda']}"
    return f"ROCm {torch['hip']}" if torch["hip"] else "no CUDA in it"


def _environments(found: list[dict[str, Any]]) -> Iterator[str]:
    useful = [one for one in found if one["packages"]]
    for one in useful[:_MOST_ENVIRONMENTS]:
        has = ", ".join(f"{name} {version}" for name, version in one["packages"].items())
        yield f"{one['prefix']} ({one['kind']}, Python {one['version'] or '?'}): {has}"
    if len(useful) > _MOST_ENVIRONMENTS:
        yield f"and {len(useful) - _MOST_ENVIRONMENTS} more; --json has them all"
