#!/usr/bin/env bash
# Every benchmark: the cost of a packet in memory; the datapath between two network namespaces beside the kernel's TCP of
# the same run; MPI over the libfabric provider beside libfabric's own; the lab's experiments beside the kernel's TCP.
# Measurements go to target/bench, tables with ratios into docs/RESULTS.md (bench/tables.py).
#
#   bench.sh             everything, some twenty-five minutes on a machine that does nothing else
#   bench.sh --quick     a minute of it, to see that it works; the tables are only printed
#   REPEATS=5 bench.sh   runs of each of the lab's cases (default 1; of the spine failures 3)
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."
PATH=$PATH:$HOME/.cargo/bin

quick=no
[[ ${1:-} != --quick ]] || quick=yes
measured=target/bench
experiments=(incast shared-uplinks spine-failure elephant together)
transports=srd,tcp-cubic,tcp-bbr,tcp-cubic+ecn

experiment() { # NAME ARGUMENT…
  local name=$1; shift
  target/srd/bin/srd lab --lab bench experiment "labs/$name.toml" --transports "$transports" --out "$measured/lab/$name" "$@"
}

note_commit() {
  mkdir -p "$measured"
  git describe --always --dirty > "$measured/commit" 2> /dev/null || echo unknown > "$measured/commit"
}

if [[ $quick == yes ]]; then
  measured=target/bench/quick
  transports=srd,tcp-cubic
  rm -rf "$measured"
  note_commit
  crates/srd/bench/datapath.sh --quick --out "$measured"
  bench/mpi.py --quick --configurations mtu1500 mtu1500-packet --stacks ompi --rivals tcp srd --out "$measured"
  experiment incast --only "20 KB" --repeats 1 --most-cpu 100
  exec bench/tables.py --print --measured "$measured"
fi

note_commit
cargo bench --quiet -p srd-proto --bench packet_cost | tee "$measured/packet_cost.txt"
cargo bench --quiet -p srd-device --bench device | tee "$measured/device.txt"
cargo bench --quiet -p srd-proto --bench hostile_packet | tee "$measured/hostile_packet.txt"
cargo bench --quiet -p srd-net --bench hostile | tee "$measured/hostile.txt"
crates/srd/bench/datapath.sh --out "$measured"
bench/mpi.py --rounds 3 --out "$measured"
for name in "${experiments[@]}"; do
  least=1
  [[ $name != spine-failure ]] || least=3 # a flow's longest stall is also that of the machine
  experiment "$name" --repeats "${REPEATS:-$least}"
done
exec bench/tables.py
