"""Asks the tools of cards, and /proc where they do not answer. What they say is read elsewhere."""

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
    """Return what nvidia-smi says to each question, and what the driver says in /proc."""
    found: dict[str, Any] = {"proc": _proc(), "fabric_manager": _fabric_manager(), "said": {}}
    smi = find("nvidia-smi", _PLACES)
    found["nvidia_smi"] = smi
    if smi is None:
        return found
    said: dict[str, Any] = found["said"]
    said["query"] = _query(smi)
    if not _answers(said["query"]):
        return found  # the others would only hang, or say the same

    def one(name: str, words: list[str]) -> None:
        told = dict(commands.run([smi, *words]), command="nvidia-smi " + " ".join(words))
        said[name] = told

    threads = [threading.Thread(target=one, args=item, daemon=True) for item in _MORE.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(commands.LIMIT + 1)
    found["users"] = _users(dict(said))
    return found


def seen() -> dict[str, Any]:
    """Return what is known of the cards without a word to the driver."""
    return {"proc": _proc(), "nvidia_smi": find("nvidia-smi", _PLACES), "said": {}}


def _answers(told: dict[str, Any]) -> bool:
    """Whether a card was told of: 14 is a warning, and rows may stand beside an error."""
    if told.get("why"):
        return False
    is_row = re.search(r"^\s*\d+, ", told["text"], re.MULTILINE) is not None
    return is_row or told["exit"] in (0, 14)


def _query(smi: str) -> dict[str, Any]:
    """Ask for the cards; a field that this driver does not know is left out."""
    fields = list(_FIELDS)
    for _ in _FIELDS:
        words = ["--query-gpu=" + ",".join(fields), "--format=csv"]
        told = dict(commands.run([smi, *words]), command="nvidia-smi " + " ".join(words))
        unknown = re.search(r'Field "([\w.]+)" is not a valid field', told["text"])
        if unknown is None or unknown.group(1) not in fields:
            break
        fields.remove(unknown.group(1))
    return told


def find(name: str, places: list[str] | tuple[str, ...]) -> str | None:
    """Return the path of a tool, also where PATH does not lead."""
    return shutil.which(name) or next((p for p in places if os.access(p, os.X_OK)), None)


def _proc() -> dict[str, Any]:
    """Return what is known without asking the driver to do anything."""
    folder = os.path.join(_PROC, "gpus")
    told = {bus: commands.read(os.path.join(folder, bus, "information"), 1 << 14)
            for bus in commands.folders(folder)}  # fmt: skip
    devices = [name for name in commands.folders("/dev") if re.match(r"nvidia\d+$", name)]
    return {
        "version": commands.read(_PROC + "/version", 1 << 14),
        "cards": told,
        "devices": devices,
    }


def _fabric_manager() -> dict[str, Any]:
    """Return whether NVSwitches are seen, and the process that makes them usable."""
    switches = [n for n in commands.folders("/dev") if re.match(r"nvidia-nvswitch\d+$", n)]
    switches = switches or commands.folders("/proc/driver/nvidia-nvswitch/devices")
    running = any(
        commands.read("/proc/%s/comm" % pid, 64).startswith("nv-fabricmanage")
        for pid in commands.folders("/proc")
        if pid.isdigit()
    )
    return {"switches": len(switches), "running": running}


def _users(said: dict[str, Any]) -> dict[str, str | None]:
    """Return {pid: user} of the processes on the cards; None for one that is not seen from here."""
    text = said.get("xml", {}).get("text", "")
    pids = re.findall(r"<pid>(\d+)</pid>", text)
    pids += re.findall(r"^(\d+), GPU-", said.get("apps", {}).get("text", ""), re.MULTILINE)
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
