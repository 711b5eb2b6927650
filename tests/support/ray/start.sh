#!/usr/bin/env bash
# Start a Ray for tests: a head and a worker as processes of this machine, with pretended GPUs, which
# Ray only counts.
#   start.sh --ray PROGRAM --dir DIR [--nodes 2] [--gpus 4] [--cpus 4] [--base-port 27800]
# The jobs interface is on 127.0.0.1, at the base port + 1.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
ray=ray dir='' nodes=2 gpus=4 cpus=4 base=27800
while [ $# -gt 0 ]; do
  case $1 in
    --ray) ray=$2 ;;
    --dir) dir=$2 ;;
    --nodes) nodes=$2 ;;
    --gpus) gpus=$2 ;;
    --cpus) cpus=$2 ;;
    --base-port) base=$2 ;;
    *) echo "start.sh: unknown option $1" >&2 && exit 2 ;;
  esac
  shift 2
done
# Unix sockets lie below: their paths may have 107 bytes, and Ray appends about 60
[ -n "$dir" ] && [ ${#dir} -le 40 ] || { echo "start.sh: --dir of at most 40 characters" >&2 && exit 2; }
mkdir -p "$dir"
: >"$dir/pids"
export RAY_USAGE_STATS_ENABLED=0
# Each node has a loopback address of its own. 127.0.0.1 would not do: Ray refuses a second node
# beside a head there. Workers need ports that no other program is given by chance.
launch() { # name, address, first port of its own, further words: in a session of its own
  setsid "$ray" start --block --node-ip-address="$2" --num-cpus="$cpus" --num-gpus="$gpus" \
    --node-name="$1" --object-store-memory=100000000 --dashboard-agent-listen-port=$(($3 + 3)) \
    --metrics-export-port=$(($3 + 4)) --min-worker-port=$(($3 + 10)) --max-worker-port=$(($3 + 59)) \
    "${@:4}" >"$dir/$1.log" 2>&1 </dev/null &
  echo "$!" >>"$dir/pids"
}
answers() { (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; }
launch n1 127.0.0.2 "$base" --head --port="$base" --dashboard-host=127.0.0.1 \
  --dashboard-port=$((base + 1)) --ray-client-server-port=$((base + 2)) --temp-dir="$dir/t"
for _ in $(seq 240); do answers 127.0.0.2 "$base" && break || sleep 0.25; done
for number in $(seq 2 "$nodes"); do
  launch "n$number" "127.0.0.$((number + 1))" $((base + 60 * (number - 1))) --address="127.0.0.2:$base"
done
for _ in $(seq 240); do
  alive=$("$(dirname "$ray")/python" - "http://127.0.0.1:$((base + 1))" <<'PY'
import json, sys, urllib.request
try:
    with urllib.request.urlopen(sys.argv[1] + "/nodes?view=summary", timeout=5) as answer:
        nodes = json.load(answer)["data"]["summary"]
    with urllib.request.urlopen(sys.argv[1] + "/api/jobs/", timeout=5) as answer:
        json.load(answer)
except OSError:
    nodes = []
print(sum(node["raylet"].get("state") == "ALIVE" for node in nodes))
PY
  )
  [ "$alive" = "$nodes" ] && exit 0
  sleep 0.25
done
tail -n 5 "$dir"/n*.log >&2
"$here/stop.sh" --dir "$dir"
exit 1
