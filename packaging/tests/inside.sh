# What the tests in a bare root have in common (packaging/test.sh).

# The wheel in an environment that has Debian's pytest; first on PATH from then on.
environment=/opt/opensrd
export PYTHONDONTWRITEBYTECODE=1
[[ ! -d $environment ]] || PATH=$environment/bin:$PATH

install_wheel() {
  python3 -m venv --system-site-packages "$environment"
  PATH=$environment/bin:$PATH
  files_of_environment >/before-wheel
  pip install --no-index --disable-pip-version-check /packages/*.whl
}

remove_wheel() {
  pip uninstall --yes --disable-pip-version-check opensrd
  files_of_environment | diff /before-wheel -
  rm -rf "$environment"
}

files_of_environment() { find "$environment" -name __pycache__ -prune -o -print | sort; }

# Server and client of a command on this machine.
exchange() { # COMMAND...
  local server
  SRD_STATS=/tmp/exchange.%p.json "$@" >/tmp/server 2>&1 &
  server=$!
  # The server of fi_pingpong waits on TCP port 47592 (0xB9E8).
  until grep -q ':B9E8 .* 0A ' /proc/net/tcp /proc/net/tcp6; do
    kill -0 $server || { cat /tmp/server; return 1; }
    sleep 0.02
  done
  SRD_STATS=/tmp/exchange.%p.json "$@" 127.0.0.1
  wait $server || { cat /tmp/server; return 1; }
  # It went over SRD, both ways.
  [[ $(grep -l '"tx_pkts": *[1-9]' /tmp/exchange.*.json | wc -l) == 2 ]]
  rm /tmp/exchange.*.json
}

# Fails if the command does not: with `!` before it nothing would notice.
refused() { # COMMAND...
  if "$@"; then echo "it should have failed: $*"; return 1; fi
}

as_user() { # COMMAND...
  setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/tmp "$@"
}

# All files but the package manager's own notes.
list_files() {
  find / -xdev \( -path /var/lib/dpkg -o -path /var/cache -o -path /var/log -o -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /before \
    -o -name __pycache__ \) -prune -o -print | sort
}

note_since() { # BEGAN WHAT
  awk -v began="$1" -v now="$EPOCHREALTIME" -v what="$2" 'BEGIN { printf "NOTE %.1f s %s\n", now - began, what }'
}

# A CDI file: it mounts what is there, and its variables are those of srd env.
check_cdi() { # FILE PREFIX
  python3 - "$1" "$2" "$(srd env --efa --json)" <<'END'
import json, os, sys
text, prefix, variables = json.load(open(sys.argv[1])), sys.argv[2], json.loads(sys.argv[3])
assert text["kind"] == "opensrd.org/efa"
(device,) = text["devices"]
edits = device["containerEdits"]
for mount in edits["mounts"]:
    assert mount["hostPath"].startswith(prefix) and os.path.exists(mount["hostPath"]), mount
inside = {mount["hostPath"]: mount["containerPath"] for mount in edits["mounts"]}
wanted = []
for name, value in variables.items():
    for outside, path in inside.items():
        value = value.replace(os.path.realpath(outside), path)
    wanted.append(f"{name}={value}")
assert sorted(wanted) == sorted(edits["env"]), (wanted, edits["env"])
END
}
