"""The packages that matter most in a training environment, the most important ones first."""

TRAINING = (
    "torch", "accelerate", "transformers", "deepspeed", "trl", "peft", "vllm", "sglang", "ray",
    "verl", "areal", "ms-swift", "flash-attn", "xformers", "datasets", "triton",
)  # fmt: skip
# what a run is made of besides: libraries that these are built against
RECORDED = (
    *TRAINING, "lightning", "pytorch-lightning", "diffusers", "bitsandbytes", "unsloth",
    "openrlhf", "llamafactory", "axolotl", "sentence-transformers", "torchtune", "torchtitan",
    "numpy", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13",
)  # fmt: skip
# module -> package, where the names differ; a dash is an underscore in a module's name
MODULES = {"swift": "ms-swift"}
# must be the same on all machines of a job: they start its ranks, or decide what ranks exchange
SAME_EVERYWHERE = ("accelerate", "deepspeed", "transformers", "ms-swift", "areal")
