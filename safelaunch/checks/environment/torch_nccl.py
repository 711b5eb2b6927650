"""Checks whether torch and NCCL fit the GPUs and the driver of a host.

runtime/facts/interpreter.py reads the facts from the bytes of the libraries: torch is not imported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from safelaunch import launchers
from safelaunch.checks import job_options, job_paths, visible_gpus
from safelaunch.checks.answers import Answer, NotKnown, fail, ok, warn
from safelaunch.checks.environment import cuda_compat, pip_commands
from safelaunch.checks.registry import check
from safelaunch.runtime.packages import RECORDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.checks.context import HostContext
    from safelaunch.checks.visible_gpus import Gpu

_COMPAT = "/usr/local/cuda/compat/libcuda.so.1"
_FORWARD = "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"
_TWO_NCCLS = "https://github.com/pytorch/pytorch/issues/186591"
_NCCL_WHEEL = re.compile(r"nvidia-nccl-cu\d+")
# modules of libraries that load torch
_WITH_TORCH = {name.replace("-", "_") for name in RECORDED} - {"numpy", "ray", "datasets"}
# a program of these uses libraries such as transformers without torch
_OTHER_FRAMEWORKS = frozenset(("jax", "flax", "tensorflow", "keras", "paddle"))
_SWITCHES = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE")


def _may_use_torch(host: HostContext) -> bool:
    """Whether the job may use torch on GPUs."""
    if host.node is not None and not host.runs_python:
        return False
    return visible_gpus.needs_gpu(host) is not False and _uses_torch(host) is not False


def _fail_or_warn(host: HostContext) -> Callable[..., Answer]:
    """Return `fail` where the job certainly needs CUDA, else `warn`."""
    is_certain = host.node is not None and visible_gpus.needs_gpu(host) and _uses_torch(host)
    return fail if is_certain else warn


def _uses_torch(host: HostContext) -> bool | None:
    """Whether the job's program imports torch; None where only its text mentions it.

    Libraries that nobody knows are taken to do without it, a program that nobody can read is not.
    """
    if host.node is None or launchers.load(host.job.launcher).imports(host.job):
        return True
    files = host.context.project_files
    try:
        imports = files.imports
    except NotKnown:
        if host.job.module is not None:
            return _is_torch_library(host.job.module.partition(".")[0])
        return not _is_missing(host)  # `script` fails: nothing can be said of its imports
    names = {module.name for module in imports.third_party}
    is_named = files.any_mentions(b"torch")
    if any(map(_is_torch_library, names)) and (is_named or names.isdisjoint(_OTHER_FRAMEWORKS)):
        return True
    if not is_named:
        return False
    is_whole = imports.is_complete and not imports.unread and not imports.path_changed
    return None if is_whole else True


def _is_torch_library(name: str) -> bool:
    """Whether a module is torch's, or of a library that loads it."""
    return name in _WITH_TORCH or name.startswith("torch")


def _is_missing(host: HostContext) -> bool:
    """Whether the job's script is certainly not there."""
    if host.job.script is None:
        return False
    try:
        return job_paths.answer(host, "path", host.job.script)["kind"] is None
    except NotKnown:
        return False


@check("torch-build", job=False, source=pip_commands.SOURCE)
def torch_build(host: HostContext) -> Answer | None:
    """Whether torch was built for CUDA, not for the CPU or ROCm."""
    if not _may_use_torch(host) or not host.get("gpus", "cards"):
        return None  # gpu-count reports it
    torch = host.fact("torch")
    if torch.get("cuda"):
        return ok(f"torch {torch['version']} is built for CUDA {torch['cuda']}")
    hint = pip_commands.torch(host)
    if torch.get("hip"):
        what = f"torch {torch['version']} is built for ROCm, the GPUs are NVIDIA's"
        return _fail_or_warn(host)(what, hint)
    is_certain = "+cpu" in str(torch.get("version"))
    what = f"torch {torch.get('version') or ''} has no CUDA: the job would not see the GPUs"
    return (_fail_or_warn(host) if is_certain else warn)(what, hint)


@check("torch-archs", job=False, source=cuda_compat.BINARIES)
def torch_archs(host: HostContext) -> Answer | None:
    """Whether torch has code for the GPUs: no kernel runs without it."""
    if not _may_use_torch(host) or not host.get("gpus", "cards"):
        return None
    torch = host.fact("torch")
    if not torch.get("cuda"):
        return None  # torch-build reports it
    archs = torch.get("archs")
    if not archs:
        raise NotKnown("the architectures that torch has code for are not known")
    gpus = visible_gpus.visible(host).gpus
    codes = {gpu["index"]: cuda_compat.code_for(archs, _capability(host, gpu)) for gpu in gpus}
    without = next((gpu for gpu in gpus if codes[gpu["index"]] is None), None)
    if without is not None:
        return _no_code(host, without, [index for index, code in codes.items() if code is not None])
    # a GPU that runs only PTX needs a driver that can compile it
    ptx = [str(code) for code in codes.values() if str(code).startswith("compute_")]
    driver = host.get("gpus", "cuda")
    if ptx and cuda_compat.number(driver)[:2] < cuda_compat.number(torch["cuda"])[:2]:
        return warn(
            f"the driver has to compile torch {torch['version']} for the GPUs ({ptx[0]}), and "
            f"supports CUDA {driver or '?'}, not {torch['cuda']}",
            pip_commands.torch(host),
            cuda_compat.DRIVERS,
        )
    words = ", ".join(sorted({str(code) for code in codes.values()}))
    return ok(f"torch {torch['version']} has {words}") if codes else None


def _no_code(host: HostContext, gpu: Gpu, usable: list[int]) -> Answer:
    """Return what to do about a GPU that torch has no code for; `usable` are the other GPUs."""
    torch, (major, minor) = host.fact("torch"), _capability(host, gpu)
    name = f"sm_{major}{minor} ({gpu.get('name') or 'a GPU'})"
    what = f"torch {torch['version']} has no code for {name}"
    if usable and visible_gpus.visible(host).words is None:  # such as the GPU of the screen
        return warn(f"{what}, but for the other GPUs", f"`gpus: {usable}` leaves it out")
    return _fail_or_warn(host)(
        f"{what}, only {' '.join(torch['archs'])}",
        pip_commands.torch(host),
        f"{cuda_compat.BINARIES}; {pip_commands.SOURCE}",
    )


def _capability(host: HostContext, gpu: Gpu) -> tuple[int, int]:
    """Return a GPU's compute capability, or else that of its profile. Raises NotKnown."""
    capability = cuda_compat.capability(gpu.get("compute_capability"))
    profile = host.profile
    if capability is None and profile and re.fullmatch(profile.gpu_names, gpu["name"] or ""):
        capability = cuda_compat.capability(profile.fact("compute_capability"))
    if capability is None:
        raise NotKnown(f"the compute capability of {gpu.get('name') or 'a GPU'} is not known")
    return capability


@check("torch-driver", job=False, asks=lambda _: [("path", _COMPAT)], source=cuda_compat.DRIVERS)
def torch_driver(host: HostContext) -> Answer | None:
    """Whether the driver is new enough for the CUDA that torch was built with."""
    if not _may_use_torch(host) or not (host.get("gpus", "driver") or host.get("gpus", "cards")):
        return None
    torch, driver = host.fact("torch"), str(host.fact("gpus", "driver"))
    oldest = cuda_compat.oldest_driver(torch["cuda"]) if torch.get("cuda") else None
    if oldest is None:
        return None
    runs = f"driver {driver} runs CUDA {torch['cuda']} of torch {torch['version']}"
    if cuda_compat.number(driver) >= cuda_compat.number(oldest):
        return ok(runs)
    if cuda_compat.number(host.get("gpus", "cuda"))[:1] >= cuda_compat.number(torch["cuda"])[:1]:
        return ok(f"{runs}, by the newer libcuda beside it")
    what = f"torch {torch['version']} needs driver {oldest} or newer, this one is {driver}"
    hint = f"{pip_commands.torch(host)}; or install driver {oldest} or newer"
    if _has_compat(host):
        return warn(f"{what}; there is {_COMPAT}", hint, _FORWARD)
    return _fail_or_warn(host)(what, hint)


def _has_compat(host: HostContext) -> bool:
    """Whether NVIDIA's forward compatibility may replace the driver, as in its containers."""
    path = host.get("environ", "LD_LIBRARY_PATH")
    if host.node is not None:
        path = job_options.variable(host, "LD_LIBRARY_PATH")
    try:
        return "compat" in (path or "") or host.answer("path", _COMPAT)["kind"] is not None
    except NotKnown:
        return True  # it cannot be ruled out


@check("nccl-build", job=False, source=cuda_compat.NCCL)
def nccl_build(host: HostContext) -> Answer | None:
    """Whether NCCL has code for the GPUs, and is new enough for their profile."""
    if not _may_use_nccl(host) or not host.get("gpus", "cards"):
        return None
    torch = host.fact("torch")
    nccl = torch.get("nccl")
    if not nccl:
        if not torch.get("cuda"):
            return None  # torch-build reports it
        raise NotKnown("the version of NCCL is not known")
    version, cuda = _wheel_version(nccl), nccl.get("cuda")
    what = f"NCCL {version}" + (f" built with CUDA {cuda}" if cuda else "")
    capabilities = [_capability(host, gpu) for gpu in visible_gpus.visible(host).gpus]
    newest = max(capabilities, default=(0, 0))
    if newest[0] >= cuda_compat.BLACKWELL:
        code, problem = f"code for sm_{newest[0]}{newest[1]}", ""
        if not cuda_compat.nccl_has_blackwell(version, cuda, version):
            problem = f"has no {code}: collectives crash or hang"
        elif cuda_compat.number(version) == (2, 25, 1):
            problem = "needs more shared memory per block than these GPUs have: it may not start"
        hint = pip_commands.install(host, [f"{_wheel(host)}>=2.26.5"], "--no-deps")
        return warn(f"{what} {problem}", hint) if problem else ok(f"{what} has {code}")
    profile = host.profile
    least = cuda_compat.number(profile.fact("min_nccl") if profile else None)
    if profile is None or not least or cuda_compat.number(version) >= least:
        return ok(what)
    text = ".".join(map(str, least))
    return warn(
        f"{what}; the profile `{profile.name}` needs {text} or newer",
        pip_commands.install(host, [f"{_wheel(host)}>={text}"], "--no-deps"),
        f"profile {profile.name}",
    )


def has_nccl(host: HostContext) -> bool:
    """Whether ranks communicate over NCCL; without a job: whether they may."""
    if visible_gpus.needs_gpu(host) is False:
        return False
    if host.node is None:
        return len(host.get("gpus", "cards") or ()) > 1
    return host.runs_python and host.has_several_ranks


def _may_use_nccl(host: HostContext) -> bool:
    return _may_use_torch(host) and has_nccl(host)


def _wheel(host: HostContext) -> str:
    return f"nvidia-nccl-cu{(cuda_compat.number(host.get('torch', 'cuda')) or (12,))[0]}"


def _wheel_version(nccl: dict[str, Any]) -> str:
    """Return the version with what only the wheel's name has: the `.post1` of 2.26.2.post1."""
    version = str(nccl["version"])
    package = str(nccl.get("package") or "").rpartition(" ")[2]
    return package if cuda_compat.number(package) == cuda_compat.number(version) else version


@check("nccl-several", job=False, source=_TWO_NCCLS)
def nccl_several(host: HostContext) -> Answer | None:
    """Whether only torch's NCCL is installed and loaded, not two wheels in the same folder."""
    if not _may_use_nccl(host):
        return None
    preloaded = host.get("environ", "LD_PRELOAD") or ""
    if host.node is not None and "LD_PRELOAD" not in host.plan.env and "nccl" in preloaded:
        return warn(
            f"LD_PRELOAD of the host puts {preloaded} before torch's NCCL",
            "`env: {LD_PRELOAD: null}`",
        )
    packages = host.fact("python", "packages")
    wheels = {name: packages[name] for name in packages if _NCCL_WHEEL.fullmatch(name)}
    own = _wheel(host)
    if len(wheels) < 2 or own not in wheels:  # noqa: PLR2004 - two of them
        return None
    others = [name for name in wheels if name != own]
    listed = ", ".join(f"{name} {version}" for name, version in wheels.items())
    again = pip_commands.install(host, [f"{own}=={wheels[own]}"], "--no-deps", "--force-reinstall")
    remove = f"`{pip_commands.python(host)} -m pip uninstall -y {' '.join(others)}`"
    what = f"{listed}: they have the same files, the last installed one is used"
    return warn(what, f"{remove}, then {again}")


@check("nccl-config", source="NCCL user guide, Environment Variables")
def nccl_config(host: HostContext) -> Answer | None:
    """Whether NCCL's own configuration files agree with the plan."""
    if not _may_use_nccl(host):
        return None
    configured: dict[str, tuple[str, str]] = {}
    for path, text in (host.get("nccl_conf") or {}).items():
        for line in str(text).splitlines():
            name, equals, value = line.partition("=")
            if equals and re.fullmatch(r"NCCL_\w+", name.strip()):
                configured.setdefault(name.strip(), (path, value.strip()))
    env = host.plan.env
    for name, (path, value) in configured.items():
        if name in env and env[name].value is None:
            what = f"{path} sets {name}={value}, which the job removes (`null`)"
            return warn(what, f"delete that line of {path}: `null` cannot undo a file")
        if name not in env and name in _SWITCHES and value not in ("", "0"):
            if name == "NCCL_IB_DISABLE" and host.job.topology.nodes == 1:
                continue
            what = f"{path} sets {name}={value} for all jobs; the plan does not"
            return warn(what, f'`env: {{{name}: "0"}}`, or delete that line of {path}')
    added = [f"{name}={value}" for name, (_, value) in configured.items() if name not in env]
    return ok(f"{next(iter(configured.values()))[0]} adds {', '.join(added)}") if added else None
