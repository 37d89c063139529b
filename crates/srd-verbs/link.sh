#!/usr/bin/env bash
# Links the software EFA: libibverbs.so.1 and libefa.so.1, with the unversioned names that some programs ask for.
#
#   crates/srd-verbs/link.sh TARGET OUTPUT_DIRECTORY
#
# TARGET is libsrd_verbs.a or its directory (target/release, say, after `cargo build --release -p srd-verbs`).
#
# The symbols must carry rdma-core's version nodes, and rustc cannot give them: an archive of the crate is therefore
# linked by the C compiler with a version script. Script and stubs come from exports/libibverbs.exports.
#
#   SRD_VERBS_PRIVATE="34 59"  the <n> of the nodes IBVERBS_PRIVATE_<n> to export; the first is the default one. Without
#                              it: that of the installed rdma-core, and those of all releases known so far.
#   CC=clang                   the C compiler
set -euo pipefail

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
[[ $# -eq 2 ]] || { sed -n '2,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
archive=$1
[[ -d $archive ]] && archive=$archive/libsrd_verbs.a
output=$2
cc=${CC:-cc}
[[ -f $archive ]] || { echo "link.sh: no $archive; build it: cargo build --release -p srd-verbs" >&2; exit 1; }
command -v "$cc" >/dev/null || { echo "link.sh: no C compiler ($cc); set CC" >&2; exit 1; }

# IBVERBS_PABI_VERSION of rdma-core: 34 to 56, 33 (Debian 11), 57 and 58, 59 to 63, 64, 65.
known="34 33 57 59 64 65"

installed_private() {
  local library
  library=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | awk '$1 == "libibverbs.so.1" { print $NF; exit }')
  [[ -n $library ]] || return 0
  readelf -VW "$library" 2>/dev/null | sed -n 's/.*Name: IBVERBS_PRIVATE_\([0-9]*\).*/\1/p' | head -n 1
}

private=${SRD_VERBS_PRIVATE:-$(installed_private) $known}
private=$(tr -s ' ,' '\n' <<<"$private" | awk '/^[0-9]+$/ && !seen[$0]++' | tr '\n' ' ')
[[ -n $private ]] || { echo "link.sh: SRD_VERBS_PRIVATE holds no number" >&2; exit 1; }

mkdir -p "$output"
work=$(mktemp -d "${TMPDIR:-/tmp}/srd-verbs-link.XXXXXX")
trap 'rm -rf "$work"' EXIT

# One line for each symbol: node, name, kind, argument, and @@ for the default version of a name or @ for another.
awk -v private="$private" '
  /^#/ || NF == 0 { next }
  $1 == "PRIVATE" {
    count = split(private, numbers, " ")
    for (i = 1; i <= count; i++) {
      name = $2; gsub(/@/, numbers[i], name)
      lines[++total] = "IBVERBS_PRIVATE_" numbers[i] " " name " " $3 " " ($4 == "" ? "-" : $4)
      if (!(name in newest)) newest[name] = total
    }
    next
  }
  { lines[++total] = $1 " " $2 " " $3 " " ($4 == "" ? "-" : $4); newest[$2] = total }
  END {
    for (i = 1; i <= total; i++) { split(lines[i], field, " "); print lines[i], (newest[field[2]] == i && field[4] != "old" ? "@@" : "@") }
  }' "$here/exports/libibverbs.exports" >"$work/symbols"

# The version script names what the crate defines; the stubs name their nodes themselves. `local` stands in the last
# node, which has no stubs: in one that has some it would hide them.
awk '
  !($1 in seen) { seen[$1] = 1; nodes[++count] = $1 }
  $3 == "rust" { names[$1] = names[$1] " " $2 ";" }
  END {
    for (i = 1; i <= count; i++)
      print nodes[i] " {" (names[nodes[i]] ? " global:" names[nodes[i]] : "") (i == count ? " local: *;" : "") " }" (i > 1 ? " " nodes[i - 1] : "") ";"
  }' "$work/symbols" >"$work/libibverbs.map"

awk '
  BEGIN {
    print "int srd_unsupported_status(const char *); void *srd_unsupported_pointer(const char *);"
    print "int srd_unsupported_minus_one(const char *); void srd_unsupported_nothing(const char *);"
    type["status"] = "int"; type["minus_one"] = "int"; type["pointer"] = "void *"; type["nothing"] = "void"
  }
  $3 == "rust" { next }
  {
    stub = "srd_stub_" NR
    if ($3 == "forward") {
      print "long " $4 "(long, long, long, long, long, long);"
      print "long " stub "(long a, long b, long c, long d, long e, long f) { return " $4 "(a, b, c, d, e, f); }"
    } else {
      if (!($3 in type)) { print "#error \"" $2 ": kind " $3 "\""; next }
      print type[$3] " " stub "(void) { " ($3 == "nothing" ? "" : "return ") "srd_unsupported_" $3 "(\"" $2 "\"); }"
    }
    print "__asm__(\".symver " stub ", " $2 $5 $1 "\");"
  }' "$work/symbols" >"$work/stubs.c"

flags=(-O2 -fPIC -shared -Wl,-z,now,-z,relro,-z,nodelete -Wl,--no-undefined -Wl,--gc-sections -Wl,--build-id)
libraries=(-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc)

"$cc" -O2 -fPIC -w -c "$work/stubs.c" -o "$work/stubs.o"
"$cc" "${flags[@]}" -o "$work/libibverbs.so.1" -Wl,-soname,libibverbs.so.1 -Wl,--version-script="$work/libibverbs.map" \
  "$work/stubs.o" -Wl,--whole-archive "$archive" -Wl,--no-whole-archive "${libraries[@]}"
# The run path lets a program that opens libefa.so.1 by its full path find the library beside it.
"$cc" "${flags[@]}" -Wall -Wextra -o "$work/libefa.so.1" -Wl,-soname,libefa.so.1 -Wl,--version-script="$here/exports/libefa.map" \
  -Wl,--enable-new-dtags,-rpath,'$ORIGIN' "$here/exports/libefa.c" "$work/libibverbs.so.1" -lc

# By rename: programs may be running with the old ones.
for library in libibverbs libefa; do
  mv -f "$work/$library.so.1" "$output/$library.so.1"
  ln -sfn "$library.so.1" "$output/$library.so"
done
