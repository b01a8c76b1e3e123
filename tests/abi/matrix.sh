#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The matrix of runs: each frozen release, this tree ("head") and a fabricated next release ("next"), as host, as plugin, as peer
# and as the build that takes over, in all pairs. Prints cmocka's result lines, then the table, which is also written to
# build/release-matrix.txt; ends with 1 when a cell is not what it must be.
# A frozen release's plugin and loader are built from its commit; the host is this tree's tests/abi/matrix_*.c, compiled with
# that release's headers and loader. What must be the same in all cells is compared with head alone.
# Usage: tests/abi/matrix.sh [self] (self: with a next release that is broken in known ways, whose cells must fail)
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
top=$PWD
place=$top/build/matrix
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
mkdir -p "$place"
[ "${1:-}" = self ] || rm -f build/release-matrix.txt # of an earlier run, should this one not come to its end
failures=0
declare -A tree cell

# -- releases -------------------------------------------------------------------------------------------------------

die() { echo "matrix: $*" >&2; exit 1; }

# What a fabricated release is made from.
digest() {
    find Makefile include plugin src tests/abi/next tests/abi/next.sh -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum
}

make_next() { # and from it level, which differs in no wire version, and apart, which has none in common
    local now kind
    now=$(digest)
    [ "$(cat "$place/made-from" 2>/dev/null)" != "$now" ] || return 0
    rm -f "$place/made-from"
    tests/abi/next.sh "$place/next" || die "no next release"
    for kind in level apart; do
        tests/abi/next.sh "$place/$kind" "$kind" "$place/next" || die "no next release that is $kind"
    done
    echo "$now" >"$place/made-from"
}

make_frozen() { # $1: folder of the release
    local name=${1##*/} commit
    commit=$(cat "$1/commit") || die "$name has no commit"
    if ! git merge-base --is-ancestor "$commit" HEAD 2>/dev/null; then
        [ "$(git rev-parse --is-shallow-repository 2>/dev/null)" != true ] ||
            die "$name: commit $commit is not in this history, which is shallow: git fetch --unshallow, then again"
        die "$name: commit $commit is no ancestor of this tree: it was frozen on another branch, or the history was rewritten"
    fi
    [ "$(cat "$place/$name/made-from" 2>/dev/null)" != "$commit" ] || return 0
    rm -rf "${place:?}/$name"
    mkdir -p "$place/$name"
    git archive "$commit" | tar -x -C "$place/$name" || die "$name: git archive $commit"
    # What was said to the make above is about this tree.
    env -u MAKEFLAGS -u MAKEOVERRIDES make -C "$place/$name" -j2 DEPS=no build/libconvoy.so.1 build/libconvoy_loader.a build/convoy >"$place/$name.log" 2>&1 ||
        die "$name does not build from $commit: see $place/$name.log"
    echo "$commit" >"$place/$name/made-from"
}

make_host() { # $1: release
    local warnings=(-Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wswitch-enum -Wformat=2)
    "${CC:-gcc}" -std=c11 -D_GNU_SOURCE -O1 -g "${warnings[@]}" -Werror -I"${tree[$1]}/include" -I. tests/abi/matrix_*.c \
        "${tree[$1]}/build/libconvoy_loader.a" -Wl,-Bstatic -ljansson -lsodium -Wl,-Bdynamic -ldl -lpthread \
        -o "$place/host-$1" || die "the host does not compile with the headers of $1"
}

plugin() { echo "${tree[$1]}/build/libconvoy.so.1"; }
wire_max() { "${tree[$1]}/build/convoy" inspect --manifest "$(plugin "$1")" | sed 's/.*"wire":{"min":[0-9]*,"max":\([0-9]*\)}.*/\1/'; }

# Minors of transfer: what a release's plugin offers, and what its headers know. What 1.1 added depends on both.
plugin_minor() { "${tree[$1]}/build/convoy" inspect --manifest "$(plugin "$1")" | sed 's/.*"name":"transfer","min":"[0-9.]*","max":"1\.\([0-9]*\)".*/\1/'; }
header_minor() { sed -n 's/^#define CONVOY_TRANSFER_MINOR //p' "${tree[$1]}/include/convoy/transfer.h"; }
has_1_1() { [ "$(header_minor "$1")" -ge 1 ] && [ "$(plugin_minor "$2")" -ge 1 ]; } # $1: host, $2: plugin

# -- runs -----------------------------------------------------------------------------------------------------------

# A port where nobody listens.
port() {
    local number
    while number=$((20000 + RANDOM % 10000)); do
        (exec 3<>"/dev/tcp/127.0.0.1/$number") 2>/dev/null || break
    done
    echo "$number"
}

# host RELEASE OUTPUT PLUGIN WORD...: one process, to its end.
host() {
    local release=$1 output=$2
    shift 2
    timeout --kill-after=5 90 "$place/host-$release" "$@" >"$output" 2>&1 </dev/null
    echo "ended $?" >>"$output"
}

result() { # NAME: in $why what is wrong, or nothing
    last=$1
    if [ -z "$why" ]; then
        echo "[       OK ] $1"
        cell[$1]=ok
    else
        echo "[  FAILED  ] $1"
        echo "    $why"
        cell[$1]="FAILED $1: $why"
        failures=$((failures + 1))
    fi
}

# Adds to $why unless a run came to a good end and its lines are those of the reference. $1: output, $2: reference
agree() {
    local wrong
    if ! grep -qx 'ended 0' "$1"; then
        wrong=$(grep -m 1 '^FAIL' "$1" || tail -n 2 "$1" | tr '\n' ' ')
        why+="${wrong:-ended early}; "
        return
    fi
    grep '^same' "$1" >"$1.same"
    [ -s "$2" ] || cp "$1.same" "$2"
    wrong=$(diff "$2" "$1.same" | grep -m 1 '^[<>]')
    [ -z "$wrong" ] || why+="not as in the first cell: $wrong; "
}

# A line that must be there as often as it is there at all. $1: output, $2: NAME, $3: VALUE
seen() {
    local count
    count=$(grep -c "^seen $2 = " "$1")
    [ "$count" -gt 0 ] && [ "$(grep -cxF "seen $2 = $3" "$1")" -eq "$count" ] ||
        why+="$2 is not \"$3\" but \"$(grep "^seen $2 = " "$1" | grep -vxF "seen $2 = $3" | head -n 1)\"; "
}

# -- hosts and plugins ----------------------------------------------------------------------------------------------

# What depends on the pair: only a host of the next release has things that a plugin may lack.
pair_lines() { # $1: host, $2: plugin, $3: output
    local output=$3 name
    local written=all field="taken refused" slot="0 43" critical=0 trial="0 1.0"
    [ "$1" = next ] && [ "$2" != next ] && written=less field="too new too new" slot="-106 0" critical=-106
    [ "$2" = next ] || trial="-106 0.0"
    seen "$output" family.x-none "-106 0.0"
    seen "$output" family.x-trial "$trial"
    for name in poll_result sync_result group_info engine_info peer_info transfer_result; do
        { [ "$1" != next ] && [ "$1" != "$2" ] && [ "$2" != next ]; } || seen "$output" "written.$name" "$written"
    done
    [ "$1" = next ] || return 0
    for name in group_options poll_call sync_call stage send load; do seen "$output" "field.$name" "$field"; done
    for name in core poll sync transfer move; do seen "$output" "slot.$name" "$slot"; done
    seen "$output" flag.new_critical "$critical"
    seen "$output" flag.new_hint 0
    [ "$2" = next ] || return 0
    for name in 0 1 2 3 4 5; do seen "$output" "counted.$name" 5; done
    seen "$output" counted.6 1
}

# A priority that was staged, as a receiver sees it: none where anything on the way is before 1.1. $1: output, $2: host of the
# receiver, $3, $4: host and plugin of the sender
priority_line() {
    [ "$(header_minor "$2")" -ge 1 ] || { ! grep -q '^seen priority' "$1" || why+="a host of 1.0 says a priority; "; return 0; }
    if has_1_1 "$3" "$4"; then seen "$1" priority -7; else seen "$1" priority 0; fi
}

# What transfer 1.1 added, of a host that knows it.
since_lines() { # $1: host, $2: plugin, $3: output
    local field="taken" admission=0 info=more
    [ "$(header_minor "$1")" -ge 1 ] || return 0
    has_1_1 "$1" "$2" || { field="too new at its offset" admission="-106 names transfer 1.1" info="as in 1.0"; }
    for name in stage send; do seen "$3" "since.$name.priority" "$field"; done
    seen "$3" since.admission_set "$admission"
    seen "$3" since.info.written "$info"
}

pair_cell() { # HOST PLUGIN
    local output=$runs/pair
    why=""
    host "$1" "$output" "$(plugin "$2")" alone "$(port)"
    agree "$output" "$runs/reference-alone"
    [ -n "$why" ] || { pair_lines "$1" "$2" "$output"; since_lines "$1" "$2" "$output"; priority_line "$output" "$1" "$1" "$2"; }
    result "host_$1_plugin_$2"
}

# -- wire -----------------------------------------------------------------------------------------------------------

members() { # RELEASE...: one process each, the first of them listens; leaves $runs/member-N
    local number where count=$#
    where=$(port)
    for ((number = 0; number < count; number++)); do
        host "$1" "$runs/member-$number" "$(plugin "$1")" member "$number" "$count" "$where" &
        shift
    done
    wait
}

group_cell() { # RELEASE...
    local number=0 lowest="" own name
    name=$(tr ' ' '_' <<<"$*")
    why=""
    members "$@"
    for own in "$@"; do
        own=$(wire_max "$own")
        { [ -n "$lowest" ] && [ "$lowest" -le "$own" ]; } || lowest=$own
    done
    for own in "$@"; do
        agree "$runs/member-$number" "$runs/reference-group-$#"
        seen "$runs/member-$number" wire "$lowest"
        number=$((number + 1))
    done
    result "group_$name"
}

# Wire ranges that do not meet: each is told at once, by which member and with which ranges.
apart_cell() { # FIRST SECOND
    local number
    why=""
    members "$1" "$2"
    for number in 0 1; do
        grep -q '^seen refused = -404 soon (.*wire.*)' "$runs/member-$number" ||
            why+="member $number: $(grep -m 1 'refused\|FAIL\|same' "$runs/member-$number"); "
    done
    result "group_refused_$1_$2"
}

sides() { # RELEASE RELEASE near|far: leaves $runs/side-a and -b
    local folder=$runs/meet
    rm -rf "$folder"
    mkdir "$folder"
    host "$1" "$runs/side-a" "$(plugin "$1")" engine a "$folder" "$3" &
    host "$2" "$runs/side-b" "$(plugin "$2")" engine b "$folder" "$3" &
    wait
}

transfer_apart_cell() { # RELEASE RELEASE: whoever connects first is told; the other one may be gone when the second does
    why=""
    sides "$1" "$2" near
    grep -q '^FAIL peer_connect: -404 connect to .*: wire versions .* none is common' "$runs/side-a" "$runs/side-b" ||
        why="$(grep -hm 1 '^FAIL\|^same' "$runs/side-a" "$runs/side-b" | tr '\n' ' ')"
    result "transfer_refused_$1_$2"
}

transfer_cell() { # RELEASE RELEASE near|far
    local side locality=2
    [ "$3" = near ] || locality=3
    why=""
    sides "$@"
    for side in a b; do
        agree "$runs/side-$side" "$runs/reference-transfer"
        seen "$runs/side-$side" locality "$locality"
        if [ "$side" = a ]; then priority_line "$runs/side-a" "$1" "$2" "$2"; else priority_line "$runs/side-b" "$2" "$1" "$1"; fi
    done
    result "transfer_$3_$1_$2"
}

# -- swaps ----------------------------------------------------------------------------------------------------------

# What was sent before a swap, waiting or under way, came after it, also where the other build knows no waiting.
held_lines() { # HOST
    [ -n "$why" ] || [ "$1" = v1.0 ] || [ "$(grep -c '^seen held = 3 of 3$' "$runs/swap")" -eq 2 ] ||
        why="sends that waited did not come: $(grep '^seen held' "$runs/swap" | tr '\n' ' ')"
}

swap_cell() { # HOST FROM TO: there and back
    why=""
    host "$1" "$runs/swap" "$(plugin "$2")" swap "$(plugin "$3")" "$(port)"
    agree "$runs/swap" "$runs/reference-swap"
    [ -n "$why" ] || [ "$(grep -c '^seen swapped' "$runs/swap")" -eq 2 ] || why="it did not swap twice"
    held_lines "$1"
    result "swap_$1_$2_$3"
}

# A group of a wire version that the older build lacks cannot go there: it says so, and goes on where it is.
swap_refused_cell() { # HOST FROM TO
    why=""
    host "$1" "$runs/swap" "$(plugin "$2")" swap "$(plugin "$3")" "$(port)"
    grep '^same' "$runs/reference-swap" | grep -v '^same swap = ' >"$runs/reference-refused"
    agree "$runs/swap" "$runs/reference-refused"
    held_lines "$1"
    grep -q "^seen swap_refused = -504 .*wire version $(wire_max "$2")" "$runs/swap" ||
        why+="not refused for its wire version: $(grep -m 1 'swap' "$runs/swap")"
    result "swap_refused_$1_$2_$3"
}

# -- all of it ------------------------------------------------------------------------------------------------------

show() { # $1: words of the failure or "ok", in a table
    case ${cell[$1]:-none} in ok) echo ok ;; none) echo - ;; *) echo FAIL ;; esac
}

table() {
    local row column
    printf '%-16s' 'host \ plugin'
    printf '%8s' "${releases[@]}"
    for row in "${releases[@]}"; do
        printf '\n%-16s' "$row"
        for column in "${releases[@]}"; do printf '%8s' "$(show "host_${row}_plugin_$column")"; done
    done
    printf '\n\nwire, the first listens\n'
    for row in "${order[@]}"; do
        case $row in group_* | transfer_*) printf '  %-44s %s\n' "${row//_/ }" "$(show "$row")" ;; esac
    done
    printf '\nswap there and back: host, from, to\n'
    for row in "${order[@]}"; do
        case $row in swap_*) printf '  %-44s %s\n' "${row//_/ }" "$(show "$row")" ;; esac
    done
    echo
    for row in "${order[@]}"; do
        [ "${cell[$row]}" = ok ] || echo "${cell[$row]}"
    done
    echo "cells: ${#order[@]}, failed: $failures"
}

order=()
run() { # KIND_cell and its words
    "$@"
    order+=("$last")
}

cells_of_pair() { # two different releases
    run group_cell "$1" "$2"
    run group_cell "$1" "$2" "$1"
    run transfer_cell "$1" "$2" near
    run transfer_cell "$1" "$2" far
    local by
    for by in "${releases[@]}"; do
        if [ "$(wire_max "$1")" -le "$(wire_max "$2")" ]; then
            run swap_cell "$by" "$1" "$2"
        else
            run swap_refused_cell "$by" "$1" "$2"
        fi
    done
}

# A next release that is broken must fail its cells, each for its reason.
self_test() {
    local kind broken=0
    for kind in overrun lenient critical; do
        tests/abi/next.sh "$place/$kind" "$kind" "$place/next" >/dev/null || die "no release that is $kind"
        tree[$kind]=$place/$kind
    done
    pair_cell head head >/dev/null
    pair_cell head overrun | grep -q 'beyond the struct_size' && echo "[       OK ] overrun_is_noticed" || broken=1
    pair_cell head lenient | grep -q 'not as in the first cell: < same tail' && echo "[       OK ] lenience_is_noticed" || broken=1
    swap_cell head head level >/dev/null
    swap_cell head head critical | grep -q 'not as in the first cell' && grep -q '^seen swap_refused = -504 ' "$runs/swap" && echo "[       OK ] critical_item_is_noticed" || broken=1
    [ "$broken" -eq 0 ] || echo "[  FAILED  ] self_test"
    exit "$broken"
}

releases=()
while read -r folder; do
    name=${folder##*/}
    make_frozen "$folder"
    tree[$name]=$place/$name
    releases+=("$name")
done < <(find abi -mindepth 1 -maxdepth 1 -type d -name 'v[0-9]*.[0-9]*' | sort -V)
for name in build/libconvoy.so.1 build/libconvoy_loader.a build/convoy; do
    [ -r "$name" ] || die "$name is not there: make first"
done
make_next
tree[head]=$top tree[next]=$place/next tree[level]=$place/level tree[apart]=$place/apart
releases+=(head next)
for name in "${releases[@]}"; do make_host "$name"; done
for name in level apart; do cp "$place/host-next" "$place/host-$name"; done
[ "${1:-}" != self ] || self_test

# The reference of each kind is head alone.
pair_cell head head >/dev/null
group_cell head head >/dev/null
group_cell head head head >/dev/null
transfer_cell head head near >/dev/null
swap_cell head head level >/dev/null
cell=()
failures=0
for row in "${releases[@]}"; do
    for column in "${releases[@]}"; do run pair_cell "$row" "$column"; done
done
for row in "${releases[@]}"; do
    for column in "${releases[@]}"; do [ "$row" = "$column" ] || cells_of_pair "$row" "$column"; done
done
for by in head next; do run swap_cell "$by" level head; done
run apart_cell head apart
run apart_cell apart head
run transfer_apart_cell head apart
table >build/release-matrix.txt
cat build/release-matrix.txt
[ "$failures" -eq 0 ]
