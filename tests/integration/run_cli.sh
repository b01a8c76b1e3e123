#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The command as a user runs it: usage, bad traces, replays of three shapes, the three faults, and a checker that
# notices a log that was tampered with. Usage: tests/integration/run_cli.sh; BIN=folder of the build. Prints cmocka's
# result lines. Each case runs in a folder of its own, removed at the end.
set -u
cd "$(dirname "$0")/../.." || exit 1
source tests/integration/report.sh

usage cli_no_command_is_usage 'usage: convoy COMMAND' "$convoy"
usage cli_unknown_command_is_usage '"fly" is no command' "$convoy" fly
usage cli_unknown_option_is_usage 'unknown option --fast' "$convoy" run --fast
usage cli_number_out_of_range_is_usage '--tp is "0": must be a whole number from 1 to 64' "$convoy" run --tp 0
usage cli_too_many_processes_is_usage '128 processes: must be 1 to 64' "$convoy" run --dp 64 --tp 2
usage cli_bad_fault_is_usage 'must be kill:RANK@STEP' "$convoy" run --fault boom
usage cli_fault_of_a_rank_that_is_not_there_is_usage 'rank 4: must be 0 to 3' "$convoy" run --fault kill:4@1
usage cli_perf_of_nothing_is_usage 'must be poll, sync or transfer' "$convoy" perf
for command in run perf; do
    check "cli_${command}_help_is_printed" 0 "usage: convoy $command" "$convoy" "$command" --help
    check "cli_help_${command}_is_the_same" 0 "usage: convoy $command" "$convoy" help "$command"
done

# Bad traces are refused with file, line and reason, before a process starts: no log folder appears.
good='{"timestamp": 40, "input_length": 7, "output_length": 2}'
bad_trace() {
    local name=$1 pattern=$2
    cat >"$work/$name.jsonl"
    check "$name" 1 "$work/$name.jsonl:$pattern" "$convoy" run --trace "$work/$name.jsonl" --out "$work/$name.run"
    [ ! -e "$work/$name.run" ] || report "${name}_started" "processes were started for a bad trace"
}
printf '%s\n' "$good" 'nonsense' | bad_trace trace_not_json_is_refused '2: not JSON'
printf '%s\n' "$good" '{"timestamp": 41, "input_length": 7}' | bad_trace trace_missing_field_is_refused '2: "output_length" is missing'
printf '%s\n' "$good" "${good/7/-7}" | bad_trace trace_negative_is_refused '2: "input_length" is negative'
printf '%s\n' "$good" "${good/7/7.5}" | bad_trace trace_fraction_is_refused '2: "input_length" is not a whole number'
printf '%s\n' "$good" "${good/7/10000001}" | bad_trace trace_huge_is_refused '2: "input_length" is too large'
printf '%s\n' "$good" "${good/40/39}" | bad_trace trace_going_back_is_refused '2: "timestamp" 39 is before the 40 of line 1'
printf '' | bad_trace trace_empty_is_refused '0: the trace has no requests'
check trace_missing_file_is_refused 1 'opening the trace .*/none.jsonl: No such file' "$convoy" run --trace "$work/none.jsonl"
check plugin_missing_file_is_refused 1 'cannot read the plugin' "$convoy" run --plugin "$work/none.so"
check default_trace_is_what_its_script_makes 0 '^same$' \
    bash -c 'tests/data/trace/make.sh | cmp - tests/data/trace/default.jsonl && echo same'

# Replays: exit code 0 says that every result equals the reference.
small=$work/small.jsonl
head -n 60 tests/data/trace/default.jsonl >"$small"
check replay_of_the_default_trace_passes 0 'replay passed: every result equals the reference' "$convoy" run --out "$work/run"
check replay_of_eight_in_two_levels_passes 0 'replay passed' "$convoy" run --dp 2 --tp 2 --cp 2 --trace "$small" --out "$work/run8"
check replay_of_eight_data_parallel_ranks_passes 0 'replay passed' "$convoy" run --dp 8 --tp 1 --trace "$small" --out "$work/run81"
check replay_of_one_process_passes 0 'replay passed' "$convoy" run --dp 1 --tp 1 --trace "$small" --out "$work/run1"
printf '%s\r\n%s' "$good" '{"x": [], "timestamp": 9000000, "input_length": 1, "output_length": 0}' >"$work/crlf.jsonl"
check replay_skips_two_idle_hours 0 'committed 2, dropped 0' "$convoy" run --trace "$work/crlf.jsonl" --out "$work/crlf"
check replay_in_a_multiple_of_real_time_passes 0 'replay passed' "$convoy" run --speed 50 --trace "$small" --out "$work/paced"

check replay_stops_when_a_log_is_full 1 'replay ended early: a log is full .* every result equals the reference' \
    "$convoy" run --dp 8 --tp 1 --log-mib 1 --out "$work/full"
check replay_stops_at_its_deadline 1 'replay ended early: its deadline passed .* every result equals the reference' \
    "$convoy" run --speed 1 --deadline 1 --out "$work/late"
check replay_of_no_plugin_names_the_file 1 'BAD_FILE after .*small.jsonl' \
    "$convoy" run --plugin "$small" --trace "$small" --out "$work/noplugin"
check replay_leaves_no_logs_of_a_larger_one 0 '^rank-3.log$' bash -c "
    '$convoy' run --dp 8 --tp 1 --trace '$small' --out '$work/shrink' && '$convoy' run --trace '$small' --out '$work/shrink' &&
    ! ls '$work/shrink' | grep rank-4.log && ls '$work/shrink'"

# Faults: exit code 1, what each surviving rank saw, and a reference that holds up to the fault.
early='replay ended early: the fault .* was injected; up to there every result equals the reference'
check fault_kill_ends_early 1 "$early" "$convoy" run --fault kill:1@40 --trace "$small" --out "$work/kill"
for rank in 0 2 3; do
    check "fault_kill_rank_${rank}_names_the_dead_one" 0 "^rank $rank: gather in step 40 ended PEER_LOST" \
        cat "$work/fault_kill_ends_early.out"
done
check fault_kill_report_has_the_member 0 '^        rank 1: lost' cat "$work/fault_kill_ends_early.out"
check fault_stall_ends_early 1 "$early" "$convoy" run --fault stall:2@40:3000 --timeout-ms 1000 --trace "$small" --out "$work/stall"
for rank in 0 1 3; do
    check "fault_stall_rank_${rank}_times_out" 0 "^rank $rank: gather in step 40 ended TIMED_OUT" \
        cat "$work/fault_stall_ends_early.out"
done
check fault_stall_report_has_the_member 0 '^        rank 2: not heard' cat "$work/fault_stall_ends_early.out"
check fault_short_stall_is_survived 0 'replay passed' "$convoy" run --fault stall:2@40:100 --trace "$small" --out "$work/short"
check fault_diverge_ends_early 1 "$early" "$convoy" run --fault diverge:3@40 --trace "$small" --out "$work/diverge"
for rank in 0 1 2 3; do
    check "fault_diverge_rank_${rank}_sees_it" 0 "^rank $rank: gather in step 40 ended DIVERGED" \
        cat "$work/fault_diverge_ends_early.out"
done
check fault_diverge_names_the_field 0 'first field that differs: step tag' cat "$work/fault_diverge_ends_early.out"
check fault_never_reached_is_said 1 'was never reached' "$convoy" run --fault kill:0@999999 --trace "$small" --out "$work/never"

# Ctrl-C: the ranks agree on the step in which they stop, and all that was done is checked. The first progress line
# says that all ranks run; the signal is sent only then.
mkfifo "$work/lines"
"$convoy" run --speed 1 --out "$work/stop" >"$work/lines" 2>&1 &
pid=$!
while read -r line; do
    printf '%s\n' "$line" >>"$work/interrupt_ends_cleanly.all"
    [[ $line == step* && -z ${sent:-} ]] && sent=yes && kill -TERM "$pid"
done <"$work/lines"
wait "$pid"
code=$?
why=
[ "$code" -eq 1 ] || why="exit code $code, expected 1"
grep -q 'replay ended early: it was interrupted; up to there every result equals the reference' \
    "$work/interrupt_ends_cleanly.all" || why="$why; not said"
report interrupt_ends_cleanly "$why"

# The ranks hold the pipe open; it ends only when all of them have died with their parent.
mkfifo "$work/orphans"
"$convoy" run --speed 1 --out "$work/killed" >"$work/orphans" 2>&1 &
pid=$!
sent=
while read -r -t 30 line; do
    [[ $line == step* && -z $sent ]] && sent=yes && kill -KILL "$pid"
done <"$work/orphans"
code=$? # 1 is the end of the pipe, above 128 the time limit
wait "$pid" 2>/dev/null
why=
[ "$code" -le 128 ] && [ -n "$sent" ] || why="the ranks outlive their parent"
report ranks_die_with_their_parent "$why"

# The checker notices a log that was changed after the run: the last reduced value of each rank, a torn file, and a
# file of another replay. (tests/unit/test_reference.c has a lie for every field.)
check reference_accepts_an_honest_log 0 'are equal' "$bin/convoy-reference" "$work/run" 4
check reference_wants_all_ranks 1 'not of 2 ranks' "$bin/convoy-reference" "$work/run" 2
usage reference_without_arguments_is_usage 'usage' "$bin/convoy-reference"
for rank in 0 1 2 3; do
    name=reference_notices_a_changed_log_of_rank_$rank
    cp -r "$work/run" "$work/$name"
    size=$(stat -c %s "$work/$name/rank-$rank.log")
    printf '\010' | dd of="$work/$name/rank-$rank.log" bs=1 seek=$((size - 4)) conv=notrunc status=none
    check "$name" 1 "rank $rank: reduced column 7 is 4, expected 0" "$bin/convoy-reference" "$work/$name" 4
done
cp -r "$work/run" "$work/torn"
truncate -s $(($(stat -c %s "$work/torn/rank-2.log") * 6 / 10)) "$work/torn/rank-2.log"
check reference_notices_a_torn_log 1 'reference: step [0-9]+, rank [0-9]+: ' "$bin/convoy-reference" "$work/torn" 4
cp -r "$work/run" "$work/other"
cp "$work/run1/rank-0.log" "$work/other/rank-0.log"
check reference_notices_another_replay 1 'is of another replay' "$bin/convoy-reference" "$work/other" 4

check perf_poll_prints_json 0 '"what": ?"poll"' "$convoy" perf poll --ranks 2 --n 8 --rounds 500 --json
check perf_sync_prints_json 0 '"what": ?"sync"' "$convoy" perf sync --ranks 2 --rounds 500 --json
check perf_keyed_lists_run 0 'median' "$convoy" perf poll --ranks 2 --n 64 --lists 3 --keyed --fresh --rounds 300
check perf_paced_pinned_runs 0 'paced, pinned' "$convoy" perf poll --ranks 2 --n 8 --rounds 100 --paced --pin

# Two hosts: needs the right to make network namespaces. They are gone afterwards, whatever happened.
if has_namespaces; then
    two_hosts() { # NAME CODE PATTERN ARGUMENTS...
        local name=$1 wanted=$2 pattern=$3
        shift 3
        check "$name" "$wanted" "$pattern" bash -c "
            '$convoy' perf \"\$@\" & wait \$!; code=\$?
            ip netns | grep -q \"convoy-\$!-\" && echo a namespace is left && exit 99; exit \$code" - "$@"
    }
    two_hosts perf_two_hosts_poll_runs 0 '2 ranks on 2 hosts' poll --ranks 2 --hosts 2 --rounds 200
    two_hosts perf_two_hosts_sync_runs 0 '4 ranks on 2 hosts' sync --ranks 4 --hosts 2 --rounds 200
    two_hosts perf_two_hosts_failure_leaves_nothing 1 'cannot load the plugin' poll --hosts 2 --plugin "$small"
    two_hosts perf_two_hosts_deadline_leaves_nothing 1 'not done after 1 s' poll --hosts 2 --rounds 100000000 --deadline 1
else
    echo "[  SKIPPED ] perf_two_hosts"
    echo "    skipped: this user cannot make network namespaces"
fi

[ "$failures" -eq 0 ]
