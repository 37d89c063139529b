#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET…]: runs each fuzz target of fuzz/ that long. A crash is kept in the folder artifacts of fuzz/.
# fuzz.sh corpus:            builds the targets without instrumentation and runs each on its corpus once.
# fuzz.sh shrink [TARGET…]:  keeps of each corpus and of what was found beyond it the inputs that reach most, up to 64 KiB.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."
PATH=$PATH:$HOME/.cargo/bin

# Targets that read text, which words and numbers get further than bytes do.
readers=" scenario htsim goal trace lab options "
# Most bytes of a target's committed corpus, and of one input of it.
most_kept=65536 longest_kept=4096

fail() { printf 'fuzz: error: %s\n' "$@" >&2; exit 1; }

if [[ ${1:-} == corpus ]]; then
  # As cargo-fuzz builds: what would overflow or be out of place is found by a run of the corpora as well.
  mapfile -t packages < <(scripts/checked_packages.sh)
  cargo build --profile checked --quiet "${packages[@]}"
  built=$(dirname "$(scripts/release_directory.sh)")/checked
  log=$built/fuzz.log
  for source in fuzz/fuzz_targets/*.rs; do
    target=$(basename "$source" .rs)
    # Limits as below, but for time: the machine may be busy.
    "$built/$target" -malloc_limit_mb=512 fuzz/corpus/"$target"/* 2>"$log" || { cat "$log"; fail "$target fails on its corpus"; }
    echo "$target: $(find fuzz/corpus/"$target" -type f | wc -l) inputs"
  done
  exit
fi

cargo fuzz --version >/dev/null 2>&1 || fail "cargo-fuzz is not installed" "run: cargo install cargo-fuzz"
cargo +nightly --version >/dev/null 2>&1 || fail "fuzzing instruments the code, which takes a nightly toolchain" "run: rustup toolchain install nightly"

seconds=${1:-60}; shift || true
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || mapfile -t targets < <(cargo +nightly fuzz list)
for target in "${targets[@]}"; do
  corpus=fuzz/corpus/$target found=target/fuzz/corpus/$target
  mkdir -p "$corpus" "$found"
  if [[ $seconds == shrink ]]; then
    kept=$(mktemp -d)
    cargo +nightly fuzz run --target-dir target/fuzz "$target" "$kept" "$corpus" "$found" -- -merge=1 -max_len="$longest_kept" -rss_limit_mb=4096
    rm -rf "$corpus" && mkdir "$corpus"
    # The merge has begun with the smallest: those that come first reach most for their size.
    left=$most_kept
    while read -r bytes name; do
      ((left -= bytes)) || true
      ((left >= 0)) || break
      mv "$kept/$name" "$corpus/"
    done < <(find "$kept" -type f -printf '%s %f\n' | sort -n)
    rm -rf "$kept"
    echo "$target: $(find "$corpus" -type f | wc -l) inputs kept"
    continue
  fi
  echo "fuzz: $target for $seconds s"
  # A file or packet that makes anybody take hundreds of megabytes, or work for a minute, is a find.
  options=(-max_total_time="$seconds" -print_final_stats=1 -max_len=8192 -len_control=10 -malloc_limit_mb=512 -timeout=60)
  [[ $readers != *" $target "* ]] || options+=(-dict=fuzz/words.dict)
  cargo +nightly fuzz run --target-dir target/fuzz "$target" "$found" "$corpus" -- "${options[@]}"
done
