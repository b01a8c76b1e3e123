#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs test programs one after another, each under a time limit, and ends with "N passed, N failed, N skipped".
# Usage: tests/run.sh [-l LOG] PROGRAM... A program speaks cmocka's default output, or exits 0, 1, or 77 for a skip whose
# last line is the reason. Each test that ran is appended to LOG (default build/tests.log) as "result<TAB>name".
set -u
log=build/tests.log
limit=${TEST_LIMIT_S:-300}
if [ "${1:-}" = -l ]; then
    log=$2
    shift 2
fi
mkdir -p "$(dirname "$log")"
passed=0 failed=0 skipped=0
for program in "$@"; do
    name=${program##*/}
    output=$(mktemp)
    started=$(date +%s)
    timeout --kill-after=10 "$limit" "$program" >"$output" 2>&1
    code=$?
    counts=$(awk -v log_file="$log" -v program="$name" '
        /^\[       OK \]/ { ok++; printf "passed\t%s:%s\n", program, $4 >>log_file }
        /^\[  SKIPPED \] [A-Za-z_]/ && !/test\(s\)/ { skip[$4]=1 }
        /^\[  FAILED  \] [A-Za-z_]/ && !/test\(s\)/ { bad[$4]=1 }
        END { for (t in skip) { s++; printf "skipped\t%s:%s\n", program, t >>log_file }
              for (t in bad) { b++; printf "failed\t%s:%s\n", program, t >>log_file }
              printf "%d %d %d", ok, b, s }' "$output")
    read -r ok bad skip <<<"$counts"
    if [ $((ok + bad + skip)) -eq 0 ]; then # not a cmocka program, or it died before its first result
        case $code in
        0) ok=1; printf 'passed\t%s\n' "$name" >>"$log" ;;
        77) skip=1; printf 'skipped\t%s\n' "$name" >>"$log" ;;
        *) bad=1; printf 'failed\t%s\n' "$name" >>"$log" ;;
        esac
    elif [ $code -ne 0 ] && [ "$bad" -eq 0 ]; then # results, but the program crashed or hung afterwards
        bad=1
        printf 'failed\t%s\n' "$name" >>"$log"
    fi
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
    printf '%-44s %3d passed %3d failed %3d skipped  %4d s\n' "$name" "$ok" "$bad" "$skip" $(($(date +%s) - started))
    if [ "$bad" -ne 0 ]; then
        [ $code -eq 124 ] && echo "    ended: over its limit of $limit s"
        tail -n 60 "$output" | sed 's/^/    /'
    elif [ "$skip" -ne 0 ]; then
        grep -iE 'skip' "$output" | tail -n 5 | sed 's/^/    /'
    fi
    rm -f "$output"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
