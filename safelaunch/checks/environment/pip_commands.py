"""Commands that cure what is missing in an environment: pip, for this interpreter and these cards.

Which torch has code for which card was read off the wheels (`cuobjdump`, pytorch issue 172352 and
PR 175253); where its builds lie is on https://pytorch.org/get-started.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from safelaunch.checks.environment import cuda_compat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.checks.context import HostContext

INDEX = "https://download.pytorch.org/whl/"
SOURCE = "https://pytorch.org/get-started; pytorch issue 172352, PR 175253"
# where the module and what is installed for it have different names
PROJECTS = {"swift": "ms-swift", "flash_attn": "flash-attn", "liger_kernel": "liger-kernel",
            "transformer_engine": "transformer-engine[pytorch]", "comet_ml": "comet-ml",
            "realhf": "areal"}  # fmt: skip
_FROM_CHECKOUT = ("areal",)  # the launchers of AReaL 0.2 to 1 come with its repository
_OLDEST_GLIBC = 17  # manylinux2014 is manylinux_2_17
_AGAIN = "--force-reinstall"  # else pip leaves another build of the same version in place
_SYSTEM = ("/usr", "/usr/local")


def python(host: HostContext) -> str:
    """Return the job's interpreter as the machine knows it, or what it was asked for."""
    path = host.get("python", "executable") or host.interpreter
    if path is None and host.is_local:
        environ = host.context.environ
        prefix = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX")
        path = f"{prefix}/bin/python" if prefix else None
    return str(path or "python3")


def install(host: HostContext, names: Iterable[str], *more: str) -> str:
    """Return the command that installs modules or requirements there; `more` are options of pip."""
    wanted = [PROJECTS.get(name, name) for name in names]
    if any(name in _FROM_CHECKOUT for name in wanted):
        return f"in AReaL's checkout{_where(host)}: `{_pip(host)} -e .`"
    listed = shlex.join([*wanted, *more])
    if host.get("python", "prefix") in _SYSTEM:
        return _own_environment(host, listed)
    text = f"`{_pip(host)} {listed}`{_where(host)}"
    download = _download(host, shlex.join(wanted), shlex.join(w for w in more if w != _AGAIN))
    return f"{text}; without internet there, here: {download}" if download else text


def torch(host: HostContext) -> str:
    """Return the command that installs a torch for the cards and the driver of the machine."""
    requirement, index = torch_for(
        host.get("gpus", "driver"),
        host.get("gpus", "cuda"),
        [found for card in host.get("gpus", "cards") or ()
         if (found := cuda_compat.capability(card.get("compute_capability")))],
    )  # fmt: skip
    again = [_AGAIN] if host.get("torch") else []
    return install(host, [requirement], *again, *(["--index-url", INDEX + index] if index else []))


def torch_for(
    driver: str | None, newest: str | None, capabilities: list[tuple[int, int]]
) -> tuple[str, str]:
    """Return a requirement, and the index of that build; the index is empty for PyPI.

    `newest` is the CUDA that the driver says it supports.
    """
    major = (cuda_compat.number(newest) or (cuda_compat.newest_cuda(driver),))[0]
    oldest = min(capabilities, default=(8, 0))
    if driver is None and newest is None:
        return "torch", "cpu"
    if major is None or major < 12:  # noqa: PLR2004 - torch 2.0.1 is built with CUDA 11.7
        return "torch==2.0.1", ""
    if oldest < (7, 0):
        return "torch==2.7.*", ""  # the last on PyPI with 5.0 and 6.0, for CUDA 12.6
    if oldest < (7, 5):
        return "torch", "cu126"  # the others left 7.0 with torch 2.11
    if major >= 13:  # noqa: PLR2004 - as PyPI's torch since 2.11
        return "torch", ""
    is_new = max(capabilities, default=(8, 0))[0] >= cuda_compat.BLACKWELL
    return "torch", "cu128" if is_new or cuda_compat.number(newest) >= (12, 8) else "cu126"


def elsewhere(host: HostContext, names: Iterable[str]) -> str | None:
    """Return which other environment of the machine has all of these, as a job is told of it."""
    wanted = [PROJECTS.get(name, name) for name in names]
    for one in host.get("environments") or ():
        has = one.get("packages") or {}
        if all(name in has for name in wanted):
            listed = " and ".join(f"{name} {has[name]}" for name in wanted)
            return f"`python: {one['python']}`, which has {listed}"
    return None


# -- parts of commands -----------------------------------------------------------------------------


def _pip(host: HostContext) -> str:
    path, installed = shlex.quote(python(host)), host.get("python", "packages")
    if installed is None or "pip" in installed:
        return f"{path} -m pip install"
    if host.get("tools", "uv"):  # environments that uv makes have no pip
        return f"uv pip install --python {path}"
    return f"{path} -m ensurepip && {path} -m pip install"


def _where(host: HostContext) -> str:
    return "" if host.is_local else f" on {host.name}"


def _own_environment(host: HostContext, listed: str) -> str:
    """Return how to make an environment beside the system's Python, which pip leaves alone."""
    name = "train" if host.node is None else host.job.name
    folder = f"{host.get('system', 'home') or '/opt'}/envs/{name}"
    path, made = shlex.quote(python(host)), shlex.quote(folder)
    return (
        f"`{path} -m venv {made} && {made}/bin/python -m pip install {listed}`{_where(host)}, "
        f"and `venv: {folder}`"
    )


def _download(host: HostContext, listed: str, index: str) -> str | None:
    """Return how to fetch wheels for the machine here, with its own tags; None where it is here."""
    version = cuda_compat.number(host.get("python", "version"))
    libc = re.fullmatch(r"(glibc|musl)\D*(\d+)\.(\d+).*", host.get("system", "libc") or "")
    machine = host.get("system", "machine")
    if host.is_local or len(version) < 2 or libc is None or machine is None:  # noqa: PLR2004
        return None
    tags = f"--platform=musllinux_1_{{0..{libc[3]}}}_{machine}"
    if libc[1] == "glibc":
        newer = f"--platform=manylinux_{libc[2]}_{{{_OLDEST_GLIBC}..{libc[3]}}}_{machine}"
        tags = f"--platform=manylinux2014_{machine} {newer}"
    return (
        f"`python3 -m pip download -d wheels --only-binary=:all: --python-version "
        f"{' '.join([f'{version[0]}.{version[1]}', tags, listed, index]).strip()}` in bash, and in "
        "the job `assets: {wheels: {path: wheels, to: wheels}}` with "
        f"`setup: {shlex.quote(python(host))} -m pip install --no-index -f wheels {listed}`"
    )
