"""Jobs in many combinations of the launchers' flags, for a comparison with the launchers."""

from __future__ import annotations

import itertools
import os
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from support.direct_start import launcher_answers, rank_starts
from support.direct_start.rank_starts import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from safelaunch.model import Plan
    from support.project import Project

    Ask = Callable[[Sequence[Sequence[Any]]], list[dict[str, Any]]]

SEED = 4
USUAL = 0.8  # the share of values that the launchers mostly take
HOSTILE = (
    "$HOME", "$$", "a$$b", "${local_rank}", "$local_rank", "line\nbreak", "'", '"', "", "naïve 🚀",
    "--", "-x", "--nnodes", "3", "*", "\\",
)  # fmt: skip
BOOLEANS = ("true", "False", "")
COMMON: Mapping[str, tuple[str, ...]] = {
    "role": ("trainer", "", "a b"),
    "max_restarts": ("0", "00", "1", "-1", "x"),
    "monitor_interval": ("1", "0.5", "x", "nan"),
    "rdzv_backend": ("static", "c10d", "C10D", "etcd", ""),
}
TORCHRUN: Mapping[str, tuple[str, ...]] = {
    **COMMON,
    "standalone": (),
    "no_python": (),
    "rdzv_endpoint": (
        "127.0.0.1:29411", "localhost:29411", "localhost", "[::1]:29411", "::1:29411", "[::1]",
        "node-0.cluster:08123", "node 0:29411", " localhost:29411 ", "localhost:0", "a:99999", "",
        ":29411", "127.0.0.1:", "localhost:٣٣٣٣", "fe80::1%eth0:29411",
    ),
    "rdzv_id": ("job1", "", "7"),
    "master_addr": (
        "127.0.0.1", "localhost", "::1", "[::1]", "", " localhost", "localhost ", "a b",
    ),
    "master_port": ("29411", "08123", "029411", "0", "70000", "-1", "x", " 29411", "٣٣٣٣"),
}  # fmt: skip
TORCHRUN_OTHERS: Mapping[str, tuple[str, ...]] = {
    "rdzv_conf": ("timeout=30",),
    "local_addr": ("127.0.0.1",),
    "redirects": ("3",),
    "tee": ("3",),
    "log_dir": ("logs",),
    "start_method": ("spawn",),
    "local_ranks_filter": ("0",),
    "run_path": (),
    "signals_to_handle": ("SIGTERM",),
    "virtual_local_rank": (),
    "event_log_handler": ("null",),
}
ACCELERATE: Mapping[str, tuple[str, ...]] = {
    **COMMON,
    "debug": (),
    "quiet": (),
    "no_python": (),
    "enable_cpu_affinity": (),
    "num_cpu_threads_per_process": ("4", "08", " 3", "1_0", "0", "-1", "x", "2.0"),
    "dynamo_backend": (
        "no", "NO", "eager", "aot_eager", "inductor", "INDUCTOR", "aot_ts_nvfuser",
        "nvprims_nvfuser", "cudagraphs", "ofi", "fx2trt", "onnxrt", "tensorrt", "ipex",
        "aot_torchxla_trace_once", "torchxla_trace_once", "torhchxla_trace_once", "tvm", "hpu", "x",
    ),
    "dynamo_mode": (
        "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "x",
    ),
    "dynamo_use_fullgraph": (),
    "dynamo_use_dynamic": (),
    "dynamo_use_regional_compilation": (),
    "same_network": (),
    "main_process_ip": (
        "127.0.0.1", "10.0.0.1", "node-0", "::1", "[::1]", "", " a", "a b", "a:1",
    ),
    "main_process_port": ("29411", "08123", "029411", "0", "70000", "-1", "x", " 29411", "٣٣٣٣"),
}  # fmt: skip
ACCELERATE_OTHERS: Mapping[str, tuple[str, ...]] = {
    "tee": ("3",),
    "log_dir": ("logs",),
    "rdzv_conf": ("timeout=30",),
    "use_megatron_lm": (),
    "use_parallelism_config": (),
    "fp8_format": ("E4M3",),
    "downcast_bf16": (),
}
FSDP: Mapping[str, tuple[str, ...]] = {
    "fsdp_version": ("1", "2", "3", ""),
    "fsdp_sharding_strategy": ("FULL_SHARD", "shard_grad_op", "1", "NO_SHARD", "x", ""),
    "fsdp_reshard_after_forward": (*BOOLEANS, "FULL_SHARD"),
    "fsdp_offload_params": (*BOOLEANS, "1"),
    "fsdp_min_num_params": ("1000", "1e8", "0100", "1_000", "2.5", "-1", "x"),
    "fsdp_auto_wrap_policy": ("TRANSFORMER_BASED_WRAP", "no_wrap", ""),
    "fsdp_transformer_layer_cls_to_wrap": ("LlamaDecoderLayer", "A,B", ""),
    "fsdp_backward_prefetch": ("BACKWARD_PRE", "NO_PREFETCH", ""),
    "fsdp_state_dict_type": ("FULL_STATE_DICT", "sharded_state_dict", ""),
    "fsdp_forward_prefetch": BOOLEANS,
    "fsdp_use_orig_params": BOOLEANS,
    "fsdp_cpu_ram_efficient_loading": BOOLEANS,
    "fsdp_sync_module_states": BOOLEANS,
    "fsdp_activation_checkpointing": BOOLEANS,
    "fsdp_activation_checkpointing_offload": BOOLEANS,
}
DEEPSPEED: Mapping[str, tuple[str, ...]] = {
    "zero_stage": ("0", "2", "3", "03", "x", "7"),
    "gradient_accumulation_steps": ("1", "08", "auto", "2.0"),
    "gradient_clipping": ("1", "1.0", "1e-3", "inf", "auto", "NaN"),
    "offload_optimizer_device": ("none", "CPU", "nvme", ""),
    "offload_param_device": ("none", "cpu", "x"),
    "offload_optimizer_nvme_path": ("/nvme",),
    "zero3_init_flag": BOOLEANS,
    "zero3_save_16bit_model": BOOLEANS,
    "deepspeed_config_file": ("ds.json", "a b.json"),
    "deepspeed_hostfile": ("hosts",),
    "deepspeed_multinode_launcher": ("standard", "pdsh", "x"),
    "deepspeed_moe_layer_cls_names": ("MixtralSparseMoeBlock", "A,B"),
}
SPELLINGS: tuple[tuple[str, ...], ...] = (
    ("--rdzv-backend=static",), ("--rdzv-id", "a"), ("--rdzv_id=-x",), ("--rdzv_id", "-x"),
    ("--rdzv_id", "-5"), ("-role", "x"), ("-rdzv_id", "x"), ("-t", "3"), ("-t3",), ("-r", "3"),
    ("--master-addr", "localhost", "--master_port=29411"), ("--rdzv_endpoin", "localhost:29411"),
    ("--role", "a", "--role", "b"), ("--max-restarts=0",), ("--standalone", "--rdzv-id=x"),
    ("--master_addr", "localhost", "--rdzv_endpoint", "localhost:29412"), ("--rdzv-backend_", "x"),
    ("--rdzv_backend", "c10d", "--rdzv_id", "", "--rdzv_endpoint", "localhost:0"), ("--role=",),
    ("--main-process-port", "29411"), ("--main_process-port", "29411"), ("--role", ""), ("-q",),
    ("--num-cpu-threads-per-process=4",), ("--debug", "--debug"), ("--nosuchflag",), ("--",),
)  # fmt: skip
NODES: tuple[Mapping[str, Any], ...] = (
    {"nodes": 2, "node_rank": 0},
    {"nodes": 2, "node_rank": 1},
    {"nodes": 3, "node_rank": 2, "processes": 1},
)


def word(name: str, value: str | None) -> tuple[str, ...]:
    """Return a flag as the words of a launcher."""
    return (f"--{name}",) if value is None else (f"--{name}", value)


def singles(table: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield each flag of a table with each of its values."""
    for name, values in table.items():
        for value in values or (None,):
            yield word(name, value)


def subsets(table: Mapping[str, tuple[str, ...]], count: int) -> Iterator[tuple[str, ...]]:
    """Yield random combinations of flags and values; the same ones each time."""
    chosen = random.Random(SEED)  # noqa: S311 - no secret
    for _ in range(count):
        names = chosen.sample(sorted(table), chosen.randint(2, min(6, len(table))))
        words: list[str] = []
        for name in names:
            values = table[name] or (None,)  # the first two are usual ones
            words += word(name, chosen.choice(values[:2] if chosen.random() < USUAL else values))
        yield tuple(words)


def torchrun_jobs(count: int) -> Iterator[Job]:
    """Yield jobs of torchrun and torch.distributed.launch."""
    programs: tuple[Mapping[str, Any], ...] = (
        {}, {"processes": 1}, {"module": "pkg.train"}, {"version": "launch"},
        {"version": "launch", "module": "pkg.train"},
    )  # fmt: skip
    for program in programs:
        yield Job(keys=program, args=HOSTILE)
        yield Job(keys=program, flags=("--no_python",), args=HOSTILE)
    for args in (("--", "a"), ("-",), ("",), ("a", "--", "b"), ("--help",)):
        yield Job(args=args)
    single = (*singles(TORCHRUN), *singles(TORCHRUN_OTHERS))
    for flags in (*single, *SPELLINGS, *subsets(TORCHRUN, count)):
        yield Job(flags=flags)
    where = ("--master_addr", "10.0.0.1", "--master_port", "29411")
    addresses = {n: TORCHRUN[n] for n in ("rdzv_endpoint", "master_addr", "master_port", "rdzv_id")}
    for keys in NODES:
        yield Job(keys=keys, flags=where)
        for flags in (*singles(addresses), *subsets(addresses, count // 4)):
            yield Job(keys=keys, flags=flags)
            yield Job(keys=keys, flags=(*where, *flags))


def accelerate_jobs(count: int) -> Iterator[Job]:
    """Yield jobs of accelerate: several GPUs, several CPU processes, FSDP, DeepSpeed."""
    kinds = (
        ((), ACCELERATE),
        (("--use_fsdp",), {**FSDP, **ACCELERATE}),
        (("--use_deepspeed",), {**DEEPSPEED, **ACCELERATE}),
    )
    settings: tuple[Mapping[str, Any], ...] = (
        {}, {"profile": "cpu"}, {"processes": 1}, {"processes": 1, "profile": "cpu"},
        {"module": "pkg.train"}, {"mixed_precision": "bf16"}, {"mixed_precision": "fp16"},
        {"mixed_precision": "no"}, {"mixed_precision": "fp8"},
        {"env": {"OMP_NUM_THREADS": "04"}}, {"env": {"OMP_NUM_THREADS": "-1"}},
        {"env": {"OMP_NUM_THREADS": None}}, {"env": {"OMP_NUM_THREADS": "4,2"}},
        {"env": {"OMP_NUM_THREADS": "0"}, "profile": "cpu"}, {"env": {"lower": "x", "A": "y"}},
        {"pythonpath": ["a", "b"]}, {"pythonpath": []}, {"env": {"PYTHONPATH": ":a::b:"}},
    )  # fmt: skip
    for kind, table in kinds:
        for keys in settings:
            yield Job("accelerate", kind, keys, HOSTILE)
        single = (*singles(table), *singles(ACCELERATE_OTHERS))
        for flags in (*single, *SPELLINGS, *subsets(table, count)):
            yield Job("accelerate", (*kind, *flags))
        yield Job("accelerate", (*kind, "--no_python"), {"module": "pkg.train"})
        addresses = {
            n: ACCELERATE[n]
            for n in ("main_process_ip", "main_process_port", "same_network", "rdzv_backend")
        }
        where = ("--main_process_ip", "10.0.0.1", "--main_process_port", "29411")
        more = (
            (*kind, "--deepspeed_multinode_launcher", "standard") if "deep" in str(kind) else kind
        )
        for keys in NODES:
            for flags in (*singles(addresses), *subsets(addresses, count // 4)):
                yield Job("accelerate", (*more, *where, *flags), keys)
                yield Job("accelerate", (*kind, *flags), keys)
        yield Job("accelerate", (*kind, "--use_fsdp"))
        yield Job("accelerate", (*kind, "--tpu"))


class Comparison(NamedTuple):
    """How many jobs were started directly as their launcher would, and what differed."""

    same: list[Job]
    fell_back: int
    wrong: list[str]

    @property
    def compared(self) -> int:
        """How many jobs the launcher was asked about."""
        return len(self.same) + self.fell_back + len(self.wrong)

    @property
    def flags(self) -> set[str]:
        """The flags of the jobs that were started directly as their launcher would."""
        words = itertools.chain.from_iterable(job.flags for job in self.same)
        return {word[2:].partition("=")[0] for word in words if word.startswith("--")}


class Case(NamedTuple):
    """A job, its plan, and what to ask its launcher."""

    job: Job
    plan: Plan
    question: tuple[str, list[str], dict[str, str]]


def cases(jobs: Iterable[Job], project: Project, folder: str) -> list[Case]:
    """Return the jobs that can be planned; jobs with the same files share a run directory."""
    result, run_dirs = [], dict[object, str]()
    for job in jobs:
        plan = rank_starts.planned(job, project)
        if plan is None:
            continue
        files = plan.nodes[0].files
        run_dir = run_dirs.setdefault(files, os.path.join(folder, str(len(run_dirs))))
        if not os.path.isdir(run_dir):
            os.mkdir(run_dir)
        bound = rank_starts.with_run_dir(plan, run_dir)
        rank_starts.write_files(bound, run_dir)
        result.append(Case(job, bound, rank_starts.question(bound.nodes[0])))
    return result


def compare(
    some: Sequence[Case], versions: Mapping[str, str], ask: Ask, folder: str, python: str
) -> Comparison:
    """Ask the launcher about each case, and compare what a direct start does."""
    same, fell_back, wrong = list[Job](), 0, list[str]()
    replies = ask([case.question for case in some])
    for case, real in zip(some, replies, strict=True):
        ours = rank_starts.answer(case.plan, versions, folder)
        lines = rank_starts.differences(real, ours, python)
        if lines:
            wrong.append(f"{case.job}: {'; '.join(lines)}")
        elif ours.reason:
            fell_back += 1
        else:
            same.append(case.job)
    return Comparison(same, fell_back, wrong)


def ask_here(questions: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the answers of the launchers that are installed."""
    return launcher_answers.answers(questions)
