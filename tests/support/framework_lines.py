"""Lines of training frameworks as users paste them, and what is planned for each.

Run as a program it rewrites the golden file from what is planned now:
`PYTHONPATH=tests python -m support.framework_lines`.
"""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from safelaunch.config.write_job import job_yaml
from safelaunch.plan.launch_line.parse import default_name, parse_line
from support import REPOSITORY
from support.project import Project

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = REPOSITORY / "tests" / "golden" / "framework_lines.txt"

LINES = (
    # ms-swift
    "NPROC_PER_NODE=2 CUDA_VISIBLE_DEVICES=0,1 swift sft --model m --torch_dtype bfloat16",
    "CUDA_VISIBLE_DEVICES=0 swift sft --model m --train_type lora",
    "NPROC_PER_NODE=4 MASTER_PORT=29600 NNODES=1 swift rlhf --rlhf_type grpo --ddp_timeout 60",
    "NPROC_PER_NODE=2 swift sft train.yaml --learning_rate 1e-4",
    "swift sft train.yaml",
    "NPROC_PER_NODE=2 swift infer --adapters out --stream true",
    "swift rollout --model m --vllm_tensor_parallel_size 2",
    "swift web_ui --lang en",
    "NPROC_PER_NODE=2 swift deploy --model m",
    "NPROC_PER_NODE=2 python -m swift.cli.main pt --model m",
    "NPROC_PER_NODE=2 python swift/cli/main.py pt --model m",
    "python -m swift.cli.sft --model m",
    "NNODES=2 NODE_RANK=1 MASTER_ADDR=10.0.0.1 NPROC_PER_NODE=8 swift sft --model m",
    "NNODES=2 NODE_RANK=0 MASTER_ADDR=10.0.0.1 NPROC_PER_NODE=8 megatron pt --load m",
    "NPROC_PER_NODE=8 megatron sft --load m --tensor_model_parallel_size 4",
    "megatron export --model m --to_mcore true",
    "NPROC_PER_NODE=4 megatron export --load m --to_hf true",
    # LLaMA-Factory
    "llamafactory-cli train examples/sft.yaml",
    "FORCE_TORCHRUN=1 llamafactory-cli train examples/sft.yaml learning_rate=1e-5",
    "FORCE_TORCHRUN=1 NPROC_PER_NODE=4 NNODES=1 lmf train examples/sft.yaml",
    "CUDA_VISIBLE_DEVICES=0 llamafactory-cli train examples/sft.yaml",
    "CUDA_VISIBLE_DEVICES=0,1 python -m llamafactory.cli train --stage sft --prompt 'a b'",
    "USE_RAY=1 llamafactory-cli train examples/sft.yaml",
    "llamafactory-cli export examples/merge.yaml",
    "API_PORT=8000 llamafactory-cli api examples/infer.yaml",
    "llamafactory-cli version",
    "FORCE_TORCHRUN=1 NNODES=2 NODE_RANK=0 MASTER_ADDR=a MASTER_PORT=1234 llamafactory-cli train x",
    "FORCE_TORCHRUN=1 NNODES=2 NODE_RANK=0 MASTER_PORT=29500 llamafactory-cli train x.yaml",
    # torchtune
    "tune run --nproc_per_node 4 full_finetune_distributed --config llama3/8B_full batch_size=2",
    "CUDA_VISIBLE_DEVICES=0 tune run lora_finetune_single_device --config llama2/7B_lora",
    "tune run --nnodes 1 --nproc-per-node=2 --max_restarts 1 recipes/own.py --config own.yaml",
    "tune run --nproc_per_node=2 -m own.recipe --config own.yaml",
    "tune run --nproc_per_node gpu full_finetune_distributed --config x",
    "tune run --nnodes 2 --node_rank 1 --nproc_per_node 8 --rdzv_endpoint a:29500 r --config x",
    "tune run --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint a:1 r --config x",
    "tune run --nnodes 2 --node_rank 1 --nproc_per_node 8 r --config x",
    "tune download meta-llama/Llama-3.1-8B",
    "python -m torchtune._cli.tune run --nproc_per_node 2 r --config x",
    # XTuner
    "NPROC_PER_NODE=8 xtuner train cfg.py --deepspeed deepspeed_zero2",
    "xtuner train internlm2_chat_7b_qlora_oasst1_e3",
    "NPROC_PER_NODE=1 xtuner train cfg.py",
    "NPROC_PER_NODE=8 NNODES=2 NODE_RANK=1 ADDR=10.0.0.1 PORT=29600 xtuner train cfg.py",
    "NPROC_PER_NODE=8 NNODES=2 xtuner train cfg.py",
    "NPROC_PER_NODE=4 xtuner mmbench m --data-path d",
    "xtuner chat m --adapter a",
    "xtuner train cfg.py --launcher slurm",
    "xtuner list-cfg -p internlm",
    # TRL
    "trl sft --config sft.yaml",
    "trl sft --model_name_or_path m --num_processes 4 --main_process_port 29511",
    "trl grpo --config grpo.yaml --accelerate_config zero3 --num-processes=8",
    "CUDA_VISIBLE_DEVICES=1 trl dpo --config dpo.yaml",
    "trl dpo --config dpo.yaml --num_machines 2 --machine_rank 1 --num_processes 16",
    "trl vllm-serve --model m --tensor_parallel_size 2",
    # Axolotl
    "axolotl train cfg.yml",
    "axolotl train cfg.yml --learning-rate 1e-4 -- --num_processes 4 --mixed_precision bf16",
    "axolotl train cfg.yml --launcher torchrun -- --nproc_per_node=2 --rdzv_backend c10d",
    "axolotl train cfg.yml --num-processes 2 --main-process-port 29511",
    "CUDA_VISIBLE_DEVICES=0 axolotl train cfg.yml --launcher python",
    "CUDA_VISIBLE_DEVICES= axolotl preprocess cfg.yml --debug",
    "axolotl merge-lora cfg.yml --lora-model-dir out",
    "axolotl train cfg.yml --cloud cloud.yml",
    "axolotl train cfg.yml --use-ray --ray-num-workers 4",
    "accelerate launch -m axolotl.cli.train cfg.yml",
    # Ray
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.n_gpus_per_node=8",
    "CUDA_VISIBLE_DEVICES=0,1 python3 -u -m recipe.dapo.main_dapo trainer.n_gpus_per_node=2",
    "python -m openrlhf.cli.train_ppo_ray --actor.num_gpus_per_node 4",
    "ray job submit --address http://127.0.0.1:8265 -- python3 -m openrlhf.cli.train_ppo_ray --a 1",
    "ray job submit --no-wait -- ./train.sh",
    "ray start --head",
)
_OTHERS = {"PYTHONUNBUFFERED", "PYTHONPATH", "PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "no_proxy",
           "NO_PROXY"}  # fmt: skip


def shown(project: Project, line: str) -> Iterator[str]:
    """Yield a line, its job file, and the variables and words that are planned."""
    tree = parse_line(shlex.split(line))
    plan = project.line(tree)
    node = plan.nodes[0]
    yield f"$ {line}"
    yield f"# {default_name(tree)}"
    yield from (f"  {text}" for text in job_yaml(tree, None).splitlines())
    variables = [f"{name}={'' if var.value is None else var.value}"
                 for name, var in node.env.items() if name not in _OTHERS]  # fmt: skip
    yield " ".join(("=>", *variables, shlex.join(map(str, node.argv))))
    yield from (f"warning: {warning.message}" for warning in plan.warnings)
    yield ""


def text() -> str:
    """Return what the golden file has to say."""
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder))
        return "\n".join(part for line in LINES for part in shown(project, line))


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
