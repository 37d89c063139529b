#!/usr/bin/env bash
# Builds the workspace and stages what users run under target/srd (stage.sh says what lies where).
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."

PATH=$PATH:$HOME/.cargo/bin
command -v cargo >/dev/null || {
  echo "build: error: no Rust toolchain (cargo) found. Debian 12's own is too old: install the stable one from https://rustup.rs" >&2
  exit 1
}

stage=target/srd
cargo build --release -p srd -p srd-verbs -p srd-libfabric -p srd-preload -p srd-sim-abi
# Wherever cargo builds, the stage stays here, where others look.
scripts/stage.sh "$(scripts/release_directory.sh)" $stage
echo "build: $stage/bin/srd, $(cd $stage/lib/srd/efa && echo lib*.so.1), $(cd $stage/lib/srd && echo fi*/lib*-fi.so sim/*.so)"
