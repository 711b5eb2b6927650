"""Run by the job's interpreter at a start: prints package versions, by metadata alone."""

import json
import sys

NAMES = (
    "torch", "accelerate", "transformers", "trl", "peft", "datasets", "deepspeed", "ms-swift",
    "vllm", "sglang", "ray", "flash-attn", "xformers", "numpy", "nvidia-nccl-cu12",
    "nvidia-nccl-cu13", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "triton",
)  # fmt: skip


def versions() -> "dict[str, str]":
    """Return {package: version} of what is installed."""
    from importlib import metadata  # noqa: PLC0415

    found = {}
    for name in NAMES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


print(json.dumps({"python": sys.version.split()[0], "packages": versions()}))
