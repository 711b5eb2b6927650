#!/usr/bin/env bash
# lightrft-grpo-slurm: torchrun, node 0 of 2
# written by safelaunch; to run it by hand: bash launch.sh

# left over from other jobs or a cluster's prologue
unset -v RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE ${!GROUP_@} ${!ROLE_@} ${!MASTER_@} \
  NPROC_PER_NODE NNODES NODE_RANK FORCE_TORCHRUN ${!PET_@} ${!TORCHELASTIC_@} ${!ACCELERATE_@} \
  ${!PMI_@} ${!PMIX_@} ${!OMPI_@} ${!MV2_@} ${!MPI_@} PYTHONHOME PYTHON_EXEC
for safelaunch_name in ${!SLURM_@}; do
  case $safelaunch_name in SLURM_JOB_ID|SLURM_JOBID|SLURM_ARRAY_*|SLURM_TMPDIR|SLURM_RESTART_COUNT|SLURM_SUBMIT_DIR|SLURM_CONF) ;;
    *) unset -v "$safelaunch_name" ;; esac
done

cd -- /path/to/project || exit 1

export NCCL_SOCKET_IFNAME='=<interface>'
export GLOO_SOCKET_IFNAME='<interface>'
export PYTHONUNBUFFERED=1
export PYTHONPATH=/path/to/project"${PYTHONPATH:+:$PYTHONPATH}"
export PATH='<prefix>/bin'"${PATH:+:$PATH}"
: "${OMP_NUM_THREADS:=<threads>}" && export OMP_NUM_THREADS
export TORCH_NCCL_AVOID_RECORD_STREAMS=1
export NCCL_DEBUG=WARN
export IGNORE_EOS=0
export WANDB_MODE=offline
export WANDB_PROJECT=LightRFT-GSM8K-Experiments
: "${WANDB_API_KEY:?is not set}" && export WANDB_API_KEY
unset -v VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV
if [ -e '<prefix>'/pyvenv.cfg ]; then export VIRTUAL_ENV='<prefix>'
elif [ -d '<prefix>'/conda-meta ]; then export CONDA_PREFIX='<prefix>'; fi
# the ranks talk to each other directly, whatever proxy there is
if [ -n "${http_proxy:-}${https_proxy:-}${all_proxy:-}${HTTP_PROXY:-}${HTTPS_PROXY:-}${ALL_PROXY:-}" ]; then
  no_proxy="${no_proxy:-${NO_PROXY:-}}"
  no_proxy='localhost,127.0.0.1,::1,<master-addr>'"${no_proxy:+,$no_proxy}"
  export no_proxy NO_PROXY="$no_proxy"
fi

# under safelaunch each rank logs to a file of its own; by hand this changes nothing
[ -z "${SAFELAUNCH_SITE:-}" ] || export PYTHONPATH="$SAFELAUNCH_SITE${PYTHONPATH:+:$PYTHONPATH}"

exec '<python>' -m torch.distributed.run \
  --nnodes 2 \
  --nproc_per_node 8 \
  --node_rank 0 \
  --master_addr '<master-addr>' \
  --master_port '<port>' \
  examples/gsm8k_geo3k/train_colocate.py \
  --pretrain Qwen/Qwen2.5-0.5B-Instruct \
  --save_trajectories \
  --advantage_estimator group_norm \
  --fsdp \
  --use_kl_loss \
  --flash_attn \
  --rm_use_engine \
  --reward_pretrain '{}' \
  --save_path results/lightrft-gsm8k-grpo-training/lightrft-gsm8k-grpo-training-ep30-kl0.01-lr1e-6-20260101_000000 \
  --ckpt_path results/lightrft-gsm8k-grpo-training/lightrft-gsm8k-grpo-training-ep30-kl0.01-lr1e-6-20260101_000000 \
  --micro_train_batch_size 4 \
  --train_batch_size 256 \
  --micro_rollout_batch_size 4 \
  --rollout_batch_size 256 \
  --max_epochs 1 \
  --num_episodes 30 \
  --lr_warmup_ratio 0.03 \
  --n_samples_per_prompt 5 \
  --prompt_max_len 1024 \
  --generate_max_len 2048 \
  --zero_stage 3 \
  --bf16 \
  --actor_learning_rate 1e-6 \
  --init_kl_coef 0.01 \
  --kl_estimator k3 \
  --prompt_data /path/to/your/preprocessed/gsm8k_dataset \
  --input_key prompt \
  --label_key label \
  --eval_steps 20 \
  --eval_split test \
  --max_eval_samples 1319 \
  --apply_chat_template \
  --gradient_checkpointing \
  --save_steps 20 \
  --max_ckpt_num 3 \
  --engine_type sglang \
  --engine_mem_util 0.6 \
  --engine_tp_size 2 \
  --enable_engine_sleep \
  --system_prompt 'Reason inside <think></think>, then answer in \\boxed{}, like this: <think> reasoning here </think> \\boxed{answer}.' \
  --l2 1.0e-2 \
  --freeze_prefix \
  --adam_offload \
  --text_only \
  --use_wandb true \
  --wandb_project LightRFT-GSM8K-Experiments \
  --wandb_run_name lightrft-gsm8k-grpo-training-20260101_000000
#!/usr/bin/env bash
# lightrft-grpo-slurm: torchrun, node 1 of 2
# written by safelaunch; to run it by hand: bash launch.sh

# left over from other jobs or a cluster's prologue
unset -v RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE ${!GROUP_@} ${!ROLE_@} ${!MASTER_@} \
  NPROC_PER_NODE NNODES NODE_RANK FORCE_TORCHRUN ${!PET_@} ${!TORCHELASTIC_@} ${!ACCELERATE_@} \
  ${!PMI_@} ${!PMIX_@} ${!OMPI_@} ${!MV2_@} ${!MPI_@} PYTHONHOME PYTHON_EXEC
for safelaunch_name in ${!SLURM_@}; do
  case $safelaunch_name in SLURM_JOB_ID|SLURM_JOBID|SLURM_ARRAY_*|SLURM_TMPDIR|SLURM_RESTART_COUNT|SLURM_SUBMIT_DIR|SLURM_CONF) ;;
    *) unset -v "$safelaunch_name" ;; esac
done

cd -- /path/to/project || exit 1

export NCCL_SOCKET_IFNAME='=<interface>'
export GLOO_SOCKET_IFNAME='<interface>'
export PYTHONUNBUFFERED=1
export PYTHONPATH=/path/to/project"${PYTHONPATH:+:$PYTHONPATH}"
export PATH='<prefix>/bin'"${PATH:+:$PATH}"
: "${OMP_NUM_THREADS:=<threads>}" && export OMP_NUM_THREADS
export TORCH_NCCL_AVOID_RECORD_STREAMS=1
export NCCL_DEBUG=WARN
export IGNORE_EOS=0
export WANDB_MODE=offline
export WANDB_PROJECT=LightRFT-GSM8K-Experiments
: "${WANDB_API_KEY:?is not set}" && export WANDB_API_KEY
unset -v VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV
if [ -e '<prefix>'/pyvenv.cfg ]; then export VIRTUAL_ENV='<prefix>'
elif [ -d '<prefix>'/conda-meta ]; then export CONDA_PREFIX='<prefix>'; fi
# the ranks talk to each other directly, whatever proxy there is
if [ -n "${http_proxy:-}${https_proxy:-}${all_proxy:-}${HTTP_PROXY:-}${HTTPS_PROXY:-}${ALL_PROXY:-}" ]; then
  no_proxy="${no_proxy:-${NO_PROXY:-}}"
  no_proxy='localhost,127.0.0.1,::1,<master-addr>'"${no_proxy:+,$no_proxy}"
  export no_proxy NO_PROXY="$no_proxy"
fi

# under safelaunch each rank logs to a file of its own; by hand this changes nothing
[ -z "${SAFELAUNCH_SITE:-}" ] || export PYTHONPATH="$SAFELAUNCH_SITE${PYTHONPATH:+:$PYTHONPATH}"

exec '<python>' -m torch.distributed.run \
  --nnodes 2 \
  --nproc_per_node 8 \
  --node_rank 1 \
  --master_addr '<master-addr>' \
  --master_port '<port>' \
  examples/gsm8k_geo3k/train_colocate.py \
  --pretrain Qwen/Qwen2.5-0.5B-Instruct \
  --save_trajectories \
  --advantage_estimator group_norm \
  --fsdp \
  --use_kl_loss \
  --flash_attn \
  --rm_use_engine \
  --reward_pretrain '{}' \
  --save_path results/lightrft-gsm8k-grpo-training/lightrft-gsm8k-grpo-training-ep30-kl0.01-lr1e-6-20260101_000000 \
  --ckpt_path results/lightrft-gsm8k-grpo-training/lightrft-gsm8k-grpo-training-ep30-kl0.01-lr1e-6-20260101_000000 \
  --micro_train_batch_size 4 \
  --train_batch_size 256 \
  --micro_rollout_batch_size 4 \
  --rollout_batch_size 256 \
  --max_epochs 1 \
  --num_episodes 30 \
  --lr_warmup_ratio 0.03 \
  --n_samples_per_prompt 5 \
  --prompt_max_len 1024 \
  --generate_max_len 2048 \
  --zero_stage 3 \
  --bf16 \
  --actor_learning_rate 1e-6 \
  --init_kl_coef 0.01 \
  --kl_estimator k3 \
  --prompt_data /path/to/your/preprocessed/gsm8k_dataset \
  --input_key prompt \
  --label_key label \
  --eval_steps 20 \
  --eval_split test \
  --max_eval_samples 1319 \
  --apply_chat_template \
  --gradient_checkpointing \
  --save_steps 20 \
  --max_ckpt_num 3 \
  --engine_type sglang \
  --engine_mem_util 0.6 \
  --engine_tp_size 2 \
  --enable_engine_sleep \
  --system_prompt 'Reason inside <think></think>, then answer in \\boxed{}, like this: <think> reasoning here </think> \\boxed{answer}.' \
  --l2 1.0e-2 \
  --freeze_prefix \
  --adam_offload \
  --text_only \
  --use_wandb true \
  --wandb_project LightRFT-GSM8K-Experiments \
  --wandb_run_name lightrft-gsm8k-grpo-training-20260101_000000
