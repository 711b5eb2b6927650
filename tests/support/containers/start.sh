#!/usr/bin/env bash
# Start a dockerd of its own in a folder, without a bridge and without iptables:
#   start.sh DIR
# Its socket is DIR/sock. Needs root, docker.io and runc.
set -euo pipefail
DIR=$1
mkdir -p "$DIR"
# vfs: an overlay needs a file system below it that allows one
setsid dockerd --data-root "$DIR/data" --exec-root "$DIR/exec" -H "unix://$DIR/sock" --pidfile "$DIR/own.pid" \
  --iptables=false --ip6tables=false --bridge=none --storage-driver vfs >>"$DIR/log" 2>&1 </dev/null &
echo $! >"$DIR/dockerd.pid"
for _ in $(seq 240); do
  DOCKER_HOST=unix://$DIR/sock timeout 5 docker version >/dev/null 2>&1 && exit 0
  kill -0 "$(cat "$DIR/dockerd.pid")" 2>/dev/null || break
  sleep 0.25
done
tail -n 5 "$DIR/log" >&2
exit 1
