"""What tells the load of accelerators: nvidia-smi, the files of AMD's kernel driver, npu-smi.

Each is a command whose output is parsed: a device that hangs then blocks a child process, not the
supervisor. The files of the kernel are read by grep, which costs less than rocm-smi, a Python
program, by a hundred times.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from safelaunch.runtime.start.start_probe import names, npus, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Row: TypeAlias = tuple[str, list[float | None]]
    Rows: TypeAlias = dict[str, Row]

FIELDS = ("index", "uuid", "utilization.gpu", "memory.used", "memory.total", "power.draw")
COLUMNS = ("util", "mem_mib", "mem_total_mib", "power_w")
# on WSL it is not on the PATH of a login without a terminal
NVIDIA_SMI = ("/usr/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "/opt/bin/nvidia-smi",
              "/usr/local/nvidia/bin/nvidia-smi")  # fmt: skip
DRIVER_FILES = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")  # /dev/dxg is WSL's
# file of a GPU -> its column, and what its number is divided by (kernel, gpu/amdgpu/thermal.rst and
# driver-misc.rst: percent, bytes, microwatts; newer boards have power1_input alone)
_AMD_FILES = (
    ("gpu_busy_percent", 0, 1),
    ("mem_info_vram_used", 1, 1 << 20),
    ("mem_info_vram_total", 2, 1 << 20),
    ("power1_average", 3, 1_000_000),
    ("power1_input", 3, 1_000_000),
)
_NPU = re.compile(r"^\|\s*\d+\s+\w[\w-]*\s*\|\s*\w+\s*\|\s*(?P<power>[\d.]+|-)\s", re.MULTILINE)
_CHIP = re.compile(
    r"^\|\s*\d+\s+(?P<index>\d+)?\s*\|\s*[0-9A-Fa-f:.]+\s*\|\s*(?P<util>\d+)\s.*?"
    r"(?P<used>\d+)\s*/\s*(?P<total>\d+)\s*\|\s*$",
    re.MULTILINE,
)


class LoadSource(NamedTuple):
    """A command that tells the load of all devices of a machine."""

    name: str
    argv: list[str]
    parse: Callable[[str], Rows]


def find(environ: dict[str, str], root: str = "/") -> LoadSource | None:
    """Return what tells the load here; None where there is no driver, or no program on PATH."""
    return _nvidia(environ) or _amd(environ, root) or _npu(environ, root)


def _nvidia(environ: dict[str, str]) -> LoadSource | None:
    path = program("nvidia-smi", environ)
    if not path or not any(os.path.exists(file) for file in DRIVER_FILES):
        return None
    query = "--query-gpu=" + ",".join(FIELDS)
    return LoadSource("nvidia-smi", [path, query, "--format=csv,noheader,nounits"], parse)


def _amd(environ: dict[str, str], root: str) -> LoadSource | None:
    folder, grep = os.path.join(root, "sys/class/kfd/kfd/topology/nodes"), program("grep", environ)
    files: dict[str, tuple[str, int, int]] = {}  # path -> (index, column, divisor)
    devices = [render_device(os.path.join(folder, name)) for name in sorted(names(folder), key=len)]
    for index, device in enumerate(filter(None, devices)):
        own = os.path.join(root, "sys/class/drm", device, "device")
        monitors = os.path.join(own, "hwmon")
        folders = [own, *(os.path.join(monitors, name) for name in names(monitors))]
        for name, column, divisor in _AMD_FILES:
            paths = (os.path.join(path, name) for path in folders)
            files.update({p: (str(index), column, divisor) for p in paths if os.path.exists(p)})
    if not files or not grep:
        return None
    return LoadSource("amdgpu", [grep, "-H", "", *files], lambda text: _parse_files(text, files))


def render_device(node: str) -> str:
    """Return the name below /sys/class/drm of a node; HIP counts the nodes with one, in order."""
    fields = read(os.path.join(node, "properties")).split()
    minor = dict(zip(fields[::2], fields[1::2])).get("drm_render_minor", "0")  # noqa: B905 - 3.8
    return f"renderD{minor}" if minor.isdigit() and minor != "0" else ""


def _parse_files(text: str, files: dict[str, tuple[str, int, int]]) -> Rows:
    rows: Rows = {}
    for line in text.splitlines():
        path, _, number = line.rpartition(":")
        if path in files and number.strip().isdigit():
            index, column, divisor = files[path]
            values = rows.setdefault(index, ("", [None] * len(COLUMNS)))[1]
            values[column] = round(int(number) / divisor, 1)
    return rows


def _npu(environ: dict[str, str], root: str) -> LoadSource | None:
    path = program("npu-smi", environ)
    return LoadSource("npu-smi", [path, "info"], parse_npu) if path and npus(root) else None


def parse_npu(text: str) -> Rows:
    """Return {index: ("", values of COLUMNS)} of `npu-smi info`: two lines for each chip."""
    powers, chips = list(_NPU.finditer(text)), list(_CHIP.finditer(text))
    rows: Rows = {}
    for order, chip in enumerate(chips):
        power = powers[order]["power"] if len(powers) == len(chips) else "-"
        rows[chip["index"] or str(order)] = (
            "",
            [number(chip["util"]), number(chip["used"]), number(chip["total"]), number(power)],
        )
    return rows


def parse(text: str) -> Rows:
    """Return {index: (uuid, values of COLUMNS)}; None for `[N/A]`, `ERR!`, `[Unknown Error]`.

    Other lines are skipped: a lost GPU puts a sentence in front of the rows.
    """
    rows: Rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(FIELDS) and cells[0].isdigit():
            rows[cells[0]] = (cells[1], [number(cell) for cell in cells[2:]])
    return rows


def number(cell: str) -> float | None:
    """Return a cell's number; None where it has none, or one that no device can have."""
    try:
        value = float(cell.split(" ", 1)[0])
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None  # noqa: PLR2004 - also not nan


def program(name: str, environ: dict[str, str]) -> str:
    """Return the path of a program on PATH; empty where it is not there."""
    folders = [folder for folder in environ.get("PATH", "").split(os.pathsep) if folder]
    paths = (os.path.join(folder, name) for folder in folders)
    return next((path for path in paths if os.access(path, os.X_OK)), "")
