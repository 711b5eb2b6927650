"""Further broken set-ups, which nobody had reported when they were written."""

from __future__ import annotations

from typing import Any

from support.facts.gpu_machines import H100, L40S, RECORDS, T4, matrix, query
from support.facts.interpreters import CU126, torch
from support.setups.machine import TORCHRUN, Setup
from support.setups.reported import MODULE, POINTER, SHM_OF_DOCKER

ACCELERATE = TORCHRUN.replace("torchrun", "accelerate")
T4_XML = RECORDS["xml-t4-515"]["text"]
T4_JOB = "launcher: torchrun\nscript: train.py\nprofile: t4\nprocesses: 1\n"
SYMBOL = "_ZN3c105ErrorC2ENS_14SourceLocationESs"
APPS = "pid, gpu_uuid, used_gpu_memory [MiB], process_name\n"
PROXY = {"http_proxy": "http://192.0.2.9:3128"}
ETH0 = {"network": {"links": {"eth0": {}}, "addresses": [], "infiniband": []}}
CUT_OFF = b"\x40\x00\x00\x00\x00\x00\x00\x00" + b'{"a": {"data_offsets": [0, 9000]}}' + b" " * 30


def builds(modules: tuple[str, ...], **more: Any) -> dict[tuple[Any, ...], Any]:
    """Return what the machine says of compiled packages of these modules."""
    whole = {"libraries": [], "runtimes": ["12"], "bitsandbytes": None, "deepspeed": None}
    return {("builds", *modules): {**whole, **more}}


def library(package: str, **more: Any) -> dict[str, Any]:
    """Return what a library of a package needs."""
    whole = {"package": package, "file": "x.so", "symbols": [], "cuda": "12", "glibc": "2.31"}
    return {**whole, **more}


def compiled(name: str, module: str, *, packages: dict[str, str | None], **more: Any) -> Setup:
    """Return a job with a compiled package that does not fit."""
    own = more.pop("torch", None)
    return Setup(name, "environment", ("compiled-packages",), packages=packages, torch=own,
                 files={"train.py": f"import {module}\n"},
                 answers=builds(("torch", module.replace("_", "-")), **more))  # fmt: skip


def requires(name: str, package: str, line: str, **installed: str) -> Setup:
    """Return a job with a package that requires another version of something."""
    versions = {key.replace("_", "-"): version for key, version in installed.items()}
    return Setup(name, "environment", ("dependencies",), packages=versions,
                 files={"train.py": f"import {package.replace('-', '_')}\n"},
                 requires={package: [line]})  # fmt: skip


def health(name: str, check: str, old: str, new: str) -> Setup:
    """Return a machine with a GPU that is not well, by the full report of nvidia-smi."""
    assert old in T4_XML, old
    outputs = {"query": T4_XML, "xml": T4_XML.replace(old, new)}
    return Setup(name, "hardware", (check,), job=T4_JOB, cards=(), machine={"outputs": outputs})


def output(name: str, **more: Any) -> Setup:
    """Return a job with results that cannot be written."""
    job = more.pop("job", TORCHRUN + "args: {output_dir: out}\n")
    return Setup(f"output-{name}", "project", ("outputs",), job=job, **more)


OTHERS = (
    # -- compiled packages
    compiled("flash-attn-of-another-torch", "flash_attn", packages={"flash-attn": "2.7.4"},
             libraries=[library("flash-attn", symbols=[SYMBOL])]),
    compiled("torchvision-of-cuda-12", "torchvision", packages={"torchvision": "0.23.0"},
             torch=torch("2.11.0+cu130", "13.0"), libraries=[library("torchvision")],
             runtimes=["13"]),
    compiled("wheel-of-a-newer-glibc", "flash_attn", packages={"flash-attn": "2.8.3"},
             libraries=[library("flash-attn", glibc="2.38")]),
    compiled("bitsandbytes-of-older-cuda", "bitsandbytes", packages={"bitsandbytes": "0.45.5"},
             torch=torch("2.11.0+cu130", "13.0"), bitsandbytes=["124", "126", "128"]),
    compiled("deepspeed-operators", "deepspeed", packages={"deepspeed": "0.17.0"},
             deepspeed={"torch": "2.4", "cuda": "12.1", "operators": ["cpu_adam"]}),
    # -- what packages require
    requires("torchvision-of-another-torch", "torchvision", "torch==2.7.0", torchvision="0.22.0"),
    requires("vllm-of-another-torch", "vllm", "torch==2.7.1", vllm="0.10.0"),
    requires("xformers-of-another-torch", "xformers", "torch==2.6.0", xformers="0.0.29"),
    requires("dependency-missing", "datasets", "multiprocess<0.70.17", datasets="4.1.1"),
    Setup("triton-of-another-torch", "environment", ("dependencies",),
          packages={"triton": "3.1.0"}),
    Setup("transformers-refuses-tokenizers", "environment", ("dependencies",), "fail",
          files={"train.py": "import transformers\n"}, packages={"tokenizers": "0.20.3"}),
    Setup("extra-of-the-requirements", "environment", ("dependencies",), files={
        "train.py": "import trl\n", "requirements.txt": "trl[vllm]>=0.24\n"}),
    Setup("vllm-too-new-for-trl", "environment", ("dependencies",),
          files={"train.py": "import trl\n"}, packages={"vllm": "0.13.0"},
          job=TORCHRUN + "args: {use_vllm: true}\n"),
    Setup("pin-not-met", "environment", ("requirements",),
          files={"requirements.txt": "transformers==4.56.0\n"}),
    Setup("torch-2-2-with-numpy-2", "environment", ("package-pairs",),
          torch=torch("2.2.2+cu121", "12.1"), packages={"torch": "2.2.2", "numpy": "2.0.2"}),
    Setup("two-wheels-of-nccl", "environment", ("nccl-several",),
          packages={"nvidia-nccl-cu11": "2.14.3"}),
    # -- torch and the driver
    Setup("torch-for-rocm", "environment", ("torch-build",), "fail",
          torch=torch("2.8.0+rocm6.4", None, None, hip="6.4.43482")),
    Setup("driver-too-old", "environment", ("torch-driver",), "fail",
          torch=torch("2.11.0+cu130", "13.0"), answers={
              ("path", "/usr/local/cuda/compat/libcuda.so.1"): {"kind": None}}),
    Setup("torch-of-older-gpus", "environment", ("torch-archs",), "fail",
          torch=torch("1.12.0+cu113", "11.3", [a for a in CU126 if a != "sm_90"])),
    Setup("launcher-missing", "environment", ("launcher",), "fail", job=ACCELERATE,
          missing=("accelerate",)),
    Setup("secret-not-set", "environment", ("secrets",), "fail",
          job=TORCHRUN + "env_from: [HF_TOKEN]\n"),
    Setup("wandb-without-a-key", "environment", ("wandb-login",),
          job=TORCHRUN + "args: {report_to: wandb}\n", answers={
              ("path", "~/.netrc"): {"kind": None},
              ("path", "~/.config/wandb/settings"): {"kind": None}}),
    Setup("deepspeed-without-nvcc", "environment", ("cuda-compiler",), job=ACCELERATE
          + "launcher_args: {use_deepspeed: true, offload_optimizer_device: cpu}\n",
          machine={"parts": {"tools": {"x": {}}}}),
    Setup("compile-without-a-compiler", "environment", ("c-compiler",),
          job=MODULE.format("sft") + "args: {torch_compile: true}\n",
          machine={"parts": {"tools": {"gcc": None, "clang": None}}}),
    Setup("tracker-misspelt", "environment", ("asked-packages",),
          job=MODULE.format("sft") + "args: {report_to: wanddb}\n"),
    Setup("deepspeed-without-ninja", "environment", ("ninja",), packages={"ninja": None},
          job=ACCELERATE + "launcher_args: {use_deepspeed: true, offload_optimizer_device: cpu}\n"),
    # -- GPUs
    health("memory-errors", "gpu-errors", "<dram_uncorrectable>0</dram_uncorrectable>",
           "<dram_uncorrectable>3</dram_uncorrectable>"),
    health("too-hot", "gpu-clocks", "hw_thermal_slowdown>Not Active<",
           "hw_thermal_slowdown>Active<"),
    health("compute-prohibited", "compute-mode", "<compute_mode>Default<",
           "<compute_mode>Prohibited<"),
    Setup("gpu-held-by-another-user", "hardware", ("gpu-processes",), cards=(), machine={
        "outputs": {"query": query(*[H100] * 4),
                    "apps": APPS + "77, GPU-00000001, 40000 MiB, python\n"},
        "users": {"77": "ann"}}),
    Setup("several-ranks-in-slices", "hardware", ("gpu-slices", "gpu-count"),
          cards=(), machine={"outputs": {"query": query(*[H100] * 4, mig=(0, 1, 2, 3))}}),
    Setup("nvidia-smi-without-a-driver", "hardware", ("gpu-driver", "gpu-count"), "fail",
          cards=(), machine={"outputs": {"query": {
              "text": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA "
                      "driver. Make sure that the latest NVIDIA driver is installed and running.\n",
              "command": "nvidia-smi", "exit": 9}}}),
    Setup("fabric-manager-stopped", "hardware", ("fabric-manager",), "fail",
          machine={"fabric_manager": {"switches": 4, "running": False}}),
    Setup("iommu-translates", "hardware", ("iommu",), cards=(L40S,) * 2,
          job="launcher: torchrun\nscript: train.py\nprocesses: 2\nprofile: l40s\n",
          machine={"outputs": {"topology": matrix(2, "NODE")}},
          answers={("kernel",): {"iommu": {"0000:01:00.0": "DMA", "0000:02:00.0": "DMA"},
                                 "options": [], "peer_modules": [], "modules_seen": True,
                                 "is_open": False, "imex": False, "imex_channels": 0,
                                 "cores": None}}),
    Setup("fewer-cores-than-ranks", "hardware", ("cores",),
          machine={"system": {"usable_cores": 2}}),
    Setup("docker-shm", "hardware", ("shared-memory",),
          machine={"parts": {"disk.shm": SHM_OF_DOCKER}}),
    Setup("memory-limit-of-the-container", "hardware", ("memory",), "fail",
          job=TORCHRUN + "needs: {ram: 64GiB}\n", machine={
              "system": {"meminfo": "MemTotal: 268435456 kB\nMemAvailable: 200000000 kB\n"},
              "parts": {"cgroup": {"/sys/fs/cgroup/memory.max": str(32 << 30)}}}),
    # -- network
    Setup("interface-down", "network", ("interfaces",), job=TORCHRUN
          + "env: {GLOO_SOCKET_IFNAME: eth7}\n", machine={"parts": ETH0},
          answers={("glob", "/sys/class/net/eth7"): {"count": 0, "found": []}}),
    Setup("proxy-before-the-own-server", "network", ("proxies",), environ=PROXY,
          job="launcher: swift\ncommand: [rlhf]\nprocesses: 2\nprofile: h100\nargs: {vllm_mode: "
          "server, vllm_server_host: 192.0.2.7}\n"),
    Setup("port-above-the-last", "network", ("ports",), "fail",
          job=TORCHRUN + "launcher_args: {master_port: 99999}\n"),
    Setup("server-not-started", "network", ("servers",),
          job="launcher: swift\ncommand: [rlhf]\nprocesses: 2\nprofile: h100\nargs: {vllm_mode: "
          "server, vllm_server_host: 127.0.0.1, vllm_server_port: 8000}\n",
          answers={("reach", "127.0.0.1", 8000): {"reached": False, "why": "connection refused"}}),
    # -- options that exclude each other
    Setup("best-model-without-evaluation", "arithmetic", ("numbers",), "fail",
          job=MODULE.format("sft") + "args: {load_best_model_at_end: true}\n"),
    Setup("best-model-epochs", "arithmetic", ("numbers",), "fail", job=MODULE.format("dpo")
          + "args: {load_best_model_at_end: true, eval_strategy: epoch}\n"),
    Setup("fsdp-beside-deepspeed-of-the-trainer", "arithmetic", ("numbers",), "fail",
          job=MODULE.format("sft") + "args: {deepspeed: ds.json, fsdp: full_shard}\n",
          files={"ds.json": "{}"}),
    Setup("deepspeed-file-with-two-precisions", "arithmetic", ("numbers",),
          job=TORCHRUN + "args: {deepspeed_config: ds.json}\n",
          files={"ds.json": '{"fp16": {"enabled": true}, "bf16": {"enabled": true}}'}),
    Setup("bf16-against-the-deepspeed-file", "arithmetic", ("numbers",), "fail",
          job=MODULE.format("sft") + "args: {bf16: true, deepspeed: ds.json}\n",
          files={"ds.json": '{"fp16": {"enabled": true}}'}),
    Setup("stage-4", "arithmetic", ("plan",),
          job=ACCELERATE + "launcher_args: {use_deepspeed: true, zero_stage: 4}\n"),
    Setup("config-with-a-wrong-strategy", "arithmetic", ("settings-files",),
          job=ACCELERATE + "launcher_args: {config_file: a.yaml}\n", files={
              "a.yaml": "distributed_type: FSDP\nnum_processes: 4\nfsdp_config:\n"
              "  fsdp_auto_wrap_policy: TRANSFORMER\n"}),
    # -- files
    output("is-a-file", files={"out": "x"}),
    output("is-a-link-to-nowhere", links={"out": "/no/such/disk"}),
    output("on-a-read-only-disk", answers={("room", "out"): {
        "folder": "/data", "writable": False, "why": "is mounted read-only",
        "free": 1 << 40, "total": 1 << 41, "inodes": 1000000, "device": 1}}),
    output("on-a-full-disk", answers={("room", "out"): {
        "folder": "/data", "writable": True, "why": "", "free": 0, "total": 1 << 41,
        "inodes": 1000000, "device": 1}}),
    Setup("log-exists", "project", ("log",), "fail", files={"run.log": "old"},
          job=TORCHRUN + "log: run.log\n"),
    Setup("script-is-a-folder", "project", ("script",), "fail", files={"pkg/x.py": ""},
          job=TORCHRUN.replace("train.py", "pkg")),
    Setup("interpreter-of-a-script-missing", "project", ("script",), "fail",
          files={"run.sh": "#!/opt/none/bash\necho\n"},
          job="launcher: command\ncommand: [./run.sh]\nprofile: h100\n"),
    Setup("script-of-the-line-missing", "project", ("script",), "fail", line="torchrun "
          "--nproc_per_node 4 src/none.py --lr 1"),
    Setup("config-missing", "project", ("configs",),
          job=TORCHRUN + "args: {config: conf/none.yaml}\n"),
    Setup("config-of-the-launcher-missing", "project", ("configs",), "fail",
          job=ACCELERATE + "launcher_args: {config_file: none.yaml}\n"),
    Setup("checkpoint-without-a-model", "project", ("resume",),
          job=TORCHRUN + "args: {resume_from_checkpoint: true, output_dir: out}\n", files={
              "out/checkpoint-9/trainer_state.json": "{}", "out/checkpoint-9/optimizer.pt": "x"}),
    Setup("checkpoint-cut-off", "project", ("resume",),
          job=TORCHRUN + "args: {resume_from_checkpoint: out/checkpoint-9}\n", files={
              "out/checkpoint-9/trainer_state.json": "{}",
              "out/checkpoint-9/model.safetensors": CUT_OFF}),
    Setup("syntax-of-a-newer-python", "project", ("script",), python="3.9.18", files={
        "train.py": "def f(x):\n    match x:\n        case 1: pass\n"}),
    Setup("model-config-cut-off", "project", ("models",), files={
        "m/config.json": '{"a": 1', "m/tokenizer.json": "{}", "m/model.safetensors": "x" * 2000},
          job=TORCHRUN + "args: {model_name_or_path: ./m}\n"),
    Setup("deepspeed-file-with-stage-5", "project", ("settings-files",), files={
        "ds.json": '{"zero_optimization": {"stage": 5}}'},
          job=MODULE.format("sft") + "args: {deepspeed: ds.json}\n"),
    Setup("gpu-named-twice", "hardware", ("variables",),
          job=TORCHRUN + "env: {CUDA_VISIBLE_DEVICES: '0,0,1,2'}\n"),
    Setup("weights-cut-off", "project", ("models",), files={
        "m/config.json": "{}", "m/tokenizer.json": "{}", "m/model.safetensors": CUT_OFF},
          job=TORCHRUN + "args: {model_name_or_path: ./m}\n"),
    Setup("flash-attention-on-turing", "hardware", ("precision",), cards=(T4,) * 4,
          job=TORCHRUN.replace("h100", "t4") + "args: {attn_implementation: flash_attention_2}\n"),
    Setup("deepspeed-file-that-is-no-json", "project", ("settings-files",), files={
        "ds.json": '{"zero_optimization": {"stage": 2,}}'},
          job=MODULE.format("sft") + "args: {deepspeed: ds.json}\n"),
    Setup("data-missing", "project", ("data-files",),
          job=TORCHRUN + "args: {train_file: data/train.jsonl}\n"),
    Setup("data-that-is-a-pointer", "project", ("data-files",), files={"data/t.jsonl": POINTER},
          job=TORCHRUN + "inputs: [data/t.jsonl]\n"),
    Setup("cache-that-cannot-be-created", "project", ("variable-paths",),
          job=TORCHRUN + "env: {HF_HOME: /proc/hf}\n"),
    Setup("cuda-home-without-nvcc", "environment", ("cuda-compiler",), job=ACCELERATE
          + "launcher_args: {use_deepspeed: true, offload_optimizer_device: cpu}\n"
          "env: {CUDA_HOME: /no/such}\n"),
    Setup("submodule-missing", "project", ("own-modules",), files={
        "train.py": "from pkg import gone\nimport pkg.gone\n", "pkg/__init__.py": ""}),
    Setup("shell-script-continuation", "project", ("shell-script",), files={
        "run.sh": "#!/bin/bash\ntorchrun --nproc_per_node 4 \\\n  train.py \\ \n  --lr 1\n"},
          job="launcher: command\ncommand: [bash, run.sh]\nprofile: h100\n"),
    Setup("unexpanded-variable", "project", ("plan",),
          job=TORCHRUN + "args: {data_dir: $HOME/data}\n"),
    Setup("misspelt-variable", "variables", ("variables",),
          job=TORCHRUN + "env: {NCCL_SOKET_IFNAME: eth0}\n"),
    Setup("two-allocators", "variables", ("variables",),
          job=TORCHRUN + "env: {PYTORCH_CUDA_ALLOC_CONF: 'max_split_size_mb:x'}\n"),
)  # fmt: skip
