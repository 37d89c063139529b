#!/usr/bin/env bash
# Builds what is given away, into target/packages: a wheel for each architecture, opensrd.deb and libfabric-srd.deb.
#
#   packaging/build.sh             compiled against glibc 2.28 (cargo-zigbuild), for x86_64 and aarch64: some minutes
#   packaging/build.sh x86_64      for that one alone
#   packaging/build.sh --staged    from target/srd, as `make build` has left it, into target/packages/staged: for this host's glibc
#
# What the result needs of glibc is read from the files themselves and stands in the wheel's name and the packages' Depends.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."
PATH=$PATH:$HOME/.cargo/bin

glibc=2.28                       # of manylinux_2_28: what pip installs from Python 3.8 on, on Debian 10, RHEL 8 and newer
output=$PWD/target/packages
# The workspace's is the only version number.
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
maintainer='OpenSRD maintainers <maintainers@opensrd.invalid>'

fail() { printf 'packages: error: %s\n' "$@" >&2; exit 1; }

# Compiles and stages for an architecture into $work/ARCH/stage.
compile() { # ARCH
  local arch=$1 target=$1-unknown-linux-gnu built zig=$PWD/.venv/zig/bin
  [[ -x $zig/cargo-zigbuild ]] || fail "no cargo-zigbuild in .venv/zig" "run: scripts/setup.sh packages"
  ! command -v rustup >/dev/null || rustup -q target add "$target"
  # bindgen is not used and BPF is no architecture's: nothing else asks for headers of the target.
  PATH=$zig:$PATH cargo zigbuild --release --target "$target.$glibc" -p srd -p srd-verbs -p srd-libfabric -p srd-preload -p srd-sim-abi
  built=$(dirname "$(scripts/release_directory.sh)")/$target/release
  printf '#!/bin/sh\nexec %q -m ziglang cc -target %q "$@"\n' "$zig/python" "$arch-linux-gnu.$glibc" >"$work/$arch/cc"
  chmod +x "$work/$arch/cc"
  CC=$(compiler "$arch") scripts/stage.sh "$built" "$work/$arch/stage"
}

# The compiler that links for an architecture.
compiler() { # ARCH
  if [[ $staged ]]; then echo cc; else echo "$work/$1/cc"; fi
}

# The files that the loader reads.
binaries() { # STAGE
  find "$1" -type f \( -name '*.so*' -o -path '*/bin/srd' \)
}

# The newest glibc that a symbol of these files asks for.
glibc_needed() { # STAGE
  binaries "$1" | xargs -n1 readelf --wide --version-info | grep -o 'GLIBC_2\.[0-9]*' | sort -Vu | tail -n 1 | sed 's/GLIBC_//'
}

# Debian's packages that these files need: the C library, and the unwinder's where it is not linked in.
libraries_needed() { # STAGE
  local unwinder=
  ! binaries "$1" | xargs -n1 readelf --dynamic | grep libgcc_s >/dev/null || unwinder=', libgcc-s1'
  printf 'libc6 (>= %s)%s' "$(glibc_needed "$1")" "$unwinder"
}

# Without symbols that only debuggers read.
strip_stage() { # ARCH
  local strip
  strip=$(command -v "$1-linux-gnu-strip" || { [[ $1 == "$(uname -m)" ]] && command -v strip; }) ||
    fail "no strip for $1" "Debian: apt-get install binutils-${1/_/-}-linux-gnu"
  binaries "$work/$1/stage" | xargs -n1 "$strip" --strip-unneeded
}

build_wheel() { # ARCH
  local arch=$1 needed tree=$work/$1/wheel info tag link library
  needed=$(glibc_needed "$work/$arch/stage")
  tag=py3-none-manylinux_${needed/./_}_$arch
  info=$tree/opensrd-$version.dist-info
  rm -rf "$tree"; mkdir -p "$tree/opensrd" "$info/licenses"
  cp packaging/python/opensrd/*.py "$tree/opensrd/"
  cp packaging/cdi/opensrd.json "$tree/opensrd/cdi.json"
  cp -r "$work/$arch/stage/." "$tree/opensrd/"
  # A wheel has no links. For programs that open a library by its unversioned name: one that is empty, and needs the real one.
  # (A copy would be a second software EFA in a process that has the first.)
  while IFS= read -r -d '' link; do
    library=$(readlink "$link")
    rm "$link"
    "$(compiler "$arch")" -shared -nostdlib -s -o "$link" -Wl,-soname,"${link##*/}" -Wl,--no-as-needed "${link%/*}/$library" -Wl,--enable-new-dtags,-rpath,'$ORIGIN' "$work/empty.c"
  done < <(find "$tree" -type l -print0)
  # pip removes no folder that holds folders alone.
  printf 'What `srd run` and `srd env` put under programs.\n' | tee "$tree/opensrd/lib/README" >"$tree/opensrd/lib/srd/README"
  cp LICENSE-MIT LICENSE-APACHE "$info/licenses/"
  printf 'Wheel-Version: 1.0\nGenerator: packaging/build.sh\nRoot-Is-Purelib: false\nTag: %s\n' "$tag" >"$info/WHEEL"
  printf '[console_scripts]\nsrd = opensrd.__main__:main\n\n[pytest11]\nopensrd = opensrd.pytest_plugin\n' >"$info/entry_points.txt"
  {
    printf '%s: %s\n' Metadata-Version 2.4 Name opensrd Version "$version" \
      Summary 'Scalable Reliable Datagram and a software Elastic Fabric Adapter (EFA): EFA programs run and are tested without EFA hardware' \
      License-Expression 'MIT OR Apache-2.0' License-File LICENSE-MIT License-File LICENSE-APACHE Requires-Python '>=3.8' \
      Classifier 'Framework :: Pytest' Classifier 'Operating System :: POSIX :: Linux' Description-Content-Type text/markdown
    printf '\n'
    cat packaging/python/README.md
  } >"$info/METADATA"
  .venv/wheel/bin/python -m wheel pack "$tree" --dest-dir "$output" >/dev/null || fail "no wheel could be packed" "run: scripts/setup.sh"
  say_size "$output/opensrd-$version-$tag.whl"
}

build_debs() { # ARCH
  local arch=$1 stage=$work/$1/stage debian needed root=$work/$1/deb provider=$work/$1/deb-provider
  case $arch in x86_64) debian=amd64 ;; aarch64) debian=arm64 ;; *) fail "Debian's name of $arch is unknown here" ;; esac
  needed=$(libraries_needed "$stage")
  rm -rf "$root" "$provider"
  mkdir -p "$root/usr"
  cp -a "$stage/." "$root/usr/"
  ln -sf ../fi/libsrd-fi.so "$root/usr/lib/srd/fi-efa/libefa-fi.so"
  # Where container runtimes look (the specification's directory for what does not change).
  mkdir -p "$root/etc/cdi" "$root/DEBIAN"
  sed 's|@PREFIX@|/usr|' packaging/cdi/opensrd.json >"$root/etc/cdi/opensrd.json"
  echo /etc/cdi/opensrd.json >"$root/DEBIAN/conffiles"
  document opensrd "$root"
  install -D -m 644 docs/guide/*.md -t "$root/usr/share/doc/opensrd/guide"
  control "$root" <<END
Package: opensrd
Architecture: $debian
Depends: $needed
Recommends: iproute2, ibverbs-utils
Suggests: libfabric-bin
Description: software Elastic Fabric Adapter (EFA) and its transport SRD
 Programs that were written for EFA run with no EFA hardware and no kernel
 module: srd run --efa -- CMD. Also diagnoses hosts, measures, simulates, and
 builds test fabrics of network namespaces.
END
  # The directory that Debian's libfabric looks for providers in; libfabric itself brings libibverbs and librdmacm.
  install -D -m 644 "$stage/lib/srd/fi/libsrd-fi.so" "$provider/usr/lib/$arch-linux-gnu/libfabric/libsrd-fi.so"
  document libfabric-srd "$provider"
  control "$provider" <<END
Package: libfabric-srd
Architecture: $debian
Depends: $needed, libfabric1 (>= 1.11)
Recommends: opensrd
Description: libfabric provider srd: Scalable Reliable Datagram in software
 Programs of libfabric use it with FI_PROVIDER=srd: many paths at once,
 recovery within round trips, shared memory between processes of one host.
END
}

document() { # PACKAGE ROOT
  local into=$2/usr/share/doc/$1
  install -D -m 644 README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE -t "$into"
  printf 'Licence: MIT or Apache-2.0, at your option: LICENSE-MIT and LICENSE-APACHE beside this file.\n' >"$into/copyright"
}

# Adds the fields that all packages have, and packs.
control() { # ROOT
  local root=$1 name file
  mkdir -p "$root/DEBIAN"
  cat >"$root/DEBIAN/control"
  sed -i "/^Package:/a Version: $version\nMaintainer: $maintainer\nSection: net\nPriority: optional\nInstalled-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)" "$root/DEBIAN/control"
  name=$(sed -n 's/^Package: //p' "$root/DEBIAN/control")
  find "$root" -type d -exec chmod 755 {} +
  file=${output}/${name}_${version}_$(sed -n 's/^Architecture: //p' "$root/DEBIAN/control").deb
  dpkg-deb --root-owner-group -Zgzip --build "$root" "$file" >/dev/null
  say_size "$file"
}

say_size() { # FILE
  printf 'packages: %s, %s MB\n' "${1#"$PWD"/}" "$(stat -c %s "$1" | awk '{ printf "%.1f", $1 / 1e6 }')"
}

architectures=(x86_64 aarch64) staged=
case ${1:-} in
  '') ;;
  --staged) staged=target/srd output=$output/staged architectures=("$(uname -m)") ;;
  x86_64 | aarch64) architectures=("$1") ;;
  *) fail "what is $1?" "run: packaging/build.sh [--staged | x86_64 | aarch64]" ;;
esac
work=$output/work
[[ -x .venv/wheel/bin/python ]] || fail "no .venv/wheel" "run: scripts/setup.sh"
mkdir -p "$work"
: >"$work/empty.c" # zig wants a source wherever it links
for arch in "${architectures[@]}"; do
  rm -rf "${work:?}/$arch"
  mkdir -p "$work/$arch/stage"
  if [[ $staged ]]; then
    [[ -x $staged/bin/srd ]] || fail "nothing is built" "run: make build"
    cp -a "$staged/." "$work/$arch/stage/"
  else
    compile "$arch"
  fi
  strip_stage "$arch"
  build_wheel "$arch"
  ! command -v dpkg-deb >/dev/null || build_debs "$arch"
done
