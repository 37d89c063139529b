#!/usr/bin/env bash
# sanitize.sh [address|thread] [PACKAGE…]: the tests of the packages with unsafe code, watched by that sanitizer; without
# arguments both, one after the other. What it finds ends the run.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."
PATH=$PATH:$HOME/.cargo/bin

fail() { printf 'sanitize: error: %s\n' "$@" >&2; exit 1; }

kinds=(address thread)
case ${1:-} in address | thread) kinds=("$1"); shift ;; esac
packages=("$@")
[[ ${#packages[@]} -gt 0 ]] || packages=(srd-shm srd-net srd-verbs srd-libfabric)

cargo +nightly --version >/dev/null 2>&1 || fail "sanitizers take a nightly toolchain" "run: rustup toolchain install nightly"
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
built=$(dirname "$(scripts/release_directory.sh)")/sanitize

# Which tests of a package: those that are one program. The sanitizers' runtime belongs to a program, so a library of
# theirs that a C program loads cannot be watched (srd-verbs' other tests, the provider under libfabric's core).
tests_of() {
  case $1 in
    srd-verbs) echo "--lib --test layout" ;;
    srd-libfabric) echo "--lib --test objects --test data --test copies --test closing --test waiting --test network --test sealed" ;;
    *) echo "--lib --tests" ;;
  esac
}

for kind in "${kinds[@]}"; do
  options=()
  if [[ $kind == thread ]]; then
    # It must see the standard library's own synchronization, or every channel and lock of it looks like a race.
    rustup component list --toolchain nightly | grep -q '^rust-src.*installed' \
      || fail "thread sanitizer builds the standard library" "run: rustup component add rust-src --toolchain nightly"
    options=(-Zbuild-std)
  fi
  for package in "${packages[@]}"; do
    read -ra tests <<<"$(tests_of "$package")"
    echo "sanitize: $package, $kind"
    # Leaks are not looked for: what a C program may forget to give back is kept on purpose, for the life of the process.
    ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=halt_on_error=1 RUSTFLAGS="-Zsanitizer=$kind" \
      cargo +nightly test --quiet --release "${options[@]}" --target "$host" --target-dir "$built/$kind" -p "$package" "${tests[@]}"
  done
done
