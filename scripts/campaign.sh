#!/usr/bin/env bash
# campaign.sh SEEDS [FIRST]: that many runs of the deterministic world, each from a seed of its own. A failing seed is
# printed as the command that replays it.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."
PATH=$PATH:$HOME/.cargo/bin

exec cargo run --release --quiet -p srd-world -- --seeds "${1:-2000}" --first "${2:-1}"
