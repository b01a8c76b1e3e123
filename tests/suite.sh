#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the steps of `make test` and `make check` and ends with one line "N passed, N failed, N skipped" over all of them.
# A step is a make target; the tests it counts are counted, a step without counts is one test. Usage:
#   tests/suite.sh STEP...     STEP is TARGET or VARIANT/TARGET, with =SECONDS for another limit than 300
# What a step printed is in build/suite/STEP.log, every test that ran in build/tests.log. Exit status 1: something failed.
set -u
cd "$(dirname "$0")/.." || exit 1
unset MAKEFLAGS MFLAGS MAKELEVEL # what make hands to its commands is not meant for the steps
cores=$(nproc)
logs=build/suite
rm -rf "$logs" build/tests.log
mkdir -p "$logs"
passed=0 failed=0 skipped=0
started=$SECONDS

# Counts of a step from the last line of its log that has them; a step that failed without saying so counts as a failure.
count_step() {
    local log=$1 code=$2 counts
    counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1 | tr -d -c '0-9 ')
    read -r ok bad skip <<<"${counts:-0 0 0}"
    if [ "$code" -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1
    elif [ -z "$counts" ]; then
        ok=1
    fi
}

# The end of a log, without what went well.
show_tail() {
    grep -vE '^(gcc|clang|cc|ar|mv|aarch64-linux-gnu-gcc) |\[ RUN   |\[       OK|  +0 failed +[0-9]+ skipped|SKIPPED|\[  FAILED  \]|^ *$' "$1" |
        cut -c1-300 | tail -n 30 | sed 's/^ */    | /'
}

run_step() {
    local step=${1%=*} limit=300 variant=release log code began=$SECONDS
    [[ $1 == *=* ]] && limit=${1##*=}
    [[ $step == */* ]] && variant=${step%%/*}
    log=$logs/${step//\//-}.log
    printf '%-28s' "$step"
    timeout --kill-after=10 "$limit" make --no-print-directory -k -j"$cores" DEPS=no WERROR="${WERROR:-0}" \
        VARIANT="$variant" "${step##*/}" >"$log" 2>&1 </dev/null
    code=$?
    count_step "$log" "$code"
    printf '%5d passed %3d failed %3d skipped %5d s\n' "$ok" "$bad" "$skip" $((SECONDS - began))
    if [ "$bad" -ne 0 ]; then
        [ $code -eq 124 ] && echo "    ended: over its limit of $limit s"
        echo "    the whole of it: $log"
        grep -hE '^[^ ].* +[0-9]+ passed +[1-9][0-9]* failed|^    \[  FAILED  \] [a-z_0-9]+$' "$log" | sort -u | sed 's/^ */    /' |
            head -n 30
        show_tail "$log"
    elif [ "$skip" -ne 0 ]; then
        grep -E '^    .*[Ss]kip' "$log" | grep -v 'SKIPPED' | sort | uniq -c | sort -rn | head -n 4 | sed 's/^ */    /'
    fi
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
}

for step in "$@"; do
    run_step "$step"
done
echo "took $(((SECONDS - started) / 60)) min $(((SECONDS - started) % 60)) s on $cores cores"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
