#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gate: offset, size and type of every field, signature of every slot, every constant and typedef of the public ABI.
# Usage: abi/layout.sh print              what the headers say now
#        abi/layout.sh draft              makes that the baseline, deliberately
#        abi/layout.sh check LIBRARY      headers against baseline, and the library's own DWARF against the headers
. "$(dirname "$0")/gate.sh"
need "${CC:-cc}" pahole awk sort diff paste find sha256sum
top=$(cd "$(dirname "$0")/.." && pwd)
baseline=$top/abi/draft/layout.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

headers() { # the plugin's ABI; the loader is linked into the host and has no ABI
    echo base query core move device poll sync payload transfer
}

struct_names() {
    for header in $(headers); do
        awk '$1 == "struct" && $3 == "{" { print $2 }' "$top/include/convoy/$header.h"
    done | sort
}

# An object in whose DWARF every public struct is reachable with its full type.
make_anchor() {
    {
        echo '#include "convoy/convoy.h"'
        struct_names | awk '{ print "extern struct " $1 " anchor_" $1 "; struct " $1 " anchor_" $1 ";" }'
    } >"$work/anchor.c"
    "${CC:-cc}" -std=c11 -g -c -I"$top/include" "$work/anchor.c" -o "$work/anchor.o"
}

# One file per struct in directory $2: "struct NAME SIZE", then one line per field: "  OFFSET SIZE TYPE NAME".
# $1: object with DWARF
split_layouts() {
    mkdir -p "$2"
    # A few names at a time: of a long list pahole leaves out what comes last.
    struct_names | paste -sd ',,,,,,,\n' | while read -r names; do
        pahole -C "$names" "$1" 2>/dev/null
    done | awk -v directory="$2" '
        $1 == "struct" && $3 == "{" && !/^[ \t]/ { name = $2; count = 0 }
        /\/\* size:/ { match($0, /size: [0-9]+/); size = substr($0, RSTART + 6, RLENGTH - 6) }
        match($0, /\/\* +[0-9]+ +[0-9]+ \*\//) {
            split(substr($0, RSTART + 2, RLENGTH - 4), place, " ")
            text = substr($0, 1, RSTART - 1)
            gsub(/[ \t]+/, " ", text); sub(/^ /, "", text); sub(/; ?$/, "", text); gsub(/ ,/, ",", text)
            lines[++count] = sprintf("  %4d %4d %s", place[1], place[2], text)
        }
        /\/\* XXX|\/\* padding|\/\* paddings/ { lines[++count] = "  hole: " $0 }
        /^}/ && name != "" {
            file = directory "/" name
            printf "struct %s %d\n", name, size >file
            for (i = 1; i <= count; i++) print lines[i] >file
            close(file); name = ""
        }'
}

# Typedefs, prototypes and constants, as the compiler sees them.
declarations() {
    echo '#include "convoy/convoy.h"' >"$work/all.c"
    "${CC:-cc}" -std=c11 -E -P -I"$top/include" "$work/all.c" | tr '\n' ' ' | sed 's/[{};]/&\n/g' |
        grep -E '(typedef [^{]*convoy_|convoy_query ?\()' | sed -E 's/[ \t]+/ /g; s/^ //; s/ ;$/;/'
    "${CC:-cc}" -std=c11 -E -dM -I"$top/include" "$work/all.c" |
        awk '$2 ~ /^CONVOY_[A-Z0-9_]+$/ && NF > 2 { $1 = "constant"; print }' | sort
}

# Leaves the structs in $work/headers and prints all.
print_layout() {
    local place
    if place=$(memo layout "$top/abi/layout.sh" "$top/include") && [ -e "$place" ]; then
        cp -r "$place" "$work/headers"
    else
        make_anchor
        split_layouts "$work/anchor.o" "$work/headers"
        declarations >"$work/headers/.declarations"
        [ -z "$place" ] || keep "$place" "$work/headers"
    fi
    for name in $(struct_names); do
        cat "$work/headers/$name"
    done
    cat "$work/headers/.declarations"
}

# The structs of a library in $work/library. $1: library
split_library() {
    local place names
    names=$(struct_names | sha256sum)
    if place=$(memo "library-${names%% *}" "$top/abi/layout.sh" "$1") && [ -e "$place" ]; then
        cp -r "$place" "$work/library"
    else
        split_layouts "$1" "$work/library"
        [ -z "$place" ] || keep "$place" "$work/library"
    fi
}

# The library's own idea of each struct that it uses must be the headers'. $1: library
check_library() {
    local name path
    split_library "$1"
    for path in "$work"/library/*; do
        name=$(basename "$path")
        [ -e "$work/headers/$name" ] || continue
        diff "$work/headers/$name" "$path" >"$work/difference" ||
            fault "struct $name in $1 is not that of the headers: $(tr '\n' ' ' <"$work/difference")"
    done
    for name in convoy_core_table convoy_poll_table convoy_sync_table convoy_transfer_table convoy_move_table convoy_host_info; do
        [ -s "$work/library/$name" ] || fault "$1 has no DWARF for struct $name; build it with -g"
    done
    [ "$(find "$work/library" -type f | wc -l)" -ge 40 ] || fault "fewer than 40 public structs in the DWARF of $1"
}

case ${1:-} in
print)
    print_layout
    ;;
draft)
    mkdir -p "$(dirname "$baseline")"
    print_layout >"$baseline.new"
    mv "$baseline.new" "$baseline"
    echo "layout: wrote $(wc -l <"$baseline") lines to abi/draft/layout.txt"
    ;;
check)
    library=${2:?usage: abi/layout.sh check LIBRARY}
    [ -s "$baseline" ] || fault "abi/draft/layout.txt is not there"
    print_layout >"$work/now"
    diff -u "$baseline" "$work/now" >"$work/difference" ||
        fault "differs from abi/draft/layout.txt; if that is meant: make abi-draft
$(grep -E '^[-+]' "$work/difference" | head -n 40)"
    for release in $(frozen_releases | tail -n 1); do # each kept what the one before it had
        "$top/abi/append.sh" "$release/layout.txt" "$work/now" >/dev/null 2>"$work/words" ||
            fault "is not ${release##*/} with additions: $(cat "$work/words")"
    done
    grep -q '^  hole' "$work/now" && fault "a struct has implicit padding"
    [ -r "$library" ] && check_library "$library" || fault "$library is not there"
    finish
    ;;
*)
    echo "usage: abi/layout.sh print | draft | check LIBRARY" >&2
    exit 2
    ;;
esac
