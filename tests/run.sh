#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs test programs, each under a time limit, and ends with "N passed, N failed, N skipped".
# Usage: tests/run.sh [-l LOG] PROGRAM... A program speaks cmocka's default output, or exits 0, 1, or 77 for a skip whose
# last line is the reason. Each test that ran is appended to LOG (default build/tests.log) as "result<TAB>name".
# Environment: TEST_LIMIT_S (300) for each program; TEST_JOBS (1) programs at a time. Each line has the program's seconds and
# the processor seconds of it and its children: what is far below has waited, and others can run beside it.
set -u
log=build/tests.log
limit=${TEST_LIMIT_S:-300}
jobs=${TEST_JOBS:-1}
if [ "${1:-}" = -l ]; then
    log=$2
    shift 2
fi
mkdir -p "$(dirname "$log")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Ticks of all that this shell has waited for. The fields behind the name, which may have blanks, count from the third.
spent_ticks() {
    local line
    read -r line <"/proc/$BASHPID/stat"
    # shellcheck disable=SC2086  # the fields are several words
    set -- ${line##*) }
    ticks=$((${14} + ${15}))
}

# run_one NUMBER PROGRAM: leaves NUMBER.text (what is shown), NUMBER.log and NUMBER.counts.
run_one() {
    local at=$work/$1 program=$2 name=${2##*/} started code counts ok bad skip ticks spent
    started=$(date +%s)
    spent_ticks
    spent=$ticks
    timeout --kill-after=10 "$limit" "$program" >"$at.out" 2>&1 </dev/null
    code=$?
    spent_ticks
    spent=$(((ticks - spent) * 10 / $(getconf CLK_TCK)))
    : >"$at.log"
    counts=$(awk -v log_file="$at.log" -v program="$name" '
        /^\[       OK \]/ { ok++; printf "passed\t%s:%s\n", program, $4 >>log_file }
        /^\[  SKIPPED \] [A-Za-z_]/ && !/test\(s\)/ { skip[$4]=1 }
        /^\[  FAILED  \] [A-Za-z_]/ && !/test\(s\)/ { bad[$4]=1 }
        END { for (t in skip) { s++; printf "skipped\t%s:%s\n", program, t >>log_file }
              for (t in bad) { b++; printf "failed\t%s:%s\n", program, t >>log_file }
              printf "%d %d %d", ok, b, s }' "$at.out")
    read -r ok bad skip <<<"$counts"
    if [ $((ok + bad + skip)) -eq 0 ]; then # not a cmocka program, or it died before its first result
        case $code in
        0) ok=1; printf 'passed\t%s\n' "$name" >>"$at.log" ;;
        77) skip=1; printf 'skipped\t%s\n' "$name" >>"$at.log" ;;
        *) bad=1; printf 'failed\t%s\n' "$name" >>"$at.log" ;;
        esac
    elif [ $code -ne 0 ] && [ "$bad" -eq 0 ]; then # results, but the program crashed or hung afterwards
        bad=1
        printf 'failed\t%s\n' "$name" >>"$at.log"
    fi
    {
        printf '%-44s %3d passed %3d failed %3d skipped  %4d s %3d.%d s cpu\n' "$name" "$ok" "$bad" "$skip" $(($(date +%s) - started)) \
            $((spent / 10)) $((spent % 10))
        if [ "$bad" -ne 0 ]; then
            [ $code -eq 124 ] && echo "    ended: over its limit of $limit s"
            tail -n 60 "$at.out" | sed 's/^/    /'
        elif [ "$skip" -ne 0 ]; then
            grep -iE 'skip' "$at.out" | tail -n 5 | sed 's/^/    /'
        fi
    } >"$at.text"
    echo "$ok $bad $skip" >"$at.counts"
    cat "$at.text" # one write, so that lines of programs that end together stay whole
}

number=0
for program in "$@"; do
    number=$((number + 1))
    if [ "$jobs" -le 1 ]; then
        run_one $number "$program"
        continue
    fi
    [ "$(jobs -rp | wc -l)" -lt "$jobs" ] || wait -n
    run_one $number "$program" &
done
wait

passed=0 failed=0 skipped=0
for ((i = 1; i <= number; i++)); do
    read -r ok bad skip <"$work/$i.counts"
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
    cat "$work/$i.log" >>"$log"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
