#!/usr/bin/env bash
# Record what a real Slurm says about jobs in all states, in about five minutes. DIR is a test Slurm of three
# nodes that tests/support/slurm/start.sh has started, with or without --accounting; OUT gets the files.
#   tests/data/slurm/record.sh DIR OUT
set -uo pipefail
repository=$(cd "$(dirname "$0")/../../.." && pwd)
formats() { PYTHONPATH=$repository python3 -c "from safelaunch.runtime.engines.slurm import jobs; print($1)"; }
DIR=$1 OUT=$2 SQUEUE=$(formats jobs.SQUEUE_FORMAT) SACCT=$(formats '",".join(jobs.SACCT_FIELDS)')
export SLURM_CONF=$DIR/etc/slurm.conf SLURM_TIME_FORMAT=%s
mkdir -p "$OUT"
cd "$DIR" || exit
snapshot() { # name of a moment
  squeue -h -r -a -t all -O "$SQUEUE" >"$OUT/squeue-$1.txt"
  sacct -D -P -n --format="$SACCT" >"$OUT/sacct-$1.txt"
  scontrol -d -o show job | sed "s#$DIR#/home/user#g; s/ *\$//" | grep . >"$OUT/scontrol-$1.txt"
}
submit() { # comment, options of sbatch; prints the id
  sbatch --parsable -D "$DIR" --comment="$1" "${@:2}"
}
job() { submit "$1" -o "$DIR/log/%j.out" "${@:2}"; }
wait_for() { # id, state
  for _ in $(seq 300); do [ "$(squeue -h -t all -j "$1" -o %T)" = "$2" ] && return; sleep 0.5; done
}

job ok --wrap 'srun hostname'
failed=$(job exit-3 --wrap 'srun sh -c "exit 3"')
job segv --wrap 'srun sh -c "kill -SEGV \$\$"'
job one-task-fails -N2 --wrap 'srun --kill-on-bad-exit=0 sh -c "exit \$SLURM_NODEID"'
job batch-killed --wrap 'kill -KILL $$'
job 'comment, with | and blanks' --wrap 'true'
submit no-output-folder -o "$DIR/absent/x.log" --wrap 'true'
job oom-step --mem=200 --wrap 'srun --mem=200 python3 -c "x=bytearray(600<<20); import time; time.sleep(4)"'
job oom-swallowed --mem=200 --wrap 'srun --mem=200 python3 -c "x=bytearray(600<<20); import time; time.sleep(4)"; exit 0'
job array --array=0-3%2 --wrap '[ $SLURM_ARRAY_TASK_ID != 2 ]'
job het -N1 : -N1 -p old --wrap 'srun hostname'
job held -H --wrap true
job array-held -H --array=0-2 --wrap true
job begin-later --begin=now+1hour --wrap true
job partition-down -p down --wrap true
sleep 3
job dependency-never --dependency=afterok:$failed --wrap true
limit=$(job time-limit -p old -n1 -t 1 --wrap 'srun sleep 300')
running=$(job cancelled-running -p old -n1 --wrap 'srun sleep 300')
waiting=$(job cancelled-pending -H --wrap true)
stubborn=$(job completing -p old -n1 --wrap 'trap "" TERM; srun sh -c "trap \"\" TERM; sleep 300; sleep 300"')
requeued=$(job requeued -p old -n1 --wrap 'srun sleep 300')
held_again=$(job requeue-hold -p old -n1 --wrap 'srun sleep 300')
suspended=$(job suspended -p old -n1 --wrap 'srun sleep 300')
job running -p old -n1 --wrap 'srun sleep 300'
sleep 4
preempted=$(job preempted -w n2 --exclusive --wrap 'srun sleep 300')
sleep 2
urgent=$(job urgent -p urgent -w n2 --exclusive -t 5 --wrap 'srun sleep 12')
blocked=$(job resources -p old --exclusive --wrap true)
scancel "$running" "$waiting" "$stubborn"
scontrol requeue "$requeued"
scontrol requeuehold "$held_again"
scontrol suspend "$suspended"
sleep 1.5
snapshot middle
wait_for "$urgent" COMPLETED
job preempted-ends --no-requeue -w n2 --exclusive --wrap 'srun sleep 300'
sleep 3
urgent=$(job urgent-2 -p urgent -w n2 --exclusive -t 5 --wrap 'srun sleep 3')
wait_for "$urgent" COMPLETED
lost=$(job node-fail --no-requeue -N2 -w n[1-2] --wrap 'srun sleep 300')
wait_for "$lost" RUNNING
kill -KILL "$(cat "$DIR/slurmd-n2.pid")"
wait_for "$lost" NODE_FAIL
scancel "$suspended"
wait_for "$limit" TIMEOUT
snapshot end
slurmd -N n2 -f "$SLURM_CONF"
scancel "$blocked"
wait_for "$requeued" RUNNING # 120 s after the requeue
wait_for "$preempted" RUNNING
sleep 2
snapshot requeued
