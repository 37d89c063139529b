#!/usr/bin/env bash
# stage.sh BUILT STAGE: lays out what users run, from what cargo has built in the directory BUILT: bin/srd; the software
# EFA's libraries, under the names programs look for, in lib/srd/efa; the libfabric provider in lib/srd/fi, and under the
# name efa in lib/srd/fi-efa; the clock of simulated processes in lib/srd/sim,
# and there the simulator under other simulators, with its header in include. CC is the linker's, for the software EFA.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."

built=$1 stage=$2
mkdir -p "$stage/bin" "$stage/lib/srd/efa"
install -m 755 "$built/srd" "$stage/bin/srd"
# A Rust cdylib cannot carry the symbol versions that programs were linked against; the crate links the libraries.
crates/srd-verbs/link.sh "$built" "$stage/lib/srd/efa"
# libfabric loads whatever ends in fi.so in the directories of FI_PROVIDER_PATH. By rename: programs may be running with
# the old ones.
stage_provider() {
  mkdir -p "$(dirname "$2")"
  install -m 755 "$1" "$2.new"
  mv -f "$2.new" "$2"
}
mkdir -p "$stage/lib/srd/sim"
install -m 755 "$built/libsrd_preload.so" "$stage/lib/srd/sim/libsrd-time.so"
install -m 755 "$built/libsrd_sim_abi.so" "$stage/lib/srd/sim/libsrd-sim.so"
install -D -m 644 crates/srd-sim-abi/include/srd_sim.h "$stage/include/srd_sim.h"
# One library: under the second file name it calls itself efa.
stage_provider "$built/libsrd_libfabric.so" "$stage/lib/srd/fi/libsrd-fi.so"
stage_provider "$built/libsrd_libfabric.so" "$stage/lib/srd/fi-efa/libefa-fi.so"
