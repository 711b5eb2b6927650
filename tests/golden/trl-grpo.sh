#!/usr/bin/env bash
# grpo: accelerate, node 0 of 1
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
export CUDA_VISIBLE_DEVICES=''
export ACCELERATE_USE_CPU=true
export HF_HUB_OFFLINE=1
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

exec '<python>' -m accelerate.commands.launch \
  --config_file '<run-dir>/accelerate.yaml' \
  --cpu \
  --num_machines 1 \
  --num_processes 1 \
  --mixed_precision no \
  scripts/train_grpo.py \
  --reward_url '<services.reward.url>/score' \
  --steps 2
