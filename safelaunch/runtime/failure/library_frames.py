"""Finds the library in whose code an exception was raised, and its version."""

from __future__ import annotations

import os

from safelaunch.runtime.records import LibraryFrame
from safelaunch.runtime.signatures.match import compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.runtime.records import StackFrame

# pip, apt and conda; wheels and eggs that are imported as they are (pex, Ray); what transformers,
# unsloth and torch.compile generate or download
_INSTALLED = (
    r"^.*(?:[/\\](?:site|dist)-packages[/\\](?:[^/\\]+\.egg[/\\])?|\.whl[/\\])(.+)$"
    r"|^.*[/\\]((?:transformers_modules|unsloth_compiled_cache|torchinductor_\w+)[/\\].+)$"
)
# Python's own; it is relative where it is frozen into a program
_STANDARD = (
    r"[/\\]lib(?:64)?[/\\]python\d[\d.]*t?[/\\]|[/\\]Python\d+[/\\]|^<|^multiprocessing/"
    r"|[/\\]python\d+\.zip[/\\]"
)
# installed by `pip install -e`: their code lies in a clone, as CLONE/NAME, CLONE/src/NAME or
# CLONE/python/NAME
_CLONED = (
    "accelerate", "areal", "axolotl", "bitsandbytes", "colossalai", "deepspeed", "diffusers",
    "flash_attn", "flashinfer", "liger_kernel", "llamafactory", "megatron", "nemo_automodel",
    "nemo_rl", "openrlhf", "peft", "prime_rl", "pytorch_lightning", "sglang", "skyrl_train",
    "slime", "swift", "tensorrt_llm", "torch", "torchtitan", "torchtune", "torchvision",
    "transformer_engine", "transformers", "triton", "trl", "unsloth", "verl", "vllm",
    "vllm_ascend", "xtuner",
)  # fmt: skip
_SOURCE_FOLDERS = ("src", "python")
# trl-1.16.0.dist-info, trl-1.16.0-py3-none-any.whl, trl-1.16.0-py3.11.egg
_METADATA = r"^([A-Za-z0-9][\w.]*)-(\d[\w.+!]*?)(?:\.(?:dist|egg)-info|-.*\.(?:whl|egg|egg-info))$"


def split_path(file: str) -> tuple[str, str] | None:
    """Return (library, path from its top folder on) of a source file, or None for any other."""
    hit = compiled(_INSTALLED).match(file)
    path = "" if hit is None else (hit.group(1) or hit.group(2)).replace("\\", "/")
    path = path or _path_in_clone(file.replace("\\", "/"))
    if not path:
        return None
    return path.partition("/")[0].partition(".py")[0], path


def _path_in_clone(file: str) -> str:
    """Return the path from the top folder of a known library on that lies in a clone, or ""."""
    parts = file.split("/")
    for index in range(len(parts) - 2, 0, -1):
        name, above = parts[index], parts[index - 1]
        if name in _CLONED and (above in _SOURCE_FOLDERS or _normal(name) in _normal(above)):
            return "/".join(parts[index:])
    return ""


def is_library(file: str) -> bool:
    """Whether a source file belongs to a library, to Python itself, or to no file at all."""
    return split_path(file) is not None or compiled(_STANDARD).search(file) is not None


def raising_frame(frames: Sequence[StackFrame]) -> StackFrame | None:
    """Return the frame in a library in which an exception was raised; None: it was other code.

    `frames` are those of its traceback, the innermost last. Python's own functions are passed over:
    who called them gave them what they refuse.
    """
    for frame in reversed(frames):
        if split_path(frame.file) is not None:
            return frame
        if not is_library(frame.file):
            return None
    return None


def library_frame(frame: StackFrame) -> LibraryFrame:
    """Return which library a frame of one is in, without its version."""
    library, path = split_path(frame.file) or ("", frame.file)
    is_raise = frame.code.split(" ", 1)[0] in ("raise", "assert")
    return LibraryFrame(library=library, path=path, line=frame.line, is_raise=is_raise)


def installed_version(file: str, library: str) -> str:
    """Return the version of a library, from the metadata beside its source file; "" if unknown."""
    split = split_path(file)
    if split is None:
        return ""
    folder = file[: len(file) - len(split[1])].rstrip("/\\")
    try:
        names = [os.path.basename(folder), *os.listdir(folder)]
    except OSError:
        names = [os.path.basename(folder)]
    for name in names:
        hit = compiled(_METADATA).match(name)
        if hit is not None and _normal(hit.group(1)) == _normal(library):
            return hit.group(2)
    return ""


def _normal(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
