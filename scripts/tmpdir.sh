# Sourced by scripts/test and .ci/run: temporary files lie in memory, where there is room for them. A
# start makes some hundred small files, which on a disk take a quarter of a test's CPU time.
# TMPDIR names another place: TMPDIR=/tmp scripts/test.
room=2097152  # KiB: all files of a whole suite, most of which go away with their test
# containers often have a small one, from which nothing may be executed
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] &&
  awk '$2 == "/dev/shm" && $4 !~ /noexec/ {found = 1} END {exit !found}' /proc/mounts &&
  [ "$(df -Pk /dev/shm | awk 'NR == 2 {print $4}')" -ge $room ] &&
  [ "$(awk '$1 == "MemAvailable:" {print $2}' /proc/meminfo)" -ge $((2 * room)) ]; then
  export TMPDIR=/dev/shm
fi
