"""Runs the tools of GPUs, and reads /proc where they hang. Their output is parsed elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import threading

from safelaunch.runtime.facts import commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FIELDS = ["index", "name", "uuid", "pci.bus_id", "memory.total", "memory.used", "driver_version",
           "compute_cap", "mig.mode.current", "utilization.gpu"]  # fmt: skip
_APPS = "--query-compute-apps=pid,gpu_uuid,used_memory,process_name"
_MORE = {
    "xml": ["-q", "-x"],
    "list": ["-L"],
    "topology": ["topo", "-m"],
    "peers": ["topo", "-p2p", "r"],
    "links": ["nvlink", "-s"],
    "apps": [_APPS, "--format=csv"],
}
# on WSL it is not on the PATH of a login without a terminal
_PLACES = ("/usr/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "/opt/bin/nvidia-smi",
           "/usr/local/nvidia/bin/nvidia-smi")  # fmt: skip
_PROC = "/proc/driver/nvidia"
_OTHERS = {
    "rocm-smi": ["/opt/rocm/bin/rocm-smi"],
    "amd-smi": ["/opt/rocm/bin/amd-smi"],
    "npu-smi": ["/usr/local/Ascend/driver/tools/npu-smi", "/usr/local/sbin/npu-smi"],
    "mx-smi": ["/opt/mxdriver/bin/mx-smi"],
}


def cards() -> dict[str, Any]:
    """Return the output of each nvidia-smi command, and the driver's files in /proc."""
    facts: dict[str, Any] = {"proc": _proc(), "fabric_manager": _fabric_manager(), "said": {}}
    smi = find("nvidia-smi", _PLACES)
    facts["nvidia_smi"] = smi
    if smi is None:
        return facts
    outputs: dict[str, Any] = facts["said"]
    outputs["query"] = _query(smi)
    if not _answers(outputs["query"]):
        return facts  # the other commands would hang or fail too

    def run_command(name: str, words: list[str]) -> None:
        result = dict(commands.run([smi, *words]), command="nvidia-smi " + " ".join(words))
        outputs[name] = result

    threads = [
        threading.Thread(target=run_command, args=item, daemon=True) for item in _MORE.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(commands.LIMIT + 1)
    facts["users"] = _users(dict(outputs))
    return facts


def without_driver() -> dict[str, Any]:
    """Return the facts about GPUs that need no call of the driver."""
    return {"proc": _proc(), "nvidia_smi": find("nvidia-smi", _PLACES), "said": {}}


def _answers(result: dict[str, Any]) -> bool:
    """Return whether the output has a GPU: 14 is a warning, and rows may come with an error."""
    if result.get("why"):
        return False
    is_row = re.search(r"^\s*\d+, ", result["text"], re.MULTILINE) is not None
    return is_row or result["exit"] in (0, 14)


def _query(smi: str) -> dict[str, Any]:
    """Query the GPUs, without the fields that this driver does not support."""
    fields = list(_FIELDS)
    for _ in _FIELDS:
        words = ["--query-gpu=" + ",".join(fields), "--format=csv"]
        result = dict(commands.run([smi, *words]), command="nvidia-smi " + " ".join(words))
        unknown = re.search(r'Field "([\w.]+)" is not a valid field', result["text"])
        if unknown is None or unknown.group(1) not in fields:
            break
        fields.remove(unknown.group(1))
    return result


def find(name: str, places: list[str] | tuple[str, ...]) -> str | None:
    """Return the path of a tool, on PATH or in one of the `places`."""
    return shutil.which(name) or next((p for p in places if os.access(p, os.X_OK)), None)


def _proc() -> dict[str, Any]:
    """Return what is known without asking the driver to do anything."""
    folder = os.path.join(_PROC, "gpus")
    result = {bus: commands.read(os.path.join(folder, bus, "information"), 1 << 14)
            for bus in commands.folders(folder)}  # fmt: skip
    devices = [name for name in commands.folders("/dev") if re.match(r"nvidia\d+$", name)]
    return {
        "version": commands.read(_PROC + "/version", 1 << 14),
        "cards": result,
        "devices": devices,
    }


def _fabric_manager() -> dict[str, Any]:
    """Return whether NVSwitches are seen, and the process that makes them usable."""
    switches = [n for n in commands.folders("/dev") if re.match(r"nvidia-nvswitch\d+$", n)]
    switches = switches or commands.folders("/proc/driver/nvidia-nvswitch/devices")
    running = any(
        commands.read(f"/proc/{pid}/comm", 64).startswith("nv-fabricmanage")
        for pid in commands.folders("/proc")
        if pid.isdigit()
    )
    return {"switches": len(switches), "running": running}


def _users(outputs: dict[str, Any]) -> dict[str, str | None]:
    """Return {pid: user} of the processes on the cards; None for one that is not seen from here."""
    text = outputs.get("xml", {}).get("text", "")
    pids = re.findall(r"<pid>(\d+)</pid>", text)
    pids += re.findall(r"^(\d+), GPU-", outputs.get("apps", {}).get("text", ""), re.MULTILINE)
    return {pid: _user("/proc/" + pid) for pid in pids[:1000]}


def _user(path: str) -> str | None:
    try:
        uid = os.stat(path).st_uid
    except OSError:
        return None
    try:
        import pwd  # noqa: PLC0415 - Python may be built without it

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return str(uid)


def others() -> dict[str, str | None]:
    """Return where the tools of other vendors are."""
    return {name: find(name, places) for name, places in _OTHERS.items()}
