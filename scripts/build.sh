#!/usr/bin/env bash
# Builds the workspace and stages what users run under target/srd: bin/srd; the software EFA's libraries, under the names
# programs look for, in lib/srd/efa; the libfabric provider in lib/srd/fi, and under the name efa in lib/srd/fi-efa.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."

PATH=$PATH:$HOME/.cargo/bin
command -v cargo >/dev/null || {
  echo "build: error: no Rust toolchain (cargo) found. Debian 12's own is too old: install the stable one from https://rustup.rs" >&2
  exit 1
}

stage=target/srd
cargo build --release -p srd -p srd-verbs -p srd-libfabric
# Wherever cargo builds, the stage stays here, where others look.
built=$(scripts/release_directory.sh)
mkdir -p $stage/bin $stage/lib/srd/efa
install -m 755 "$built/srd" $stage/bin/srd
# A Rust cdylib cannot carry the symbol versions that programs were linked against; the crate links the libraries.
crates/srd-verbs/link.sh "$built" $stage/lib/srd/efa
# libfabric loads whatever ends in fi.so in the directories of FI_PROVIDER_PATH. By rename: programs may be running with
# the old ones.
stage_provider() {
  mkdir -p "$(dirname "$2")"
  install -m 755 "$1" "$2.new"
  mv -f "$2.new" "$2"
}
# One library: under the second file name it calls itself efa.
stage_provider "$built/libsrd_libfabric.so" $stage/lib/srd/fi/libsrd-fi.so
stage_provider "$built/libsrd_libfabric.so" $stage/lib/srd/fi-efa/libefa-fi.so
echo "build: $stage/bin/srd, $(cd $stage/lib/srd/efa && echo lib*.so.1), $(cd $stage/lib/srd && echo fi*/lib*-fi.so)"
