#!/usr/bin/env bash
# root.sh SUITE [PACKAGE...]: makes .venv/roots/SUITE.tar, a bare Debian (minbase) with what users of our packages have beside them, for
# tests; with PACKAGE: .venv/roots/SUITE+PACKAGE.tar, which has these instead. As root; some 100 MB are fetched, once.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."

suite=$1; shift
# Python and pytest, verbs and libfabric programs, and what labs take.
packages=python3-venv,python3-pytest,ibverbs-utils,libfabric-bin,iproute2
name=$suite
if (($#)); then
  packages=$(IFS=,; echo "$*")
  name=$suite+${packages//,/+}
fi
kept=.venv/roots/$name.tar
# What nobody reads in a root that is thrown away.
leave_out=(--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*')

[[ ! -f $kept || $(cat "$kept.packages" 2>/dev/null) != "$packages" ]] || exit 0
command -v mmdebstrap >/dev/null || { echo "root: error: no mmdebstrap (Debian: apt-get install mmdebstrap)" >&2; exit 1; }
mkdir -p .venv/roots
new=.venv/roots/$name.$$.tar
trap 'rm -f "$new"' EXIT
mmdebstrap --quiet --variant=minbase --include="$packages" "${leave_out[@]}" --aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' "$suite" "$new"
mv "$new" "$kept"
printf '%s' "$packages" >"$kept.packages"
