#!/usr/bin/env bash
# Measures latency, bandwidth and message rate of the datapath against kernel TCP in the same run, between two network
# namespaces joined by a veth pair (over loopback where namespaces are not allowed). Results go to target/bench/*.json.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."

srd=$PWD/target/srd/bin/srd
[[ -x $srd ]] || { echo "bench: error: nothing is built; run: make build" >&2; exit 1; }
mkdir -p target/bench
server_side=() client_side=() server=127.0.0.1 server_pid=
a=srdbench-a b=srdbench-b

down() {
  [[ -z $server_pid ]] || kill "$server_pid" 2>/dev/null || true
  ip netns del $a 2>/dev/null || true
  ip netns del $b 2>/dev/null || true
}
trap down EXIT

if [[ $EUID -eq 0 ]] && ip netns add $a 2>/dev/null && ip netns add $b; then
  ip link add e0 netns $a type veth peer name e0 netns $b
  ip -n $a addr add 10.204.0.1/24 dev e0; ip -n $a link set e0 up; ip -n $a link set lo up
  ip -n $b addr add 10.204.0.2/24 dev e0; ip -n $b link set e0 up; ip -n $b link set lo up
  server_side=(ip netns exec "$a") client_side=(ip netns exec "$b") server=10.204.0.1
  echo "bench: two namespaces, veth, MTU 1500"
else
  echo "bench: no network namespaces here; over loopback"
fi

SRD_ADDR=$server "${server_side[@]}" "$srd" perf server >target/bench/server.log 2>&1 &
server_pid=$!
sleep 0.5
kill -0 $server_pid 2>/dev/null || { cat target/bench/server.log >&2; exit 1; }

for test in "latency 8" "latency 4096" "bandwidth 65536" "bandwidth 1048576" "msgrate 8"; do
  read -r kind size <<<"$test"
  echo "== $kind, $size bytes"
  "${client_side[@]}" "$srd" perf client "$server" --test "$kind" --size "$size" --vs-tcp --json | tee "target/bench/$kind-$size.json"
done
