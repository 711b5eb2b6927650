"""Facts of the job's interpreter, which runs this: packages, torch, NCCL, and other environments.

Nothing is imported: versions come from the names of metadata folders, torch's own from its files.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import sys
import sysconfig
import time

from safelaunch.runtime.facts import commands
from safelaunch.runtime.facts.libraries import elf_strings
from safelaunch.runtime.packages import TRAINING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

DEEP = 90.0  # seconds for the import of torch
_LIBRARY_SECONDS = 9.0  # for the strings of libraries, within a part's time
METADATA = re.compile(r"(.+?)-(\d[^-]*)(?:-py[\d.]+.*|-.*)?\.(?:dist|egg)-info$")
_TORCHES = ("cuda", "hip", "python", "cpu")
_NCCL_WHEEL = re.compile(r"nvidia-nccl-cu\d+$")
_MAX_ENVIRONMENTS = 64
_CONDAS = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", "miniconda",
           "anaconda", "conda")  # fmt: skip


def parts(cwd: str) -> dict[str, Callable[[], Any]]:
    """Return {part: function} of this module."""
    functions = {"python": python, "torch": torch, "names": names}
    return {**functions, "environments": lambda: environments(cwd)}


def python() -> dict[str, Any]:
    """Return this interpreter, and the version of each package on its path."""
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
        "path": [folder for folder in sys.path if folder],
        "packages": packages(sys.path),
    }


def _kind(prefix: str, base: str) -> str:
    if os.path.isdir(os.path.join(prefix, "conda-meta")):
        return "conda"
    return "venv" if prefix != base else "system"


def packages(folders: Iterable[str]) -> dict[str, str]:
    """Return {name: version} of what is installed in folders; the first one counts."""
    versions: dict[str, str] = {}
    for folder in folders:
        for entry in commands.folders(folder) if folder else ():
            match = METADATA.match(entry)
            if match is not None:
                versions.setdefault(normalized(match.group(1)), match.group(2))
    return versions


def normalized(name: str) -> str:
    """Return the name of a package as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


# -- torch -----------------------------------------------------------------------------------------


def torch() -> dict[str, Any]:
    """Return torch's version, its CUDA, architectures, cuDNN and NCCL. Raises Skip."""
    facts, archs = versions(), None
    folder = facts["path"]
    if facts["cuda"] or facts["hip"]:
        until = time.monotonic() + _LIBRARY_SECONDS
        with contextlib.suppress(OSError, ValueError, elf_strings.Late):
            archs = elf_strings.arches(os.path.join(folder, "lib/libtorch_python.so"), until)
    return dict(facts, archs=archs, cudnn=_cudnn(folder, packages(sys.path)))


def versions() -> dict[str, Any]:
    """Return the versions of torch, its CUDA and NCCL: what a start needs. Raises Skip."""
    until = time.monotonic() + _LIBRARY_SECONDS
    folder = _torch_folder()
    if folder is None:
        raise commands.Skip("torch is not installed there")
    text = commands.read(os.path.join(folder, "version.py"), 1 << 14)
    installed = packages(sys.path)
    return {
        "path": folder,
        "version": _constant(text, "__version__") or installed.get("torch"),
        "cuda": _constant(text, "cuda"),
        "hip": _constant(text, "hip"),
        "nccl": _nccl(folder, installed, until),
    }


def _torch_folder() -> str | None:
    folders = (os.path.join(entry or ".", "torch") for entry in sys.path)
    return next((f for f in folders if os.path.isfile(os.path.join(f, "__init__.py"))), None)


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
    inside = [] if torch_folder is None else [os.path.join(torch_folder, "lib")]
    folders = [*inside, *(os.path.join(path, "nvidia/nccl/lib") for path in sys.path if path),
               os.path.join(sys.prefix, "lib"), "/usr/lib/x86_64-linux-gnu",
               "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib"]  # fmt: skip
    paths = [os.path.join(folder, "libnccl.so.2") for folder in folders]
    paths += [os.path.join(folder, "libtorch_cuda.so") for folder in inside]  # it may be linked in
    return [path for path in paths if os.path.isfile(path)]


def _nccl(torch_folder: str, installed: dict[str, str], until: float) -> dict[str, Any] | None:
    nccl: dict[str, Any] = {"version": None, "cuda": None, "library": None, "package": None}
    for name, version in installed.items():
        if _NCCL_WHEEL.match(name):
            nccl.update(package=f"{name} {version}", version=version)
    for path in libraries(torch_folder):
        with contextlib.suppress(OSError, ValueError, elf_strings.Late):
            versions = elf_strings.nccl_version(path, until)
            if versions is not None:
                nccl.update(version=versions[0], cuda=versions[1], library=path)
                break
    return nccl if nccl["version"] else None


def names() -> dict[str, Any]:
    """Return the NCCL_* and TORCH_NCCL_* names that the libraries of this torch contain."""
    until = time.monotonic() + _LIBRARY_SECONDS
    folder = _torch_folder()
    variables: dict[str, Any] = {}
    paths = [path for path in libraries(folder) if "libtorch" not in os.path.basename(path)][:1]
    if folder is not None:
        inside = os.path.join(folder, "lib")
        paths += [os.path.join(inside, f"libtorch_{name}.so") for name in _TORCHES]
    for path in paths:
        try:
            variables[path] = elf_strings.names(path, until)
        except elf_strings.Late:
            variables[path] = None  # not read to its end: unknown
        except (OSError, ValueError):
            pass
    if not variables:
        raise commands.Skip("neither torch nor NCCL is installed there")
    return variables


_IMPORT = """
import json, torch
facts = {"version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip}
cuda = torch.cuda
facts["available"] = cuda.is_available()
facts["archs"] = cuda.get_arch_list() if facts["available"] else None
facts["devices"] = [
    {"name": cuda.get_device_name(i), "capability": "%d.%d" % cuda.get_device_capability(i)}
    for i in range(cuda.device_count())
] if facts["available"] else []
facts["cudnn"] = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
try:
    facts["nccl"] = ".".join(map(str, cuda.nccl.version()))
except Exception:
    facts["nccl"] = None
print("\\n" + json.dumps(facts))
"""


def deep() -> dict[str, Any]:
    """Return what torch itself reports once it is imported. Raises Skip."""
    output = commands.run([sys.executable, "-B", "-c", _IMPORT], DEEP - 5)
    last = (output.text.strip().splitlines() or ["no output"])[-1]
    if output.why or output.exit != 0:
        raise commands.Skip(f"torch cannot be imported: {output.why or last[:300]}")
    return dict(json.loads(last), seconds=output.seconds)


# -- other environments ----------------------------------------------------------------------------


def environments(cwd: str) -> list[dict[str, Any]]:
    """Return the other environments of the usual places: kind, interpreter, and what they have."""
    others: list[dict[str, Any]] = []
    visited = {os.path.realpath(sys.prefix)}
    for prefix in _prefixes(cwd):
        real = os.path.realpath(prefix)
        if real not in visited and len(others) < _MAX_ENVIRONMENTS:
            visited.add(real)
            environment = _environment(prefix)
            others += [] if environment is None else [environment]
    return others


def _prefixes(cwd: str) -> list[str]:
    home = os.path.expanduser("~")
    roots = (home, "/opt", "/root", "/usr/local")
    listed = commands.read(os.path.join(home, ".conda", "environments.txt"), 1 << 16).splitlines()
    paths = [line.strip() for line in listed if line.strip().startswith("/")]
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        paths += [os.environ[variable]] if os.environ.get(variable) else []
    for base in (os.path.join(root, name) for root in roots for name in _CONDAS):
        if os.path.isdir(base):
            paths += [base, *_below(os.path.join(base, "envs"))]
    for folder in (".conda/envs", ".virtualenvs", ".venvs", "venvs", "envs", ".pyenv/versions",
                   ".cache/pypoetry/virtualenvs", ".local/share/virtualenvs"):  # fmt: skip
        paths += _below(os.path.join(home, folder))
    for root in (cwd, home, "/workspace", "/opt", "/", *_below(home)[:200]):
        paths += [os.path.join(root, name) for name in (".venv", "venv", "env")]
    return [*paths, *_below("/opt")[:50], "/usr", "/usr/local"]


def _below(folder: str) -> list[str]:
    return [os.path.join(folder, name) for name in commands.folders(folder)]


def _environment(prefix: str) -> dict[str, Any] | None:
    candidates = [os.path.join(prefix, "bin", name) for name in ("python", "python3")]
    interpreter = next((path for path in candidates if os.access(path, os.X_OK)), None)
    if interpreter is None:
        return None
    folders: list[str] = []
    version = None
    for name in commands.folders(os.path.join(prefix, "lib")):
        if re.match(r"python3(\.\d+)?$", name):
            library = os.path.join(prefix, "lib", name)
            folders += [os.path.join(library, f"{kind}-packages") for kind in ("site", "dist")]
            version = name[6:] if "." in name else version
    installed = packages(folders)
    training = {name: installed[name] for name in TRAINING if name in installed}
    nccl = {name: version for name, version in installed.items() if _NCCL_WHEEL.match(name)}
    is_venv = os.path.isfile(os.path.join(prefix, "pyvenv.cfg"))
    kind = "conda" if os.path.isdir(os.path.join(prefix, "conda-meta")) else "system"
    if kind == "system" and "/.pyenv/versions/" in prefix:
        kind = "pyenv"
    if kind == "system" and not is_venv and not training:
        return None  # every machine has /usr
    return {
        "prefix": prefix,
        "kind": "venv" if is_venv else kind,
        "python": interpreter,
        "version": version,
        "packages": {**training, **nccl},
    }
