#!/usr/bin/env bash
# Stop what start.sh began: the containers, then dockerd by its pid (its containerd goes with it).
#   stop.sh DIR
set -uo pipefail
DIR=$1
[ -e "$DIR/dockerd.pid" ] || exit 0
export DOCKER_HOST=unix://$DIR/sock
pid=$(cat "$DIR/dockerd.pid")
if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ]; then
  ids=$(timeout 10 docker ps -aq 2>/dev/null)
  # shellcheck disable=SC2086 # several words
  [ -z "$ids" ] || timeout 30 docker rm -f $ids >/dev/null 2>&1
  kill -TERM "$pid"
  for _ in $(seq 150); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null
fi
umount "$DIR"/exec/netns/* 2>/dev/null # dockerd leaves its name of the host's network mounted
rm -f "$DIR/dockerd.pid"
