#!/usr/bin/env bash
# campaign.sh SEEDS [FIRST]: the named scenarios and that many runs of the deterministic world, each from a seed of its
# own; then random programs of the messaging layer, one for every 20 of those, which takes half as long again. A failing
# seed is printed as the command that replays it.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."
PATH=$PATH:$HOME/.cargo/bin

seeds=${1:-2000} first=${2:-0}
# Of the whole workspace, as elsewhere: for a package alone cargo builds all that it needs again, with other features.
cargo build --release --quiet --workspace
world=$(scripts/release_directory.sh)/srd-world
"$world" --scenario all
"$world" --seeds "$first..$((first + seeds))" --jobs "$(nproc)"
SEEDS=$(((seeds + 19) / 20)) FIRST=$((first / 20)) \
  cargo test --release --quiet --workspace --test programs -- random_programs_match_as_mpi_says
