"""What a resumed run must have in common with the run that it continues.

Names, batch, group, nodes and world size: AReaL refuses a recovery in which one of them changed,
and elsewhere a change silently makes it another experiment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.model import Args, Slot, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.model import Job, Word

# Arguments by their last part: `--per-device-train-batch-size`, `train_dataset.batch_size`.
_NAMES = frozenset(
    (
        # transformers TrainingArguments, and trl's GRPOConfig on top of it; ms-swift takes both
        "per_device_train_batch_size", "gradient_accumulation_steps", "num_generations",
        "generation_batch_size", "steps_per_generation",
        # ms-swift with Megatron
        "global_batch_size", "micro_batch_size",
        # AReaL 0.2 to 1.x: docs/reference of its command lines
        "experiment_name", "trial_name", "n_nodes", "n_gpus_per_node", "allocation_mode",
        "train_bs_n_seqs", "group_size", "n_samples", "batch_size",
        # verl: data.train_batch_size, trainer.nnodes, trainer.project_name
        "train_batch_size", "ppo_mini_batch_size", "nnodes", "project_name",
        # OpenRLHF and LightRFT
        "micro_train_batch_size", "rollout_batch_size", "n_samples_per_prompt",
    )
)  # fmt: skip
# arguments whose last part alone is ambiguous
_WHOLE = frozenset({"actor_rollout_ref.rollout.n"})


def fingerprint(job: Job, more: tuple[str, ...] = ()) -> dict[str, Word]:
    """Return {name: value} of the job; `more` are the arguments of `recovery.fingerprint`."""
    topology = job.topology
    world_size: Word = str(topology.world_size)
    if topology.world_size is None:
        nodes = "" if topology.nodes == 1 else f"{topology.nodes} x "
        world_size = text(nodes, Slot.GPUS)
    whole = {*_WHOLE, *(name.lstrip("-").replace("-", "_") for name in more)}
    arguments = ((name.replace("-", "_"), value) for name, value in _arguments(job.args))
    return {
        "name": job.name,
        "nodes": str(topology.nodes),
        "world size": world_size,
        **{n: v for n, v in arguments if n.rpartition(".")[2] in _NAMES or n in whole},
    }


def _arguments(args: Args) -> Iterator[tuple[str, str]]:
    """Yield name and value of the arguments of either form: `--k v`, `--k=v`, `k=v`, `+k=v`."""
    if args.is_mapping:
        for key, values in args.options:
            shown = str(values).lower() if isinstance(values, bool) else " ".join(values)
            yield key.lstrip("+"), shown
        return
    words = args.words
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if equals:
            yield name.lstrip("-+"), value
        elif word.startswith("--") and at + 1 < len(words):
            after = words[at + 1]
            yield name.lstrip("-"), "true" if after.startswith("--") else after
