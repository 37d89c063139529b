#!/usr/bin/env bash
# campaign.sh SEEDS [FIRST]: the named scenarios, that many runs of the deterministic world, each from a seed of its own,
# and as many of its worlds with the messaging layer; then random programs of the messaging layer, one for every 20 of
# those. A failing seed is printed as the command that replays it.
#
# In the profile "checked": a seed is as good there as in release, costs a sixth more time, and also finds sums that
# overflow and assertions that do not hold.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."
PATH=$PATH:$HOME/.cargo/bin

seeds=${1:-2000} first=${2:-0}
mapfile -t packages < <(scripts/checked_packages.sh)
cargo build --profile checked --quiet "${packages[@]}"
world=$(dirname "$(scripts/release_directory.sh)")/checked/srd-world
"$world" --scenario all
"$world" --seeds "$first..$((first + seeds))" --jobs "$(nproc)"
"$world" --messages --seeds "$first..$((first + seeds))" --jobs "$(nproc)"
SEEDS=$(((seeds + 19) / 20)) FIRST=$((first / 20)) \
  cargo test --profile checked --quiet "${packages[@]}" --test programs -- random_programs_match_as_mpi_says
