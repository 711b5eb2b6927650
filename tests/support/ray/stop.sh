#!/usr/bin/env bash
# End what start.sh has started, by the sessions of the pids in DIR/pids, and remove its folder.
#   stop.sh --dir DIR
set -uo pipefail
dir=$2
[ -e "$dir/pids" ] || exit 0
mapfile -t pids <"$dir/pids"
kill -TERM "${pids[@]}" 2>/dev/null
for _ in $(seq 100); do
  kill -0 "${pids[@]}" 2>/dev/null || break
  sleep 0.1
done
for pid in "${pids[@]}"; do # a raylet, the store, workers
  mapfile -t left < <(ps -o pid= -s "$pid")
  [ ${#left[@]} = 0 ] || kill -KILL "${left[@]}" 2>/dev/null
done
rm -rf "$dir"
