"""Checks whether compiled packages were built for the torch, CUDA and glibc that are installed.

A record for each fact: what is wrong, what happens then, what cures it, and where that is written.
The facts are read from the files of the packages (runtime/facts/site_packages/builds.py).
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.checks import job_options, visible_gpus
from safelaunch.checks.answers import Answer, ok, skip, warn
from safelaunch.checks.environment import cuda_compat, packages, pip_commands
from safelaunch.checks.environment.dependencies import module_questions
from safelaunch.checks.registry import check
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.checks.context import HostContext

_LOADER = "ld.so(8): symbol lookup, library search"
# one library for each version of CUDA: 0.42.0 to 0.49.2 take that of torch's alone, 0.50.2 also
# another one of the same major version
_BITSANDBYTES = "bitsandbytes 0.42.0, 0.45.5, 0.50.2: cextension.py, get_cuda_bnb_library_path"
_ANY_MINOR = (0, 50)
_DEEPSPEED = (
    "https://github.com/deepspeedai/DeepSpeed/blob/edaa7221267243c7be7fb49c5d5f5c4fb97b4641/"
    "op_builder/builder.py (validate_torch_version, validate_torch_op_version)"
)
_RELEASES = {
    "flash-attn": "https://github.com/Dao-AILab/flash-attention/releases (a wheel for each torch)",
    "xformers": "https://github.com/facebookresearch/xformers#installing-xformers",
    "torchvision": "https://github.com/pytorch/vision#installation (torch and torchvision pairs)",
    "torchaudio": "https://docs.pytorch.org/audio/main/installation.html (compatibility matrix)",
}
_FROM_SOURCE = ("flash-attn", "apex", "causal-conv1d", "mamba-ssm", "deepspeed", "grouped-gemm")
# torchvision 0.28.0 catches the ImportError of its library, and fails over what that brings
_LATER_ERRORS = {"torchvision": "RuntimeError: operator torchvision::nms does not exist"}


class CompiledLibrary(NamedTuple):
    """A library of a package that is linked with torch."""

    package: str
    file: str
    symbols: tuple[str, ...]  # that torch lacks
    cuda: str | None  # the major version of the runtime that it needs
    glibc: str | None  # the newest version that it needs


_questions = partial(module_questions, "builds")


@check("compiled-packages", asks=_questions, needs=("python",), source=_LOADER)
def compiled_packages(host: HostContext) -> Iterator[Answer]:
    """Whether compiled packages of the job were built for its torch, CUDA and glibc."""
    questions, installed = _questions(host), packages.installed_packages(host)
    if not questions or installed is None:
        return
    answer = host.answer(*questions[0])
    libraries = [
        CompiledLibrary(
            each["package"], each["file"], tuple(each["symbols"]), each["cuda"], each["glibc"]
        )
        for each in answer["libraries"]
    ]
    problems: dict[str, Answer] = {}
    for library in libraries:
        problem = _problem(host, library, answer["runtimes"], installed)
        if problem is not None:
            problems.setdefault(library.package, problem)
    bitsandbytes = _bitsandbytes(host, answer["bitsandbytes"], installed)
    deepspeed = _deepspeed(host, answer["deepspeed"], installed)
    answers = [*problems.values(), *filter(None, (bitsandbytes, deepspeed))]
    yield from answers
    names = dict.fromkeys(library.package for library in libraries)
    if names and not answers:
        yield ok(f"{quantity(len(names), 'package')} built for this torch: {', '.join(names)}")


def _problem(
    host: HostContext, library: CompiledLibrary, runtimes: list[str], installed: dict[str, str]
) -> Answer | None:
    """Return why a library cannot be loaded, or may not work."""
    torch, name = host.get("torch") or {}, f"{library.package} {installed.get(library.package, '')}"
    what, source = f"{name.strip()} ({library.file})", _RELEASES.get(library.package, _LOADER)
    own = cuda_compat.number(torch.get("cuda"))[:1]
    if library.cuda is not None and own and own != (int(library.cuda),):
        effect = "cannot be loaded" if library.cuda not in runtimes else "may fail in CUDA calls"
        problem = f"was built for CUDA {library.cuda}, torch for CUDA {torch['cuda']}: it {effect}"
        return warn(f"{what} {problem}", _rebuild(host, library.package), source)
    if library.symbols:
        is_cuda = any("cuda" in symbol for symbol in library.symbols)
        if is_cuda and not torch.get("cuda") and host.get("gpus", "cards"):
            return skip(f"{what} needs a torch with CUDA, which `torch-build` asks for")
        problem = f"was built for another torch than {torch.get('version') or 'this one'}"
        lacks = _LATER_ERRORS.get(
            library.package, f"ImportError: undefined symbol {library.symbols[0]}"
        )
        return warn(f"{what} {problem}: {lacks}", _rebuild(host, library.package), source)
    libc = re.match(r"glibc\D*([\d.]+)", str(host.get("system", "libc") or ""))
    newest = cuda_compat.number(library.glibc)
    if libc is not None and newest > cuda_compat.number(libc[1]):
        problem = f"needs glibc {library.glibc}, this machine has {libc[1]}: it cannot be loaded"
        return warn(f"{what} {problem}", _rebuild(host, library.package, "--no-binary=:all:"))
    return None


def _rebuild(host: HostContext, package: str, *options: str) -> str:
    """Return the command that installs a build for the torch that is there."""
    again = ["--force-reinstall", "--no-deps", "--no-cache-dir", *options]
    if package in _FROM_SOURCE:
        again.append("--no-build-isolation")
    build = re.search(r"\+(cu\d+|cpu)$", str(host.get("torch", "version") or ""))
    if package.startswith("torch") and build is not None:
        again += ["--index-url", pip_commands.INDEX + build[1]]
    return pip_commands.install(host, [package], *again)


def _bitsandbytes(
    host: HostContext, versions: list[str] | None, installed: dict[str, str]
) -> Answer | None:
    """Return that bitsandbytes has no library for torch's CUDA."""
    cuda = cuda_compat.number(host.get("torch", "cuda"))[:2]
    if not versions or len(cuda) < 2 or visible_gpus.needs_gpu(host) is False:  # noqa: PLR2004
        return None
    forced = job_options.variable(host, "BNB_CUDA_VERSION")
    own, number = forced or f"{cuda[0]}{cuda[1]}", installed.get("bitsandbytes", "")
    is_major = not forced and cuda_compat.number(number) >= _ANY_MINOR
    if own in versions or (is_major and any(version[:-1] == own[:-1] for version in versions)):
        return None
    listed = ", ".join(f"{version[:-1]}.{version[-1]}" for version in versions)
    whose = "BNB_CUDA_VERSION" if forced else "torch"
    return warn(
        f"bitsandbytes {number} has no library for CUDA {own[:-1]}.{own[-1:]} of {whose}, only for "
        f"{listed}: 8-bit and 4-bit modules fail",
        pip_commands.install(host, ["bitsandbytes"], "--upgrade"),
        _BITSANDBYTES,
    )


def _deepspeed(
    host: HostContext, build: dict[str, Any] | None, installed: dict[str, str]
) -> Answer | None:
    """Return that DeepSpeed's compiled operators were built with another torch or CUDA."""
    torch = host.get("torch") or {}
    version, cuda = (cuda_compat.number(torch.get(key))[:2] for key in ("version", "cuda"))
    if build is None or not version:
        return None
    theirs = {
        "torch": cuda_compat.number(build["torch"]),
        "CUDA": cuda_compat.number(build["cuda"]),
    }
    own = {"torch": version, "CUDA": cuda}
    for what, number in theirs.items():
        if own[what] and number and number[:2] != own[what] and number != (0, 0):
            shown = [".".join(map(str, each[:2])) for each in (number, own[what])]
            return warn(
                f"deepspeed {installed.get('deepspeed', '')}: its compiled operators "
                f"({', '.join(build['operators'][:3])}) are for {what} {shown[0]}, not {shown[1]}: "
                "it refuses to load them",
                _rebuild(host, "deepspeed"),
                _DEEPSPEED,
            )
    return None
