#!/usr/bin/env bash
# direct: accelerate, node 0 of 1
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

export PYTHONUNBUFFERED=1
export PYTHONPATH=/path/to/project"${PYTHONPATH:+:$PYTHONPATH}"
export PATH='<prefix>/bin'"${PATH:+:$PATH}"
: "${OMP_NUM_THREADS:=<threads>}" && export OMP_NUM_THREADS
unset -v VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV
if [ -e '<prefix>'/pyvenv.cfg ]; then export VIRTUAL_ENV='<prefix>'
elif [ -d '<prefix>'/conda-meta ]; then export CONDA_PREFIX='<prefix>'; fi
# the ranks talk to each other directly, whatever proxy there is
if [ -n "${http_proxy:-}${https_proxy:-}${all_proxy:-}${HTTP_PROXY:-}${HTTPS_PROXY:-}${ALL_PROXY:-}" ]; then
  no_proxy="${no_proxy:-${NO_PROXY:-}}"
  no_proxy=localhost,127.0.0.1,::1"${no_proxy:+,$no_proxy}"
  export no_proxy NO_PROXY="$no_proxy"
fi

# under safelaunch each rank logs to a file of its own; by hand this changes nothing
[ -z "${SAFELAUNCH_SITE:-}" ] || export PYTHONPATH="$SAFELAUNCH_SITE${PYTHONPATH:+:$PYTHONPATH}"

# what the launcher sets for its ranks; it would start the same with
#   '<python>' -m accelerate.commands.launch --config_file '<run-dir>/accelerate.yaml' --num_machines 1 --num_processes 2 --mixed_precision bf16 --use_fsdp --fsdp_version 2 --fsdp_offload_params true --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP --main_process_port 29411 train.py --lr 1e-4 '$HOME' '$${local_rank}' 'it'"'"'s'
export ACCELERATE_MIXED_PRECISION=bf16
export ACCELERATE_DYNAMO_BACKEND=NO
export ACCELERATE_DYNAMO_MODE=default
export ACCELERATE_DYNAMO_USE_FULLGRAPH=False
export ACCELERATE_DYNAMO_USE_DYNAMIC=False
export ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION=False
export ACCELERATE_USE_FSDP=true
export FSDP_VERSION=2
export FSDP_SHARDING_STRATEGY=FULL_SHARD
export FSDP_RESHARD_AFTER_FORWARD=true
export FSDP_OFFLOAD_PARAMS=true
export FSDP_MIN_NUM_PARAMS=100000000
export FSDP_AUTO_WRAP_POLICY=TRANSFORMER_BASED_WRAP
export FSDP_FORWARD_PREFETCH=false
export FSDP_USE_ORIG_PARAMS=true
export FSDP_CPU_RAM_EFFICIENT_LOADING=true
export FSDP_SYNC_MODULE_STATES=true
export FSDP_ACTIVATION_CHECKPOINTING=false
export FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD=false
export GROUP_RANK=0
export ROLE_NAME=default
export LOCAL_WORLD_SIZE=2
export WORLD_SIZE=2
export GROUP_WORLD_SIZE=1
export ROLE_WORLD_SIZE=2
export MASTER_ADDR=127.0.0.1
export MASTER_PORT=29411
export TORCHELASTIC_RESTART_COUNT=0
export TORCHELASTIC_MAX_RESTARTS=0
export TORCHELASTIC_USE_AGENT_STORE=False
export TORCHELASTIC_RUN_ID=none
export TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT
export TORCH_NCCL_ASYNC_ERROR_HANDLING="${TORCH_NCCL_ASYNC_ERROR_HANDLING-1}"
# each rank gets RANK, LOCAL_RANK, ROLE_RANK and TORCHELASTIC_ERROR_FILE beside these
exec '<python>' -I -S -B '<run-dir>/runtime/safelaunch/runtime/ranks/start_ranks.py' \
  --ranks=2 \
  --grace=10 \
  --python \
  --upper-case \
  -- '<python>' -u train.py \
  --lr 1e-4 '$HOME' '${local_rank}' 'it'"'"'s'
