"""Facts of the machine that no card and no Python have a part in."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
import threading
import time

from safelaunch.runtime.facts import commands
from safelaunch.runtime.start import start_probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# name -> how it tells its version; None: that it is there is enough
_TOOLS: dict[str, list[str] | None] = {
    "tmux": ["-V"],
    "tar": ["--version"],
    "git": ["--version"],
    "git-lfs": ["--version"],
    "gcc": ["-dumpfullversion"],
    "nvcc": ["--version"],
    "ninja": ["--version"],
    "docker": ["--version"],
    "podman": ["--version"],
    "nvidia-ctk": ["--version"],
    "nvidia-container-runtime": None,
    "rsync": None,
    "conda": None,
    "uv": None,
    "srun": None,
    "ibstat": None,
}
_SFTP = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
    "/usr/lib/sftp-server",
)
_CUDA = ("/usr/local/cuda/bin", "/opt/cuda/bin")
_CGROUP = "/sys/fs/cgroup"
_V2 = ("memory.max", "memory.current", "cpu.max", "pids.max")
_V1 = {
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us"),
    "pids": ("pids.max",),
}
_CONFIGS = ("~/.nccl.conf", "/etc/nccl.conf")
# not compiled yet: a quick probe reads no environment
_NAMED = r"(NCCL|TORCH_NCCL|GLOO|CUDA|NVIDIA|HIP|ROCR|HF|TRANSFORMERS)_[A-Z0-9_]+$"
_HIDDEN = r"(?i)TOKEN|KEY|SECRET|PASSW"
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_SPARE = 1 << 14


def parts(cwd: str) -> dict[str, Callable[[], Any]]:
    """Return the parts of this module: name -> what finds it."""
    found: dict[str, Callable[[], Any]] = {
        "system": system,
        "cgroup": cgroup,
        "tools": tools,
        "network": network,
        "config": config,
        "environ": environ,
    }
    home = os.path.expanduser("~")
    for name, path in (("home", home), ("cwd", cwd), ("tmp", "/tmp"), ("shm", "/dev/shm")):  # noqa: S108
        found["disk." + name] = functools.partial(disk, path)
    return found


def system() -> dict[str, Any]:
    """Return kernel, distribution, cores, memory, limits of processes, user and clock."""
    name = os.uname()
    try:
        allowed = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        allowed = os.cpu_count() or 1
    return {
        "hostname": name.nodename,
        "kernel": name.release,
        "os": name.sysname,
        "machine": name.machine,
        "os_release": _os_release(),
        "libc": _libc(),
        "cores": os.cpu_count(),
        "allowed_cores": allowed,
        "usable_cores": start_probe.usable_cores(),
        "meminfo": commands.read("/proc/meminfo", _SPARE),
        "user": _user(),
        "home": os.path.expanduser("~"),
        "shell": os.environ.get("SHELL"),
        "limits": _limits(),
        "uptime": commands.read("/proc/uptime", 64).split(" ")[0],
        "boot_id": commands.read("/proc/sys/kernel/random/boot_id", 64).strip(),
        "container": _container(),
        "now": time.time(),
    }


def _os_release() -> str:
    return commands.read("/etc/os-release", _SPARE) or commands.read("/usr/lib/os-release", _SPARE)


def _libc() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, OSError, ValueError):
        return None


def _user() -> str:
    try:
        import pwd  # noqa: PLC0415 - Python may be built without it

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return str(os.getuid())


def _limits() -> dict[str, list[int]]:
    """Return soft and hard limits; -1 is none."""
    try:
        import resource  # noqa: PLC0415 - Python may be built without it
    except ImportError:
        return {}
    names = {"files": "RLIMIT_NOFILE", "processes": "RLIMIT_NPROC", "locked": "RLIMIT_MEMLOCK"}
    return {
        name: list(resource.getrlimit(getattr(resource, constant)))
        for name, constant in names.items()
        if hasattr(resource, constant)
    }


def _container() -> str | None:
    """Return what kind of container this is in, if it can be seen."""
    for path, name in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman")):
        if os.path.exists(path):
            return name
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    return os.environ.get("container") or None  # noqa: SIM112 - systemd-nspawn, lxc


def cgroup() -> dict[str, str]:
    """Return {path: text} of the limits of this process's cgroups and all above them."""
    found: dict[str, str] = {}
    text = commands.read("/proc/self/cgroup", _SPARE)
    if not text:
        raise commands.Skip("/proc/self/cgroup cannot be read")
    for line in text.splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0":
            _upwards(_CGROUP, path, _V2, found)
        for controller in controllers.split(","):
            if controller in _V1:
                for root in (controller, controllers):
                    _upwards(os.path.join(_CGROUP, root), path, _V1[controller], found)
    return found


def _upwards(root: str, path: str, names: tuple[str, ...], found: dict[str, str]) -> None:
    parts = [part for part in path.split("/") if part and part != ".."]
    for depth in range(len(parts), -1, -1):
        for name in names:
            file = os.path.join(root, *parts[:depth], name)
            text = commands.read(file, 256)
            if text:
                found.setdefault(file, text)


def disk(path: str) -> dict[str, Any]:
    """Return the room on the file system of a folder, in bytes and inodes, and what it is."""
    # the table of mounts first: it is read without touching a file system that may hang
    mount = _mount(os.path.realpath(path))
    try:
        found = os.statvfs(path)
    except OSError as e:
        raise commands.Skip(f"{path}: {e.strerror}") from e
    return {
        "path": path,
        "mount": mount.get("mount"),
        "type": mount.get("type"),
        "source": mount.get("source"),
        "total": found.f_blocks * found.f_frsize,
        "free": found.f_bavail * found.f_frsize,
        "inodes": found.f_files or None,  # btrfs and some network file systems have no number
        "inodes_free": found.f_favail if found.f_files else None,
        "writable": os.access(path, os.W_OK) and not found.f_flag & os.ST_RDONLY,
        "noexec": bool(found.f_flag & getattr(os, "ST_NOEXEC", 8)),
    }


def _mount(path: str) -> dict[str, str]:
    best: dict[str, str] = {}
    for line in commands.read("/proc/self/mountinfo", 1 << 20).splitlines():
        before, _, after = line.partition(" - ")
        fields, more = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(more) < 2:  # noqa: PLR2004 - proc(5)
            continue
        at = fields[4].replace("\\040", " ").replace("\\134", "\\")
        inside = path == at or path.startswith(at.rstrip("/") + "/")
        if inside and len(at) >= len(best.get("mount", "")):  # a later mount hides an earlier one
            best = {"mount": at, "type": more[0], "source": more[1]}
    return best


def tools() -> dict[str, Any]:
    """Return {name: {"path", "version"}} of the programs that starts and builds use."""
    found: dict[str, Any] = {}

    def run_tool(name: str, words: list[str] | None) -> None:
        extra = [os.path.join(os.path.dirname(sys.executable), name)]  # of the environment
        if name == "nvcc":
            extra += [os.path.join(folder, name) for folder in _cuda_homes()]
        path = shutil.which(name) or next((p for p in extra if os.access(p, os.X_OK)), None)
        if path is None:
            found[name] = None
            return
        told = {"path": path, "version": None}
        found[name] = told
        if words:
            said = commands.run([path, *words], 5.0)
            told["version"] = _version(name, said["text"])
            if said.get("why"):
                found[name] = dict(told, why=said["why"])

    threads = [threading.Thread(target=run_tool, args=item, daemon=True) for item in _TOOLS.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(6.0)
    sftp = next((path for path in _SFTP if os.path.exists(path)), None)
    told = dict(found, sftp={"path": sftp, "version": None} if sftp else None)
    return dict(told, cuda_home=_cuda_home())


def _cuda_homes() -> list[str]:
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    return [os.path.join(home, "bin") for home in homes if home] + list(_CUDA)


def _cuda_home() -> dict[str, Any]:
    given = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    path = given or "/usr/local/cuda"
    match = re.search(r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([\d.]+)"',
                      commands.read(os.path.join(path, "version.json"), _SPARE))  # fmt: skip
    return {
        "given": given,
        "path": path if os.path.isdir(path) else None,
        "version": match.group(1) if match else None,
    }


def _version(name: str, text: str) -> str | None:
    pattern = r"release (\d+\.\d+)" if name == "nvcc" else r"(\d+(?:\.\d+)+\w*)"
    match = re.search(pattern, text)
    return match.group(1) if match else None


def network() -> dict[str, Any]:
    """Return addresses, the routing table, InfiniBand devices and the names of proxies."""
    from safelaunch.runtime.agent import network as agent_network  # noqa: PLC0415 - sockets

    try:
        addresses = agent_network.addresses()
    except (OSError, ImportError, ValueError) as e:
        raise commands.Skip(f"the interfaces cannot be listed: {e}") from e
    proxies = {}
    for name in _PROXIES:
        value = os.environ.get(name) or os.environ.get(name.upper())
        if value:  # it may hold a password
            proxies[name] = re.sub(r"//[^/@]*@", "//***@", value)
    return {
        "addresses": addresses,
        "links": {name: _link(name) for name in commands.folders("/sys/class/net")[:64]},
        "routes": commands.read("/proc/net/route", 1 << 16),
        "infiniband": [
            _infiniband(name) for name in commands.folders("/sys/class/infiniband")[:64]
        ],
        "proxies": proxies,
    }


def _link(name: str) -> dict[str, str]:
    folder = os.path.join("/sys/class/net", name)
    return {
        "state": commands.read(os.path.join(folder, "operstate"), 64).strip(),
        "mtu": commands.read(os.path.join(folder, "mtu"), 64).strip(),
    }


def _infiniband(name: str) -> dict[str, Any]:
    folder = os.path.join("/sys/class/infiniband", name)
    ports = []
    for port in commands.folders(os.path.join(folder, "ports"))[:8]:
        place = os.path.join(folder, "ports", port)
        told = {key: commands.read(os.path.join(place, key), 64).strip()
                for key in ("state", "rate", "link_layer")}  # fmt: skip
        ports.append(dict(told, port=port))
    return {
        "name": name,
        "ports": ports,
        "interfaces": commands.folders(os.path.join(folder, "device", "net")),
    }


def config() -> dict[str, str]:
    """Return {path: text} of NCCL's own configuration files that are there."""
    given = os.environ.get("NCCL_CONF_FILE")
    paths = [os.path.expanduser(path) for path in ([given] if given else []) + list(_CONFIGS)]
    return {path: commands.read(path, 1 << 16) for path in paths if os.path.isfile(path)}


def environ() -> dict[str, str]:
    """Return the variables that a login has set and that decide over training."""
    return {
        name: "***" if re.search(_HIDDEN, name) else value[:1000]
        for name, value in sorted(os.environ.items())
        if re.match(_NAMED, name) or name in ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH")
    }
