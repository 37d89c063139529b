#!/usr/bin/env bash
# with_device_node.sh DEVICE CMD…: runs CMD where /dev/infiniband/DEVICE is a character device.
# UCX looks at that file before it asks libibverbs about a device; a software device has none. The node exists in a
# private mount namespace only: the machine's own /dev stays as it is.
set -euo pipefail

if [[ ${1:-} != --inside ]]; then
  exec unshare --mount --propagation private -- "$0" --inside "$@"
fi
device=$2; shift 2

# /dev is shared with the machine until something is mounted over it. A small one of our own, with what programs use.
old=$(mktemp -d /tmp/srd-dev.XXXXXX)
mount --rbind /dev "$old"
mount -t tmpfs -o mode=755 tmpfs /dev
for name in null zero full random urandom tty ptmx; do
  [[ -e $old/$name ]] || continue
  if [[ -L $old/$name ]]; then cp -P "$old/$name" "/dev/$name"; else : >"/dev/$name"; mount --bind "$old/$name" "/dev/$name"; fi
done
for name in shm pts mqueue; do
  [[ -d $old/$name ]] && mkdir "/dev/$name" && mount --rbind "$old/$name" "/dev/$name"
done
ln -s /proc/self/fd /dev/fd
ln -s /proc/self/fd/0 /dev/stdin
ln -s /proc/self/fd/1 /dev/stdout
ln -s /proc/self/fd/2 /dev/stderr
mkdir /dev/infiniband
: >"/dev/infiniband/$device"
mount --bind "$old/null" "/dev/infiniband/$device"
umount -l "$old"
rmdir "$old"
exec "$@"
