#!/usr/bin/env bash
# Write the smallest root file system as a tar to stdout: the machine's own /usr is mounted into it, so that an
# image takes no registry and no download.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir"
mkdir -p "$dir"/{etc,tmp,proc,sys,dev,usr,root,run,var,opt,home}
for link in bin sbin lib lib64; do ln -s "usr/$link" "$dir/$link"; done
cp /etc/passwd /etc/group /etc/nsswitch.conf "$dir/etc/"
chmod 1777 "$dir/tmp"
tar -C "$dir" -c .
