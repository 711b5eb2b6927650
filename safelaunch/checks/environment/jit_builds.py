"""Checks: what compiles CUDA code while a job starts, as DeepSpeed's operators are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.checks import job_needs, job_options, visible_gpus
from safelaunch.checks.answers import Answer, Question, ok, warn
from safelaunch.checks.environment import cuda_compat, pip_commands
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.checks.context import HostContext

_TOOLKITS = "/usr/local/cuda-*/bin/nvcc"
_SOURCE = "https://github.com/deepspeedai/DeepSpeed/pull/3436; docs/_tutorials/advanced-install.md"


# DeepSpeed's own optimizers are compiled at their first use, Adam unless `torch_adam` is said:
# runtime/engine.py, _configure_basic_optimizer
_OWN_OPTIMIZERS = ("adam", "adamw", "lamb", "lion", "onebitadam", "onebitlamb", "zerooneadam")
_FILES = ("deepspeed", "deepspeed_config", "deepspeed_config_file", "ds_config")
_OFF_CARD = ("cpu", "nvme")


def _compiles(host: HostContext) -> bool:
    """Whether DeepSpeed will surely compile operators: its own optimizers, and offloading, do."""
    if not job_needs.runs_python(host) or not visible_gpus.needs_gpu(host):
        return False
    given = job_options.with_launcher(host.job)
    if any(value in _OFF_CARD for value in given.get("offload_optimizer_device", ())):
        return True  # accelerate's own
    named = [
        value for name in _FILES if job_options.is_not_off(given, name) for value in given[name][:1]
    ]
    return any(_is_compiled(host, name) for name in named)


def _is_compiled(host: HostContext, name: str) -> bool:
    """Whether settings ask for such operators; of a built-in name (`zero3_offload`) it is told."""
    if not name.endswith(".json"):
        return "/" not in name and "offload" in name
    settings = host.context.project_files.settings(name)
    if not isinstance(settings, dict):
        return False
    zero = settings.get("zero_optimization")
    for key in ("offload_optimizer", "offload_param"):
        told = zero.get(key) if isinstance(zero, dict) else None
        if isinstance(told, dict) and told.get("device") in _OFF_CARD:
            return True
    own = settings.get("optimizer")
    if not isinstance(own, dict) or str(own.get("type")).lower() not in _OWN_OPTIMIZERS:
        return False
    params = own.get("params")
    return not (isinstance(params, dict) and params.get("torch_adam") is True)


def _asks(host: HostContext) -> Iterator[Question]:
    if _compiles(host):
        yield ("glob", _TOOLKITS)


@check("cuda-compiler", "environment", asks=_asks, source=_SOURCE)
def cuda_compiler(host: HostContext) -> Answer | None:
    """Whether nvcc is of the same major CUDA as torch: DeepSpeed refuses another one."""
    if not _compiles(host):
        return None
    torch = host.fact("torch")
    wanted = str(torch.get("cuda") or "")
    if not wanted:
        return None
    given = job_options.variable(host, "CUDA_HOME")
    found = None if given else (host.fact("tools").get("nvcc") or {})
    home = host.get("tools", "cuda_home") or {}
    version = home.get("version") if given is None or given == home.get("path") else None
    version = version or (found or {}).get("version")
    if given is not None and version is None:
        return None  # the job says where it is
    same = cuda_compat.number(version)[:1] == cuda_compat.number(wanted)[:1]
    if version is not None and same:
        return ok(f"nvcc {version}, torch is built with CUDA {wanted}")
    what = "no nvcc is found there" if version is None else f"nvcc is of CUDA {version}"
    return warn(
        f"{what}, torch is built with CUDA {wanted}: DeepSpeed cannot compile its operators",
        _other_toolkit(host, wanted),
    )


def _other_toolkit(host: HostContext, wanted: str) -> str:
    """Return how to give the job a compiler of the right CUDA: one that is there, else conda's."""
    major = cuda_compat.number(wanted)[0]
    for path in host.answer("glob", _TOOLKITS)["found"]:
        folder = str(path).rpartition("/bin/")[0]
        if cuda_compat.number(folder.rpartition("cuda-")[2])[:1] == (major,):
            return f"`env: {{CUDA_HOME: {folder}}}`"
    where = "" if host.is_local else f" on {host.name}"
    if host.get("python", "kind") == "conda":
        prefix = host.get("python", "prefix")
        return (
            f"`conda install -p {prefix} -c nvidia cuda-nvcc={wanted}`{where}, "
            f"and `env: {{CUDA_HOME: {prefix}}}`"
        )
    return f"install the CUDA {wanted} toolkit{where}, and `env: {{CUDA_HOME: its folder}}`"


@check("ninja", "environment", source="deepspeed: op_builder/builder.py, jit_load")
def ninja(host: HostContext) -> Answer | None:
    """Whether ninja is there: DeepSpeed compiles with no other."""
    if not _compiles(host):
        return None
    # pip's ninja is in the interpreter's bin folder, which the plan puts first on PATH
    if "ninja" in host.fact("python", "packages") or host.get("tools", "ninja"):
        return ok("ninja is there")
    return warn(
        "no ninja: DeepSpeed cannot compile its operators", pip_commands.install(host, ["ninja"])
    )
