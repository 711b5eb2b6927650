"""The ranks of `accelerate launch` without it: what it sets for them, by the flags of the job.

From accelerate/utils/launch.py (prepare_multi_gpu_env, prepare_deepspeed_cmd_env), run in 16
releases from 1.0.1 to 1.15.0: the same in all of them but for the variables with a gate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.launchers import direct
from safelaunch.launchers.accelerate.choices import DYNAMO_BACKENDS
from safelaunch.model import BUILT_IN, Gate, RankVariable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from safelaunch.launchers import Launch
    from safelaunch.launchers.flag_table import FlagTable
    from safelaunch.model import DirectStart, Job

ACCELERATE = Gate("accelerate", ">=1.0,<1.16", BUILT_IN)


def _lower(value: str) -> str:
    return value.lower()


def _whole(value: str) -> str:
    return str(int(value))


def _number(value: str) -> str:
    return str(float(value))


class _Row(NamedTuple):
    """A variable, the flag that it has its value from, and accelerate's own default: None, unset.

    `convert` is what its parser and its code make of the flag's text, and raises ValueError.
    """

    name: str
    flag: str
    default: str | None = None
    convert: Callable[[str], str] = str
    versions: str = ""


_SWITCHES = (
    ("ACCELERATE_DYNAMO_USE_FULLGRAPH", "dynamo_use_fullgraph", ""),
    ("ACCELERATE_DYNAMO_USE_DYNAMIC", "dynamo_use_dynamic", ""),
    ("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "dynamo_use_regional_compilation", ">=1.7"),
)
_ALL = ("debug", "enable_cpu_affinity", "num_cpu_threads_per_process", "role", "quiet", "no_python")
_FSDP = (
    _Row("FSDP_VERSION", "fsdp_version", "1", versions=">=1.6"),
    _Row("FSDP_SHARDING_STRATEGY", "fsdp_sharding_strategy", "FULL_SHARD"),
    _Row("FSDP_RESHARD_AFTER_FORWARD", "fsdp_reshard_after_forward", "true", _lower, ">=1.6"),
    _Row("FSDP_OFFLOAD_PARAMS", "fsdp_offload_params", "false", _lower),
    # its parser read a float before, and a whole number since
    _Row("FSDP_MIN_NUM_PARAMS", "fsdp_min_num_params", "100000000", _number, "<1.13"),
    _Row("FSDP_MIN_NUM_PARAMS", "fsdp_min_num_params", "100000000", _whole, ">=1.13"),
    _Row("FSDP_AUTO_WRAP_POLICY", "fsdp_auto_wrap_policy"),
    _Row("FSDP_TRANSFORMER_CLS_TO_WRAP", "fsdp_transformer_layer_cls_to_wrap"),
    _Row("FSDP_BACKWARD_PREFETCH", "fsdp_backward_prefetch"),
    _Row("FSDP_STATE_DICT_TYPE", "fsdp_state_dict_type"),
    _Row("FSDP_FORWARD_PREFETCH", "fsdp_forward_prefetch", "false", _lower),
    _Row("FSDP_USE_ORIG_PARAMS", "fsdp_use_orig_params", "true", _lower),
    _Row("FSDP_CPU_RAM_EFFICIENT_LOADING", "fsdp_cpu_ram_efficient_loading", "true", _lower),
    _Row("FSDP_SYNC_MODULE_STATES", "fsdp_sync_module_states", "true", _lower),
    _Row("FSDP_ACTIVATION_CHECKPOINTING", "fsdp_activation_checkpointing", "false", _lower),
    _Row(
        "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD",
        "fsdp_activation_checkpointing_offload",
        "false",
        _lower,
        ">=1.15",
    ),
)
_DEEPSPEED = (
    _Row("ACCELERATE_DEEPSPEED_ZERO_STAGE", "zero_stage", None, _whole),
    _Row("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "gradient_accumulation_steps", None, _whole),
    _Row("ACCELERATE_GRADIENT_CLIPPING", "gradient_clipping", None, _number),
    _Row("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "offload_optimizer_device", None, _lower),
    _Row("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", "offload_param_device", None, _lower),
    _Row("ACCELERATE_DEEPSPEED_ZERO3_INIT", "zero3_init_flag", None, _lower),
    _Row("ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", "zero3_save_16bit_model", None, _lower),
    _Row("ACCELERATE_DEEPSPEED_CONFIG_FILE", "deepspeed_config_file"),
    _Row("ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES", "deepspeed_moe_layer_cls_names"),
)
# the parser of no release takes that name: it has another spelling of it
_BACKENDS = DYNAMO_BACKENDS - {"TORCHXLA_TRACE_ONCE"}
_MODES = ("default", "reduce-overhead", "max-autotune")
_DYNAMO_FLAGS = frozenset(("dynamo_backend", "dynamo_mode", *(flag for _, flag, _ in _SWITCHES)))
_FSDP_FLAGS = frozenset(("use_fsdp", *(row.flag for row in _FSDP)))
_DEEPSPEED_FLAGS = frozenset(
    ("use_deepspeed", "deepspeed_multinode_launcher", *(row.flag for row in _DEEPSPEED))
)
_RENDEZVOUS = ("rdzv_backend", "same_network", "main_process_ip", "main_process_port")
FLAGS = frozenset((*_ALL, *_RENDEZVOUS)) | _DYNAMO_FLAGS | _FSDP_FLAGS | _DEEPSPEED_FLAGS


def start(launch: Launch, table: FlagTable, flags: Mapping[str, str]) -> DirectStart | str:
    """Return how the ranks of a node are started without accelerate, or why they are not."""
    job = launch.job
    own = {*_ALL, *_RENDEZVOUS}
    if "use_deepspeed" in flags:
        own |= _DEEPSPEED_FLAGS
    else:
        own |= _DYNAMO_FLAGS | (_FSDP_FLAGS if "use_fsdp" in flags else frozenset())
    why = direct.reason(job, table, flags, own)
    is_alone = job.topology.nodes == 1
    multinode = flags.get("deepspeed_multinode_launcher")
    if launch.accelerator == "cpu" and job.topology.world_size == 1:
        why = why or "accelerate refuses another kind of start beside `--cpu`"
    elif job.mixed_precision == "fp8":
        why = why or "accelerate itself reads the settings of fp8"
    elif "use_deepspeed" in flags and not is_alone and multinode != "standard":
        why = why or "DeepSpeed's own launcher starts the ranks of several nodes"
    if why:
        return why
    elastic = {"rdzv_backend": flags.get("rdzv_backend", "static")}
    if "main_process_port" in flags:
        elastic["master_port"] = flags["main_process_port"]
    if "main_process_ip" in flags and not is_alone:  # of one node it does not read that flag
        elastic["master_addr"] = flags["main_process_ip"]
    meeting = direct.rendezvous(job, elastic)
    if isinstance(meeting, str):
        return meeting
    try:
        variables = tuple(_variables(launch, flags))
    except ValueError as e:
        return str(e)
    started = direct.start(
        launch,
        meeting,
        flags=flags,
        variables=variables,
        tested=(ACCELERATE, *_gates_of_flags(flags), *_gates_of_port(job, flags)),
        options=("--upper-case", *(("--own-folder",) if "use_deepspeed" in flags else ())),
    )
    return replace(started, refuses_old_rtx40=launch.accelerator == "cuda")


def _variables(launch: Launch, flags: Mapping[str, str]) -> Iterator[RankVariable]:
    """Yield what accelerate sets; raises ValueError with a flag whose value it would refuse."""
    if "debug" in flags:
        yield RankVariable("ACCELERATE_DEBUG_MODE", "true")
    yield RankVariable("ACCELERATE_MIXED_PRECISION", launch.job.mixed_precision or "no")
    if "use_deepspeed" in flags:
        # the settings of a config file; the one that the plan writes has none for DeepSpeed
        yield RankVariable("ACCELERATE_CONFIG_DS_FIELDS", "")
        yield RankVariable("ACCELERATE_USE_DEEPSPEED", "true")
        yield from _rows(_DEEPSPEED, flags)
    else:
        yield from _dynamo(flags)
        if "use_fsdp" in flags:
            yield RankVariable("ACCELERATE_USE_FSDP", "true")
            yield from _rows(_FSDP, flags)
            loading = flags.get("fsdp_cpu_ram_efficient_loading", "true")
            if loading and not flags.get("fsdp_sync_module_states", "true"):
                raise ValueError("accelerate refuses `--fsdp_sync_module_states` without a value")
            if flags.get("fsdp_version", "1") not in ("1", "2"):
                raise ValueError(f"accelerate has no `--fsdp_version {flags['fsdp_version']}`")
    threads = flags.get("num_cpu_threads_per_process")
    if threads is not None:
        count = _converted("num_cpu_threads_per_process", threads, _whole)
        if "use_deepspeed" not in flags:
            yield RankVariable("OMP_NUM_THREADS", count)
    if "enable_cpu_affinity" in flags:
        yield RankVariable("ACCELERATE_CPU_AFFINITY", "1")


def _dynamo(flags: Mapping[str, str]) -> Iterator[RankVariable]:
    backend, mode = flags.get("dynamo_backend", "no"), flags.get("dynamo_mode", "default")
    if backend != backend.lower() or backend.upper() not in _BACKENDS:
        raise ValueError(f"`--dynamo_backend {backend}` is not one that accelerate has everywhere")
    if mode not in _MODES:
        raise ValueError(f"accelerate has no `--dynamo_mode {mode}`")
    yield RankVariable("ACCELERATE_DYNAMO_BACKEND", backend.upper())
    yield RankVariable("ACCELERATE_DYNAMO_MODE", mode)
    for name, flag, versions in _SWITCHES:
        yield RankVariable(name, str(flag in flags), _gate(versions))


def _rows(rows: tuple[_Row, ...], flags: Mapping[str, str]) -> Iterator[RankVariable]:
    for row in rows:
        text = flags.get(row.flag, row.default)
        if text is None:
            continue
        yield RankVariable(row.name, _converted(row.flag, text, row.convert), _gate(row.versions))


def _converted(flag: str, text: str, convert: Callable[[str], str]) -> str:
    try:
        return convert(text)
    except ValueError:
        raise ValueError(f"`--{flag} {text}` is no number") from None


def _gates_of_flags(flags: Mapping[str, str]) -> Iterator[Gate]:
    """Yield the versions from which on accelerate has the flags of a job."""
    pairs = [(row.flag, row.versions) for row in _FSDP]
    pairs += [(flag, versions) for _, flag, versions in _SWITCHES]
    for flag, versions in dict(pairs).items():
        gate = _gate(versions)
        if flag in flags and gate is not None and versions.startswith(">="):
            yield gate


def _gates_of_port(job: Job, flags: Mapping[str, str]) -> Iterator[Gate]:
    """Yield the versions that have a default port: without one, torch draws an id for the run."""
    if job.topology.world_size == 1 and "main_process_port" not in flags:
        yield Gate("accelerate", ">=1.7", BUILT_IN)


def _gate(versions: str) -> Gate | None:
    return Gate("accelerate", versions, BUILT_IN) if versions else None
