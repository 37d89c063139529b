#!/usr/bin/env bash
# Prints where cargo puts what it builds in release: its directory may be elsewhere (CARGO_TARGET_DIR, build.target-dir).
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."
PATH=$PATH:$HOME/.cargo/bin
echo "$(cargo metadata --format-version 1 --no-deps | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')/release"
