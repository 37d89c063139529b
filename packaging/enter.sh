#!/usr/bin/env bash
# enter.sh ROOT SCRIPT: runs a script of bash in a directory that holds a Linux, as root, in namespaces of its own: no network but loopback,
# no file of this machine.
set -euo pipefail

# What `ip` brings up here, where there is one. A root of its own, not a chroot: labs and containers take one.
# shellcheck disable=SC2016
exec timeout 900 unshare --mount --pid --fork --kill-child --net --ipc --uts sh -c '
  set -e
  ip link set lo up
  mount --bind "$0" "$0"
  mount --rbind /dev "$0/dev"
  mount -t proc proc "$0/proc"
  mount -t sysfs sysfs "$0/sys"
  mount -t cgroup2 cgroup2 "$0/sys/fs/cgroup"
  for directory in dev/shm run tmp; do mount -t tmpfs tmpfs "$0/$directory"; done
  cd "$0"
  pivot_root . mnt
  umount --lazy /mnt
  cd /
  exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 bash -euo pipefail -c "$1"' "$1" "$2"
