#!/usr/bin/env bash
# Tries the CDI file with Debian's podman, as root: opensrd.deb of target/packages (`make packages`) in a Debian that has podman, and a container
# of a bare Debian, which has none of it. Not part of `make test`: it fetches another 100 MB and takes a minute.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."

packaging/root.sh bookworm
packaging/root.sh bookworm podman crun
root=$(mktemp -d "${TMPDIR:-/tmp}/opensrd-podman.XXXXXX")
trap 'rm -rf "$root"' EXIT
tar -C "$root" -xf .venv/roots/bookworm+podman+crun.tar
cp .venv/roots/bookworm.tar "$root/image.tar"
cp target/packages/opensrd_*_"$(dpkg --print-architecture)".deb "$root/"
# Without cgroups and a bridge, which this root has not: the machine's loopback is the container's.
packaging/enter.sh "$root" '
  dpkg --install /opensrd_*.deb
  podman() { command podman --cgroup-manager=cgroupfs --storage-driver=vfs "$@" 2> >(grep -v "CNI config" >&2); }
  run() { podman run --rm --network=host --cgroups=disabled "$@"; }
  podman import --quiet /image.tar bare
  if run bare ibv_devinfo; then exit 1; fi
  run --device opensrd.org/efa=all bare ibv_devinfo
  run --device opensrd.org/efa=all bare sh -c "fi_pingpong -p efa -e rdm -I 5 >/dev/null & sleep 2; fi_pingpong -p efa -e rdm -I 5 127.0.0.1"'
