#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET…]: runs each fuzz target of fuzz/ that long. A crash is kept under fuzz/artifacts.
# fuzz.sh corpus:            builds the targets without instrumentation and runs each on its corpus once.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."
PATH=$PATH:$HOME/.cargo/bin

fail() { printf 'fuzz: error: %s\n' "$@" >&2; exit 1; }

if [[ ${1:-} == corpus ]]; then
  # In the workspace's directory: what it depends on is built there.
  built=$(scripts/release_directory.sh)
  cargo build --quiet --release --manifest-path fuzz/Cargo.toml --target-dir "$(dirname "$built")"
  log=$built/fuzz.log
  for source in fuzz/fuzz_targets/*.rs; do
    target=$(basename "$source" .rs)
    "$built/$target" fuzz/corpus/"$target"/* 2>"$log" || { cat "$log"; fail "$target fails on its corpus"; }
    echo "$target: $(find fuzz/corpus/"$target" -type f | wc -l) inputs"
  done
  exit
fi

seconds=${1:-60}; shift || true
cargo fuzz --version >/dev/null 2>&1 || fail "cargo-fuzz is not installed" "run: cargo install cargo-fuzz"
cargo +nightly --version >/dev/null 2>&1 || fail "fuzzing instruments the code, which takes a nightly toolchain" "run: rustup toolchain install nightly"

targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || mapfile -t targets < <(cargo +nightly fuzz list)
for target in "${targets[@]}"; do
  echo "fuzz: $target for $seconds s"
  cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -print_final_stats=1
done
