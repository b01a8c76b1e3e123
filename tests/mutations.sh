#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Switches on each compiled-in mutation in turn and expects a test to notice: to fail, crash or hang. Prints which did.
# Usage: tests/mutations.sh BUILD [NAME...] (a build of the variant "mutation"). tests/fault/mutations.txt says what to
# run; a mutation without a line there, and a line of no mutation, are failures whatever the names.
# Environment: TEST_JOBS (3) mutations at a time.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1
table=tests/fault/mutations.txt
limit=${MUTATION_LIMIT_S:-15}
fit_limit=$((4 * limit)) # a machine that is busy with other steps makes no test unfit
lanes=${TEST_JOBS:-3} # most of a run is a wait for a deadline that a mutation makes pass
failed=0

# As words: seconds, program, part of the names ("-" for all), milliseconds for the ranks of a test.
run_test() {
    local limit=$1 program=$build/tests/$2 only=$3
    export CONVOY_TEST_TIMEOUT_MS=${4:-8000}
    if [ "$only" = - ]; then
        timeout --kill-after=2 "$limit" "$program"
    else
        CONVOY_TEST_ONLY=$only timeout --kill-after=2 "$limit" "$program"
    fi >"$work/last.$lane" 2>&1
}

# Without a mutation the test must pass, else its failure says nothing. Namespaces may be impossible here: status 77.
# Tried once, by the lane that wants it first; others that want the same wait for its answer.
is_fit() {
    local key=${1//\//-}.${2//\//-} code
    {
        flock 9
        if [ ! -s "$work/fit.$key" ]; then
            run_test "$fit_limit" "$1" "$2" "${3:-}" 9>&-
            code=$?
            if [ "$code" -eq 0 ] && ! grep -q '^\[       OK \]' "$work/last.$lane"; then
                code=77
            fi
            cp "$work/last.$lane" "$work/words.$key"
            echo "$code" >"$work/fit.$key"
        fi
    } 9>"$work/lock.$key"
    words=$work/words.$key
    return "$(cat "$work/fit.$key")"
}

# Leaves one word of result in the file of the lane.
try_mutation() {
    local name=$1 program only ms code words is_tried=0
    while read -r _ program only ms; do
        is_fit "$program" "$only" "$ms"
        code=$?
        [ $code -eq 77 ] && continue
        is_tried=1
        if [ $code -ne 0 ]; then
            printf '%-34s %s fails without the mutation\n%s\n' "$name" "$program" "$(tail -n 20 "$words")"
            continue
        fi
        CONVOY_MUTATION=$name run_test "$limit" "$program" "$only" "$ms"
        code=$?
        if [ $code -ne 0 ]; then
            printf '%-34s %-10s %s (%s)\n' "$name" "$([ $code -eq 124 ] && echo hung || echo failed)" "$program" "$only"
            echo passed >>"$work/results.$lane"
            return
        fi
    done < <(grep -E "^$name " "$table")
    if [ $is_tried -eq 0 ]; then
        printf '%-34s skipped: its tests do not run here\n' "$name"
        echo skipped >>"$work/results.$lane"
    else
        printf '%-34s SURVIVED\n' "$name"
        echo failed >>"$work/results.$lane"
    fi
}

# Every lanes-th of the mutations to try.
run_lane() {
    local at
    for ((at = lane; at < ${#tried[@]}; at += lanes)); do
        try_mutation "${tried[at]}"
    done
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tried=()
names=$(sed -n '/define CONVOY_MUTATION_LIST/,/^$/p' src/core/fault.h | grep -oE 'X\([a-z_]+\)' | tr -d 'X()')
count=$(wc -w <<<"$names")
for name in $names; do
    if ! grep -rqE "CONVOY_MUTATED\($name\)" src plugin; then
        printf '%-34s is in the list and nowhere in the code\n' "$name"
        failed=$((failed + 1))
    elif ! grep -qE "^$name " "$table"; then
        printf '%-34s has no line in %s\n' "$name" "$table"
        failed=$((failed + 1))
    elif [ $# -lt 2 ] || [[ " ${*:2} " == *" $name "* ]]; then
        tried+=("$name")
    fi
done
for ((lane = 0; lane < lanes; lane++)); do
    (trap - EXIT; run_lane) &
done
wait
for name in $(awk '!/^#/ && NF > 0 { print $1 }' "$table" | sort -u); do
    if ! grep -qx "$name" <<<"$names"; then
        printf '%-34s is in %s and no mutation\n' "$name" "$table"
        failed=$((failed + 1))
    fi
done
if [ "$count" -lt 60 ]; then
    echo "only $count mutations; at least 60 are wanted: 20 of rounds, 20 of transfers, and those of what lies on them"
    failed=$((failed + 1))
fi
passed=$(cat "$work"/results.* 2>/dev/null | grep -c '^passed$')
skipped=$(cat "$work"/results.* 2>/dev/null | grep -c '^skipped$')
failed=$((failed + ${#tried[@]} - passed - skipped)) # what said nothing has failed
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
