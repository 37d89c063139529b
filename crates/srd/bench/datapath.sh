#!/usr/bin/env bash
# SRD beside the kernel's TCP, in the same run and the same shape: latency, bandwidth and message rate between two
# network namespaces joined by a veth pair (needs root; otherwise over loopback, which it says).
#
#   datapath.sh [--seconds S] [--rounds N] [--quick] [--floor] [--out DIR]
#
# Configurations: MTU 1500, MTU 9000, MTU 1500 with segmentation offloads off, MTU 1500 and 9000 with packet sockets
# (SRD_WIRE=packet), and MTU 1500 with AF_XDP sockets (SRD_WIRE=xdp), each in clear and sealed. In each,
# rounds of SRD and TCP alternate and the medians count. One JSON file per measurement goes to target/bench/, and a
# table of ratios to standard output: half round trip and processor time below 1 and rates above 1 mean that SRD is ahead.
# Processor time is that of sides that sleep while nothing comes; the others look all the time.
#
# --floor: bare UDP too, with the calls that OpenSRD makes and nothing above them (the example udp_floor of srd-net,
# which must have been built), in the same minutes as the measurements in clear.
#
# The command is that of SRD=PATH, else target/srd/bin/srd, else target/release/srd; udp_floor that of UDP_FLOOR=PATH,
# else target/release/examples/udp_floor.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

seconds=1 rounds=3 out=target/bench quick=no floor=
while (($#)); do
  case $1 in
    --seconds) seconds=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --quick) quick=yes; seconds=0.3 rounds=1; shift ;;
    --floor) floor=${UDP_FLOOR:-target/release/examples/udp_floor}; shift ;;
    *) echo "usage: datapath.sh [--seconds S] [--rounds N] [--quick] [--floor] [--out DIR]" >&2; exit 2 ;;
  esac
done

say()  { printf 'datapath: %s\n' "$*" >&2; }
fail() { printf 'datapath: error: %s\n' "$*" >&2; exit 1; }

for srd in "${SRD:-}" target/srd/bin/srd target/release/srd; do [[ -n $srd && -x $srd ]] && break; done
[[ -x $srd ]] || fail "no srd command; run: cargo build --release -p srd"
srd=$(realpath "$srd")
[[ -z $floor || -x $floor ]] || fail "no $floor; run: cargo build --release -p srd-net --example udp_floor"
mkdir -p "$out"
rm -f "$out"/*-{clear,sealed}-*.json "$out"/*-floor.txt

prefix=srdbench$$
umask 077
work=$(mktemp -d)
server=
cleanup() {
  [[ -n $server ]] && kill "$server" 2>/dev/null || true
  ip netns del "$prefix-a" 2>/dev/null || true
  ip netns del "$prefix-b" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

# ---- the two hosts ----

namespaces=yes
if [[ $(id -u) != 0 ]] || ! ip netns add "$prefix-a" 2>/dev/null; then
  namespaces=no
  say "no permission to make network namespaces: measuring over loopback, which has one MTU and no offloads to turn off"
fi

link() { # MTU OFFLOADS
  [[ $namespaces == yes ]] || return 0
  ip netns del "$prefix-a" 2>/dev/null || true
  ip netns del "$prefix-b" 2>/dev/null || true
  ip netns add "$prefix-a"
  ip netns add "$prefix-b"
  ip link add e0 netns "$prefix-a" mtu "$1" type veth peer name e0 netns "$prefix-b" mtu "$1"
  local host address
  for host in a b; do
    address=10.79.0.1
    [[ $host == b ]] && address=10.79.0.2
    ip -n "$prefix-$host" addr add "$address/24" dev e0
    ip -n "$prefix-$host" link set lo up
    ip -n "$prefix-$host" link set e0 up
    if [[ $2 == off ]]; then
      ip netns exec "$prefix-$host" ethtool -K e0 tso off gso off gro off >/dev/null
    fi
  done
}

# Command words that run what follows on a host.
on_a=() on_b=()
[[ $namespaces == no ]] || on_a=(ip netns exec "$prefix-a") on_b=(ip netns exec "$prefix-b")

# ---- one measurement ----

cpu_of() { # client|server: processors of their own where there are two
  (($(nproc) > 1)) || return 0
  [[ $1 == client ]] && echo "--cpu 0" || echo "--cpu 1"
}

start_server() { # KEY_FILE
  : >"$work/server"
  # shellcheck disable=SC2046
  "${on_b[@]}" env SRD_WIRE="$wire" ${1:+SRD_KEY_FILE=$1} "$srd" perf server --port 17407 $(cpu_of server) >"$work/server" 2>&1 &
  server=$!
  for ((i = 0; i < 100; i++)); do
    grep -q ready "$work/server" && return 0
    sleep 0.1
  done
  fail "the server does not start: $(cat "$work/server")"
}

stop_server() {
  kill "$server"
  wait "$server" 2>/dev/null || true
  server=
}

measure() { # NAME KEY_FILE LABEL TEST [ARGUMENT…]
  local name=$1 key=$2 label=$3 test=$4 to=127.0.0.1
  shift 4
  [[ $namespaces == yes ]] && to=10.79.0.2
  say "$name $test $*"
  # shellcheck disable=SC2046
  "${on_a[@]}" env SRD_WIRE="$wire" ${key:+SRD_KEY_FILE=$key} "$srd" perf client "$to" --port 17407 --test "$test" "$@" --vs-tcp \
    --rounds "$rounds" --seconds "$seconds" $(cpu_of client) --json >"$out/$name-$label.json" \
    || fail "$name $test failed; the server says: $(cat "$work/server")"
}

measure_floor() { # NAME
  local from=127.0.0.1 to=127.0.0.1 last=$(($(nproc) > 1))
  [[ $namespaces == yes ]] && from=10.79.0.1 to=10.79.0.2
  say "$1 bare UDP"
  "${on_b[@]}" "$floor" serve "$to" "$last" >"$work/server" 2>&1 &
  server=$!
  sleep 0.3
  "${on_a[@]}" "$floor" run "$from" "$to" 0 >"$out/$1-floor.txt" || fail "udp_floor failed: $(cat "$work/server")"
  wait "$server"
  server=
}

"$srd" key new "$work/key" >/dev/null
configurations=("mtu1500 1500 on udp" "mtu9000 9000 on udp" "mtu1500-nooffload 1500 off udp" "mtu1500-packet 1500 on packet"
  "mtu9000-packet 9000 on packet" "mtu1500-xdp 1500 on xdp")
[[ $namespaces == yes ]] || configurations=("loopback 0 on udp")
[[ $quick == no ]] || configurations=("${configurations[0]}")

for configuration in "${configurations[@]}"; do
  read -r name mtu offloads wire <<<"$configuration"
  link "$mtu" "$offloads"
  for sealing in clear sealed; do
    key=
    [[ $sealing == sealed ]] && key=$work/key
    start_server "$key"
    measure "$name-$sealing" "$key" latency latency
    measure "$name-$sealing" "$key" bandwidth bandwidth
    measure "$name-$sealing" "$key" msgrate msgrate
    measure "$name-$sealing" "$key" asleep bandwidth --blocking
    stop_server
    [[ -z $floor || $sealing == sealed ]] || measure_floor "$name-$sealing"
  done
done

# ---- the table ----

bench/tables.py --print --measured "$out" datapath

[[ -n $floor ]] || exit 0
for configuration in "${configurations[@]%% *}"; do
  printf '\n%s, bare UDP:\n' "$configuration"
  cat "$out/$configuration-clear-floor.txt"
done
