"""Hugging Face Accelerate: `accelerate launch`, with every default stated.

Flags alone do not stop a `default_config.yaml` in the user's cache from choosing FSDP, so unless
the job names a config file, one is written to the run directory and passed to it. A pasted line
means what its config file says: config_file.py turns that into flags.
"""
# ruff: noqa: PLC0415 - config_file, choices and direct are imported only where a job needs them

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.launchers import Command, FixedPort, Launch, Rendezvous, common
from safelaunch.launchers.common import (
    for_elastic,
    is_zero,
    master_addr,
    master_port,
    module_or_script,
    port_number,
)
from safelaunch.launchers.flag_table import (
    PASTED_LINE,
    ConfigFile,
    FlagTable,
    LineFlag,
    Setting,
    check_flags,
    flag_values,
)
from safelaunch.model import PlanWarning, Slot, Word, join_words, text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from safelaunch.model import DirectStart, EnvVar, Job

SUMMARY = "accelerate launch: one process per GPU, DeepSpeed and FSDP through its flags or config"
TARGETS = ("script", "module")
STARTS_RANKS = True
COUNT_REQUIRED = True
RUNS_PYTHON = True
SETS_THREADS = True
PROGRAMS = ("accelerate launch", "accelerate-launch")
MODULES = ("accelerate.commands.launch",)
CONSOLE_MODULES = {"accelerate.commands.accelerate_cli": "accelerate"}
NODE_0 = "--main_process_ip ADDRESS --main_process_port PORT, in a job file under `launcher_args`"
TIMEOUT = (
    "`ddp_timeout` (seconds) of TrainingArguments, or "
    "`InitProcessGroupKwargs(timeout=...)` for Accelerator"
)

# The parser of accelerate 1.15.
_VALUED = frozenset((
    "config_file", "mixed_precision", "num_processes", "num_machines",
    "num_cpu_threads_per_process", "dynamo_backend", "dynamo_mode", "gpu_ids", "machine_rank",
    "main_process_ip", "main_process_port", "tee", "log_dir", "role", "rdzv_backend", "rdzv_conf",
    "max_restarts", "monitor_interval", "vm", "env", "main_training_function",
    "deepspeed_config_file", "zero_stage", "offload_optimizer_device", "offload_param_device",
    "offload_optimizer_nvme_path", "offload_param_nvme_path", "gradient_accumulation_steps",
    "gradient_clipping", "zero3_init_flag", "zero3_save_16bit_model", "deepspeed_hostfile",
    "deepspeed_exclusion_filter", "deepspeed_inclusion_filter", "deepspeed_multinode_launcher",
    "deepspeed_moe_layer_cls_names", "fsdp_version", "fsdp_offload_params", "fsdp_min_num_params",
    "fsdp_sharding_strategy", "fsdp_reshard_after_forward", "fsdp_auto_wrap_policy",
    "fsdp_transformer_layer_cls_to_wrap", "fsdp_backward_prefetch", "fsdp_state_dict_type",
    "fsdp_forward_prefetch", "fsdp_use_orig_params", "fsdp_cpu_ram_efficient_loading",
    "fsdp_sync_module_states", "fsdp_activation_checkpointing",
    "fsdp_activation_checkpointing_offload", "megatron_lm_tp_degree", "megatron_lm_use_custom_fsdp",
    "megatron_lm_no_load_optim", "megatron_lm_eod_mask_loss",
    "megatron_lm_overlap_cpu_optimizer_d2h_h2d", "megatron_lm_no_save_optim",
    "megatron_lm_optimizer_cpu_offload", "megatron_lm_use_precision_aware_optimizer",
    "megatron_lm_decoder_last_pipeline_num_layers", "megatron_lm_pp_degree",
    "megatron_lm_num_micro_batches", "megatron_lm_sequence_parallelism",
    "megatron_lm_recompute_activations", "megatron_lm_use_distributed_optimizer",
    "megatron_lm_gradient_clipping", "megatron_lm_recompute_granularity",
    "megatron_lm_recompute_method", "megatron_lm_recompute_num_layers",
    "megatron_lm_attention_backend", "megatron_lm_expert_model_parallel_size",
    "megatron_lm_context_parallel_size", "megatron_lm_attention_dropout",
    "megatron_lm_hidden_dropout", "megatron_lm_attention_softmax_in_fp32",
    "megatron_lm_expert_tensor_parallel_size", "megatron_lm_calculate_per_token_loss",
    "megatron_lm_use_rotary_position_embeddings", "fp8_backend", "fp8_margin", "fp8_interval",
    "fp8_format", "fp8_amax_history_len", "fp8_amax_compute_algo", "fp8_override_linear_precision",
    "fp8_opt_level", "fp8_enable_fsdp_float8_all_gather", "fp8_pad_inner_dim", "aws_access_key_id",
    "aws_secret_access_key", "mpirun_hostfile", "parallelism_config_dp_replicate_size",
    "parallelism_config_dp_shard_size", "parallelism_config_tp_size", "parallelism_config_cp_size",
    "parallelism_config_cp_backend", "parallelism_config_cp_comm_strategy",
    "parallelism_config_sp_size", "parallelism_config_sp_backend",
    "parallelism_config_sp_seq_length", "parallelism_config_sp_seq_length_is_variable",
    "parallelism_config_sp_attn_implementation",
))  # fmt: skip
_SWITCHES = frozenset((
    "help", "quiet", "cpu", "multi_gpu", "tpu", "enable_cpu_affinity", "dynamo_use_fullgraph",
    "dynamo_use_dynamic", "dynamo_use_regional_compilation", "use_deepspeed", "use_fsdp",
    "use_parallelism_config", "use_megatron_lm", "same_network", "module", "no_python",
    "tpu_cluster", "no_tpu_cluster", "tpu_use_sudo", "downcast_bf16",
    "fp8_use_autocast_during_eval", "debug",
))  # fmt: skip


def _count_processes(values: Mapping[str, str], flags: Collection[str]) -> dict[str, str]:
    """Return the counts of a pasted line: accelerate counts the processes of all machines."""
    counts = {**values}
    is_single = "nodes" not in counts and not _STARTS_TORCHRUN & set(flags)
    if is_single and is_zero(counts.get("processes", "1")):
        counts["processes"] = "1"  # `--num_processes 0` is the program itself, as 1 is
    if "processes" in counts and "nodes" in counts:
        processes, nodes = counts["processes"], counts["nodes"]
        if not (processes.isdecimal() and nodes.isdecimal() and int(nodes) > 0):
            raise ConfigError(f"`{processes}` processes on `{nodes}` machines", where=PASTED_LINE)
        if int(processes) % int(nodes):
            raise ConfigError(
                f"{processes} processes cannot be shared evenly by {nodes} machines",
                where=PASTED_LINE,
                hint="--num_processes counts those of all machines",
            )
        counts["processes"] = str(int(processes) // int(nodes))
    if "cpu" in flags:  # without GPUs accelerate starts one process
        counts.pop("gpus", None)
        return {"processes": "1", **counts, "profile": "cpu"}
    if not {"processes", "gpus"} & counts.keys() and "config_file" not in flags:
        counts["gpus"] = "auto"  # what accelerate itself does: one process per visible GPU
    return counts


def _default_config(flags: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    from safelaunch.launchers.accelerate import config_file

    return None if "cpu" in flags else config_file.default_path(environ)


def _complete(file: Setting, flags: Mapping[str, str]) -> list[LineFlag]:
    from safelaunch.launchers.accelerate import config_file

    return config_file.complete(file, flags, FLAGS, _TYPES)


# Each of these chooses the distributed type itself; together with --multi_gpu accelerate refuses.
_TYPES = {
    "use_deepspeed": "DEEPSPEED",
    "use_fsdp": "FSDP",
    "use_megatron_lm": "MEGATRON_LM",
    "tpu": "XLA",
}
_STARTS_TORCHRUN = frozenset((*_TYPES, "multi_gpu"))
FLAGS = FlagTable(
    valued=_VALUED,
    switches=_SWITCHES,
    owned={
        "num_processes": "`processes:` (per node)",
        "num_machines": "`nodes:`",
        "machine_rank": "`node_rank:` or `hosts:`",
        "mixed_precision": "`mixed_precision:`",
        "gpu_ids": "`gpus:`",
        "module": "`module:`",
        "multi_gpu": "`processes:`",
        "cpu": "`profile: cpu`",
    },
    short={"-m": "module", "-q": "quiet", "-t": "tee"},
    keys={
        "num_processes": "processes",
        "num_machines": "nodes",
        "machine_rank": "node_rank",
        "mixed_precision": "mixed_precision",
        "gpu_ids": "gpus",
    },
    implied=frozenset({"multi_gpu", "same_network", "cpu"}),
    count_processes=_count_processes,
    parser="accelerate.commands.launch:launch_command_parser",
    config_file=ConfigFile(
        "config_file", _default_config, _complete, ("main_process_ip", "main_process_port")
    ),
    no_python="no_python",
)

binds_gpus = common.each_rank_its_gpu
ranks_per_node = common.planned_ranks


def command(launch: Launch) -> Command:
    """Return `python -m accelerate.commands.launch ...` for one node."""
    job, topology = launch.job, launch.job.topology
    values = flag_values(job.launcher_args, FLAGS)
    warnings = (*check_flags(job, FLAGS), *_wrong_values(job, values))
    flags = set(values)
    if topology.processes is None and topology.nodes > 1:
        raise ConfigError(
            "`gpus: auto` on several nodes", where=job.origin("gpus"), hint="give `processes:`"
        )
    own_config = "config_file" in flags
    kind = next((name for flag, name in _TYPES.items() if flag in flags), "MULTI_GPU")
    on_cpu = launch.accelerator == "cpu"
    several = topology.several or topology.nodes > 1
    words: list[Word] = [job.interpreter.word, "-m", "accelerate.commands.launch"]
    if not own_config:
        words += ["--config_file", text(Slot.RUN_DIR, "/accelerate.yaml")]
        if on_cpu and topology.world_size == 1:
            words += ["--cpu"]
        elif several and kind == "MULTI_GPU" and topology.processes is not None:
            # With one process --multi_gpu is refused, so where the GPUs are counted at the start
            # only the config file says so; on CPU it is what starts more than one (gloo):
            # `--cpu --num_processes 2` starts a single process.
            words += ["--multi_gpu"]
    words += ["--num_machines", str(topology.nodes)]
    words += ["--num_processes", topology.count(topology.nodes)]
    words += _rendezvous(launch, flags)
    if job.mixed_precision is not None or not own_config:
        words += ["--mixed_precision", job.mixed_precision or "no"]
    if job.args.words[:1] in (("",), ("-",)):
        raise ConfigError(
            f"accelerate fails where the program's first argument is `{job.args.words[0]}`",
            where=job.origin("args"),
            hint="put another argument first",
        )
    program = (*module_or_script(job, "--module"), *job.args.words)
    agent = several or kind != "MULTI_GPU" or own_config
    words += job.launcher_args.words
    return Command(
        argv=(*words, *(for_elastic(program) if agent else program)),
        program=len(words),
        files=() if own_config else (("accelerate.yaml", _config(launch, kind, on_cpu)),),
        warnings=warnings,
        # with one process accelerate runs the script as a child, unless a type needs torchrun
        single="child" if topology.world_size == 1 and kind == "MULTI_GPU" else None,
    )


def direct_start(launch: Launch) -> DirectStart | str:
    """Return how the ranks of a node are started without accelerate, or why they are not."""
    flags = flag_values(launch.job.launcher_args, FLAGS)
    if "config_file" in flags:
        return f"accelerate itself reads {flags['config_file']}"
    from safelaunch.launchers.accelerate import direct

    return direct.start(launch, FLAGS, flags)


def _wrong_values(job: Job, values: Mapping[str, str]) -> Iterator[PlanWarning]:
    """Yield a warning for each flag with a value that the ranks refuse."""
    if not {"use_fsdp", "use_deepspeed"} & values.keys():
        return  # accelerate does not read the flags of these types
    from safelaunch.launchers.accelerate import choices

    is_fsdp, where = "use_fsdp" in values, str(job.origin("launcher_args"))
    own = {name: value for name, value in values.items() if name.startswith("fsdp_") == is_fsdp}
    for _, message, fix in choices.wrong_values(own):
        yield PlanWarning("launcher-value", message, where, fix)


def _rendezvous(launch: Launch, flags: set[str]) -> list[Word]:
    job, words = launch.job, list[Word]()
    if job.topology.nodes > 1:
        words += ["--machine_rank", launch.node]
        if "main_process_ip" not in flags:
            words += ["--main_process_ip", master_addr(job)]
        if not flags & {"rdzv_backend", "same_network"}:
            # static rendezvous with the numeric address of node 0; c10d may publish a host name
            # that the others cannot resolve (pytorch issue 150532)
            words += ["--same_network", "--rdzv_backend", "static"]
    if (job.topology.several or job.topology.nodes > 1) and "main_process_port" not in flags:
        words += ["--main_process_port", master_port(launch.job)]
    return words


def _config(launch: Launch, kind: str, on_cpu: bool) -> Word:
    topology = launch.job.topology
    several = topology.several or topology.nodes > 1 or kind != "MULTI_GPU"
    machines = (
        f"{{compute_environment: LOCAL_MACHINE, distributed_type: {kind if several else 'NO'}, "
        f"num_machines: {topology.nodes}, machine_rank: "
    )
    others = (
        f', mixed_precision: "{launch.job.mixed_precision or "no"}", '
        f"use_cpu: {'true' if on_cpu else 'false'}, debug: false, num_processes: "
    )
    return join_words("", (machines, launch.node, others, topology.count(topology.nodes), "}"))


def imports(job: Job) -> dict[str, str]:
    """Return accelerate, torch (accelerate/__init__.py imports it), and DeepSpeed for its flag."""
    uses_deepspeed = "use_deepspeed" in flag_values(job.launcher_args, FLAGS)
    names = ("accelerate", "torch", *["deepspeed"] * uses_deepspeed)
    return {name: name for name in names}


def rendezvous(job: Job, env: Mapping[str, EnvVar]) -> Rendezvous:
    """Return the port and the addresses that flags and MASTER_ADDR fix."""
    flags = flag_values(job.launcher_args, FLAGS)
    ports = []
    port = port_number(flags.get("main_process_port"))
    if port is None and job.starts_one_node:
        port = common.DEFAULT_PORT
    if port is not None:
        ports.append(common.flag_port("main_process_port", port))
    uses_agent = any(kind in flags for kind in ("use_deepspeed", "use_fsdp", "use_megatron_lm"))
    if uses_agent and job.topology.world_size == 1 and "main_process_port" not in flags:
        remedy = "launcher_args: {main_process_port: {free}}"
        # it starts torch's elastic agent for a single process
        ports.append(FixedPort(common.DEFAULT_PORT, "accelerate's default port", remedy))
    host = flags.get("main_process_ip")
    addresses = [(host, "launcher_args: main_process_ip")] if host else []
    return Rendezvous(tuple(ports), (*addresses, *common.env_address(env)))
