#!/usr/bin/env bash
# areal-slurm: areal, node 0 of 2
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
export NCCL_IB_TIMEOUT=22
export NCCL_IB_QPS_PER_CONNECTION=4
export NCCL_CUMEM_ENABLE=0
export NCCL_NVLS_ENABLE=0
export RAY_ADDRESS='<master-addr>:<port>'
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

exec '<python>' -I -S -B '<run-dir>/runtime/safelaunch/runtime/ray_cluster/start_cluster.py' \
  --node=0 \
  --nodes=2 \
  '--address=<master-addr>' \
  '--port=<port>' \
  '--cpus=<threads>' \
  -- '<python>' \
  examples/math/gsm8k_rl.py \
  --config examples/math/gsm8k_grpo.yaml scheduler.type=ray experiment_name=gsm8k-grpo trial_name=trial0 rollout.backend=sglang:d8p1t1 actor.backend=fsdp:d8p1t1 cluster.n_nodes=2 cluster.n_gpus_per_node=8 gconfig.max_new_tokens=2048 train_dataset.batch_size=1024 +sglang.attention_backend=triton cluster.fileroot=/shared/areal
#!/usr/bin/env bash
# areal-slurm: areal, node 1 of 2
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
export NCCL_IB_TIMEOUT=22
export NCCL_IB_QPS_PER_CONNECTION=4
export NCCL_CUMEM_ENABLE=0
export NCCL_NVLS_ENABLE=0
export RAY_ADDRESS='<master-addr>:<port>'
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

exec '<python>' -I -S -B '<run-dir>/runtime/safelaunch/runtime/ray_cluster/start_cluster.py' \
  --node=1 \
  --nodes=2 \
  '--address=<master-addr>' \
  '--port=<port>' \
  '--cpus=<threads>'
