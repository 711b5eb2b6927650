"""The broken set-ups of the first measurement: of 67 it found 41, and called 2 ok."""

from __future__ import annotations

from typing import Any

from support.facts.gpu_machines import MIB, RTX5090
from support.facts.interpreters import CU126, CU128, torch
from support.setups.machine import TORCHRUN, Setup

V100 = ("Tesla V100-SXM2-32GB", 32768, "7.0")
SHM_OF_DOCKER = {"path": "/dev/shm", "total": 64 * MIB, "free": 64 * MIB}
ARGPARSE = (
    "import argparse\np = argparse.ArgumentParser()\n"
    "p.add_argument('--epochs', type=int)\np.add_argument('--data', required=True)\n"
    "p.add_argument('--optim', choices=['adam', 'sgd'])\np.add_argument('--amp', type=bool)\n"
    "p.parse_args()\n"
)
CLICK = "import click\n@click.command()\n@click.option('--lr')\ndef main(lr): pass\nmain()\n"
FIRE = "import fire\ndef main(lr=1.0): pass\nfire.Fire(main)\n"
HF = (
    "from transformers import HfArgumentParser, TrainingArguments\n"
    "HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
)
TRL = "from trl import SFTConfig, TrlParser\nTrlParser(SFTConfig).parse_args_and_config()\n"
HYDRA = (
    "import hydra\n@hydra.main(config_path='conf', config_name='c', version_base=None)\n"
    "def main(cfg): pass\nmain()\n"
)
HYDRA_FILES = {
    "conf/c.yaml": "defaults:\n  - model: small\n  - _self_\nlr: 1\n",
    "conf/model/small.yaml": "layers: 2\n",
}
TYPER = (
    "import typer\napp = typer.Typer()\n@app.command()\ndef main(lr: float = 1.0): pass\napp()\n"
)
TYRO = (
    "import tyro\nfrom dataclasses import dataclass\n@dataclass\nclass Args:\n    lr: float = 1.0\n"
    "tyro.cli(Args)\n"
)
DATA = "args: {data: d, "
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
INDEX = '{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}'
MODEL = TORCHRUN + "args: {model_name_or_path: ./m}\n"
MODULE = "launcher: torchrun\nmodule: trl.scripts.{}\nprocesses: 4\nprofile: h100\n"


def flags(
    name: str, text: str, args: str, files: dict[str, str] | None = None, **more: Any
) -> Setup:
    """Return a job with options that its program refuses."""
    return Setup(f"option-{name}", "options", ("flags",), files={"train.py": text, **(files or {})},
                 job=TORCHRUN + args + "\n", **more)  # fmt: skip


def variable(name: str, value: str, *, check: str = "variables", job: str = TORCHRUN) -> Setup:
    """Return a job with a variable that its reader refuses or does not know."""
    env = f"env: {{{name}: '{value}'}}\n"
    return Setup(f"variable-{name}-{value}", "variables", (check,), job=job + env)


REPORTED = (
    # -- torch, CUDA, packages
    Setup("torch-for-the-cpu", "environment", ("torch-build",), "fail",
          torch=torch("2.8.0+cpu", None, None, None)),
    Setup("no-code-for-sm-120", "environment", ("torch-archs",), "fail", cards=(RTX5090,) * 4,
          job=TORCHRUN.replace("h100", "rtx5090"), torch=torch("2.4.0+cu124", "12.4", CU126)),
    Setup("no-code-for-sm-70", "environment", ("torch-archs",), cards=(V100,) * 4,
          job=TORCHRUN.replace("profile: h100\n", ""), torch=torch("2.10.0+cu130", "13.0", CU128)),
    Setup("module-missing", "environment", ("imports",), files={"train.py": "import peft\n"},
          missing=("peft",)),
    # -- options
    flags("argparse-name", ARGPARSE, DATA + "epoch_count: 1}"),
    flags("argparse-required", ARGPARSE, "args: {epochs: 1}"),
    flags("argparse-int", ARGPARSE, DATA + "epochs: 1e1}"),
    flags("argparse-choice", ARGPARSE, DATA + "optim: adamw}"),
    flags("argparse-bool", ARGPARSE, DATA + "amp: 'False'}"),
    flags("click", CLICK, "args: {learning_rate: 1}"),
    flags("fire", FIRE, "args: {learning_rate: 1}"),
    flags("hf-name", HF, "args: {output_dir: o, per_device_train_batchsize: 1}", has_sources=True),
    flags("hf-removed", HF, "args: {output_dir: o, evaluation_strategy: steps}", has_sources=True),
    flags("hf-bool", HF, "args: {output_dir: o, bf16: maybe}", has_sources=True),
    flags("trl-name", TRL, "args: {output_dir: o, max_seq_lenght: 1}", has_sources=True),
    flags("hydra-key", HYDRA, "args: [lrr=1]", HYDRA_FILES),
    flags("hydra-group", HYDRA, "args: [model=none_such]", HYDRA_FILES),
    flags("typer", TYPER, "args: {learning_rate: 1}"),
    flags("tyro", TYRO, "args: {learning_rate: 1}"),
    # -- arithmetic
    Setup("grpo-generations", "arithmetic", ("numbers",), "fail",
          job=MODULE.format("grpo")
          + "args: {num_generations: 7, per_device_train_batch_size: 4}\n"),
    Setup("grpo-generations-swift", "arithmetic", ("numbers",),
          job="launcher: swift\ncommand: [rlhf]\nprocesses: 4\nprofile: h100\n"
          "args: {rlhf_type: grpo, num_generations: 7, per_device_train_batch_size: 4}\n"),
    Setup("grpo-generations-pasted", "arithmetic", ("numbers",),
          line="NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo --num_generations 7 "
          "--per_device_train_batch_size 4"),
    Setup("deepspeed-batch", "arithmetic", ("numbers",), files={
        "ds.json": '{"train_batch_size": 100, "train_micro_batch_size_per_gpu": 4, '
                   '"gradient_accumulation_steps": 2}'},
          job=MODULE.format("sft") + "args: {deepspeed: ds.json}\n"),
    Setup("deepspeed-micro-batch", "arithmetic", ("numbers",), files={
        "ds.json": '{"train_micro_batch_size_per_gpu": 4}'},
          job=MODULE.format("sft")
          + "args: {deepspeed: ds.json, per_device_train_batch_size: 2}\n"),
    # -- what the machine has
    Setup("port-in-use", "network", ("ports",), "fail",
          job=TORCHRUN + "launcher_args: {master_port: 29511}\n",
          answers={("port", 29511): {"free": False, "listens": True, "instead": 20123, "holders": [
              {"pid": 7, "user": "ann", "command": "python old.py"}]}}),
    Setup("shm-too-small", "hardware", ("shared-memory",), "fail",
          job=TORCHRUN + "needs: {shm: 8GiB}\n",
          machine={"parts": {"disk.shm": SHM_OF_DOCKER}}),
    Setup("disk-too-small", "hardware", ("disk",), "fail",
          job=TORCHRUN + "needs: {disk: 1000TiB}\nargs: {output_dir: out}\n"),
    Setup("input-missing", "project", ("inputs",), "fail",
          job=TORCHRUN + "inputs: [data/train.jsonl]\n"),
    Setup("checkpoint-missing", "project", ("resume",),
          job=TORCHRUN + "args: {resume_from_checkpoint: out/checkpoint-9}\n"),
    Setup("checkpoint-of-trainer-state-alone", "project", ("resume",),
          files={"out/checkpoint-9/trainer_state.json": "{}"},
          job=TORCHRUN + "args: {resume_from_checkpoint: out/checkpoint-9}\n"),
    Setup("bf16-on-v100", "hardware", ("precision",), cards=(V100,) * 4,
          torch=torch(archs=["sm_70", *CU128]),
          job="launcher: accelerate\nscript: train.py\nprocesses: 4\nprofile: h100\n"
          "mixed_precision: bf16\n"),
    Setup("flash-attention-missing", "environment", ("asked-packages",),
          missing=("flash_attn", "kernels"),
          job=TORCHRUN + "args: {attn_implementation: flash_attention_2}\n"),
    Setup("trl-with-older-libraries", "environment", ("dependencies",),
          files={"train.py": "import trl\n"},
          packages={"transformers": "4.40.2", "datasets": "2.10.0"}),
    # -- network
    Setup("interface-missing", "network", ("interfaces",), "fail",
          job=TORCHRUN + "env: {NCCL_SOCKET_IFNAME: eth7}\n",
          answers={("glob", "/sys/class/net/eth7*"): {"count": 0, "found": []}}),
    Setup("interface-missing-without-profile", "network", ("interfaces",),
          job=TORCHRUN.replace("profile: h100\n", "") + "env: {NCCL_SOCKET_IFNAME: eth7}\n",
          answers={("glob", "/sys/class/net/eth7*"): {"count": 0, "found": []}}),
    variable("NCCL_NET", "IB", check="nccl-net"),
    # -- variables
    variable("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments=True"),
    variable("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:true"),
    variable("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:10"),
    variable("PYTORCH_CUDA_ALLOC_CONF", "expandable_segment:True"),
    variable("NCCL_ALGO", "Rinng"),
    variable("TORCH_NCCL_ASYNC_ERROR_HANDLING", "true"),
    variable("WANDB_MODE", "offlin"),
    variable("CUDA_DEVICE_ORDER", "PCI_BUS"),
    variable("NCCL_P2P_LEVEL", "NVLINK"),
    variable("NCCL_DEBUG", "VERBOSE"),
    variable("NCCL_IB_DISABLE", "False"),
    variable("NCCL_TIMEOUT", "1800"),
    variable("NCCL_BLOCKING_WAIT", "1"),
    Setup("threads", "hardware", ("threads",), job=TORCHRUN + "env: {OMP_NUM_THREADS: 64}\n"),
    # -- the program
    Setup("own-package-elsewhere", "project", ("imports",), missing=("mylib",),
          files={"train.py": "import mylib\n", "src/mylib/__init__.py": ""}),
    Setup("random-shadowed", "project", ("shadowed",), files={
        "train.py": "import torch\n", "random.py": "x = 1\n"}),
    Setup("relative-import", "project", ("own-modules",), files={
        "train.py": "from .model import x\n", "model.py": "x = 1\n"}),
    Setup("syntax-error", "project", ("script",), files={"train.py": "def f(:\n"}),
    Setup("crlf-script", "project", ("script",), "fail", files={"run.sh": b"#!/bin/sh\r\necho\r\n"},
          job="launcher: command\ncommand: [./run.sh]\nprofile: h100\n"),
    Setup("job-indentation", "project", job=TORCHRUN + "args:\n  lr: 1\n bs: 2\n",
          refused="expected key"),
    Setup("trainer-yaml-float", "project", ("settings-files",), files={
        "train.py": "import yaml\nyaml.safe_load(open('c.yaml'))\n",
        "c.yaml": "learning_rate: 1e-5\n"}, job=TORCHRUN + "args: {config: c.yaml}\n"),
    # -- options that exclude each other
    Setup("fsdp-with-deepspeed", "arithmetic", ("numbers",), "fail",
          job="launcher: accelerate\nscript: train.py\nprocesses: 4\nprofile: h100\n"
          "launcher_args: {use_fsdp: true, use_deepspeed: true}\n"),
    Setup("sharding-strategy", "arithmetic", ("plan",),
          job="launcher: accelerate\nscript: train.py\nprocesses: 4\nprofile: h100\n"
          "launcher_args: {use_fsdp: true, fsdp_sharding_strategy: FULL_SHARDD}\n"),
    Setup("fp16-with-bf16", "arithmetic", ("numbers",), "fail",
          job=MODULE.format("sft") + "args: {fp16: true, bf16: true}\n"),
    Setup("best-model-steps", "arithmetic", ("numbers",), "fail",
          job=MODULE.format("sft") + "args: {load_best_model_at_end: true, eval_strategy: steps, "
          "eval_steps: 200, save_steps: 500}\n"),
    # -- GPUs
    Setup("gpus-that-are-not-there", "hardware", ("gpu-count",), "fail",
          job=TORCHRUN + "gpus: [4, 5, 6, 7]\n"),
    Setup("more-ranks-than-gpus", "hardware", ("gpu-count",), "fail",
          job=TORCHRUN.replace("4", "8")),
    Setup("two-jobs-on-one-gpu", "hardware", ("gpu-sets",), job=TORCHRUN + "gpus: [0, 1, 2, 3]\n",
          answers={("runs",): {"live": [{"id": "server-1", "node": "node-0", "name": "server",
                   "plan": {"nodes": [{"node_rank": 0, "env": {
                       "CUDA_VISIBLE_DEVICES": {"value": "0"}}}]}}]}}),
    Setup("profile-of-other-gpus", "hardware", ("profile-fits",),
          job=TORCHRUN.replace("h100", "rtx4090")),
    Setup("output-in-proc", "project", ("outputs",),
          job=TORCHRUN + "args: {output_dir: /proc/o}\n"),
    # -- models
    Setup("model-not-cached-offline", "project", ("hub",),
          job=TORCHRUN + "env: {HF_HUB_OFFLINE: '1'}\nargs: {model_name_or_path: org/none-such}\n"),
    Setup("model-of-pointers", "project", ("models",), job=MODEL, files={
        "m/config.json": "{}", "m/tokenizer.json": "{}", "m/model.safetensors": POINTER}),
    Setup("model-without-a-part", "project", ("models",), job=MODEL, files={
        "m/config.json": "{}", "m/tokenizer.json": "{}", "m/model-1.safetensors": "x" * 2000,
        "m/model.safetensors.index.json": INDEX}),
)  # fmt: skip
