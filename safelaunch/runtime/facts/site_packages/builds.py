"""Reads what compiled packages were built for: the torch, the CUDA and the glibc that they need.

Nothing is imported. A symbol that torch lacks is what an `ImportError: undefined symbol` names.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import time

from safelaunch.runtime.facts import commands
from safelaunch.runtime.facts.libraries import elf_dynamic
from safelaunch.runtime.facts.site_packages import distributions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

_SECONDS = 6.0  # of the ten that a part has
_MAX_FILES = 60  # libraries of one package
_SHOWN = 3
_TORCH = re.compile(r"lib(c10|torch)\w*\.so")
# names of torch's C++ namespaces, and of its stable C interface, that only torch itself defines
_SYMBOLS = re.compile(r"_ZNK?R?(3c10|2at)|aoti_torch_")
_RUNTIME = re.compile(r"libcudart\.so\.(\d+)$")
_BITSANDBYTES = re.compile(r"libbitsandbytes_cuda(\d+)\.so$")
# transformers 4.45.2 to 5.23.0 imports them wherever they are installed: modeling_flash_attention_
# utils.py and image_utils.py; diffusers xformers: models/attention.py
_IF_PRESENT = {"transformers": ("flash-attn", "torchvision"), "diffusers": ("xformers",)}
_NOT_LINKED = ("torch", "triton", "numpy")  # torch itself, and what does not use it


def builds(_: str, *modules: str) -> dict[str, Any]:
    """Return what the libraries of modules' distributions need, as far as torch is concerned.

    `libraries` are those that need torch: `package`, `file`, `symbols` that torch lacks, `cuda`
    (the major version of the runtime), `glibc`; `runtimes` the major versions of CUDA's runtime
    that are installed; `bitsandbytes` the CUDA versions that it has a library for; `deepspeed` what
    its compiled operators were built with.
    """
    folders = distributions.metadata_folders(sys.path)
    names = _used(modules, folders)
    until = time.monotonic() + _SECONDS
    torch = _torch_libraries()
    libraries = []
    for name in names:
        for path in _files(folders[name]) if torch and name not in _NOT_LINKED else ():
            if time.monotonic() > until:
                raise commands.Skip(f"the libraries were not read within {_SECONDS:g} s")
            needs = _needs(name, path, torch)
            libraries += [] if needs is None else [needs]
    result: Dict[str, Any] = {"libraries": libraries, "runtimes": _runtimes(), "deepspeed": None}
    files = _files(folders["bitsandbytes"]) if "bitsandbytes" in names else []
    matches = (_BITSANDBYTES.search(path) for path in files)
    result["bitsandbytes"] = (
        sorted({match.group(1) for match in matches if match}) if files else None
    )
    if "deepspeed" in names:
        result["deepspeed"] = _deepspeed()
    return result


def _used(modules: tuple[str, ...], folders: dict[str, str]) -> list[str]:
    """Return the distributions of modules, and those that these import wherever they are."""
    answer = distributions.requirements("", *modules)
    plain, waiting = dict.fromkeys(answer["roots"].values()), list(answer["roots"].values())
    while waiting:
        for line in answer["requires"].get(waiting.pop(), ()):
            other = distributions.required_name(line)
            is_plain = "extra" not in line.partition(";")[2]
            if is_plain and other in answer["requires"] and other not in plain:
                plain[other] = None
                waiting.append(other)
    extra = [name for by, names in _IF_PRESENT.items() if by in plain for name in names]
    return [name for name in dict.fromkeys([*plain, *extra]) if name in folders]


def _torch_libraries() -> list[str]:
    """Return torch's libraries, the small ones first; none where it is not installed."""
    folders = [os.path.join(folder, "torch", "lib") for folder in sys.path if folder]
    folder = next((path for path in folders if os.path.isdir(path)), None)
    if folder is None:
        return []
    places = (folder, os.path.join(sys.prefix, "lib"))  # conda's lie there
    paths = [os.path.join(p, name) for p in places for name in commands.folders(p)
             if _TORCH.fullmatch(name)]  # fmt: skip
    has_base = any(path.endswith("/libc10.so") for path in paths)
    return sorted(paths, key=os.path.getsize) if has_base else []


def _files(metadata: str) -> list[str]:
    """Return the shared libraries of a distribution, as its record lists them."""
    root = os.path.dirname(metadata)
    text = commands.read(os.path.join(metadata, "RECORD"), distributions.MAX_RECORD)
    names = [line.partition(",")[0] for line in text.splitlines()]
    paths = [os.path.join(root, n) for n in names if n.endswith(".so") or ".so." in n]
    return [path for path in paths if os.path.isfile(path)][:_MAX_FILES]


def _needs(package: str, path: str, torch: list[str]) -> dict[str, Any] | None:
    """Return what a library needs that is linked with torch; None for another one."""
    try:
        needs = elf_dynamic.needs(path)
    except (OSError, ValueError):
        return None
    if not any(_TORCH.fullmatch(name) for name in needs.libraries):
        return None
    symbols = [name for name in needs.symbols if _SYMBOLS.match(name)]
    cuda = next((m.group(1) for m in map(_RUNTIME.match, needs.libraries) if m), None)
    return {
        "package": package,
        "file": os.path.basename(path),
        "symbols": elf_dynamic.lacking(symbols, torch)[:_SHOWN],
        "cuda": cuda,
        "glibc": "%d.%d" % needs.glibc if needs.glibc[0] else None,
    }


def _runtimes() -> list[str]:
    """Return the major versions of CUDA's runtime that the loader, or torch, may find here."""
    folders = [os.path.join(folder, "torch", "lib") for folder in sys.path]
    for folder in sys.path:
        nvidia = os.path.join(folder, "nvidia")
        folders += [os.path.join(nvidia, name, "lib") for name in commands.folders(nvidia)]
    folders += os.environ.get("LD_LIBRARY_PATH", "").split(":")
    folders += [os.path.join(sys.prefix, "lib"), "/usr/lib/x86_64-linux-gnu", "/usr/lib64"]
    folders += [f"/usr/local/{n}/lib64" for n in commands.folders("/usr/local") if "cuda" in n]
    names = (name for folder in filter(None, folders) for name in commands.folders(folder))
    versions = {match.group(1) for match in map(_RUNTIME.match, names) if match}
    cache = commands.read("/etc/ld.so.cache", 1 << 24)
    return sorted(versions | set(re.findall(r"libcudart\.so\.(\d+)\0", cache)))


def _deepspeed() -> dict[str, Any] | None:
    """Return {"torch", "cuda", "operators"} of DeepSpeed's compiled operators; None without any."""
    path = os.path.join("deepspeed", "git_version_info_installed.py")
    texts = (commands.read(os.path.join(folder, path), 1 << 16) for folder in sys.path)
    text = next(filter(None, texts), "")
    values: Dict[str, Any] = {}
    try:
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                values[node.targets[0].id] = ast.literal_eval(node.value)
        operators = [name for name, is_there in values["installed_ops"].items() if is_there]
        torch = values["torch_info"]
        if not operators:
            return None
        return {
            "torch": str(torch["version"]),
            "cuda": str(torch["cuda_version"]),
            "operators": operators,
        }
    except (SyntaxError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
