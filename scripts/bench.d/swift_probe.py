"""What ms-swift says about options, by the methods that make its checks.

Its arguments as a whole load a model first. The methods get the options that the rules are about;
what ms-swift sets before them is set as its RLHFArguments do. The check of colocated engines needs
msgspec, which vLLM brings, and not vLLM. Run by framework_probe.py.
"""

from __future__ import annotations

import contextlib
import importlib
import shlex
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# those of the methods, imported once for all cases: it takes a minute
SWIFT_MODULES = (
    "swift.rlhf_trainers.arguments",
    "swift.rlhf_trainers.rollout_mixin",
    "swift.arguments.sft_args",
    "swift.arguments.deploy_args",
    "swift.pipelines.train.kto",
    "swift.sequence_parallel.sequence_parallel",
)
# options of RLHFArguments that select a method here
_OTHERS = ("rlhf_type", "val_dataset", "use_vllm", "vllm_mode")


class _ReachedEngineError(Exception):
    """The checks have passed: ms-swift would start its engine now."""


def ask_swift(args: str, world: int, gpus: int | None) -> None:
    """Hand options to the methods that check them. Raises what ms-swift raises."""
    torch: Any = importlib.import_module("torch")
    if gpus is not None:  # as on a machine with these
        utils: Any = importlib.import_module("swift.utils.torch_utils")
        utils.is_torch_cuda_available = lambda: True
        torch.cuda.device_count = lambda: gpus
    values = _values(args)
    for name, method in _METHODS.items():
        if name in values:
            method(values, world)
            return
    raise NotImplementedError(args)


def can_ask(args: str) -> bool:
    """Whether a method here is about these options."""
    words = shlex.split(args)
    names = {word.lstrip("-") for word in words if word.startswith("--")}
    is_other = "--rlhf_type" in words and not {"grpo", "kto"} & {*words}
    return bool(names & _METHODS.keys()) and not is_other


def _values(args: str) -> dict[str, Any]:
    """Return {option: value}: numbers, and text."""
    words = shlex.split(args)
    pairs = zip(words[::2], words[1::2], strict=True)
    return {k.lstrip("-"): int(v) if v.isdigit() else v for k, v in pairs}


def _train(values: Mapping[str, Any], world: int) -> None:
    if values["rlhf_type"] == "kto":
        _kto(values, world)
        return
    module: Any = importlib.import_module("swift.rlhf_trainers.arguments")
    # RLHFArguments._init_grpo; without data for evaluation SftArguments sets no `eval_strategy`
    options = {"gradient_accumulation_steps": 1, **values}
    if "val_dataset" not in values:
        options.pop("eval_strategy", None)
    own = {name: value for name, value in options.items() if name not in _OTHERS}
    module.GRPOConfig(output_dir="output", use_cpu=True, report_to=[], **own)


def _kto(values: Mapping[str, Any], _: int) -> None:
    module: Any = importlib.import_module("swift.pipelines.train.kto")
    datasets: Any = importlib.import_module("datasets")
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    rows = datasets.Dataset.from_list([{"messages": talk, "label": n % 2 == 0} for n in range(4)])
    names = ("loss_type", "per_device_train_batch_size", "gradient_accumulation_steps")
    own = {"loss_type": "kto", "per_device_train_batch_size": 1, **values}
    args = SimpleNamespace(
        dataset_num_proc=1,
        data_seed=1,
        desirable_weight=1.0,
        undesirable_weight=1.0,
        **{name: own[name] for name in names},
    )
    module.prepare_kto_dataset(args, rows, None)


def _sharded(values: Mapping[str, Any], world: int) -> None:
    module: Any = importlib.import_module("swift.arguments.sft_args")
    args = object.__new__(module.SftArguments)
    own = {"deepspeed": None, "fsdp": None, "use_ray": False, "zero_hpz_partition_size": None}
    for name, value in {**own, "local_world_size": world, **values}.items():
        setattr(args, name, value)
    with contextlib.suppress(AttributeError):  # of what follows the check
        args._init_deepspeed() if args.deepspeed else args._init_fsdp()


def _rollout(values: Mapping[str, Any], world: int) -> None:
    if values.get("vllm_mode") == "colocate":
        _colocate(values, world)
        return
    module: Any = importlib.import_module("swift.arguments.deploy_args")
    args = object.__new__(module.RolloutArguments)
    for name in ("vllm_tensor_parallel_size", "vllm_data_parallel_size"):
        setattr(args, name, values.get(name, 1))
    args._check_device_count()


def _colocate(values: Mapping[str, Any], world: int) -> None:
    module: Any = importlib.import_module("swift.rlhf_trainers.rollout_mixin")
    module.is_vllm_available = lambda: True  # its check comes before the engine

    def engine() -> None:
        raise _ReachedEngineError

    args = SimpleNamespace(
        use_vllm=True, use_gym_env=None, offload_model=False, offload_optimizer=False, sleep_level=0
    )
    trainer = SimpleNamespace(
        args=args,
        use_vllm=True,
        vllm_mode="colocate",
        model=None,
        vllm_version_ge_0_10_2=True,
        vllm_tensor_parallel_size=values["vllm_tensor_parallel_size"],
        accelerator=SimpleNamespace(num_processes=world, is_main_process=True),
        _is_fsdp2=False,
        _disable_sp_context=contextlib.nullcontext,
        _prepare_vllm_engine=engine,
    )
    with contextlib.suppress(_ReachedEngineError):
        module.RolloutTrainerMixin._prepare_vllm(trainer)  # noqa: SLF001 - as prepare_rollout does


def _sequence(values: Mapping[str, Any], _: int) -> None:
    module: Any = importlib.import_module("swift.sequence_parallel.sequence_parallel")
    parallel = module.SequenceParallel()
    parallel.num_heads, parallel.world_size = 8, values["sequence_parallel_size"]
    parallel._init_device_mesh()  # noqa: SLF001 - `prepare` needs a model


# by the option that only lines of this kind have; the first one counts
_METHODS: Mapping[str, Callable[[Mapping[str, Any], int], None]] = {
    "rlhf_type": _train,
    "vllm_tensor_parallel_size": _rollout,
    "deepspeed": _sharded,
    "fsdp": _sharded,
    "sequence_parallel_size": _sequence,
}
