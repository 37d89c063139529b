#!/usr/bin/env bash
# Runs a command. After so many seconds it shows where its processes wait, kills them, and fails with status 124:
# a test that hangs fails and says so, and the tests after it are run.
# Cargo starts each test binary by it: CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="scripts/within.sh 600".
set -u
limit_s=$1; shift

tree() { # PID: it and its descendants
  local child
  echo "$1"
  for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do tree "$child"; done
}

# What bash starts in the background ignores SIGINT, which programs that tests interrupt would inherit.
env --default-signal=INT,QUIT "$@" & child=$!
sleep "$limit_s" & clock=$!
trap 'kill "$child" "$clock" 2>/dev/null' TERM
wait -n -p first "$child" "$clock"
status=$?
if [[ $first != "$clock" ]]; then
  kill "$clock"
  exit "$status"
fi

mapfile -t pids < <(tree "$child")
{
  printf '\nwithin: error: not over after %s s: %s\nwithin: where its processes wait:\n' "$limit_s" "$*"
  for pid in "${pids[@]}"; do
    printf '%s: %s\n' "$pid" "$(tr '\0' ' ' <"/proc/$pid/cmdline")"
    for thread in "/proc/$pid/task/"*; do
      printf '  %s %s: %s\n' "${thread##*/}" "$(cat "$thread/comm")" "$(cat "$thread/wchan")"
    done
    ! command -v gdb >/dev/null || timeout 60 gdb -p "$pid" -batch -ex 'thread apply all backtrace 16' 2>/dev/null | grep -E '^(Thread|#)'
  done
} >&2
kill -KILL "${pids[@]}" 2>/dev/null
exit 124
