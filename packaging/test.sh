#!/usr/bin/env bash
# Installs the packages on a bare Debian and runs programs from there, without the source tree: the wheel, the .debs, setup-efa, the
# CDI file. As root. The last line says `N passed, N failed`.
#
#   packaging/test.sh [SUITE] [DIRECTORY]    SUITE: bookworm (default), bullseye; DIRECTORY: of packages (default: built from target/srd)
set -uo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.." || exit 1

suite=${1:-bookworm} packages=${2:-}
passed=0 failed=0
root=$(mktemp -d "${TMPDIR:-/tmp}/opensrd-root.XXXXXX")
trap 'rm -rf "$root"' EXIT

# What is skipped counts as passed, and is then taken off (scripts/test.sh).
skip() { printf 'SKIPPED %s\n1 passed, 0 failed\n' "$1"; exit 0; }
((EUID == 0)) || skip "packages on a bare root: this takes root"
unshare --mount --pid --fork --net true 2>/dev/null || skip "packages on a bare root: no namespaces here"

inside() { packaging/enter.sh "$root" ". /tests/inside.sh; $1"; } # SCRIPT

check() { # WHAT SCRIPT
  local began=$EPOCHREALTIME log=target/packages/test.log
  printf '  %-66s' "$1"
  if inside "$2" >"$log" 2>&1; then
    passed=$((passed + 1))
    printf 'ok  %5.1f s\n' "$(difference "$EPOCHREALTIME" "$began")"
    sed -n 's/^NOTE /    /p' "$log"
  else
    failed=$((failed + 1))
    printf 'FAILED\n'
    tail -n 60 "$log"
    printf '  in a bare %s: %s\n' "$suite" "$2"
  fi
}

difference() { awk -v a="$1" -v b="$2" 'BEGIN { print a - b }'; }

mkdir -p target/packages
if [[ -z $packages ]]; then
  packages=target/packages/staged
  rm -rf "$packages"
  packaging/build.sh --staged || exit 1
fi
packaging/root.sh "$suite" || exit 1
tar -C "$root" -xf ".venv/roots/$suite.tar"
mkdir -p "$root/packages" "$root/tests"
cp "$packages"/*"$(uname -m)".whl "$packages"/*_"$(dpkg --print-architecture)".deb "$root/packages/"
cp packaging/tests/* packaging/examples/*.py packaging/setup-efa.sh "$root/tests/"

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
check "the wheel: installed, a device, messages over libfabric's efa" "
  began=\$EPOCHREALTIME
  install_wheel
  srd run --efa -- ibv_devinfo | grep 'hca_id:.*rdmap'
  exchange srd run --efa -- fi_pingpong -p efa -e rdm
  note_since \$began 'from pip install to the end of fi_pingpong'"
check "srd --version and python -m opensrd name version and commit" "
  srd --version | grep -Ex 'srd ${version//./\\.} \(commit [0-9a-f]{12,}\)'
  [[ \$(python -m opensrd --version) == \"\$(srd --version)\" ]]
  pip list 2>/dev/null | grep -Ex 'opensrd +${version//./\\.}'"
check "srd doctor finds nothing that fails" "srd doctor"
check "the plugin's tests, and the example" "cd /tests; python -m pytest -p no:cacheprovider -v test_plugin.py test_pingpong.py"
check "the same example for one who is not root, in a user namespace" "
  as_user python -m pytest -p no:cacheprovider /tests/test_pingpong.py -k loss | tee /tmp/report
  grep -E '^efa_hosts: 1 tests with (network namespaces.*user namespace|addresses of this machine.*no lab: .+)' /tmp/report"
check "the wheel's CDI file" "python -m opensrd.cdi >/tmp/cdi.json; check_cdi /tmp/cdi.json \$environment/lib/python3*/site-packages/opensrd"
check "the wheel leaves nothing" "remove_wheel"
check "setup-efa, as in a CI job, from the wheel" "
  export GITHUB_ENV=/tmp/env GITHUB_PATH=/tmp/path PIP_NO_INDEX=1
  /tests/setup-efa.sh /packages/*.whl
  set -a; . /tmp/env; PATH=\$(cat /tmp/path 2>/dev/null || echo /usr/local/bin):\$PATH; set +a
  ibv_devinfo | grep 'hca_id:.*rdmap'
  exchange fi_pingpong -p efa -e rdm
  python3 -m pytest -p no:cacheprovider /tests/test_pingpong.py -k clean
  refused /tests/setup-efa.sh /no/such.whl
  refused env -u GITHUB_ENV bash -c 'eval \"\$(/tests/setup-efa.sh /no/such.whl)\"'
  refused /tests/setup-efa.sh /packages/*.whl --over tcp
  rm -rf ~/.cache"
check ".deb: the provider is where libfabric looks, FI_PROVIDER=srd is all" "
  list_files >/before
  dpkg -i /packages/*.deb
  FI_PROVIDER=srd fi_info -p srd | grep 'provider: srd'
  exchange env FI_PROVIDER=srd fi_pingpong -p srd -e rdm"
check ".deb: a device, messages over libfabric's efa, the doctor" "
  srd run --efa -- ibv_devinfo | grep 'hca_id:.*rdmap'
  exchange srd run --efa -- fi_pingpong -p efa -e rdm
  srd doctor"
check ".deb: the simulator as a library, and its header" "
  python3 -c 'import ctypes; assert ctypes.CDLL(\"/usr/lib/srd/sim/libsrd-sim.so\").srd_sim_version() == 1'
  grep '#define SRD_SIM_VERSION 1' /usr/include/srd_sim.h"
check ".deb: the CDI file names what is there, and what srd env says" "
  check_cdi /etc/cdi/opensrd.json /usr"
check ".deb: removed, nothing is left" "
  dpkg -P opensrd libfabric-srd
  list_files | diff /before -
  refused fi_info -p srd"
printf '%d passed, %d failed\n' $passed $failed
((failed == 0))
