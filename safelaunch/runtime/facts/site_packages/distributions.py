"""Reads what installed distributions require of others: the text of their metadata, no import.

Runs in the job's interpreter. Markers and versions are left to those who asked.
"""

from __future__ import annotations

import importlib.machinery
import os
import re
import sys

from safelaunch.runtime.facts import commands, interpreter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Dict, List

_METADATA_FILES = ("METADATA", "PKG-INFO")  # of a .dist-info and of an .egg-info folder
_MAX_METADATA = 1 << 20  # bytes; the description of a package follows the headers
MAX_RECORD = 1 << 24
_MAX_DISTRIBUTIONS = 500
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
# distributions whose modules have other names, or that others stand in for
_MODULES = {
    "beautifulsoup4": "bs4", "faiss-cpu": "faiss", "faiss-gpu": "faiss", "gitpython": "git",
    "grpcio": "grpc", "opencv-contrib-python": "cv2", "opencv-python": "cv2",
    "opencv-python-headless": "cv2", "pillow": "PIL", "protobuf": "google.protobuf",
    "python-dateutil": "dateutil", "python-dotenv": "dotenv", "python-multipart": "multipart",
    "pyyaml": "yaml", "pyzmq": "zmq", "scikit-image": "skimage", "scikit-learn": "sklearn",
    "hydra-core": "hydra", "attrs": "attr", "py-cpuinfo": "cpuinfo", "nvidia-ml-py": "pynvml",
    "antlr4-python3-runtime": "antlr4", "pyjwt": "jwt",
}  # fmt: skip


def requirements(_: str, *modules: str) -> dict[str, Any]:
    """Return what the distributions of modules require, and those that these require in turn.

    `roots` is {module: its distribution}, `requires` {distribution: its Requires-Dist lines},
    `modules` those required names that are no distribution and whose module is found all the same.
    """
    folders = metadata_folders(sys.path)
    roots = {m: name for m, name in _distributions_of(modules, folders).items() if name}
    requires: Dict[str, List[str]] = {}
    waiting, absent = list(dict.fromkeys(roots.values())), set()
    while waiting and len(requires) < _MAX_DISTRIBUTIONS:
        name = waiting.pop(0)
        if name in requires:
            continue
        requires[name] = requirement_lines(folders[name])
        for line in requires[name]:
            other = required_name(line)
            if other in folders:
                waiting.append(other)
            elif other and "extra" not in line.partition(";")[2]:
                absent.add(other)
    return {
        "roots": roots,
        "requires": requires,
        "modules": sorted(name for name in absent if _is_importable(name)),
    }


def required_name(line: str) -> str:
    """Return the normalized name that a Requires-Dist begins with; "" where there is none."""
    match = _NAME.match(line)
    return interpreter.normalized(match.group(1)) if match else ""


def metadata_folders(folders: Iterable[str]) -> dict[str, str]:
    """Return {normalized name: folder of its metadata} of what is installed; the first counts."""
    result: dict[str, str] = {}
    for folder in folders:
        for entry in commands.folders(folder) if folder else ():
            match = interpreter.METADATA.match(entry)
            if match is not None:
                name = interpreter.normalized(match.group(1))
                result.setdefault(name, os.path.join(folder, entry))
    return result


def requirement_lines(folder: str) -> list[str]:
    """Return the Requires-Dist of a distribution, as they stand in its metadata."""
    if os.path.isfile(folder):  # an .egg-info that is a file
        text = commands.read(folder, _MAX_METADATA)
    else:
        texts = (commands.read(os.path.join(folder, f), _MAX_METADATA) for f in _METADATA_FILES)
        text = next(filter(None, texts), "")
    headers = re.split(r"\r?\n\r?\n", text, maxsplit=1)[0]
    lines = re.sub(r"\r?\n[ \t]+", " ", headers).splitlines()
    return [line[14:].strip() for line in lines if line.lower().startswith("requires-dist:")]


def _distributions_of(modules: Iterable[str], folders: dict[str, str]) -> dict[str, str]:
    """Return {module: the distribution that has it}; "" where none is known to."""
    result: dict[str, str] = {}
    for module in modules:
        name = interpreter.normalized(module)
        result[module] = name if name in folders else ""
    missing = {module for module, name in result.items() if not name}
    if missing:
        for name, folder in folders.items():
            for module in missing & _top_modules(folder):
                result[module] = result[module] or name
    return result


def _top_modules(folder: str) -> set[str]:
    """Return the top-level modules of a distribution, as its metadata lists them."""
    top = commands.read(os.path.join(folder, "top_level.txt"), _MAX_METADATA).split()
    if top:
        return set(top)
    record = commands.read(os.path.join(folder, "RECORD"), MAX_RECORD)
    # torch has ten thousand files in a few folders
    names = {line.partition(",")[0].partition("/")[0] for line in record.splitlines()}
    return {re.sub(r"(\.\w[\w-]*)?\.(py|so)$", "", name) for name in names}


def _is_importable(name: str) -> bool:
    """Whether the module of a distribution is found, though the distribution is not."""
    module = _MODULES.get(name, name.replace("-", "_")).partition(".")[0]
    try:
        return importlib.machinery.PathFinder.find_spec(module, sys.path) is not None
    except (ImportError, ValueError):
        return True  # it cannot be ruled out
