#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the steps of `make test` and `make check` and ends with one line "N passed, N failed, N skipped" over all of them.
# A step is a make target; the tests it counts are counted, a step without counts is one test. Usage:
#   tests/suite.sh STEP...     STEP is TARGET or VARIANT/TARGET, with =SECONDS for another limit than 300
# Steps run in their order. Those with a leading + (what only computes: builds, gates) run beside the others, in their own
# order and at low priority, while tests wait for their deadlines. Two makes never work on one variant at a time: a step
# waits until every earlier step of its variant has ended, and the last step until all have.
# Each line has the step's seconds and the processor seconds of what it ran: what is far below the cores has waited.
# What a step printed is in build/suite/STEP.log, every test that ran in build/tests.log. Exit status 1: something failed,
# or a step has left no result.
set -u
cd "$(dirname "$0")/.." || exit 1
unset MAKEFLAGS MFLAGS MAKELEVEL # what make hands to its commands is not meant for the steps
cores=$(nproc)
logs=build/suite
rm -rf "$logs" build/tests.log
mkdir -p "$logs"
steps=("$@")
started=$SECONDS
running='' # process id of the make of this lane

target_of() { local step=${1#+}; echo "${step%=*}"; }
variant_of() { local step; step=$(target_of "$1"); [[ $step == */* ]] && echo "${step%%/*}" || echo release; }
log_of() { local step; step=$(target_of "$1"); echo "$logs/${step//\//-}.log"; }

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

# Ticks of all processes that this shell has waited for, and theirs; the third and later words of the line are counted, as the
# second may have blanks.
spent_ticks() {
    local line
    read -r line <"/proc/$BASHPID/stat"
    # shellcheck disable=SC2086  # the fields are several words
    set -- ${line##*) }
    ticks=$((${14} + ${15}))
}

# What there is to say of a step that has ended: one line, and why it failed or what it left out; of the releases, the matrix.
show_step() {
    local step=$1 code=$2 limit=$3 seconds=$4 cpu=$5 log
    log=$(log_of "$step")
    printf '%-28s%5d passed %3d failed %3d skipped %5d s %5d s cpu\n' "$(target_of "$step")" "$ok" "$bad" "$skip" "$seconds" "$cpu"
    if [ "$bad" -ne 0 ]; then
        [ "$code" -eq 124 ] && echo "    ended: over its limit of $limit s"
        echo "    the whole of it: $log"
        grep -hE '^[^ ].* +[0-9]+ passed +[1-9][0-9]* failed|^    \[  FAILED  \] [a-z_0-9]+$' "$log" | sort -u | sed 's/^ */    /' |
            head -n 30
        show_tail "$log"
    elif [ "$(target_of "$step")" = release-page ]; then
        sed -n '/^runs (/,$s/^/    | /p' "$log"
    elif [ "$skip" -ne 0 ]; then
        grep -E '^    .*[Ss]kip' "$log" | grep -v 'SKIPPED' | sort | uniq -c | sort -rn | head -n 4 | sed 's/^ */    /'
    fi
}

# $1: step, $2: how nice. Leaves STEP.counts beside the log, whole or not at all: the other lane looks for it.
run_step() {
    local step=$1 limit=300 log code began=$SECONDS before ok bad skip ticks
    [[ $step == *=* ]] && limit=${step##*=}
    log=$(log_of "$step")
    spent_ticks
    before=$ticks
    # In the background, so that a signal to this script is heard meanwhile.
    nice -n "$2" timeout --kill-after=10 "$limit" make --no-print-directory -k -j"$cores" DEPS=no WERROR="${WERROR:-0}" \
        VARIANT="$(variant_of "$step")" "$(basename "$(target_of "$step")")" >"$log" 2>&1 </dev/null &
    running=$!
    wait "$running"
    code=$?
    running=''
    spent_ticks
    count_step "$log" "$code"
    show_step "$step" "$code" "$limit" $((SECONDS - began)) $(((ticks - before) / $(getconf CLK_TCK))) >"${log%.log}.text"
    cat "${log%.log}.text" # one write, so that the lines of two lanes stay whole
    echo "$ok $bad $skip" >"${log%.log}.counts.part"
    mv "${log%.log}.counts.part" "${log%.log}.counts"
}

# Whether a step may start: see the top. $1: its place among the steps. A lane that has died holds nobody up.
may_start() {
    local at
    for ((at = 0; at < $1; at++)); do
        [ "$(variant_of "${steps[at]}")" = "$(variant_of "${steps[$1]}")" ] || [ $(($1 + 1)) -eq ${#steps[@]} ] || continue
        [ -e "$(log_of "${steps[at]}" | sed 's/log$/counts/')" ] || return 1
    done
}

# All steps of a lane. $1: + for those that run beside the others, $2: how nice, $3: process id of the other lane
run_lane() {
    local at
    for at in "${!steps[@]}"; do
        [[ ${steps[at]} == +* ]] && [ -z "$1" ] && continue
        [[ ${steps[at]} != +* ]] && [ -n "$1" ] && continue
        until may_start "$at" || ! kill -0 "$3" 2>/dev/null; do
            sleep 0.3 &
            wait $!
        done
        run_step "${steps[at]}" "$2"
    done
}

# An interrupted suite leaves nobody behind: timeout hands the signal to all that its make has started.
stop_lane() {
    [ -z "$running" ] || kill "$running" 2>/dev/null
    [ -z "${beside:-}" ] || kill "$beside" 2>/dev/null
    exit 1
}
trap stop_lane INT TERM

own=$$
(beside='' && trap stop_lane TERM && run_lane + 10 "$own") &
beside=$!
run_lane '' 0 "$beside"
wait "$beside"

passed=0 failed=0 skipped=0
for step in "${steps[@]}"; do
    counts=$(log_of "$step" | sed 's/log$/counts/')
    ok=0 bad=1 skip=0
    if [ -e "$counts" ]; then
        read -r ok bad skip <"$counts"
    else
        echo "$(target_of "$step") has left no result"
    fi
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
done
echo "took $(((SECONDS - started) / 60)) min $(((SECONDS - started) % 60)) s on $cores cores"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
