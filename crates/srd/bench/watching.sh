#!/usr/bin/env bash
# What it costs to look: processor time of `srd top` (live on a terminal, and as JSON), of `srd metrics --listen` asked once a
# second, and of what the processes that are looked at do for that, in percent of a core. PROCESSES processes with as many
# peers less one exchange messages meanwhile.
#
#   crates/srd/bench/watching.sh [PROCESSES [SECONDS]]      (release binaries of `make build` and of the example `mesh`)
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../../.."
processes=${1:-16} seconds=${2:-30}
bin=${CARGO_TARGET_DIR:-target}/release
XDG_RUNTIME_DIR=$(mktemp -d); export XDG_RUNTIME_DIR; chmod 700 "$XDG_RUNTIME_DIR"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$XDG_RUNTIME_DIR"' EXIT

"$bin/examples/mesh" "$processes" $((4 * seconds + 20)) &
mesh=$!
sleep 4
children() { cat "/proc/$mesh/task/$mesh/children"; }

# Nanoseconds of processor time that all threads of a process have used.
used() { cat /proc/"$1"/task/*/schedstat | awk '{ sum += $1 } END { print sum }'; }
# The same of the threads that answer, over all processes.
answering() {
  local sum=0 pid task ns
  for pid in $(children); do
    for task in /proc/"$pid"/task/*; do
      [[ $(<"$task/comm") == srd-stats ]] && read -r ns _ <"$task/schedstat" && sum=$((sum + ns))
    done
  done
  echo "$sum"
}
# Percent of a core for nanoseconds.
share() { awk -v ns="$1" -v s="$seconds" 'BEGIN { printf "%.2f", ns / s / 1e7 }'; }
# The process NAME below PID that has no children.
leaf() { local pid=$1 next; while next=$(cat "/proc/$pid/task/$pid/children") && [[ -n $next ]]; do pid=${next%% *}; done; echo "$pid"; }

measure() { # NAME PID
  local before answered
  sleep 2
  before=$(used "$2") answered=$(answering)
  sleep "$seconds"
  printf '%-34s %s %% of a core, and %s %% for the answers of all %d processes\n' "$1" \
    "$(share $(($(used "$2") - before)))" "$(share $(($(answering) - answered)))" "$processes"
}

printf '%d processes, %d peers each, a look a second, %d s each:\n' "$processes" $((processes - 1)) "$seconds"
sleep infinity | script -qec "stty rows 50 cols 180; exec $bin/srd top" /dev/null >/dev/null & watcher=$!
sleep 1; measure "srd top, on a terminal" "$(leaf $watcher)"; kill $watcher
"$bin/srd" top --json >/dev/null & watcher=$!
measure "srd top --json" $watcher; kill $watcher
"$bin/srd" metrics --listen 127.0.0.1:9417 >/dev/null & watcher=$!
while sleep 1; do curl -s http://127.0.0.1:9417/metrics >/dev/null || true; done & asker=$!
measure "srd metrics --listen" $watcher; kill $asker $watcher
