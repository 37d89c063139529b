#!/usr/bin/env bash
# A leaf-spine fabric made of network namespaces: hosts, leaves and spines, each a namespace of its own, with
# shaped links and ECMP routers that hash the 5-tuple as a hardware switch does. Nothing of it lies in the machine's
# own network namespace, and every name carries a prefix, so it cannot touch the machine's network.
#
#   fabric.sh up [--hosts-per-leaf 2] [--leaves 2] [--spines 4] [--host-rate 200mbit] [--uplink-rate 100mbit]
#                [--buffer BYTES] [--mtu 1500]
#   fabric.sh check                         says why a fabric cannot be built here, if so
#   fabric.sh down                          removes everything, also what a crashed run left
#   fabric.sh status                        hosts, addresses, bytes per spine, faults
#   fabric.sh exec HOST -- CMD…             runs CMD in a host (h0, h1, …)
#   fabric.sh fault blackhole SPINE         the spine silently drops all it should forward
#   fabric.sh fault loss SPINE PERCENT      the spine drops that share of packets at random
#   fabric.sh fault linkdown LEAF SPINE     the link loses carrier
#   fabric.sh heal                          ends every fault
#
# A host has e0, its port on the fabric (10.200.LEAF.10+i), and m0, its port on an unshaped management network
# (10.203.0.10+i) that no fault touches: MPI launchers talk there, as they do on a cluster.
set -euo pipefail

prefix=${SRD_FABRIC_PREFIX:-srdfab}
state=/run/srd-fabric/$prefix
PATH=$PATH:/usr/sbin:/sbin

say()  { printf 'fabric: %s\n' "$*"; }
fail() { printf 'fabric: error: %s\n' "$*" >&2; exit 1; }

host_name()  { echo "$prefix-h$1"; }
leaf_name()  { echo "$prefix-leaf$1"; }
spine_name() { echo "$prefix-spine$1"; }
our_namespaces() { ip netns list | awk -v p="$prefix-" 'index($1, p) == 1 { print $1 }'; }

# ---- the plan: what is connected to what, written as batches for ip(8) ----

plan_devices() { # the routers first, then each host with its links
  local l h s i=0
  for ((s = 0; s < spines; s++)); do echo "netns add $(spine_name $s)"; done
  echo "netns add $prefix-mgmt"
  for ((l = 0; l < leaves; l++)); do
    echo "netns add $(leaf_name $l)"
    for ((s = 0; s < spines; s++)); do
      echo "link add u$s netns $(leaf_name $l) mtu $mtu type veth peer name d$l netns $(spine_name $s) mtu $mtu"
    done
    for ((h = 0; h < hosts_per_leaf; h++, i++)); do
      echo "netns add $(host_name $i)"
      echo "link add e0 netns $(host_name $i) mtu $mtu type veth peer name p$h netns $(leaf_name $l) mtu $mtu"
      echo "link add m0 netns $(host_name $i) type veth peer name p$i netns $prefix-mgmt"
    done
  done
}

plan_host() { # HOST LEAF PORT
  cat <<PLAN
link set lo up
addr add 10.200.$2.$((10 + $3))/24 dev e0
addr add 10.203.0.$((10 + $1))/24 dev m0
link set e0 up
link set m0 up
route add default via 10.200.$2.1
PLAN
}

plan_leaf() { # LEAF
  local h s m
  echo "link set lo up"
  echo "link add br0 type bridge"
  echo "link set br0 mtu $mtu up"
  echo "addr add 10.200.$1.1/24 dev br0"
  for ((h = 0; h < hosts_per_leaf; h++)); do echo "link set p$h master br0 up"; done
  for ((s = 0; s < spines; s++)); do
    echo "addr add 10.201.$1.$((2 * s))/31 dev u$s"
    echo "link set u$s up"
  done
  for ((m = 0; m < leaves; m++)); do
    [[ $m == "$1" ]] && continue
    printf 'route add 10.200.%s.0/24' "$m"
    for ((s = 0; s < spines; s++)); do printf ' nexthop via 10.201.%s.%s dev u%s' "$1" $((2 * s + 1)) "$s"; done
    echo
  done
}

plan_spine() { # SPINE
  local l
  echo "link set lo up"
  for ((l = 0; l < leaves; l++)); do
    echo "addr add 10.201.$l.$((2 * $1 + 1))/31 dev d$l"
    echo "link set d$l up"
  done
  # After the links: a route needs its device to be up.
  for ((l = 0; l < leaves; l++)); do echo "route add 10.200.$l.0/24 via 10.201.$l.$((2 * $1)) dev d$l"; done
}

plan_management() {
  local i
  echo "link add br0 type bridge"
  echo "link set br0 up"
  for ((i = 0; i < hosts_per_leaf * leaves; i++)); do echo "link set p$i master br0 up"; done
}

# Runs in a namespace, as root: hash, forwarding and offloads.
# Policy 3 with these fields hashes source, destination, protocol and ports as they stand in the packet. (Policy 1
# would take the sending socket's random txhash, which lets TCP move to another path when it times out: no switch
# does that.) tx off: checksums are computed, so that a corrupted packet is noticed.
configure_namespace='
  for key in all default; do echo 0 >/proc/sys/net/ipv4/conf/$key/rp_filter; done
  echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save
  if [ "$1" = router ]; then
    echo 1 >/proc/sys/net/ipv4/ip_forward
    echo 3 >/proc/sys/net/ipv4/fib_multipath_hash_policy
    echo 55 >/proc/sys/net/ipv4/fib_multipath_hash_fields
    echo "$2" >/proc/sys/net/ipv4/fib_multipath_hash_seed
    echo 0 >/proc/sys/net/ipv4/icmp_ratelimit
    for key in all default; do echo 1 >/proc/sys/net/ipv4/conf/$key/ignore_routes_with_linkdown; done
  fi
  shift 2
  for device in "$@"; do ethtool -K "$device" tso off gso off gro off tx off >/dev/null 2>&1; done
'

shape() { # NAMESPACE RATE DEVICE... : a token bucket per port whose queue holds $buffer bytes
  local namespace=$1 rate=$2 device; shift 2
  # Two full frames of burst: less cannot send at line rate, more would let bursts through a "wire".
  for device in "$@"; do
    echo "qdisc replace dev $device root tbf rate $rate burst $((2 * (mtu + 14))) limit $buffer"
  done | tc -n "$namespace" -batch -
}

ports() { local name=$1 count=$2 k; for ((k = 0; k < count; k++)); do echo "$name$k"; done; }

check() {
  [[ $EUID -eq 0 ]] || fail "needs root (it makes network namespaces)"
  local name=$prefix-probe-$$
  ip netns add "$name" 2>/dev/null && ip netns del "$name" || fail "this machine does not allow network namespaces"
}

up() {
  leaves=2 spines=4 hosts_per_leaf=2 host_rate=200mbit uplink_rate=100mbit buffer=150000 mtu=1500
  while [[ $# -gt 0 ]]; do
    [[ $# -ge 2 ]] || fail "option $1 needs a value"
    case $1 in
      --leaves) leaves=$2 ;; --spines) spines=$2 ;; --hosts-per-leaf) hosts_per_leaf=$2 ;;
      --host-rate) host_rate=$2 ;; --uplink-rate) uplink_rate=$2 ;; --buffer) buffer=$2 ;; --mtu) mtu=$2 ;;
      *) fail "unknown option $1" ;;
    esac
    shift 2
  done
  check
  [[ -z $(our_namespaces) ]] || fail "a fabric named $prefix is up already; 'fabric.sh down' removes it"

  trap 'down; fail "could not build the fabric"' ERR
  mkdir -p "$state"
  plan_devices | ip -batch -
  local l h s i=0
  printf '127.0.0.1 localhost\n' >"$state/hosts"
  for ((l = 0; l < leaves; l++)); do
    plan_leaf $l | ip -n "$(leaf_name $l)" -batch -
    # shellcheck disable=SC2046  # lists of port names
    ip netns exec "$(leaf_name $l)" sh -c "$configure_namespace" sh router $((1000 + l)) $(ports u $spines) $(ports p "$hosts_per_leaf")
    # shellcheck disable=SC2046
    shape "$(leaf_name $l)" "$uplink_rate" $(ports u $spines)
    # shellcheck disable=SC2046
    shape "$(leaf_name $l)" "$host_rate" $(ports p "$hosts_per_leaf")
    for ((h = 0; h < hosts_per_leaf; h++, i++)); do
      plan_host $i $l $h | ip -n "$(host_name $i)" -batch -
      ip netns exec "$(host_name $i)" sh -c "$configure_namespace" sh host - e0
      shape "$(host_name $i)" "$host_rate" e0
      printf '10.203.0.%d %s\n' $((10 + i)) "$(host_name $i)" >>"$state/hosts"
    done
  done
  for ((s = 0; s < spines; s++)); do
    plan_spine $s | ip -n "$(spine_name $s)" -batch -
    # shellcheck disable=SC2046
    ip netns exec "$(spine_name $s)" sh -c "$configure_namespace" sh router $((2000 + s)) $(ports d $leaves)
    # shellcheck disable=SC2046
    shape "$(spine_name $s)" "$uplink_rate" $(ports d $leaves)
  done
  plan_management | ip -n "$prefix-mgmt" -batch -
  printf 'leaves=%s spines=%s hosts=%s host_rate=%s uplink_rate=%s buffer=%s mtu=%s\n' \
    "$leaves" "$spines" $i "$host_rate" "$uplink_rate" "$buffer" "$mtu" >"$state/shape"
  trap - ERR
  say "up: $i hosts ($host_rate) on $leaves leaves, $spines spines ($uplink_rate per link), buffer $buffer B, MTU $mtu"
}

down() {
  local namespace pids
  for namespace in $(our_namespaces); do
    # A namespace lives on while a process is in it.
    pids=$(ip netns pids "$namespace" 2>/dev/null || true)
    # shellcheck disable=SC2086
    [[ -z $pids ]] || kill -9 $pids 2>/dev/null || true
    ip netns del "$namespace" 2>/dev/null || true
  done
  rm -rf "$state"
}

require_up() { [[ -f $state/shape ]] || fail "no fabric is up; 'fabric.sh up' builds one"; }

status() {
  require_up
  say "$(<"$state/shape")"
  local namespace
  for namespace in $(our_namespaces); do
    case $namespace in
      *-h[0-9]*) printf '  %-16s %s\n' "$namespace" "$(ip -n "$namespace" -4 -br addr show e0 | awk '{print $3}')" ;;
      *-spine*)
        printf '  %-16s forwarded %s bytes%s\n' "$namespace" \
          "$(ip -n "$namespace" -j -s link | python3 -c 'import json,sys; print(sum(d["stats64"]["rx"]["bytes"] for d in json.load(sys.stdin) if d["ifname"] != "lo"))')" \
          "$(ip netns exec "$namespace" nft list table inet srdfault 2>/dev/null |
            awk '/policy drop/ { printf ", fault: blackhole" } /numgen/ { printf ", fault: loss of %s in 100000", $(NF-1) }')" ;;
    esac
  done
}

spine_exists() { ip netns list | awk '{print $1}' | grep -qx "$(spine_name "$1")" || fail "there is no spine $1"; }

# Installs a filter in a spine, in place of the one that is there. It acts before routing, so that nothing, not even
# an ICMP error, ever answers for the lost packet.
filter_in_spine() { # SPINE POLICY [RULE]
  ip netns exec "$(spine_name "$1")" nft -f - <<RULES
table inet srdfault
delete table inet srdfault
table inet srdfault {
  chain forwarded {
    type filter hook prerouting priority raw; policy $2;
    ${3:-}
  }
}
RULES
}

fault() {
  require_up
  local kind=${1:-}
  case $kind in
    blackhole) [[ $# -eq 2 ]] || fail "usage: fabric.sh fault blackhole SPINE"
      spine_exists "$2"
      filter_in_spine "$2" drop ;;
    loss) [[ $# -eq 3 ]] || fail "usage: fabric.sh fault loss SPINE PERCENT"
      spine_exists "$2"
      local per_100k
      per_100k=$(awk -v p="$3" 'BEGIN { if (p + 0 <= 0 || p + 0 > 100) exit 1; printf "%d", p * 1000 }') ||
        fail "PERCENT is above 0 and at most 100"
      filter_in_spine "$2" accept "numgen random mod 100000 < $per_100k drop" ;;
    linkdown) [[ $# -eq 3 ]] || fail "usage: fabric.sh fault linkdown LEAF SPINE"
      spine_exists "$3"
      ip -n "$(spine_name "$3")" link set "d$2" down ;;
    *) fail "unknown fault '$kind': blackhole, loss or linkdown" ;;
  esac
  say "fault: $*"
}

heal() {
  require_up
  local namespace s l
  for namespace in $(our_namespaces); do
    case $namespace in *-spine*)
      ip netns exec "$namespace" nft delete table inet srdfault 2>/dev/null || true
      s=${namespace##*-spine}
      for l in $(ip -n "$namespace" -br link | awk '/^d[0-9].*DOWN/ { sub(/@.*/, "", $1); print substr($1, 2) }'); do
        ip -n "$namespace" link set "d$l" up
        # The kernel dropped the spine's route with the link, and the leaf's nexthop is back by itself.
        ip -n "$namespace" route replace "10.200.$l.0/24" via "10.201.$l.$((2 * s))" dev "d$l"
      done ;;
    esac
  done
  say "healed"
}

run_in_host() {
  require_up
  local host=$1; shift; [[ ${1:-} == -- ]] && shift
  exec ip netns exec "$prefix-$host" "$@"
}

command=${1:-}; shift || true
case $command in
  up) up "$@" ;;
  down) down; say "down" ;;
  check) check ;;
  status) status ;;
  fault) fault "$@" ;;
  heal) heal ;;
  exec) run_in_host "$@" ;;
  *) sed -n '2,/^set -e/p' "$0" | sed -n 's/^# \{0,1\}//p'; exit 2 ;;
esac
