#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gate: numbers that hosts and peers keep. Statuses (abi/status.tsv against convoy/base.h and src/core/status.h) and the
# columns of the built-in rows with their fallbacks (abi/columns.tsv against src/sync/schema.c).
# Usage: abi/registry.sh check | draft
. "$(dirname "$0")/gate.sh"
need "${CC:-cc}" awk sort diff
top=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${CC:-cc}" -std=c11 -D_GNU_SOURCE -DCONVOY_RELEASE='"0"' -I"$top/include" -I"$top/src" -I"$top" \
    "$top/abi/registry.c" "$top"/src/sync/schema.c "$top"/src/core/{error,status,memory}.c -o "$work/registry" ||
    { fault "abi/registry.c does not compile"; finish; }

# Every status of the header, whatever the list in the code says: a number of a band, or the two that are not errors.
header_statuses() {
    awk '/^\/\* -- statuses/ { on = 1 } /^\/\* -- errors/ { on = 0 }
         on && $1 == "#define" { gsub(/[()]/, "", $3); sub(/^CONVOY_/, "", $2); print $3 "\t" $2 }' \
        "$top/include/convoy/base.h" | sort
}

check_statuses() {
    "$work/registry" status >"$work/status.tsv"
    header_statuses >"$work/header"
    tail -n +2 "$work/status.tsv" | cut -f 1,2 | sort | diff - "$work/header" >"$work/difference" ||
        fault "base.h and src/core/status.h differ: $(tr '\n' ' ' <"$work/difference")"
    cut -f 1 "$work/header" | sort | uniq -d | while read -r number; do echo "$number"; done >"$work/twice"
    [ -s "$work/twice" ] && fault "a number has two names: $(tr '\n' ' ' <"$work/twice")"
    awk -F'\t' '$1 < 0 && !(int(-$1 / 100) ~ /^[1-59]$/) { print $2, $1 }' "$work/header" >"$work/stray"
    [ -s "$work/stray" ] && fault "outside the bands -1xx to -5xx and -9xx: $(tr '\n' ' ' <"$work/stray")"
    return 0
}

compare() { # $1: file under abi/, $2: what it should be
    [ -s "$top/abi/$1" ] || { fault "abi/$1 is not there"; return; }
    diff "$top/abi/$1" "$2" >"$work/difference" ||
        fault "differs from abi/$1; if that is meant: make abi-draft
$(grep -E '^[<>]' "$work/difference" | head -n 20)"
}

case ${1:-} in
draft)
    "$work/registry" status >"$top/abi/status.tsv"
    "$work/registry" columns >"$top/abi/columns.tsv"
    echo "registry: wrote abi/status.tsv and abi/columns.tsv"
    ;;
check)
    check_statuses
    compare status.tsv "$work/status.tsv"
    "$work/registry" columns >"$work/columns.tsv" || fault "abi/registry.c cannot print the columns"
    compare columns.tsv "$work/columns.tsv"
    finish
    ;;
*)
    echo "usage: abi/registry.sh check | draft" >&2
    exit 2
    ;;
esac
