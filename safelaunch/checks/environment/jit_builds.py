"""Checks of what compiles CUDA code while a job starts, such as DeepSpeed's operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.checks import job_options, visible_gpus
from safelaunch.checks.answers import Answer, Question, ok, warn
from safelaunch.checks.environment import cuda_compat, pip_commands
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.checks.context import HostContext

_TOOLKITS = "/usr/local/cuda-*/bin/nvcc"
_SOURCE = "https://github.com/deepspeedai/DeepSpeed/pull/3436; docs/_tutorials/advanced-install.md"


# DeepSpeed's own optimizers are compiled at their first use, Adam unless `torch_adam` is set:
# runtime/engine.py, _configure_basic_optimizer
_OWN_OPTIMIZERS = ("adam", "adamw", "lamb", "lion", "onebitadam", "onebitlamb", "zerooneadam")
_FILES = ("deepspeed", "deepspeed_config", "deepspeed_config_file", "ds_config")
_OFFLOAD = ("cpu", "nvme")


def _compiles(host: HostContext) -> bool:
    """Whether DeepSpeed certainly compiles operators: for its own optimizers, or to offload."""
    if not host.runs_python or not visible_gpus.needs_gpu(host):
        return False
    options = job_options.with_launcher(host.job)
    if any(value in _OFFLOAD for value in options.get("offload_optimizer_device", ())):
        return True  # accelerate's own option
    return any(
        _config_compiles(host, options[name][0])
        for name in _FILES
        if job_options.is_not_off(options, name)
    )


def _config_compiles(host: HostContext, name: str) -> bool:
    """Whether a DeepSpeed configuration, or a built-in one (`zero3_offload`), needs operators."""
    if not name.endswith(".json"):
        return "/" not in name and "offload" in name
    settings = host.context.project_files.settings(name)
    zero, optimizer = _mapping(settings, "zero_optimization"), _mapping(settings, "optimizer")
    for key in ("offload_optimizer", "offload_param"):
        if _mapping(zero, key).get("device") in _OFFLOAD:
            return True
    is_own = str(optimizer.get("type")).lower() in _OWN_OPTIMIZERS
    return is_own and _mapping(optimizer, "params").get("torch_adam") is not True


def _mapping(settings: Any, key: str) -> dict[str, Any]:
    """Return a block of settings; an empty one where it is missing or of another type."""
    block = settings.get(key) if isinstance(settings, dict) else None
    return block if isinstance(block, dict) else {}


def _questions(host: HostContext) -> Iterator[Question]:
    if _compiles(host):
        yield ("glob", _TOOLKITS)
        home = job_options.variable(host, "CUDA_HOME")
        if home is not None:
            yield ("path", f"{home.rstrip('/')}/bin/nvcc")


@check("cuda-compiler", asks=_questions, source=_SOURCE)
def cuda_compiler(host: HostContext) -> Answer | None:
    """Whether nvcc has the same major CUDA as torch: DeepSpeed refuses another one."""
    if not _compiles(host):
        return None
    cuda = str(host.fact("torch").get("cuda") or "")
    if not cuda:
        return None
    cuda_home = job_options.variable(host, "CUDA_HOME")
    nvcc = {} if cuda_home else (host.fact("tools").get("nvcc") or {})
    home = host.get("tools", "cuda_home") or {}
    version = home.get("version") if cuda_home in (None, home.get("path")) else None
    version = version or nvcc.get("version")
    if cuda_home is not None and version is None:
        if host.answer("path", f"{cuda_home.rstrip('/')}/bin/nvcc")["kind"] is not None:
            return None  # the version at the job's own path is not known
        what = f"CUDA_HOME={cuda_home} has no bin/nvcc: DeepSpeed cannot compile its operators"
        return warn(what, _other_toolkit(host, cuda))
    if version is not None and cuda_compat.number(version)[:1] == cuda_compat.number(cuda)[:1]:
        return ok(f"nvcc {version}, torch is built with CUDA {cuda}")
    what = "there is no nvcc" if version is None else f"nvcc is of CUDA {version}"
    return warn(
        f"{what}, torch is built with CUDA {cuda}: DeepSpeed cannot compile its operators",
        _other_toolkit(host, cuda),
    )


def _other_toolkit(host: HostContext, cuda: str) -> str:
    """Return how to give the job a compiler of the right CUDA: an installed one, else conda's."""
    for path in host.answer("glob", _TOOLKITS)["found"]:
        folder = str(path).rpartition("/bin/")[0]
        version = folder.rpartition("cuda-")[2]
        if cuda_compat.number(version)[:1] == cuda_compat.number(cuda)[:1]:
            return f"`env: {{CUDA_HOME: {folder}}}`"
    where = pip_commands.on_host(host)
    if host.get("python", "kind") == "conda":
        prefix = host.get("python", "prefix")
        return (
            f"`conda install -p {prefix} -c nvidia cuda-nvcc={cuda}`{where}, "
            f"and `env: {{CUDA_HOME: {prefix}}}`"
        )
    return f"install the CUDA {cuda} toolkit{where}, and `env: {{CUDA_HOME: its folder}}`"


@check("ninja", source="deepspeed: op_builder/builder.py, jit_load")
def ninja(host: HostContext) -> Answer | None:
    """Whether ninja is installed: DeepSpeed compiles with nothing else."""
    if not _compiles(host):
        return None
    # pip's ninja is in the interpreter's bin folder, which the plan puts first on PATH
    if "ninja" in host.fact("python", "packages") or host.get("tools", "ninja"):
        return ok("ninja is installed")
    return warn(
        "no ninja: DeepSpeed cannot compile its operators", pip_commands.install(host, ["ninja"])
    )


# Triton 3.0.0, 3.4.0 and 3.8.0, runtime/build.py: CC, else gcc or clang on PATH
_COMPILER = "triton: runtime/build.py, Failed to find C compiler"


def _uses_triton(host: HostContext) -> bool:
    """Whether torch.compile, by an option of the Trainer or of accelerate, compiles for GPUs."""
    options = job_options.with_launcher(host.job)
    backend = job_options.first_value(options, "torch_compile_backend", "dynamo_backend")
    is_on = job_options.is_on(options, "torch_compile") or backend is not None
    return is_on and (backend or "inductor").lower() == "inductor"


@check("c-compiler", source=_COMPILER)
def c_compiler(host: HostContext) -> Answer | None:
    """Whether there is a C compiler where torch.compile needs one: Triton builds with it."""
    if not host.runs_python or host.plan.setup or not _uses_triton(host):
        return None  # `setup` may load a module that has one
    if not visible_gpus.needs_gpu(host) or job_options.variable(host, "CC"):
        return None
    tools = host.fact("tools")
    if "gcc" not in tools or "clang" not in tools:
        return None  # another version of the probe did not look for them
    for name in ("gcc", "clang"):
        if tools[name]:
            return ok(f"{name} is {tools[name]['path']}")
    what = "torch.compile needs a C compiler, and there is neither gcc nor clang on PATH"
    return warn(what, f"`apt-get install gcc`{pip_commands.on_host(host)}, or `env: {{CC: ...}}`")
