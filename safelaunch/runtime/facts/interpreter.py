"""Facts of the job's interpreter, which runs this: packages, torch, NCCL, and other environments.

Nothing is imported: versions come from the names of metadata folders, torch's own from its files.
"""

from __future__ import annotations

import os
import re
import sys
import time

from safelaunch.runtime.facts import commands
from safelaunch.runtime.facts import elf_strings as scan
from safelaunch.runtime.packages import TRAINING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

DEEP = 90.0  # seconds for the import of torch
_SCAN = 9.0  # seconds for the libraries, within a part's time
_METADATA = re.compile(r"(.+?)-(\d[^-]*)(?:-py[\d.]+.*|-.*)?\.(?:dist|egg)-info$")
_TORCHES = ("cuda", "hip", "python", "cpu")
_LARGEST = 12 << 30  # bytes of a library that is looked at
_MOST_ENVIRONMENTS = 64
_CONDAS = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", "miniconda",
           "anaconda", "conda")  # fmt: skip


def parts(cwd: str) -> dict[str, Callable[[], Any]]:
    """Return the parts of this module: name -> what finds it."""
    return {
        "python": python,
        "torch": torch,
        "names": names,
        "environments": lambda: environments(cwd),
    }


def python() -> dict[str, Any]:
    """Return this interpreter, and the version of each package on its path."""
    import platform  # noqa: PLC0415 - not in the agent
    import sysconfig  # noqa: PLC0415 - as above

    return {
        "executable": sys.executable,
        "real": os.path.realpath(sys.executable),
        "version": platform.python_version(),
        "implementation": sys.implementation.name,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "kind": _kind(sys.prefix, sys.base_prefix),
        "platform": sysconfig.get_platform(),
        "abi": sysconfig.get_config_var("SOABI"),
        "path": [place for place in sys.path if place],
        "packages": packages(sys.path),
    }


def _kind(prefix: str, base: str) -> str:
    if os.path.isdir(os.path.join(prefix, "conda-meta")):
        return "conda"
    return "venv" if prefix != base else "system"


def packages(places: Iterable[str]) -> dict[str, str]:
    """Return {name: version} of what is installed in folders; the first one counts."""
    found: dict[str, str] = {}
    for place in places:
        for entry in commands.folders(place) if place else ():
            match = _METADATA.match(entry)
            if match is not None:
                name = re.sub(r"[-_.]+", "-", match.group(1)).lower()
                found.setdefault(name, match.group(2))
    return found


# -- torch -----------------------------------------------------------------------------------------


def torch() -> dict[str, Any]:
    """Return torch's version, its CUDA, architectures, cuDNN and NCCL. Raises Skip."""
    until = time.monotonic() + _SCAN
    folder = _package("torch")
    if folder is None:
        raise commands.Skip("torch is not installed there")
    text = commands.read(os.path.join(folder, "version.py"), 1 << 14)
    installed = packages(sys.path)
    found: dict[str, Any] = {
        "path": folder,
        "version": _constant(text, "__version__") or installed.get("torch"),
        "cuda": _constant(text, "cuda"),
        "hip": _constant(text, "hip"),
        "archs": None,
        "cudnn": _cudnn(folder, installed),
        "nccl": _nccl(folder, installed, until),
    }
    if found["cuda"] or found["hip"]:
        try:
            found["archs"] = scan.arches(os.path.join(folder, "lib/libtorch_python.so"), until)
        except (OSError, ValueError, scan.Late):
            pass
    return found


def _package(name: str) -> str | None:
    for place in sys.path:
        folder = os.path.join(place or ".", name)
        if os.path.isfile(os.path.join(folder, "__init__.py")):
            return folder
    return None


def _constant(text: str, name: str) -> str | None:
    """Return the text that a module assigns to a name."""
    match = re.search(rf"^{name}(?:\s*:[^=\n]*)?\s*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return match.group(1) if match else None


def _cudnn(torch_folder: str, installed: dict[str, str]) -> str | None:
    for name, version in installed.items():
        if name.startswith("nvidia-cudnn"):
            return version
    site = os.path.dirname(torch_folder)
    header = commands.read(os.path.join(site, "nvidia/cudnn/include/cudnn_version.h"), 1 << 15)
    digits = [re.search(rf"#define CUDNN_{part} (\d+)", header)
              for part in ("MAJOR", "MINOR", "PATCHLEVEL")]  # fmt: skip
    if all(digits):
        return ".".join(digit.group(1) for digit in digits if digit)
    for folder in (os.path.join(torch_folder, "lib"), os.path.join(sys.prefix, "lib")):
        for entry in commands.folders(folder):
            match = re.match(r"libcudnn\.so\.(\d[\d.]*)$", entry)
            if match is not None:
                return match.group(1)
    return None


def libraries(torch_folder: str | None) -> list[str]:
    """Return the libraries that hold NCCL for this torch, the one that is loaded first."""
    places = [os.path.join(place, "nvidia/nccl/lib") for place in sys.path if place]
    places += [os.path.join(sys.prefix, "lib"), "/usr/lib/x86_64-linux-gnu",
               "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib"]  # fmt: skip
    found = [os.path.join(place, "libnccl.so.2") for place in places]
    if torch_folder is not None:
        inside = os.path.join(torch_folder, "lib")
        found[:0] = [os.path.join(inside, "libnccl.so.2")]
        found += [os.path.join(inside, "libtorch_cuda.so")]  # where it is linked in
    return [path for path in found if 0 < scan.size(path) < _LARGEST]


def _nccl(torch_folder: str, installed: dict[str, str], until: float) -> dict[str, Any] | None:
    found: dict[str, Any] = {"version": None, "cuda": None, "library": None, "package": None}
    for name, version in installed.items():
        if re.match(r"nvidia-nccl-cu\d+$", name):
            found["package"] = f"{name} {version}"
            found["version"] = version
    for path in libraries(torch_folder):
        try:
            told = scan.nccl_version(path, until)
        except (OSError, ValueError, scan.Late):
            continue
        if told is not None:
            found.update(version=told[0], cuda=told[1], library=path)
            break
    return found if found["version"] else None


def names() -> dict[str, Any]:
    """Return the NCCL_* and TORCH_NCCL_* names that the libraries of this torch contain."""
    until = time.monotonic() + _SCAN
    folder = _package("torch")
    found: dict[str, Any] = {}
    paths = [path for path in libraries(folder) if "libtorch" not in os.path.basename(path)][:1]
    if folder is not None:
        inside = os.path.join(folder, "lib")
        paths += [os.path.join(inside, f"libtorch_{name}.so") for name in _TORCHES]
    for path in paths:
        if 0 < scan.size(path) < _LARGEST:
            try:
                found[path] = scan.names(path, until)
            except scan.Late:
                found[path] = None  # not looked at to its end: it says nothing
            except (OSError, ValueError):
                pass
    if not found:
        raise commands.Skip("neither torch nor NCCL is installed there")
    return found


_IMPORT = """
import json, torch
found = {"version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip}
cuda = torch.cuda
found["available"] = cuda.is_available()
found["archs"] = cuda.get_arch_list() if found["available"] else None
found["devices"] = [
    {"name": cuda.get_device_name(i), "capability": "%d.%d" % cuda.get_device_capability(i)}
    for i in range(cuda.device_count())
] if found["available"] else []
found["cudnn"] = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
try:
    found["nccl"] = ".".join(map(str, cuda.nccl.version()))
except Exception:
    found["nccl"] = None
print("\\n" + json.dumps(found))
"""


def deep() -> dict[str, Any]:
    """Return what torch says of itself, once it is imported. Raises Skip."""
    import json  # noqa: PLC0415 - here only

    told = commands.run([sys.executable, "-B", "-c", _IMPORT], DEEP - 5)
    last = told["text"].strip().splitlines()[-1:] or ["no word"]
    if told.get("why") or told["exit"] != 0:
        raise commands.Skip(f"torch cannot be imported: {told.get('why') or last[0][:300]}")
    found: dict[str, Any] = json.loads(last[0])
    return dict(found, seconds=told["seconds"])


# -- other environments ----------------------------------------------------------------------------


def environments(cwd: str) -> list[dict[str, Any]]:
    """Return the other environments of the usual places: kind, interpreter, and what they have."""
    found: list[dict[str, Any]] = []
    seen = {os.path.realpath(sys.prefix)}
    for prefix in _prefixes(cwd):
        real = os.path.realpath(prefix)
        if real in seen or len(found) >= _MOST_ENVIRONMENTS:
            continue
        seen.add(real)
        one = _environment(prefix)
        if one is not None:
            found.append(one)
    return found


def _prefixes(cwd: str) -> list[str]:
    home = os.path.expanduser("~")
    bases = [os.path.join(home, name) for name in _CONDAS]
    bases += [
        os.path.join(root, name) for root in ("/opt", "/root", "/usr/local") for name in _CONDAS
    ]
    listed = commands.read(os.path.join(home, ".conda", "environments.txt"), 1 << 16).splitlines()
    found = [line.strip() for line in listed if line.strip().startswith("/")]
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        found += [os.environ[variable]] if os.environ.get(variable) else []
    for base in bases:
        if os.path.isdir(base):
            found += [base, *_below(os.path.join(base, "envs"))]
    for folder in (".conda/envs", ".virtualenvs", ".venvs", "venvs", "envs", ".pyenv/versions",
                   ".cache/pypoetry/virtualenvs", ".local/share/virtualenvs"):  # fmt: skip
        found += _below(os.path.join(home, folder))
    for place in (cwd, home, "/workspace", "/opt", "/", *_below(home)[:200]):
        found += [os.path.join(place, name) for name in (".venv", "venv", "env")]
    found += [*_below("/opt")[:50], "/usr", "/usr/local"]
    return found


def _below(folder: str) -> list[str]:
    return [os.path.join(folder, name) for name in commands.folders(folder)]


def _environment(prefix: str) -> dict[str, Any] | None:
    candidates = [os.path.join(prefix, "bin", name) for name in ("python", "python3")]
    interpreter = next((path for path in candidates if os.access(path, os.X_OK)), None)
    if interpreter is None:
        return None
    places: list[str] = []
    version = None
    for name in commands.folders(os.path.join(prefix, "lib")):
        if re.match(r"python3(\.\d+)?$", name):
            inside = os.path.join(prefix, "lib", name)
            places += [os.path.join(inside, "site-packages"), os.path.join(inside, "dist-packages")]
            version = name[6:] if "." in name else version
    installed = packages(places)
    told = {name: installed[name] for name in TRAINING if name in installed}
    nccl = {n: v for n, v in installed.items() if re.match(r"nvidia-nccl-cu\d+$", n)}
    is_venv = os.path.isfile(os.path.join(prefix, "pyvenv.cfg"))
    kind = "conda" if os.path.isdir(os.path.join(prefix, "conda-meta")) else "system"
    if kind == "system" and "/.pyenv/versions/" in prefix:
        kind = "pyenv"
    if kind == "system" and not is_venv and not told:
        return None  # every machine has /usr
    return {
        "prefix": prefix,
        "kind": "venv" if is_venv else kind,
        "python": interpreter,
        "version": version,
        "packages": dict(told, **nccl),
    }
