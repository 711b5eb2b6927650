"""Facts of the machine that concern neither its GPUs nor a Python."""

# ruff: noqa: PLC0415 - resource: Python may be built without it; network: sockets

from __future__ import annotations

import functools
import os
import re
import sys
import time

from safelaunch.runtime.facts import commands, gpus
from safelaunch.runtime.start import start_probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# name -> its option for the version; "": that it is there is enough
_TOOLS = {
    "tmux": "-V",
    "gcc": "-dumpfullversion",
    "clang": "",
    **dict.fromkeys(("tar", "git", "git-lfs", "nvcc", "ninja", "docker", "podman"), "--version"),
    "nvidia-ctk": "--version",
    **dict.fromkeys(("nvidia-container-runtime", "rsync", "conda", "uv", "srun", "ibstat"), ""),
}
_SFTP = ("lib/openssh", "libexec/openssh", "lib/ssh", "libexec", "lib")  # below /usr
_CUDA = ("/usr/local/cuda/bin", "/opt/cuda/bin")
_CGROUP = "/sys/fs/cgroup"
_V2 = ("memory.max", "memory.current", "cpu.max", "pids.max")
_V1 = {
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us"),
    "pids": ("pids.max",),
}
# not compiled yet: a quick probe reads no environment
_NAMED = r"(NCCL|TORCH_NCCL|GLOO|CUDA|NVIDIA|HIP|ROCR|HF|TRANSFORMERS)_[A-Z0-9_]+$"
_HIDDEN = r"(?i)TOKEN|KEY|SECRET|PASSW"
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_SPARE = 1 << 14


def parts(cwd: str) -> dict[str, Callable[[], Any]]:
    """Return {part: function} of this module."""
    folders = {"home": os.path.expanduser("~"), "cwd": cwd, "tmp": "/tmp", "shm": "/dev/shm"}  # noqa: S108
    return {
        "system": system,
        "cgroup": cgroup,
        "tools": tools,
        "network": network,
        "config": config,
        "environ": environ,
        **{"disk." + name: functools.partial(disk, path) for name, path in folders.items()},
    }


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
        "os_release": commands.read("/etc/os-release", _SPARE)
        or commands.read("/usr/lib/os-release", _SPARE),
        "libc": _libc(),
        "cores": os.cpu_count(),
        "allowed_cores": allowed,
        "usable_cores": start_probe.usable_cores(),
        "meminfo": commands.read("/proc/meminfo", _SPARE),
        "user": commands.user_name(os.getuid()),
        "home": os.path.expanduser("~"),
        "shell": os.environ.get("SHELL"),
        "limits": _limits(),
        "uptime": commands.read("/proc/uptime", 64).split(" ")[0],
        "boot_id": commands.read("/proc/sys/kernel/random/boot_id", 64).strip(),
        "container": _container(),
        "now": time.time(),
    }


def _libc() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, OSError, ValueError):
        return None


def _limits() -> dict[str, list[int]]:
    """Return soft and hard limits; -1 is none."""
    try:
        import resource
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
    limits: dict[str, str] = {}
    text = commands.read("/proc/self/cgroup", _SPARE)
    if not text:
        raise commands.Skip("/proc/self/cgroup cannot be read")
    for line in text.splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0":
            _add_limits(_CGROUP, path, _V2, limits)
        for controller in controllers.split(","):
            if controller in _V1:
                for root in (controller, controllers):
                    _add_limits(os.path.join(_CGROUP, root), path, _V1[controller], limits)
    return limits


def _add_limits(root: str, path: str, names: tuple[str, ...], limits: dict[str, str]) -> None:
    """Add the limits of a cgroup and of those above it."""
    folders = [folder for folder in path.split("/") if folder and folder != ".."]
    for depth in range(len(folders), -1, -1):
        for name in names:
            file = os.path.join(root, *folders[:depth], name)
            text = commands.read(file, 256)
            if text:
                limits.setdefault(file, text)


def disk(path: str) -> dict[str, Any]:
    """Return the room on the file system of a folder, in bytes and inodes, and what it is."""
    # the table of mounts first: it is read without touching a file system that may hang
    mount = _mount(os.path.realpath(path))
    try:
        stat = os.statvfs(path)
    except OSError as e:
        raise commands.Skip(f"{path}: {e.strerror}") from e
    return {
        "path": path,
        **mount,
        "total": stat.f_blocks * stat.f_frsize,
        "free": stat.f_bavail * stat.f_frsize,
        "inodes": stat.f_files or None,  # btrfs and some network file systems have no number
        "inodes_free": stat.f_favail if stat.f_files else None,
        "writable": os.access(path, os.W_OK) and not stat.f_flag & os.ST_RDONLY,
        "noexec": bool(stat.f_flag & getattr(os, "ST_NOEXEC", 8)),
    }


def _mount(path: str) -> dict[str, str | None]:
    """Return mount point, type and source of the file system of a path."""
    best: tuple[str | None, ...] = (None, None, None)
    for line in commands.read("/proc/self/mountinfo", 1 << 20).splitlines():
        before, _, after = line.partition(" - ")
        fields, more = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(more) < 2:  # noqa: PLR2004 - proc(5)
            continue
        mount = fields[4].replace("\\040", " ").replace("\\134", "\\")
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best[0] or ""):  # a later mount hides an earlier one
            best = (mount, more[0], more[1])
    return dict(zip(("mount", "type", "source"), best))  # noqa: B905 - Python 3.8


def tools() -> dict[str, Any]:
    """Return {name: {"path", "version"}} of the programs that starts and builds use."""
    facts: dict[str, Any] = {}
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")

    def run_tool(name: str, option: str) -> None:
        folders = [os.path.dirname(sys.executable)]  # of the environment
        if name == "nvcc":
            homes = [os.environ.get(variable) for variable in ("CUDA_HOME", "CUDA_PATH")]
            folders += [os.path.join(home, "bin") for home in homes if home] + list(_CUDA)
        path = gpus.find(name, [os.path.join(folder, name) for folder in folders])
        facts[name] = None if path is None else {"path": path, "version": None}
        if path is not None and option:
            output = commands.run([path, option], 5.0)
            pattern = r"release (\d+\.\d+)" if name == "nvcc" else r"(\d+(?:\.\d+)+\w*)"
            match = re.search(pattern, output.text)
            fact = {"path": path, "version": match.group(1) if match else None}
            facts[name] = dict(fact, why=output.why) if output.why else fact

    commands.in_threads(run_tool, _TOOLS, 6.0)
    servers = [f"/usr/{folder}/sftp-server" for folder in _SFTP]
    sftp = next((path for path in servers if os.path.exists(path)), None)
    path = home or "/usr/local/cuda"
    match = re.search(r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([\d.]+)"',
                      commands.read(os.path.join(path, "version.json"), _SPARE))  # fmt: skip
    cuda_home = {
        "given": home,
        "path": path if os.path.isdir(path) else None,
        "version": match.group(1) if match else None,
    }
    return dict(facts, sftp={"path": sftp, "version": None} if sftp else None, cuda_home=cuda_home)


def network() -> dict[str, Any]:
    """Return addresses, the routing table, InfiniBand devices and the names of proxies."""
    from safelaunch.runtime.start import network_cards

    try:
        addresses = network_cards.addresses()
    except (OSError, ImportError, ValueError) as e:
        raise commands.Skip(f"the interfaces cannot be listed: {e}") from e
    proxies = {}
    for name in _PROXIES:
        value = os.environ.get(name) or os.environ.get(name.upper())
        if value:  # it may hold a password
            proxies[name] = re.sub(r"//[^/@]*@", "//***@", value)
    interfaces, infiniband = "/sys/class/net", "/sys/class/infiniband"
    return {
        "addresses": addresses,
        "links": {
            name: _values(os.path.join(interfaces, name), {"state": "operstate", "mtu": "mtu"})
            for name in commands.folders(interfaces)[:64]
        },
        "routes": commands.read("/proc/net/route", 1 << 16),
        "infiniband": [
            _infiniband(name, os.path.join(infiniband, name))
            for name in commands.folders(infiniband)[:64]
        ],
        "proxies": proxies,
    }


def _values(folder: str, names: dict[str, str]) -> dict[str, str]:
    """Return {key: text of a small file}."""
    return {
        key: commands.read(os.path.join(folder, name), 64).strip() for key, name in names.items()
    }


def _infiniband(name: str, folder: str) -> dict[str, Any]:
    ports = os.path.join(folder, "ports")
    keys = {key: key for key in ("state", "rate", "link_layer")}
    return {
        "name": name,
        "ports": [
            {**_values(os.path.join(ports, port), keys), "port": port}
            for port in commands.folders(ports)[:8]
        ],
        "interfaces": commands.folders(os.path.join(folder, "device", "net")),
    }


def config() -> dict[str, str]:
    """Return {path: text} of NCCL's own configuration files that are there."""
    paths = [os.environ.get("NCCL_CONF_FILE"), "~/.nccl.conf", "/etc/nccl.conf"]
    files = [os.path.expanduser(path) for path in paths if path]
    return {path: commands.read(path, 1 << 16) for path in files if os.path.isfile(path)}


def environ() -> dict[str, str]:
    """Return the variables that a login has set and that decide over training."""
    return {
        name: "***" if re.search(_HIDDEN, name) else value[:1000]
        for name, value in sorted(os.environ.items())
        if re.match(_NAMED, name) or name in ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH")
    }
