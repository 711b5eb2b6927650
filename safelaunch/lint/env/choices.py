"""The words that variables take where a library refuses or ignores every other one.

A variable whose words depend on the release or on plug-ins is not listed: a wrong finding is worse
than a missed one. Each entry names its source. Those in `COMPARED` were compared with it on
`CHECKED`; the others are still to be compared, and only warn.
"""

# ruff: noqa: PLC0415 - difflib is imported only for a wrong value

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.config.schema.text_checks import shorten
from safelaunch.errors import did_you_mean
from safelaunch.lint.env.model import VariableProblem
from safelaunch.lint.finding import ERROR, WARNING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKED = "2026-11-24"
_NEAR = 0.85  # of difflib: one wrong letter in seven


class Choices(NamedTuple):
    """The words of a variable, what its reader does with another one, and where that is written.

    `separators` split a list of words; each may begin with one of the characters of `marks`.
    """

    words: tuple[str, ...]
    harm: str
    source: str
    any_case: bool = False
    pattern: str = ""  # other values that are right
    separators: str = ""
    marks: str = ""
    near_only: bool = False  # only what resembles a word is wrong: other words may be modules
    severity: str = ERROR


_FSDP = "accelerate 1.15.0, utils/constants.py and utils/dataclasses.py"
_ACCELERATE = "accelerate raises an error"
_NUMBERS = r"\d+"
_PYTHON_LEVELS = ("CRITICAL", "FATAL", "ERROR", "WARN", "WARNING", "INFO", "DEBUG", "NOTSET")
_HF_LEVELS = ("detail", "debug", "info", "warning", "error", "critical")
_ALGORITHMS = (
    *("Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"),
    "Collnet",  # before 2.14
)
_FUNCTION = r"(allgather|allreduce|broadcast|reduce|reducescatter|default):"
_LOGS = (
    "all", "annotation", "aot", "aot_graphs", "aot_graphs_effects", "aot_joint_graph",
    "async_compile", "auto_chunker", "autograd", "autotuning", "benchmarking", "bytecode",
    "c10d", "cache", "caching", "compiled_autograd", "compiled_autograd_verbose",
    "compute_dependencies", "cudagraph_static_inputs", "cudagraphs", "ddp", "ddp_graphs",
    "distributed", "dtensor", "dynamic", "dynamo", "export", "fake_tensor", "fsdp", "fusion",
    "graph", "graph_breaks", "graph_code", "graph_code_verbose", "graph_region_expansion",
    "graph_sizes", "guards", "hierarchical_compile", "incremental", "inductor",
    "inductor_metrics", "ir_post_fusion", "ir_pre_fusion", "kernel_code", "loop_ordering",
    "loop_tiling", "native_dsl", "node_runtime_estimation", "not_implemented", "onnx",
    "onnx_diagnostics", "output_code", "overlap", "overlap_scheduling", "perf_hints",
    "post_grad_graphs", "pp", "pre_grad_graphs", "recompiles", "recompiles_verbose", "schedule",
    "side_effects", "sym_node", "torch", "trace_bytecode", "trace_call", "trace_shape_events",
    "trace_source", "verbose_guards",
)  # fmt: skip
_ARCHITECTURE = (
    r"native|(Kepler|Maxwell|Pascal|Volta|Turing|Ampere|Ada|Hopper|Blackwell)(\+Tegra|\+Tesla)?"
    r"|\d+\.\d[af]?(\+PTX)?"
)

CHOICES: Mapping[str, Choices] = {
    "ACCELERATE_MIXED_PRECISION": Choices(
        ("no", "fp16", "bf16", "fp8"), _ACCELERATE, "accelerate 1.15.0, state.py", any_case=True
    ),
    "ACCELERATE_DEEPSPEED_ZERO_STAGE": Choices(
        ("0", "1", "2", "3"), "DeepSpeed has no such stage", "accelerate 1.15.0"
    ),
    "ACCELERATE_LOG_LEVEL": Choices(
        _PYTHON_LEVELS, _ACCELERATE, "accelerate 1.15.0, logging.py", any_case=True
    ),
    "ACCELERATE_DYNAMO_BACKEND": Choices(
        ("no", "eager", "aot_eager", "inductor", "cudagraphs", "onnxrt", "tensorrt", "ipex"),
        _ACCELERATE,
        "accelerate 1.15.0, utils/dataclasses.py: DynamoBackend",
        any_case=True,
        near_only=True,
    ),
    "FSDP_SHARDING_STRATEGY": Choices(
        ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"),
        _ACCELERATE,
        _FSDP,
        any_case=True,
        pattern=_NUMBERS,
    ),
    "FSDP_AUTO_WRAP_POLICY": Choices(
        ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"), _ACCELERATE, _FSDP, any_case=True
    ),
    "FSDP_BACKWARD_PREFETCH": Choices(
        ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"),
        _ACCELERATE,
        _FSDP,
        any_case=True,
        pattern=_NUMBERS,
    ),
    "FSDP_STATE_DICT_TYPE": Choices(
        ("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"),
        _ACCELERATE,
        _FSDP,
        any_case=True,
        pattern=_NUMBERS,
    ),
    "CUDA_DEVICE_ORDER": Choices(
        ("FASTEST_FIRST", "PCI_BUS_ID"),
        "CUDA numbers the fastest GPU first then",
        "CUDA programming guide, CUDA environment variables",
    ),
    "CUDA_MODULE_LOADING": Choices(
        ("LAZY", "EAGER", "DEFAULT"),
        "CUDA ignores it",
        "CUDA programming guide, CUDA environment variables",
        severity=WARNING,
    ),
    "TORCH_DISTRIBUTED_DEBUG": Choices(
        ("OFF", "INFO", "DETAIL"),
        "PyTorch raises an error",
        "torch/csrc/distributed/c10d/debug.cpp",
        any_case=True,
    ),
    "TORCH_LOGS": Choices(
        _LOGS,
        "`import torch` raises an error",
        "PyTorch 2.13.0, torch/_logging/_registrations.py",
        separators=",",
        marks="+-",
        near_only=True,
    ),
    "TORCH_CUDA_ARCH_LIST": Choices(
        (),
        "extensions do not compile, `;` or a space separates numbers such as 9.0",
        "PyTorch 2.13.0, torch/utils/cpp_extension.py: _get_cuda_arch_flags",
        pattern=_ARCHITECTURE,
        separators="; ",
    ),
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": Choices(
        (),
        "PyTorch raises an error when the process group is created, it expects a number",
        "torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, getCvarInt",
        pattern=r"\s*[-+]?\d.*",
    ),
    "TRANSFORMERS_VERBOSITY": Choices(
        _HF_LEVELS, "transformers ignores it", "transformers utils/logging.py", severity=WARNING
    ),
    "WANDB_MODE": Choices(
        ("online", "offline", "shared", "disabled", "dryrun", "run"),
        "wandb raises an error",
        "wandb 0.31.0, sdk/wandb_settings.py",
    ),
    "WANDB_RESUME": Choices(
        ("allow", "must", "never", "auto"),
        "wandb raises an error",
        "wandb 0.31.0, sdk/wandb_settings.py",
        near_only=True,  # also truth words
    ),
    "NCCL_ALGO": Choices(
        _ALGORITHMS,
        "NCCL has no such algorithm; 2.24 and newer raise an error",
        "NVIDIA/nccl, src/graph/tuning.cc: parseList",
        any_case=True,
        separators=",;",
        marks="^",
    ),
    "NCCL_PROTO": Choices(
        ("LL", "LL128", "Simple"),
        "NCCL has no such protocol; 2.24 and newer raise an error",
        "NVIDIA/nccl, src/graph/tuning.cc: parseList",
        any_case=True,
        separators=",;",
        marks="^",
    ),
    "NCCL_SOCKET_FAMILY": Choices(
        ("AF_INET", "AF_INET6"),
        "NCCL ignores it",
        "NVIDIA/nccl, src/misc/socket.cc",
        severity=WARNING,
    ),
    "VLLM_WORKER_MULTIPROC_METHOD": Choices(
        ("spawn", "fork", "forkserver"), "vLLM cannot start its workers", "vllm/envs.py"
    ),
    "VLLM_USE_V1": Choices((), "vLLM raises an error, it expects 0 or 1", "vllm/envs.py",
                           pattern=_NUMBERS),
    "VLLM_CONFIGURE_LOGGING": Choices((), "vLLM raises an error, it expects a number",
                                      "vllm/envs.py", pattern=_NUMBERS),
    "VLLM_ENABLE_V1_MULTIPROCESSING": Choices((), "vLLM raises an error, it expects 0 or 1",
                                              "vllm/envs.py", pattern=_NUMBERS),
    "VLLM_SERVER_DEV_MODE": Choices((), "vLLM raises an error, it expects 0 or 1",
                                    "vllm/envs.py", pattern=_NUMBERS),
    "VLLM_RPC_TIMEOUT": Choices((), "vLLM raises an error, it expects milliseconds",
                                "vllm/envs.py", pattern=_NUMBERS),
    "CUBLAS_WORKSPACE_CONFIG": Choices(
        (),
        "cuBLAS expects `:SIZE:COUNT`, such as :4096:8",
        "cuBLAS documentation, Results reproducibility",
        pattern=r"(:\d+:\d+)+",
    ),
    "PYTHONHASHSEED": Choices(
        ("random",),
        "Python ends at once, it expects `random` or a number up to 4294967295",
        "Python documentation, Command line and environment",
        pattern=r"\d{1,10}",
    ),
    "OMP_NUM_THREADS": Choices(
        (),
        "OpenMP ignores it, it expects numbers from 1",
        "OpenMP 5.2, section 21.1.2",
        pattern=r"\s*0*[1-9]\d*\s*",
        separators=",",
        severity=WARNING,
    ),
    "TOKENIZERS_PARALLELISM": Choices(
        (),
        "tokenizers takes it for true",
        "huggingface/tokenizers, src/utils/parallelism.rs",
        pattern=r"(?i)(?!(none|disable|disabled|never)$).*",
        severity=WARNING,
    ),
}  # fmt: skip
_EXAMPLES = {
    "TORCH_CUDA_ARCH_LIST": "TORCH_CUDA_ARCH_LIST='8.0;9.0+PTX'",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
    "CUBLAS_WORKSPACE_CONFIG": "CUBLAS_WORKSPACE_CONFIG=:4096:8",
    "PYTHONHASHSEED": "PYTHONHASHSEED=0",
    "OMP_NUM_THREADS": "OMP_NUM_THREADS=8",
    "TOKENIZERS_PARALLELISM": "TOKENIZERS_PARALLELISM=false",
}


# entries whose words were compared with the source's text, or tried
COMPARED = frozenset(
    {
        *("ACCELERATE_MIXED_PRECISION", "ACCELERATE_LOG_LEVEL", "FSDP_SHARDING_STRATEGY"),
        *("FSDP_AUTO_WRAP_POLICY", "FSDP_BACKWARD_PREFETCH", "FSDP_STATE_DICT_TYPE"),
        *("TORCH_LOGS", "TORCH_CUDA_ARCH_LIST", "VLLM_USE_V1", "VLLM_CONFIGURE_LOGGING"),
        *("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_SERVER_DEV_MODE", "VLLM_RPC_TIMEOUT"),
        *("TORCH_DISTRIBUTED_DEBUG", "PYTHONHASHSEED"),
    }
)


def check(name: str, value: str) -> VariableProblem | None:
    """Return the problem of a value that is none of a variable's words, or None."""
    if name in _DEVICES:
        return _repeated_device(name, value)
    choices = CHOICES.get(name)
    if choices is None or not value.strip():
        return None
    words = re.split(f"[{choices.separators}]", value) if choices.separators else [value]
    wrong = next((word for word in words if word.strip() and not _is_right(word, choices)), None)
    if wrong is None:
        return None
    shown = wrong.strip().lstrip(choices.marks)
    if choices.near_only and not is_near(shown, choices.words):
        return None
    near = did_you_mean(shown, choices.words)
    example = _EXAMPLES.get(name) or (f"write {name}=1 or {name}=0" if not choices.words else "")
    fix = near or example or f"one of {', '.join(choices.words)}"
    part = "" if wrong == value else f" `{shorten(shown)}`"
    message = f"`{name}={shorten(value)}`:{part} {choices.harm}"
    severity = choices.severity if name in COMPARED else WARNING
    return VariableProblem("env-value", name, message, fix, severity)


# torch 2.14.1, cuda/__init__.py, _parse_visible_devices: "Repeated ordinal results in empty set"
_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


def _repeated_device(name: str, value: str) -> VariableProblem | None:
    words = [word.strip() for word in value.split(",")]
    repeated = next((word for word in words if word and words.count(word) > 1), None)
    if repeated is None:
        return None
    message = f"`{name}={shorten(value)}` names {repeated} twice: PyTorch then sees no GPU at all"
    fix = f"write {name}={','.join(dict.fromkeys(words))}"
    return VariableProblem("env-value", name, message, fix, ERROR)


def _is_right(word: str, choices: Choices) -> bool:
    word = word.strip()
    if choices.pattern and re.fullmatch(choices.pattern, word):
        return True
    if choices.separators == ",;":  # of NCCL 2.24 and newer: `allreduce:tree;broadcast:ring`
        word = re.sub(_FUNCTION, "", word, flags=re.IGNORECASE)
    word = word.lstrip(choices.marks)
    if choices.any_case:
        return word.lower() in [right.lower() for right in choices.words]
    return word in choices.words


def is_near(word: str, words: tuple[str, ...]) -> bool:
    """Whether a word can only be a misspelt one of these."""
    from difflib import get_close_matches

    return bool(get_close_matches(word.lower(), [w.lower() for w in words], cutoff=_NEAR))
