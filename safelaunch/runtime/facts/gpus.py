"""Runs the tools of GPUs, and reads /proc where they hang. Their output is parsed elsewhere."""

from __future__ import annotations

import os
import re
import shutil

from safelaunch.runtime.facts import commands
from safelaunch.runtime.monitor import gpu_sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_FIELDS = ["index", "name", "uuid", "pci.bus_id", "memory.total", "memory.used", "driver_version",
           "compute_cap", "mig.mode.current", "utilization.gpu"]  # fmt: skip
_APPS = "--query-compute-apps=pid,gpu_uuid,used_memory,process_name"
_COMMANDS = {
    "xml": ["-q", "-x"],
    "list": ["-L"],
    "topology": ["topo", "-m"],
    "peers": ["topo", "-p2p", "r"],
    "links": ["nvlink", "-s"],
    "link_errors": ["nvlink", "-e"],
    "apps": [_APPS, "--format=csv"],
}
_PROC = "/proc/driver/nvidia"
# tools of other makers: where they are beside PATH, and what makes them list their devices
_OTHERS = {
    "amd-smi": (["/opt/rocm/bin/amd-smi"], ["static", "--asic", "--bus", "--vram"]),
    "rocm-smi": (["/opt/rocm/bin/rocm-smi"], ["--showproductname", "--showmeminfo", "vram"]),
    "npu-smi": (
        ["/usr/local/Ascend/driver/tools/npu-smi", "/usr/local/sbin/npu-smi"], ["info"],
    ),
    "mx-smi": (["/opt/mxdriver/bin/mx-smi"], []),
}  # fmt: skip


def cards() -> dict[str, Any]:
    """Return the output of each nvidia-smi command, and the driver's files in /proc."""
    facts = {"fabric_manager": _fabric_manager(), **without_driver()}
    smi, outputs = facts["nvidia_smi"], facts["said"]
    if smi is None:
        return facts
    query = outputs["query"] = _query(smi)
    # 14 is a warning, and rows may come with an error
    has_rows = re.search(r"^\s*\d+, ", query["text"], re.MULTILINE) or query["exit"] in (0, 14)
    if query["why"] or not has_rows:
        return facts  # the other commands would hang or fail too

    def run_command(name: str, words: list[str]) -> None:
        outputs[name] = _run(smi, words)

    commands.in_threads(run_command, _COMMANDS, commands.LIMIT + 1)
    facts["users"] = _users(dict(outputs))
    return facts


def without_driver() -> dict[str, Any]:
    """Return the facts about GPUs that need no call of the driver."""
    return {"proc": _proc(), "nvidia_smi": find("nvidia-smi", gpu_sources.NVIDIA_SMI), "said": {}}


def peer_access() -> dict[str, Any]:
    """Return which pairs of GPUs have peer access, in the words of nvidia-smi."""
    facts = without_driver()
    if facts["nvidia_smi"] is not None:
        facts["said"]["peers"] = _run(facts["nvidia_smi"], _COMMANDS["peers"])
    return facts


def _run(smi: str, words: list[str]) -> dict[str, Any]:
    return dict(vars(commands.run([smi, *words])), command="nvidia-smi " + " ".join(words))


def _query(smi: str) -> dict[str, Any]:
    """Query the GPUs, without the fields that this driver does not support."""
    fields = list(_FIELDS)
    while True:
        output = _run(smi, ["--query-gpu=" + ",".join(fields), "--format=csv"])
        unknown = re.search(r'Field "([\w.]+)" is not a valid field', output["text"])
        if unknown is None or unknown.group(1) not in fields:
            return output
        fields.remove(unknown.group(1))


def find(name: str, paths: Sequence[str]) -> str | None:
    """Return the path of a tool, on PATH or else one of these."""
    return shutil.which(name) or next((path for path in paths if os.access(path, os.X_OK)), None)


def _proc() -> dict[str, Any]:
    """Return what is known without asking the driver to do anything."""
    folder = os.path.join(_PROC, "gpus")
    return {
        "version": commands.read(_PROC + "/version", 1 << 14),
        "cards": {
            bus: commands.read(os.path.join(folder, bus, "information"), 1 << 14)
            for bus in commands.folders(folder)
        },
        "devices": _devices(r"nvidia\d+$"),
    }


def _devices(pattern: str) -> list[str]:
    return [name for name in commands.folders("/dev") if re.match(pattern, name)]


def _fabric_manager() -> dict[str, Any]:
    """Return whether NVSwitches are seen, and the process that makes them usable."""
    switches = _devices(r"nvidia-nvswitch\d+$")
    switches = switches or commands.folders("/proc/driver/nvidia-nvswitch/devices")
    running = any(
        commands.read(f"/proc/{pid}/comm", 64).startswith("nv-fabricmanage")
        for pid in commands.folders("/proc")
        if pid.isdigit()
    )
    return {"switches": len(switches), "running": running}


def _users(outputs: dict[str, Any]) -> dict[str, str | None]:
    """Return {pid: user} of the processes on the GPUs; None for one that is not seen from here."""
    xml, apps = (outputs.get(name, {}).get("text", "") for name in ("xml", "apps"))
    pids = re.findall(r"<pid>(\d+)</pid>", xml)
    pids += re.findall(r"^(\d+), GPU-", apps, re.MULTILINE)
    return {pid: _user("/proc/" + pid) for pid in pids[:1000]}


def _user(path: str) -> str | None:
    try:
        return commands.user_name(os.stat(path).st_uid)
    except OSError:
        return None


def others() -> dict[str, dict[str, Any]]:
    """Return where the tools of other makers are, and what they print of their devices."""
    tools: dict[str, dict[str, Any]] = {}
    for name, (paths, words) in _OTHERS.items():
        path = find(name, paths)
        if path is None:
            continue
        tools[name] = {"path": path}
        # amd-smi of an older ROCm than the driver lists no GPU, and rocm-smi does
        is_listed = re.search(r"^GPU: \d", str(tools.get("amd-smi", {}).get("text")), re.MULTILINE)
        if words and not (name == "rocm-smi" and is_listed):
            output = commands.run([path, *words])
            tools[name] = dict(vars(output), path=path, command=" ".join([name, *words]))
    return tools
