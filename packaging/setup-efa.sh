#!/usr/bin/env bash
# Installs OpenSRD and puts it under the programs that follow: in a CI job, or in a shell.
#
#   setup-efa.sh PACKAGE [--over efa|provider|provider-as-efa]
#
# PACKAGE: the wheel or opensrd.deb, as a file or an address, or what pip takes for a requirement ("opensrd==0.1.0").
# --over:  the software EFA (default); libfabric's provider srd; that under the name efa.
#
# In GitHub Actions (GITHUB_ENV is set) the variables hold for the steps that follow. Elsewhere they are printed as commands of a
# shell: eval "$(setup-efa.sh PACKAGE)". Everything else is said on standard error.
set -euo pipefail

say() { printf 'setup-efa: %s\n' "$*" >&2; }
fail() { printf 'setup-efa: error: %s\n' "$@" >&2; exit 1; }
# `eval` of nothing succeeds, so a failure must be among the commands.
trap 'status=$?; ((status == 0)) || [[ ${GITHUB_ENV:-} ]] || echo false' EXIT

package='' over=efa
while (($#)); do
  case $1 in
    --over) over=${2:-}; shift 2 || fail "--over wants a word" ;;
    -*) fail "what is $1?" "usage: setup-efa.sh PACKAGE [--over efa|provider|provider-as-efa]" ;;
    *) [[ -z $package ]] || fail "one package, not $package and $1"; package=$1; shift ;;
  esac
done
[[ $package ]] || fail "which package?" "usage: setup-efa.sh PACKAGE [--over efa|provider|provider-as-efa]"
case $over in
  efa) layer=(--efa) ;;
  provider) layer=(--provider) ;;
  provider-as-efa) layer=(--provider --as-efa) ;;
  *) fail "--over $over: it is efa, provider or provider-as-efa" ;;
esac
[[ $(uname -s) == Linux ]] || fail "OpenSRD is for Linux, this is $(uname -s)"
case $package in
  *.whl | *.deb) [[ $package == *://* || -f $package ]] || fail "there is no file $package" ;;
esac

as_root=()
((EUID == 0)) || as_root=(sudo)

install_deb() { # FILE-OR-ADDRESS
  local file=$1
  command -v dpkg >/dev/null || fail "no dpkg here; give a wheel instead of $1"
  ((EUID == 0)) || command -v sudo >/dev/null || fail "installing $1 takes root, and there is no sudo; give a wheel instead"
  if [[ $file == *://* ]]; then
    file=$(mktemp --suffix .deb)
    curl --fail --silent --show-error --location --output "$file" "$1" >&2 || fail "$1 cannot be fetched"
  fi
  # apt takes a path for one only with a slash in it; it brings what the package depends on.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$(realpath "$file")" >&2 || fail "apt-get does not install $1"
}

install_wheel() { # FILE-OR-ADDRESS-OR-NAME
  local python=python3 environment
  command -v python3 >/dev/null || fail "no python3 here; install it, or give opensrd.deb"
  # A distribution's Python that has no pip, or that pip must leave alone (PEP 668): an environment of its own, which sees the
  # distribution's pytest.
  if ! python3 -m pip --version >/dev/null 2>&1 || python3 -c 'import os, sys, sysconfig; sys.exit(sys.prefix != sys.base_prefix or not os.path.exists(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")))'; then
    environment=${RUNNER_TOOL_CACHE:-${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}}
    [[ $environment ]] || fail "HOME is not set, and an environment for Python must lie somewhere; set HOME or RUNNER_TOOL_CACHE"
    environment=$environment/opensrd
    python3 -m venv --system-site-packages "$environment" >&2 || fail "python3 -m venv fails (Debian: apt-get install python3-venv)"
    python=$environment/bin/python
    bin=$environment/bin
  fi
  # Two wheels of one version are taken for the same, which they are not between releases.
  local again=()
  [[ $1 != *.whl ]] || again=(--force-reinstall --no-deps)
  "$python" -m pip install --disable-pip-version-check "${again[@]}" "$1" >&2 ||
    fail "pip does not install $1" "wheels are for Linux with glibc 2.28 or newer (what their name says), on x86_64 or aarch64; here: $(uname -m), $(getconf GNU_LIBC_VERSION 2>/dev/null || echo 'no glibc')"
}

bin=
if [[ $package == *.deb ]]; then install_deb "$package"; else install_wheel "$package"; fi
[[ -z $bin ]] || PATH=$bin:$PATH
command -v srd >/dev/null || fail "srd is installed, but not in PATH: $PATH"
say "$(srd --version)"

variables=$(srd env "${layer[@]}" --json) || exit 1
# {"NAME":"VALUE",...}, one a line. Values are paths and words.
mapfile -t lines < <(sed 's/^{//; s/}$//; s/","/"\n"/g' <<<"$variables" | sed -n 's/^"\([A-Za-z0-9_]*\)":"\(.*\)"$/\1=\2/p')
((${#lines[@]})) || fail "srd env says $variables"
for line in "${lines[@]}"; do
  if [[ ${GITHUB_ENV:-} ]]; then
    printf '%s\n' "$line" >>"$GITHUB_ENV"
  else
    printf 'export %s=%q\n' "${line%%=*}" "${line#*=}"
  fi
  say "$line"
done
if [[ $bin ]]; then
  if [[ ${GITHUB_PATH:-} ]]; then
    printf '%s\n' "$bin" >>"$GITHUB_PATH"
  else
    printf 'export PATH=%q:$PATH\n' "$bin"
  fi
fi
srd doctor >&2 || fail "srd doctor says above what does not work here, and how to mend it"
