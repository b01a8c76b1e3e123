#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gate: abidiff over the types of the public ABI, against the newest frozen release. The library has one export, behind
# which most types are out of abidiff's sight; so a small library of each side's headers is compared, in which one function
# for each public struct makes all of it reachable (tables with the signatures of their slots included), and the dumps of the
# real libraries beside it. What abidiff finds must be what abi/append.sh has approved as an addition.
# Before the first freeze it checks that nothing is out of sight: every public struct in the anchor, DWARF in the library.
# Usage: abi/diff.sh LIBRARY
. "$(dirname "$0")/gate.sh"
need "${CC:-cc}" abidw abidiff awk grep sort comm
library=${1:?usage: abi/diff.sh LIBRARY}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

public_structs() { # $1: include folder
    awk '$1 == "struct" && $3 == "{" { print $2 }' "$1"/convoy/{base,query,core,move,device,poll,sync,payload,transfer}.h | sort
}

# Functions that take each public struct by pointer, with full types in the DWARF. $1: include folder, $2: where
make_anchor() {
    local place
    if place=$(memo anchor "$1" "$top/abi/diff.sh") && [ -e "$place" ]; then
        cp "$place" "$2"
        return
    fi
    {
        echo '#include "convoy/convoy.h"'
        public_structs "$1" | awk '{ print "void anchor_" $1 "(struct " $1 " *it); void anchor_" $1 "(struct " $1 " *it) { (void)it; }" }'
    } >"$work/anchor.c"
    "${CC:-cc}" -std=c11 -g -fPIC -shared -I"$1" "$work/anchor.c" -o "$work/anchor.so" 2>"$work/words" ||
        { fault "the headers in ${1#"$top"/} do not compile: $(head -n 3 "$work/words" | tr '\n' ' ')"; finish; }
    abidw --no-corpus-path --no-comp-dir-path "$work/anchor.so" >"$2"
    [ -z "$place" ] || keep "$place" "$2"
}

# The library's dump. $1: where
dump_library() {
    local place
    if place=$(memo dump "$library" "$top/abi/diff.sh") && [ -e "$place" ]; then
        cp "$place" "$1"
        return
    fi
    abidw --no-corpus-path --no-comp-dir-path --headers-dir "$top/include" --drop-private-types "$library" >"$1" 2>"$work/words" ||
        fault "abidw cannot read $library: $(head -n 2 "$work/words" | tr '\n' ' ')"
    [ -z "$place" ] || keep "$place" "$1"
}

has_struct() { # $1: name, $2: dump
    grep -qE "<class-decl name='$1' size-in-bits='[0-9]+' is-struct='yes'" "$2"
}

# Of two dumps: names of public structs that abidiff says are changed, and what it says of functions. $1: old, $2: new
compare() {
    abidiff --no-show-locs --leaf-changes-only "$1" "$2" >"$work/report" 2>&1
    local code=$?
    [ $((code & 3)) -eq 0 ] || { fault "abidiff failed: $(head -n 3 "$work/report" | tr '\n' ' ')"; return; }
    [ "$code" -eq 0 ] && return
    sed -nE "s/^ *'struct ([a-z0-9_]+).*' changed:.*/\1/p" "$work/report" | sort -u >"$work/changed"
    grep -E '^ *\[[DC]\]|^ *Removed |symbol.* removed' "$work/report" | grep -vE ': *0$|^ *Removed/Changed' >"$work/lost" || true
    comm -12 "$work/changed" "$work/public" | comm -23 - "$work/approved" >"$work/refused" # others are not the ABI's
    [ -s "$work/refused" ] && fault "abidiff sees changes that no addition explains, in: $(tr '\n' ' ' <"$work/refused")"
    [ -s "$work/lost" ] && fault "abidiff sees functions that are gone or changed: $(head -n 5 "$work/lost" | tr -s '\n ' ' ')"
    [ -s "$work/changed" ] || grep -qE "^ *\[A\]|Added " "$work/report" ||
        fault "abidiff answers $code and names no struct: $(head -n 12 "$work/report" | tr -s '\n ' ' ')"
    return 0
}

public_structs "$top/include" >"$work/public"
make_anchor "$top/include" "$work/now.abi"
dump_library "$work/library.abi"
for name in $(public_structs "$top/include"); do
    has_struct "$name" "$work/now.abi" || fault "struct $name is not in the anchor's dump, so that abidiff would not see it"
done
for name in convoy_host_info convoy_plugin_info convoy_error; do
    has_struct "$name" "$work/library.abi" || fault "struct $name is not in the dump of $library; build it with -g"
done
release=$(frozen_releases | tail -n 1)
if [ -n "$release" ] && [ "$faults" -eq 0 ]; then
    "$top/abi/layout.sh" print >"$work/layout"
    # Where append.sh refuses anything (layout.sh says what) nothing is approved.
    "$top/abi/append.sh" "$release/layout.txt" "$work/layout" >"$work/added" 2>/dev/null || : >"$work/added"
    sed -nE 's/^added (slot|field) ([a-z0-9_]+):.*/\2/p' "$work/added" | sort -u >"$work/approved"
    make_anchor "$release/include" "$work/old.abi"
    set +e
    compare "$work/old.abi" "$work/now.abi"
    compare "$release/library.abi" "$work/library.abi"
    set -e
fi
finish
