#!/usr/bin/env bash
# Every benchmark: the cost of a packet in memory, the datapath between two network namespaces with ratios to the
# kernel's TCP of the same run, and MPI over the libfabric provider with ratios to libfabric's own. Results go to
# target/bench.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."
PATH=$PATH:$HOME/.cargo/bin

mkdir -p target/bench
cargo bench --quiet -p srd-proto --bench packet_cost | tee target/bench/packet_cost.txt
cargo bench --quiet -p srd-device --bench device | tee target/bench/device.txt
crates/srd/bench/datapath.sh
exec bench/mpi.py
