#!/usr/bin/env bash
# Every test, in the order of how soon it tells something; `make test` runs this. Each step's time is printed, and the
# last line says `N passed, N failed` over all of them. A failing step does not keep the later ones from running,
# unless they need what it makes.
set -uo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.." || exit 1
PATH=$PATH:$HOME/.cargo/bin

seeds=${SEEDS:-2000}
unset SEEDS # the campaign's alone: tests in cargo read a variable of that name, too
log=target/test.log
passed=0 failed=0 skipped=0 summary=() failures=()
began=$SECONDS

# Runs a command, shows its output and counts its results: from its own closing line where it has one (cargo's
# "test result:" lines, "N passed, N failed"), as one test otherwise.
step() { # NAME COMMAND...
  local name=$1 start=$SECONDS status good=0 bad=0 missed=0; shift
  printf '\n==== %s: %s\n' "$name" "$*"
  "$@" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  # "test result: ok. 12 passed; 0 failed; …" of cargo, several per run; "12 passed, 0 failed" of our own runners.
  # Tests that could not run count as passed there, and say so (srd-net/tests/support/skip.rs).
  read -r good bad missed < <(awk '
    /^test result:/                  { for (k = 2; k <= NF; k++) { if ($k ~ /^passed/) p += $(k-1); if ($k ~ /^failed/) f += $(k-1) } }
    /^[0-9]+ passed, [0-9]+ failed$/ { p += $1; f += $3 }
    /^SKIPPED /                      { s++ }
    END { print p - s, f + 0, s + 0 }' "$log")
  if ((good + bad + missed == 0)); then
    if ((status == 0)); then good=1; else bad=1; fi
  elif ((status != 0 && bad == 0)); then
    bad=1 # it broke off between tests
  fi
  passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + missed))
  if ((bad > 0)); then
    failures+=("$name: $*" "$(grep -A 6 'FAILED\|^failures:\|^error' "$log" | grep -v '^test result' | tail -n 25)")
  fi
  summary+=("$(printf '%-28s %5d s  %5d passed, %d failed, %d skipped' "$name" $((SECONDS - start)) "$good" "$bad" "$missed")")
  ((status == 0))
}

# Begins what mostly waits; `step NAME finished PROGRAM` shows it in its turn.
begin() { # PROGRAM
  local log=target/${1//\//-}
  rm -f "$log.status"
  { "$1" >"$log.log" 2>&1; echo $? >"$log.status"; } &
}
finished() { # PROGRAM
  local log=target/${1//\//-}
  until [[ -s $log.status ]]; do sleep 0.2; done
  cat "$log.log"
  return "$(<"$log.status")"
}

finish() {
  printf '\n'
  [[ ${#summary[@]} -eq 0 ]] || printf '%s\n' "${summary[@]}"
  printf 'all tests: %d min %d s\n' $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60))
  ((skipped == 0)) || printf '%d skipped: this user may not, or something is not installed\n' "$skipped"
  if ((failed > 0)); then
    printf '\nwhat failed:\n'
    printf '%s\n' "${failures[@]}"
  fi
  printf '%d passed, %d failed\n' "$passed" "$failed"
  ((failed == 0)) && exit 0 || exit 1
}
trap 'echo; echo "test: interrupted"; trap - INT; kill -INT $$' INT

# Tests that need namespaces are skipped for others; for root that would be a fault (srd-net/tests/support/skip.rs).
((EUID == 0)) && export OPENSRD_TEST_ROOT=1

mkdir -p target

# A test that hangs fails and says where it waits. The longest binary takes a minute on a quiet machine.
export "CARGO_TARGET_$(uname -m | tr a-z A-Z)_UNKNOWN_LINUX_GNU_RUNNER=$PWD/scripts/within.sh 600"

# ONLY="proto msg": the tests of these crates, deterministic ones with overflow checks; or of the parts named here.
only() { # PART
  local crate=srd-$1 profile=release
  case $1 in
    abi) step "ABI" tests/abi/check.py; return ;;
    simulated) step "MPI programs on simulated fabrics" tests/simulated/run.py; return ;;
    cluster) step "sweep on a cluster" tests/cluster/run.py; return ;;
    museum) step "museum of EFA bugs" tests/museum/run.py; return ;;
    consumers) step "consumer matrix" tests/consumers/run.py; step "the same over the provider" tests/consumers/run.py --transport srd; return ;;
    campaign) step "campaign, $seeds seeds" scripts/campaign.sh "$seeds"; return ;;
    packages) step "packages on a bare Debian" packaging/test.sh; return ;;
    fuzz) step "fuzz targets on their corpus" scripts/fuzz.sh corpus; return ;;
    bench) step "benchmarks, shortest" scripts/bench.sh --quick; step "instructions" bench/instructions.py; return ;;
    srd) crate=srd ;;
  esac
  [[ -d crates/$crate ]] || {
    echo "test: error: ONLY=$1: no crate srd-$1, and none of abi, simulated, cluster, museum, consumers, packages, campaign, fuzz, bench" >&2
    exit 2
  }
  [[ " $(scripts/checked_packages.sh | tr '\n' ' ') " != *"--package=$crate "* ]] || profile=checked
  step "$crate" cargo test --profile "$profile" --quiet --no-fail-fast -p "$crate"
}
if [[ -n ${ONLY:-} ]]; then
  # What tests start lies in the stage.
  [[ " $ONLY " != *" "@(abi|simulated|cluster|museum|consumers|packages|bench|srd|libfabric|verbs|lab)" "* ]] || { step "set-up" scripts/setup.sh && step "build" scripts/build.sh || finish; }
  for part in $ONLY; do only "$part"; done
  finish
fi

step "set-up" scripts/setup.sh || finish
# A minute, mostly of waiting for the network: long before it is needed. What goes wrong is told by the step that needs it.
((EUID != 0)) || packaging/root.sh bookworm >target/root.log 2>&1 &
step "format" cargo fmt --all --check
step "build" scripts/build.sh || finish
mapfile -t checked < <(scripts/checked_packages.sh)
# Tests wait more than they compute, so what later steps need is made meanwhile, as far as nobody else wants a core.
{
  nice -n 19 cargo test --profile checked --quiet --no-run "${checked[@]}"
  nice -n 19 cargo build --profile checked --quiet "${checked[@]}"
} >target/checked.log 2>&1 &
step "unit and property tests" cargo test --release --workspace --quiet --no-fail-fast "${checked[@]/#--package/--exclude}"
step "with overflow checks" cargo test --profile checked --quiet --no-fail-fast "${checked[@]}"
step "fuzz targets on their corpus" scripts/fuzz.sh corpus
begin tests/cluster/run.py
step "campaign, $seeds seeds" scripts/campaign.sh "$seeds"
lints=(cargo clippy --profile checked --workspace --all-targets --quiet -- -D warnings)
nice -n 19 "${lints[@]}" >target/lints.log 2>&1 &
step "MPI programs on simulated fabrics" tests/simulated/run.py
step "sweep on a cluster" finished tests/cluster/run.py
step "ABI" tests/abi/check.py
step "benchmarks, shortest" scripts/bench.sh --quick
step "instructions" bench/instructions.py
step "museum of EFA bugs" tests/museum/run.py
step "packages on a bare Debian" packaging/test.sh
step "consumer matrix" tests/consumers/run.py
step "the same over the provider" tests/consumers/run.py --transport srd
# What differs with shared memory: how messages go, not what a program sees of them. A stack for each kind of traffic.
step "with shared memory" tests/consumers/run.py --transport srd-shm ompi ompi-rma mpich impi-rma imb-mt lammps
# A key for each job, with every MPI's launcher: ranks find it, and nobody else sees it.
step "sealed" tests/consumers/run.py --sealed --transport srd --fault clean ompi debian mpich impi
step "sealed, over the software EFA" tests/consumers/run.py --sealed --fault clean mpich
# A dead path concerns the transport, which does not know who sends.
step "with a silent path" tests/consumers/run.py --transport srd --fault blackhole ompi mpich-rma impi fi_pingpong
step "lints" "${lints[@]}"
finish
