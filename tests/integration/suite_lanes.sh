#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What tests/suite.sh and tests/run.sh promise where things run beside one another: nothing that fails is lost, nothing starts
# too early, nothing is left behind. They are tried on a small Makefile of this script's own. Usage:
# tests/integration/suite_lanes.sh. Prints cmocka's result lines.
set -u
cd "$(dirname "$0")/../.." || exit 1
source tests/integration/report.sh

mkdir "$work/tests"
cp tests/suite.sh tests/run.sh "$work/tests/"
cat >"$work/Makefile" <<'RULES'
good: ; @echo "2 passed, 0 failed, 1 skipped"
bad: ; @echo "4 passed, 1 failed, 0 skipped"; false
silent: ; @exit 3
late: ; @echo $$PPID >>late.pids; sleep 90
slow: ; @sleep 1; echo done >slow.done
after-slow: ; @test -e slow.done
last: ; @ls build/suite/*.counts | wc -l
lane: ; @touch lane.up; sleep 20
kill-lane: ; @until test -e lane.up; do sleep 0.1; done; kill -9 "$$(cat lane.pid)"
.PHONY: good bad silent late slow after-slow last lane kill-lane
RULES

# suite NAME CODE LINE STEP...: runs the steps and wants the exit code and a line of the output.
suite() {
    rm -f "$work"/slow.done "$work"/lane.up
    check "$1" "$2" "$3" "$work/tests/suite.sh" "${@:4}"
}

suite suite_counts_both_lanes 0 '^6 passed, 0 failed, 2 skipped$' good +debug/good slow last
suite suite_failure_beside_is_counted 1 '^7 passed, 1 failed, 1 skipped$' good +debug/bad last
suite suite_failure_beside_names_its_log 1 '^    the whole of it: build/suite/debug-bad.log$' good +debug/bad last
suite suite_silent_failure_beside_is_counted 1 '^3 passed, 1 failed, 1 skipped$' good +debug/silent last
suite suite_limit_beside_is_a_failure 1 '^    ended: over its limit of 1 s$' +debug/late=1 last
suite suite_failure_of_the_last_step_is_counted 1 '^1 passed, 1 failed, 0 skipped$' slow silent
suite suite_step_waits_for_its_variant 0 '^2 passed, 0 failed, 0 skipped$' +debug/slow debug/after-slow
suite suite_step_beside_waits_for_its_variant 0 '^3 passed, 0 failed, 0 skipped$' slow +after-slow last
suite suite_last_step_waits_for_all 0 '^3 passed, 0 failed, 0 skipped$' +debug/slow +asan/slow last
check suite_last_step_sees_all_results 0 '^2$' cat "$work/build/suite/last.log"

# The lane beside is the child of suite.sh that is a suite.sh itself.
sed 's/^beside=\$!$/&; echo $beside >lane.pid/' tests/suite.sh >"$work/tests/suite.sh"
suite suite_lane_that_dies_is_a_failure 1 '^debug/lane has left no result$' +debug/lane=5 asan/kill-lane last
suite suite_lane_that_dies_holds_nobody_up 1 '^2 passed, 1 failed, 0 skipped$' +debug/lane=5 asan/kill-lane last
cp tests/suite.sh "$work/tests/"

# Ended from outside while both lanes work: the makes that they started end too.
rm -f "$work/late.pids"
"$work/tests/suite.sh" late +debug/late last >"$work/ended.all" 2>&1 &
pid=$!
for _ in $(seq 150); do
    [ "$(cat "$work/late.pids" 2>/dev/null | wc -l)" -eq 2 ] && break
    sleep 0.1
done
kill $pid
wait $pid
code=$? why="a make is left"
for _ in $(seq 100); do
    # shellcheck disable=SC2046  # two process ids
    kill -0 $(cat "$work/late.pids") 2>/dev/null || { why=; break; }
    sleep 0.1
done
[ "$(cat "$work/late.pids" | wc -l)" -eq 2 ] || why="two makes were to run"
[ $code -ne 0 ] || why="exit code 0"
# shellcheck disable=SC2046
[ -z "$why" ] || kill $(cat "$work/late.pids") 2>/dev/null
report suite_ended_from_outside_leaves_nothing "$why"

# Programs at a time: a failure between others is counted, and interrupts reach what runs.
printf '#!/bin/sh\nexit 1\n' >"$work/fails"
printf '#!/bin/sh\nexit 0\n' >"$work/passes"
printf '#!/bin/sh\ngrep -q "^SigIgn:.*[014589cd]$" /proc/self/status\n' >"$work/interrupted" # bit 1 is SIGINT
chmod +x "$work"/{fails,passes,interrupted}
runs() { check "$1" "$2" "$3" env TEST_JOBS=3 "$work/tests/run.sh" -l "$work/tests.log" "${@:4}"; }
runs run_failure_between_others_is_counted 1 '^3 passed, 1 failed, 0 skipped$' "$work"/{passes,fails,passes,passes}
runs run_interrupts_are_not_ignored 0 '^1 passed, 0 failed, 0 skipped$' "$work/interrupted"
[ "$failures" -eq 0 ]
