#!/usr/bin/env bash
# root.sh SUITE DIRECTORY [PACKAGE...]: lays out a bare Debian (minbase) in DIRECTORY, as root. What has been downloaded once is kept in
# .venv/roots/SUITE.tar.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."

suite=$1 directory=$2; shift 2
# What a user of the packages has: Python, pytest, verbs and libfabric programs, and what labs take.
packages=(python3-venv python3-pytest ibverbs-utils libfabric-bin iproute2 "$@")
command -v mmdebstrap >/dev/null || { echo "root: error: no mmdebstrap (Debian: apt-get install mmdebstrap)" >&2; exit 1; }
kept=.venv/roots/$suite.tar
wanted="${packages[*]}"
if [[ ! -f $kept || $(cat "$kept.packages" 2>/dev/null) != "$wanted" ]]; then
  mkdir -p .venv/roots
  # What nobody reads in a root that is thrown away.
  leave_out=(--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*')
  mmdebstrap --quiet --variant=minbase --include="$(IFS=,; echo "${packages[*]}")" "${leave_out[@]}" \
    --aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' "$suite" "$kept.new"
  mv "$kept.new" "$kept"
  printf '%s' "$wanted" >"$kept.packages"
fi
rm -rf "$directory"
mkdir -p "$directory"
tar -C "$directory" -xf "$kept"
