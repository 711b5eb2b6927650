#!/usr/bin/env bash
# awkward: command, node 0 of 1
# written by safelaunch; to run it by hand: bash launch.sh

# left over from other jobs or a cluster's prologue
unset -v RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE ${!GROUP_@} ${!ROLE_@} ${!MASTER_@} \
  NPROC_PER_NODE NNODES NODE_RANK FORCE_TORCHRUN ${!PET_@} ${!TORCHELASTIC_@} ${!ACCELERATE_@} \
  ${!PMI_@} ${!PMIX_@} ${!OMPI_@} ${!MV2_@} ${!MPI_@} PYTHONHOME PYTHON_EXEC
for safelaunch_name in ${!SLURM_@}; do
  case $safelaunch_name in SLURM_JOB_ID|SLURM_JOBID|SLURM_ARRAY_*|SLURM_TMPDIR|SLURM_RESTART_COUNT|SLURM_SUBMIT_DIR|SLURM_CONF) ;;
    *) unset -v "$safelaunch_name" ;; esac
done
for safelaunch_name in $(compgen -e); do
  case $safelaunch_name in HOME|USER|LOGNAME|SHELL|PATH|LANG|LANGUAGE|LC_*|TZ|TMPDIR|TERM|PWD|SHLVL|_|SEEDED|HF_TOKEN|SAFELAUNCH_*|SPT_NOENV) ;;
    *) unset -v "$safelaunch_name" 2>/dev/null ;; esac
done

cd -- '/path/to/project/odd folder $HOME'"'"'s' || exit 1

# the job's own setup, verbatim
export FROM_SETUP="$((40 + 2))"
cd /
cd -- '/path/to/project/odd folder $HOME'"'"'s' || exit 1

export PYTHONUNBUFFERED=1
export PLAIN='a b'
export AWKWARD=''"'"'"$HOME`id`\
'
export EMPTY=''
unset -v GONE
export LD_LIBRARY_PATH='/opt/one:/opt/t w o'"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
: "${HF_TOKEN:?is not set}" && export HF_TOKEN
# the ranks talk to each other directly, whatever proxy there is
if [ -n "${http_proxy:-}${https_proxy:-}${all_proxy:-}${HTTP_PROXY:-}${HTTPS_PROXY:-}${ALL_PROXY:-}" ]; then
  no_proxy="${no_proxy:-${NO_PROXY:-}}"
  no_proxy=localhost,127.0.0.1,::1"${no_proxy:+,$no_proxy}"
  export no_proxy NO_PROXY="$no_proxy"
fi

# under safelaunch each rank logs to a file of its own; by hand this changes nothing
[ -z "${SAFELAUNCH_SITE:-}" ] || export PYTHONPATH="$SAFELAUNCH_SITE${PYTHONPATH:+:$PYTHONPATH}"

exec trainer \
  --message 'it'"'"'s "quoted" $HOME `id` \ !' '' '*' '{a,b}' 'line
break	tab' 'naïve 🚀' \
  --lr 1e-3 -x \
  -- 'a=b c'
