#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One page: may this tree be called the release that its Makefile names? Gates, what changed against each frozen release, what
# a host and a peer of each will see, and the matrix of runs. Ends with 1 when something says no.
# Usage: abi/release.sh DIRECTORY GENERATOR (where libconvoy.so.1 and convoy are, and tests/abi's golden)
. "$(dirname "$0")/gate.sh"
unset ABI_ONLY ABI_FIRST # all gates, whatever the environment says
need awk sed diff git
usage="usage: abi/release.sh DIRECTORY GENERATOR"
bin=${1:?$usage} generator=${2:?$usage}
library=$bin/libconvoy.so.1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

heading() { printf '\n%s\n' "$1"; }

# What a gate said, indented.
gates() {
    heading "gates"
    local code=0
    "$top/abi/check.sh" "$bin" "$generator" >"$work/words" 2>&1 || code=$?
    sed 's/^/  /' "$work/words"
    [ "$code" -eq 0 ] || faults=$((faults + 1))
}

# Lines that are new, of one registry. $1: folder of the release, $2: registry
added_rows() {
    "$top/abi/registry.sh" print "$2" >"$work/rows" || return 0
    grep -vxF -f "$1/$2.tsv" "$work/rows" | sed "s/^/  added $2: /" | tr '\t' ' ' || true
}

changes() { # $1: folder of the release
    heading "changes since ${1##*/}"
    "$top/abi/layout.sh" print >"$work/layout"
    "$top/abi/append.sh" "$1/layout.txt" "$work/layout" >"$work/words" 2>&1 || faults=$((faults + 1))
    for name in status columns states messages state-tags; do
        added_rows "$1" "$name" >>"$work/words"
    done
    if [ -s "$work/words" ]; then sed 's/^ */  /' "$work/words"; else echo "  none"; fi
}

# $1: words, $2, $3: of compat. A refusal is a fault only where the policy promises that it works ($4 = must).
pair() {
    local code=0
    "$bin/convoy" compat "$2" "$3" --abi "$top/abi" >"$work/words" 2>&1 || code=$?
    printf '  %s: %s\n' "$1" "$([ "$code" -eq 0 ] && echo works || echo "does not work")"
    sed -n '/UNSUPPORTED\|refused\|^wire\|^swap\|^back/s/^/    /p' "$work/words"
    [ "$code" -eq 0 ] || [ "$4" != must ] || faults=$((faults + 1))
}

views() { # $1: folder of the release
    local old=${1##*/v}
    heading "what hosts and peers of $old see"
    pair "host of $old with this plugin" "host:$old" "$library" must
    pair "host of this tree with the plugin of $old" host "$old" may
    pair "peer of $old with this plugin, and a swap from it to this" "$old" "$library" must
    pair "a swap from this to it" "$library" "$old" may
}

release=$(sed -n 's/^RELEASE := //p' "$top/Makefile")
newest=$(frozen_releases | tail -n 1)
echo "release check of $release, $(git -C "$top" rev-parse --short HEAD 2>/dev/null || echo "no commit")"
"$bin/convoy" inspect "$library" >"$work/said" 2>&1 || fault "the library is none: $(cat "$work/said")"
sed -n '/^\(release\|families\|  \|wire\|state\)/s/^/  /p' "$work/said"
grep -q "^release  *$release\$" "$work/said" || fault "the library is not of release $release, as the Makefile has it"
gates
if [ -z "$newest" ]; then
    heading "frozen releases: none; the draft under abi/draft is the baseline, and nothing is promised yet"
elif [ "$(printf '%s\n' "${newest##*/v}" "${release%.*}" | sort -V | tail -n 1)" != "${release%.*}" ]; then
    fault "release $release is older than ${newest##*/}, which is frozen"
fi
for folder in $(frozen_releases); do
    changes "$folder"
    views "$folder"
done
heading "runs (host x plugin, wire, swap; tests/abi/matrix.sh)"
matrix=$top/build/release-matrix.txt
if [ -s "$matrix" ]; then sed 's/^/  /' "$matrix"; else fault "the matrix was not run, or did not come to its end: make release-matrix"; fi
grep -q '^FAILED' "$matrix" 2>/dev/null && fault "the matrix of runs has failures"
heading "$([ "$faults" -eq 0 ] && echo "may be called $release: yes, as far as gates can tell" || echo "may be called $release: no, $faults faults")"
[ "$faults" -eq 0 ]
