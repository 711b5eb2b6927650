#!/usr/bin/env bash
# srun: srun, node 0 of 1
# written by safelaunch; to run it by hand: bash launch.sh

# left over from other jobs or a cluster's prologue
unset -v RANK LOCAL_RANK LOCAL_WORLD_SIZE ${!GROUP_@} ${!ROLE_@} NODE_RANK FORCE_TORCHRUN \
  ${!PET_@} ${!TORCHELASTIC_@} ${!ACCELERATE_@} ${!OMPI_@} ${!MV2_@} ${!MPI_@} PYTHONHOME \
  PYTHON_EXEC

cd -- /path/to/project || exit 1

export PYTHONUNBUFFERED=1
export PYTHONPATH=/path/to/project"${PYTHONPATH:+:$PYTHONPATH}"
export MASTER_ADDR=n1
# the ranks talk to each other directly, whatever proxy there is
if [ -n "${http_proxy:-}${https_proxy:-}${all_proxy:-}${HTTP_PROXY:-}${HTTPS_PROXY:-}${ALL_PROXY:-}" ]; then
  no_proxy="${no_proxy:-${NO_PROXY:-}}"
  no_proxy=localhost,127.0.0.1,::1"${no_proxy:+,$no_proxy}"
  export no_proxy NO_PROXY="$no_proxy"
fi

# under safelaunch each rank logs to a file of its own; by hand this changes nothing
[ -z "${SAFELAUNCH_SITE:-}" ] || export PYTHONPATH="$SAFELAUNCH_SITE${PYTHONPATH:+:$PYTHONPATH}"

exec srun \
  --ntasks 16 \
  --nodes=2 \
  --gpus-per-node=8 -l '<python>' -u \
  train.py \
  --lr 1e-3
