#!/usr/bin/env bash
# Builds the workspace and stages what users run under target/srd: bin/srd, and the software EFA's libraries, under
# the names programs look for, in lib/srd/efa.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."

PATH=$PATH:$HOME/.cargo/bin
command -v cargo >/dev/null || {
  echo "build: error: no Rust toolchain (cargo) found. Debian 12's own is too old: install the stable one from https://rustup.rs" >&2
  exit 1
}

stage=target/srd
cargo build --release --workspace
# cargo's directory may be elsewhere (CARGO_TARGET_DIR, build.target-dir); the stage stays here, where others look.
built=$(cargo metadata --format-version 1 --no-deps | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')/release
mkdir -p $stage/bin $stage/lib/srd/efa
install -m 755 "$built/srd" $stage/bin/srd
# A Rust cdylib cannot carry the symbol versions that programs were linked against; the crate links the libraries.
crates/srd-verbs/link.sh "$built" $stage/lib/srd/efa
echo "build: $stage/bin/srd, $(cd $stage/lib/srd/efa && echo lib*.so.1)"
