#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Switches on each compiled-in mutation in turn and expects a test to notice: to fail, crash or hang. Prints which did.
# Usage: tests/mutations.sh BUILD [NAME...] (a build of the variant "mutation"). tests/fault/mutations.txt says what to
# run; a mutation without a line there, and a line of no mutation, are failures whatever the names.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1
table=tests/fault/mutations.txt
limit=${MUTATION_LIMIT_S:-15}
passed=0 failed=0 skipped=0

# As words: program, part of the names ("-" for all), milliseconds for the ranks of a test.
run_test() {
    local program=$build/tests/$1 only=$2
    export CONVOY_TEST_TIMEOUT_MS=${3:-8000}
    if [ "$only" = - ]; then
        timeout --kill-after=2 "$limit" "$program"
    else
        CONVOY_TEST_ONLY=$only timeout --kill-after=2 "$limit" "$program"
    fi >build/mutation/last.log 2>&1
}

# Without a mutation the test must pass, else its failure says nothing. Namespaces may be impossible here: status 77.
declare -A fit
is_fit() {
    local key="$1 $2"
    if [ -z "${fit[$key]:-}" ]; then
        run_test "$1" "$2" "${3:-}"
        fit[$key]=$?
        if [ "${fit[$key]}" -eq 0 ] && ! grep -q '^\[       OK \]' build/mutation/last.log; then
            fit[$key]=77
        fi
    fi
    return "${fit[$key]}"
}

try_mutation() {
    local name=$1 program only ms code is_tried=0
    while read -r _ program only ms; do
        is_fit "$program" "$only" "$ms"
        code=$?
        [ $code -eq 77 ] && continue
        is_tried=1
        if [ $code -ne 0 ]; then
            printf '%-34s %s fails without the mutation\n' "$name" "$program"
            tail -n 20 build/mutation/last.log
            continue
        fi
        CONVOY_MUTATION=$name run_test "$program" "$only" "$ms"
        code=$?
        if [ $code -ne 0 ]; then
            printf '%-34s %-10s %s (%s)\n' "$name" "$([ $code -eq 124 ] && echo hung || echo failed)" "$program" "$only"
            passed=$((passed + 1))
            return
        fi
    done < <(grep -E "^$name " "$table")
    if [ $is_tried -eq 0 ]; then
        printf '%-34s skipped: its tests do not run here\n' "$name"
        skipped=$((skipped + 1))
    else
        printf '%-34s SURVIVED\n' "$name"
        failed=$((failed + 1))
    fi
}

mkdir -p build/mutation
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
        try_mutation "$name"
    fi
done
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
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
