"""Run by the job's own interpreter before a start: `python -I -S -c <this text> PORT_SEED ...`.

Prints a line each: version, usable cores, GPUs, a free port, executable. Where packages are named
behind the job's folder and PYTHONPATH (`SEED CWD PYTHONPATH PACKAGE...`), also their versions. It
must run on any Python 3, so that a version that is too old gets a message, not a SyntaxError. The
supervisor imports it for the port of a later attempt, and a start for `report`, where it has the
facts of the interpreter already.
"""

import os
import sys

try:
    import _socket as socket  # without the layers of the module, which cost a third of this run
except ImportError:
    import socket  # type: ignore[no-redef]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# what only the interpreter itself can say, and says each time, while its files stay as they are
FACTS = ("version", "executable", "base_prefix", "platlibdir", "library")


def usable_cores() -> int:
    """Return the cores that this process may use: affinity mask and cgroup quota, at least 1."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    quota = cgroup_quota()
    return max(1, min(cores, int(quota)) if quota else cores)


def cgroup_quota() -> "float | None":
    """Return the smallest CPU quota on the way up the cgroup tree, in cores, or None."""
    quotas = []  # type: list[float]
    for line in read("/proc/self/cgroup").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0":
            quotas += quotas_up("/sys/fs/cgroup", path, v2_quota)
        elif "cpu" in controllers.split(","):
            for root in ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"):
                quotas += quotas_up(root, path, v1_quota)
    return min(quotas) if quotas else None


def quotas_up(root: str, path: str, quota_of: "Callable[[str], float | None]") -> "list[float]":
    """Return the quotas of a cgroup and its parents, the root (a container's own) included."""
    quotas, parts = [], [p for p in path.split("/") if p and p != ".."]
    for depth in range(len(parts), -1, -1):
        quota = quota_of(os.path.join(root, *parts[:depth]))
        if quota:
            quotas.append(quota)
    return quotas


def v2_quota(folder: str) -> "float | None":
    """Return the quota of a cgroup v2 folder in cores, or None."""
    fields = read(os.path.join(folder, "cpu.max")).split()
    if len(fields) == 2 and fields[0] != "max":  # noqa: PLR2004 - quota and period
        return max(float(fields[0]) / float(fields[1]), 1e-9)
    return None


def v1_quota(folder: str) -> "float | None":
    """Return the quota of a cgroup v1 folder in cores, or None."""
    quota = read(os.path.join(folder, "cpu.cfs_quota_us")).strip()
    period = read(os.path.join(folder, "cpu.cfs_period_us")).strip()
    if quota and period and int(quota) > 0:
        return float(quota) / float(period)
    return None


def read(path: str) -> str:
    """Return the text of a small file, or an empty text."""
    try:
        with open(path) as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""


def gpus(root: str = "/") -> int:
    """Return how many GPUs of NVIDIA the driver shows, else of AMD, else NPUs of Huawei."""
    nvidia = len(names(os.path.join(root, "proc/driver/nvidia/gpus")))
    return nvidia or amd_gpus(root) or len(npus(root))


def amd_gpus(root: str) -> int:
    """Return how many nodes AMD's kernel driver has that are GPUs: a CPU has no SIMD units."""
    folder = os.path.join(root, "sys/class/kfd/kfd/topology/nodes")
    count = 0
    for name in names(folder):
        fields = read(os.path.join(folder, name, "properties")).split()
        count += dict(zip(fields[::2], fields[1::2])).get("simd_count", "0") != "0"  # noqa: B905
    return count


def npus(root: str) -> "list[str]":
    """Return the devices of Ascend NPUs: davinci0, davinci1, ...; not davinci_manager."""
    return [n for n in names(os.path.join(root, "dev")) if n[:7] == "davinci" and n[7:].isdigit()]


def names(folder: str) -> "list[str]":
    """Return the names in a folder; none where it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def free_port(seed: int) -> "int | None":
    """Return a port that can be bound now, outside the range of outgoing connections.

    Starts with different seeds search from different ports, so they do not race for one.
    """
    fields = read("/proc/sys/net/ipv4/ip_local_port_range").split()
    low, high = (int(fields[0]), int(fields[-1])) if fields else (32768, 60999)
    start, end = (20000, min(low, 32768)) if low >= 21000 else (high + 1, 65536)  # noqa: PLR2004
    if end - start < 100:  # noqa: PLR2004 - nearly everything is ephemeral here
        start, end = 20000, 32768
    for step in range(end - start):
        port = start + (seed + step) % (end - start)
        if can_bind(port):
            return port
    return None


def package_version(name: str, folders: "list[str]") -> "tuple[str, str] | None":
    """Return version and folder of a package, from files of the first place that has it."""
    for place in folders:
        folder = os.path.join(place, name)
        if os.path.exists(os.path.join(folder, "__init__.py")):
            version = own_version(folder) or metadata_version(place, name)
            return (version, folder) if version else None  # that one is imported
        if os.path.exists(folder + ".py"):
            return None
    return None


def own_version(folder: str) -> str:
    """Return the version that a package assigns to `__version__` as text; "" for none."""
    for file in ("version.py", "__init__.py"):
        for line in read(os.path.join(folder, file)).splitlines():
            left, _, value = line.partition("=")
            if left.split(":")[0].strip() == "__version__" and value.strip()[:1] in ("'", '"'):
                return value.strip().strip("'\"")
    return ""


def metadata_version(place: str, name: str) -> str:
    """Return the version in the name of a package's metadata folder beside it; "" for none."""
    entries = [entry for entry in names(place) if entry.startswith(name + "-")]
    versions = [e[len(name) + 1 : -len(".dist-info")] for e in entries if e.endswith(".dist-info")]
    return versions[0] if len(versions) == 1 else ""


def facts() -> "dict[str, str]":
    """Return what this interpreter says of itself: FACTS."""
    return {
        "version": ".".join(str(n) for n in sys.version_info[:3]),
        "executable": sys.executable,
        "base_prefix": sys.base_prefix,
        "platlibdir": getattr(sys, "platlibdir", "lib"),
        "library": os.__file__,
    }


def expand(path: str, environ: "Mapping[str, str]") -> str:
    """Return a path with the user's home in the place of `~`."""
    if environ.get("HOME") and (path == "~" or path.startswith("~/")):
        return environ["HOME"].rstrip("/") + path[1:]
    return os.path.expanduser(path)


def package_folders(
    cwd: str,
    pythonpath: str,
    python: "Mapping[str, str] | None" = None,
    environ: "Mapping[str, str]" = os.environ,
) -> "list[str]":
    """Return where a module that runs in a folder finds packages, in order.

    `$PYTHONPATH` among the folders stands for those of the environment. `python` are the facts of
    the interpreter, of this one by default.
    """
    folder, parts = expand(cwd, environ), []  # type: str, list[str]
    for part in pythonpath.split(":") if pythonpath else []:
        inherited = environ.get("PYTHONPATH", "") if part == "$PYTHONPATH" else part
        # an empty part of several is the working folder
        parts += inherited.split(":") if inherited or part != "$PYTHONPATH" else []
    own = [os.path.join(folder, expand(part, environ)) for part in parts]
    return [folder, *own, *site_folders(python, environ)]


def site_folders(
    python: "Mapping[str, str] | None" = None, environ: "Mapping[str, str]" = os.environ
) -> "list[str]":
    """Return what `site` adds to the search path, from which `-S` has kept it (Lib/site.py)."""
    python = python or facts()
    binaries = os.path.dirname(os.path.abspath(python["executable"]))
    above = os.path.dirname(binaries)
    number = "python" + ".".join(python["version"].split(".")[:2])
    library, base = python["platlibdir"], python["base_prefix"]
    settings = read(os.path.join(binaries, "pyvenv.cfg")) or read(os.path.join(above, "pyvenv.cfg"))
    folders = below(above, number, library) if settings else []
    for line in settings.splitlines():
        key, _, value = line.partition("=")
        if (
            key.strip().lower() == "include-system-site-packages"
            and value.strip().lower() != "true"
        ):
            return folders
    if not environ.get("PYTHONNOUSERSITE"):
        user = environ.get("PYTHONUSERBASE") or expand("~/.local", environ)
        folders.append(os.path.join(user, "lib", number, "site-packages"))
    debian = "/usr/lib/python3/dist-packages"
    if base != "/usr":
        return folders + below(base, number, library)
    if os.path.isdir(debian):
        return [*folders, "/usr/local/lib/%s/dist-packages" % number, debian]
    # Fedora
    return folders + below("/usr/local", number, library) + below("/usr", number, library)


def below(prefix: str, number: str, library: str) -> "list[str]":
    """Return the folders of packages of an installation; some keep compiled ones in lib64."""
    libraries = {library: None, "lib": None}
    return [os.path.join(prefix, name, number, "site-packages") for name in libraries]


def is_old_rtx40(root: str = "/") -> bool:
    """Whether there may be several GPUs, an RTX 40 among them, and a driver below 550.40.07.

    For these alone accelerate sets NCCL_P2P_DISABLE (utils/environment.py).
    """
    folder = os.path.join(root, "proc/driver/nvidia")
    if os.path.exists(os.path.join(root, "dev/dxg")):
        return True  # Windows has the driver, and shows neither cards nor version here
    cards = names(os.path.join(folder, "gpus"))
    models = [read(os.path.join(folder, "gpus", card, "information")) for card in cards]
    words = read(os.path.join(folder, "version")).split()
    versions = [word for word in words if word.count(".") >= 1 and word.replace(".", "").isdigit()]
    driver = [int(part) for part in versions[0].split(".")] if versions else []
    return len(cards) > 1 and any("RTX 40" in text for text in models) and driver < [550, 40, 7]


def can_bind(port: int) -> bool:
    """Whether the port is free on all interfaces, IPv4 and IPv6, as TCPStore will want it."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104
        try:
            test = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # no IPv6 here
        try:
            if family == socket.AF_INET6:
                test.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            test.bind((address, port))
            test.listen(1)
        except OSError as e:
            if family == socket.AF_INET6 and e.errno in (97, 99):
                continue
            return False
        finally:
            test.close()
    return True


def report(
    arguments: "list[str]",
    python: "Mapping[str, str]",
    environ: "Mapping[str, str]" = os.environ,
) -> "list[str]":
    """Return the lines of the report of this machine, and of an interpreter with these facts."""
    lines = ["%s %s" % pair for pair in python.items()]
    lines += ["cores %d" % usable_cores(), "gpus %d" % gpus()]
    lines.append("port %s" % free_port(int(arguments[0])))
    packages = arguments[3:]
    searched = package_folders(arguments[1], arguments[2], python, environ) if packages else []
    for package in packages:
        installed = package_version(package, searched)
        if installed:
            lines += ["%s %s" % (package, installed[0]), "%s_folder %s" % (package, installed[1])]
    if packages:
        lines.append("old_rtx40 " + ("yes" if is_old_rtx40() else "no"))
    return lines


if __name__ == "__main__":
    print("\n".join(report(sys.argv[1:], facts())))
