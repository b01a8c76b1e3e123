#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Where the instructions of one call go: what callgrind counts in a group of one member, by source file, per call. It
# counts the same on every machine and however busy it is; waiting and cache lines are not in it.
# Usage: tests/bench/profile.sh [CASE...], such as poll:8 row:8
set -u
cd "$(dirname "$0")/../.." || exit 1
program=build/release/tests/bench/convoy_bench
few=1000 many=5000 # the difference is that of calls alone: opening and closing are in both
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# Instructions by source file of one run; the ranks are children of the program, and the largest profile is a rank's.
count() {
    rm -f "$work"/out.*
    valgrind --tool=callgrind --callgrind-out-file="$work/out.%p" "$program" --ranks 1 --rounds "$2" "$1:b2b" \
        >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    callgrind_annotate --auto=no --show-percs=no --threshold=100 "$(ls -S "$work"/out.* | head -n 1)" |
        awk '/file:function/ { on = 1; next }
             on && $1 ~ /^[0-9,]+$/ {
                 gsub(",", "", $1); split($2, part, ":"); file = part[1]
                 if (index(file, ENVIRON["PWD"] "/") == 1) file = substr(file, length(ENVIRON["PWD"]) + 2)
                 sum[file] += $1
             }
             END { for (file in sum) print file, sum[file] }'
}

for case in "${@:-poll:8}"; do
    count "$case" $few >"$work/few"
    count "$case" $many >"$work/many"
    echo "$case: instructions per call"
    awk -v calls=$((many - few)) '
        FNR == NR { few[$1] = $2; next }
        { per = ($2 - few[$1]) / calls; if (per >= 1) printf "%8.0f  %s\n", per, $1 }' "$work/few" "$work/many" | sort -rn
done
