#!/usr/bin/env bash
# Stop what start.sh has started, by the pids in DIR: jobs first, then slurmd, slurmctld, slurmdbd, mariadbd, munged.
#   stop.sh --dir DIR [--keep]      --keep leaves the logs
set -uo pipefail
PATH=$PATH:/usr/sbin:/sbin
DIR= KEEP=
while [ $# -gt 0 ]; do
  case $1 in
    --dir) DIR=$2; shift 2 ;;
    --keep) KEEP=1; shift ;;
    *) echo "stop.sh: unknown option $1" >&2; exit 2 ;;
  esac
done
[ -d "$DIR" ] || exit 0
[ -e "$DIR/started-for-tests" ] || { echo "stop.sh: $DIR was not made by start.sh" >&2; exit 2; }
# is it there, and no zombie that only waits for its parent
is_alive() { grep -qs '^State:.[^ZX]' "/proc/$1/status"; }
# end PIDFILE NAME [SIGNAL]: the signal (TERM), and KILL after ten seconds; only a process that still has that name
end() {
  local pid
  [ -s "$1" ] || return 0
  pid=$(cat "$1")
  [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$2" ] || return 0
  kill "-${3:-TERM}" "$pid"
  for _ in $(seq 200); do is_alive "$pid" || return 0; sleep 0.05; done
  kill -KILL "$pid" 2>/dev/null
}
export SLURM_CONF=$DIR/etc/slurm.conf
if [ -s "$DIR/slurmctld.pid" ] && is_alive "$(cat "$DIR/slurmctld.pid")"; then
  ids=$(timeout 5 squeue -h -o %A 2>/dev/null | sort -u)
  if [ -n "$ids" ]; then
    # shellcheck disable=SC2086 # a list of ids
    timeout 10 scancel $ids 2>/dev/null
    # shellcheck disable=SC2086
    timeout 10 scancel --signal=KILL --full $ids 2>/dev/null # nobody waits for their grace
    for _ in $(seq 100); do [ -z "$(timeout 5 squeue -h 2>/dev/null)" ] && break; sleep 0.1; done
  fi
fi
# no job is left, and nobody reads their state again: TERM would take seconds for each
for file in "$DIR"/slurmd-*.pid; do end "$file" slurmd KILL; done
end "$DIR/slurmctld.pid" slurmctld KILL
end "$DIR/slurmdbd.pid" slurmdbd
end "$DIR/mariadbd.pid" mariadbd
end "$DIR/munge/pid" munged
# what a daemon that was killed has left: steps, and the processes of jobs
for file in $(grep -lsz "^SLURM_CONF=$DIR/etc/slurm.conf$" /proc/[0-9]*/environ); do
  process=${file%/environ}
  case $(cat "$process/comm" 2>/dev/null) in
    slurm*) ;;
    *) grep -qsz '^SLURM_JOB_ID=' "$file" || continue ;;
  esac
  kill -KILL "${process#/proc/}" 2>/dev/null
done
if [ -e "$DIR/etc/cgroup.conf" ]; then  # the folders that --cgroup made, which are empty now
  for folder in /sys/fs/cgroup/*/slurm_n[0-9]*; do
    [ -d "$folder" ] && find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null
  done
fi
[ -n "$KEEP" ] || rm -rf "$DIR"
