#!/usr/bin/env bash
# Start a real Slurm of several nodes on this machine: munged, slurmctld, a slurmd for each of the nodes n1..nN
# (8 CPUs, 8 GiB and 4 GPUs each, all pretended), and with --accounting mariadbd and slurmdbd, so that sacct answers.
# Jobs are real processes. All files lie below DIR; nothing of the machine's own Slurm, munge or MariaDB is used or
# changed. slurmctld and slurmd listen on loopback; slurmdbd and srun have no option for that. Needs root.
#
#   start.sh --dir DIR --base-port PORT [--nodes 3] [--accounting] [--cgroup] [--kill-wait 5] [--grace 0]
#         [--min-job-age 300] [--debug info]
#
# Prints the line that makes a shell use it: eval "$(start.sh ...)". Ports: PORT to PORT + 10 + N.
# Partitions: `main` (all nodes but the last, GPU type h100; preemptible) and `urgent` (the same nodes; preempts
# main), `old` (the last node, type v100), `down` (as main, but down).
# --cgroup: memory limits are real, by cgroup v1. Without, a poll kills what is too large, and no state tells why.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
here=$(cd "$(dirname "$0")" && pwd)
DIR= BASE= NODES=3 ACCOUNTING= KILL_WAIT=5 GRACE=0 MIN_JOB_AGE=300
CGROUP= DEBUG=info
while [ $# -gt 0 ]; do
  case $1 in
    --dir) DIR=$2; shift 2 ;;
    --nodes) NODES=$2; shift 2 ;;
    --accounting) ACCOUNTING=1; shift ;;
    --base-port) BASE=$2; shift 2 ;;
    --kill-wait) KILL_WAIT=$2; shift 2 ;;
    --grace) GRACE=$2; shift 2 ;;
    --min-job-age) MIN_JOB_AGE=$2; shift 2 ;;
    --cgroup) CGROUP=1; shift ;;
    --debug) DEBUG=$2; shift 2 ;;
    *) echo "start.sh: unknown option $1" >&2; exit 2 ;;
  esac
done
say() { echo "slurm: $*" >&2; }
fail() { say "$*"; "$here/stop.sh" --dir "$DIR" >&2 || true; exit 1; }

[ -n "$DIR" ] && [ -n "$BASE" ] || { say "--dir and --base-port are needed"; exit 2; }
[ "$(id -u)" = 0 ] || { say "needs root (slurmd does)"; exit 1; }
for tool in munged slurmctld slurmd sbatch; do
  command -v $tool >/dev/null || { say "no $tool: apt-get install -y --no-install-recommends slurm-wlm munge"; exit 1; }
done
[ "$NODES" -ge 2 ] || { say "--nodes 2 or more"; exit 2; }
if [ -n "$ACCOUNTING" ]; then
  for tool in mariadbd slurmdbd mariadb-install-db; do
    command -v $tool >/dev/null || { say "no $tool: apt-get install -y --no-install-recommends slurmdbd mariadb-server"; exit 1; }
  done
fi
if [ -e "$DIR/slurmctld.pid" ] && kill -0 "$(cat "$DIR/slurmctld.pid")" 2>/dev/null; then
  say "already running in $DIR: $here/stop.sh --dir $DIR"; exit 1
fi
[ ! -e "$DIR" ] || [ -e "$DIR/started-for-tests" ] || { say "$DIR was not made by start.sh"; exit 1; }
rm -rf "$DIR"
mkdir -p "$DIR"/{log,state,spool,etc,dev}
touch "$DIR/started-for-tests" # stop.sh ends and removes nothing else
chmod 755 "$DIR"; chmod 700 "$DIR/state"

# -- munge: an own key and socket, as root, beside any that the machine has
mkdir -p "$DIR/munge"; chmod 700 "$DIR/munge"
dd if=/dev/urandom of="$DIR/munge/key" bs=1 count=256 status=none; chmod 600 "$DIR/munge/key"
munged --force --key-file "$DIR/munge/key" --socket "$DIR/munge.socket" --pid-file "$DIR/munge/pid" \
  --log-file "$DIR/munge/log" --seed-file "$DIR/munge/seed" || fail "munged: $(tail -3 "$DIR/munge/log")"

# -- nodes: names that exist nowhere; NodeAddr is loopback, NodeHostname this machine
host=$(hostname -s)
nodes= main= old="n$NODES"
for i in $(seq 1 "$NODES"); do
  kind=h100; [ "$i" = "$NODES" ] && kind=v100
  nodes+="NodeName=n$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$((BASE + 10 + i)) Gres=gpu:$kind:4 Feature=$kind"$'\n'
  echo "NodeName=n$i Name=gpu Type=$kind File=$DIR/dev/n$i-gpu[0-3] Flags=nvidia_gpu_env" >> "$DIR/etc/gres.conf"
  # slurmd wants devices: each is a /dev/null
  for g in 0 1 2 3; do mknod -m 666 "$DIR/dev/n$i-gpu$g" c 1 3; done
  mkdir -p "$DIR/spool/n$i"
done
echo AutoDetect=off | cat - "$DIR/etc/gres.conf" > "$DIR/etc/gres.new" && mv "$DIR/etc/gres.new" "$DIR/etc/gres.conf"
main="n[1-$((NODES - 1))]"; [ "$NODES" = 2 ] && main=n1
accounting=AccountingStorageType=accounting_storage/none
[ -n "$ACCOUNTING" ] && accounting="AccountingStorageType=accounting_storage/slurmdbd"$'\n'"AccountingStoragePass=$DIR/munge.socket"$'\n'"AccountingStorageHost=127.0.0.1"$'\n'"AccountingStoragePort=$((BASE + 2))"$'\n'"AccountingStoreFlags=job_comment,job_env,job_script"$'\n'"AccountingStorageTRES=gres/gpu"
proctrack=proctrack/linuxproc task=task/none over=JobAcctGatherParams=OverMemoryKill
if [ -n "$CGROUP" ]; then
  proctrack=proctrack/cgroup task=task/cgroup over=
  printf '%s\n' CgroupPlugin=cgroup/v1 CgroupMountpoint=/sys/fs/cgroup CgroupAutomount=no ConstrainRAMSpace=yes \
    ConstrainCores=no ConstrainDevices=no ConstrainSwapSpace=no AllowedRAMSpace=100 > "$DIR/etc/cgroup.conf"
fi
text=$(cat "$here/slurm.conf.in")
fill() { text=${text//@$1@/$2}; }
fill DIR "$DIR"; fill CTLD_PORT "$BASE"; fill DEBUG "$DEBUG"; fill KILL_WAIT "$KILL_WAIT"; fill GRACE "$GRACE"
fill MIN_JOB_AGE "$MIN_JOB_AGE"; fill NODES "$nodes"; fill MAIN "$main"; fill OLD "$old"
fill ACCOUNTING "$accounting"; fill PROCTRACK "$proctrack"; fill TASK "$task"; fill OVERMEMORY "$over"
printf '%s\n' "$text" > "$DIR/etc/slurm.conf"
export SLURM_CONF=$DIR/etc/slurm.conf

# -- accounting: a database server on a Unix socket only, then slurmdbd
if [ -n "$ACCOUNTING" ]; then
  id mysql > /dev/null || fail "no user mysql"
  install -d -o mysql "$DIR/db" "$DIR/db-run"
  mariadb-install-db --no-defaults --user=mysql --datadir="$DIR/db" --auth-root-authentication-method=socket \
    --skip-test-db > "$DIR/log/db-install.log" 2>&1 || fail "mariadb-install-db: $(tail -3 "$DIR/log/db-install.log")"
  mariadbd --no-defaults --user=mysql --datadir="$DIR/db" --skip-networking --socket="$DIR/db-run/sock" \
    --pid-file="$DIR/db-run/pid" --innodb-buffer-pool-size=64M --innodb-lock-wait-timeout=900 --innodb-flush-log-at-trx-commit=0 \
    > "$DIR/log/mariadbd.log" 2>&1 &
  echo $! > "$DIR/mariadbd.pid"
  for _ in $(seq 100); do [ -S "$DIR/db-run/sock" ] && timeout 5 mariadb --no-defaults -S "$DIR/db-run/sock" -e 'select 1' > /dev/null 2>&1 && break; sleep 0.1; done
  mariadb --no-defaults -S "$DIR/db-run/sock" -e 'create database slurm_acct_db' || fail "mariadb does not answer"
  cat > "$DIR/etc/slurmdbd.conf" <<CONF
AuthType=auth/munge
AuthInfo=socket=$DIR/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$((BASE + 2))
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
LogFile=$DIR/log/slurmdbd.log
PidFile=$DIR/slurmdbd.pid
DebugLevel=$DEBUG
CommitDelay=0
CONF
  chmod 600 "$DIR/etc/slurmdbd.conf"
  # slurmdbd has no option for the path of a socket: its client library reads this variable
  MYSQL_UNIX_PORT=$DIR/db-run/sock SLURM_CONF=$DIR/etc/slurm.conf slurmdbd > "$DIR/log/slurmdbd.out" 2>&1 || fail "slurmdbd: $(tail -3 "$DIR/log/slurmdbd.log" "$DIR/log/slurmdbd.out")"
  for _ in $(seq 100); do timeout 5 sacctmgr -n list cluster > /dev/null 2>&1 && break; sleep 0.1; done
  timeout 10 sacctmgr -i add cluster sl > "$DIR/log/sacctmgr.log" 2>&1 || true
fi

# -- the daemons themselves; each writes its own pid file
slurmctld -c -f "$SLURM_CONF" > "$DIR/log/slurmctld.out" 2>&1 || fail "slurmctld: $(tail -3 "$DIR/log/slurmctld.log" "$DIR/log/slurmctld.out")"
for i in $(seq 1 "$NODES"); do
  slurmd -N "n$i" -f "$SLURM_CONF" > "$DIR/log/slurmd-n$i.out" 2>&1 || fail "slurmd n$i: $(tail -3 "$DIR/log/slurmd-n$i.log" "$DIR/log/slurmd-n$i.out")"
done
for _ in $(seq 200); do
  [ "$(timeout 5 sinfo -h -N -o '%N %T' 2>/dev/null | sort -u | grep -c ' idle$')" = "$NODES" ] && break
  sleep 0.1
done
[ "$(timeout 5 sinfo -h -N -o '%N %T' | sort -u | grep -c ' idle$')" = "$NODES" ] || fail "not all nodes came up: $(sinfo -N -o '%N %T %E')"
say "$NODES nodes are up ($(sinfo -h -o '%P %D %G' | tr '\n' ';')); stop it with: $here/stop.sh --dir $DIR"
echo "export SLURM_CONF=$SLURM_CONF"
