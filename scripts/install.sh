#!/usr/bin/env bash
# install.sh PREFIX: copies what `make build` staged to PREFIX (bin/srd, lib/srd/…, include/srd_sim.h). DESTDIR is honoured for packagers.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."

prefix=${1:?usage: install.sh PREFIX}
[[ $prefix == /* ]] || { echo "install: error: PREFIX must be an absolute path, is '$prefix'" >&2; exit 1; }
[[ $prefix != *:* ]] || { echo "install: error: PREFIX has a colon, at which the loader ends a directory (ld.so(8)): '$prefix'" >&2; exit 1; }
[[ -x target/srd/bin/srd ]] || { echo "install: error: nothing is built; run: make build" >&2; exit 1; }
destination=${DESTDIR:-}$prefix
# The libraries stay in directories of their own: in $prefix/lib the software EFA would take the place of the system's
# libibverbs for every program. `srd run` and `srd env` find them there, relative to bin/srd.
mkdir -p "$destination/bin" "$destination/lib"
install -m 755 target/srd/bin/srd "$destination/bin/srd"
# In place of the old files, not into them: programs may be running with those.
cp -a --remove-destination target/srd/lib/srd "$destination/lib/"
install -D -m 644 target/srd/include/srd_sim.h "$destination/include/srd_sim.h"
echo "install: $destination/bin/srd, $(cd "$destination/lib" && echo srd/efa/lib*.so.1 srd/fi*/lib*-fi.so)"
