#!/usr/bin/env bash
# minionerec-rl: accelerate, node 0 of 1
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
export HF_ENDPOINT=https://hf-mirror.com
export NCCL_IB_DISABLE=1
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
  --num_machines 1 \
  --num_processes 8 \
  --config_file ./config/zero2_opt.yaml \
  --main_process_port 29503 \
  rl.py \
  --model_path path_to_model \
  --train_batch_size 64 \
  --eval_batch_size 128 \
  --num_train_epochs 2 \
  --gradient_accumulation_steps 2 \
  --train_file ./data/Amazon/train/Industrial_and_Scientific_5_2016-10-2018-11.csv \
  --eval_file ./data/Amazon/valid/Industrial_and_Scientific_5_2016-10-2018-11.csv \
  --info_file ./data/Amazon/info/Industrial_and_Scientific_5_2016-10-2018-11.txt \
  --category Industrial_and_Scientific \
  --sample_train False \
  --eval_step 0.0999 \
  --reward_type ranking \
  --num_generations 16 \
  --mask_all_zero False \
  --dynamic_sampling False \
  --sync_ref_model True \
  --beam_search True \
  --test_during_training False \
  --temperature 1.0 \
  --learning_rate 1e-5 \
  --add_gt False \
  --beta 1e-3 \
  --dapo False \
  --output_dir output_dir \
  --wandb_run_name wandb_name \
  --sid_index_path ./data/Amazon/index/Industrial_and_Scientific.index.json \
  --item_meta_path ./data/Amazon/index/Industrial_and_Scientific.item.json
