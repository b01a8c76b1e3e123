#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tensors as a user sends them: the pipeline of `convoy run` with its roles, files, faults and hosts, and `convoy perf
# transfer`. What comes out is compared by a reader that shares nothing with the command. Usage:
# tests/integration/run_transfer.sh; BIN=folder of the build. Prints cmocka's result lines.
set -u
cd "$(dirname "$0")/../.." || exit 1
source tests/integration/report.sh

# either NAME PATTERN_OF_0 PATTERN_OF_1 COMMAND...: exit code 0 or 1, each with what must be said then; "-" = not allowed.
either() {
    local name=$1 good=$2 bad=$3 code=0 why= pattern
    shift 3
    "$@" >"$work/$name.all" 2>&1 </dev/null || code=$?
    case $code in
    0) pattern=$good ;;
    1) pattern=$bad ;;
    *) pattern=- ;;
    esac
    if [ "$pattern" = - ]; then
        why="exit code $code"
    elif ! grep -qE -- "$pattern" "$work/$name.all"; then
        why="exit code $code, and nothing matches \"$pattern\""
    fi
    report "$name" "$why"
}
passes() { either "$1" "$2" - "${@:3}"; }
fails() { either "$1" - "$2" "${@:3}"; }

# A short trace, so that the replay in front of each pipeline takes no time.
trace=$work/trace.jsonl
for i in 0 1 2 3 4 5 6 7 8 9 10 11; do
    echo "{\"timestamp\": $((40 * i)), \"input_length\": $((i * 900)), \"output_length\": 2}"
done >"$trace"
run=("$convoy" run --dp 1 --tp 1 --trace "$trace")

usage pipeline_two_roles_are_usage '--roles is "1:2": must be ENCODERS:DENOISERS:DECODERS' "$convoy" run --roles 1:2
usage pipeline_three_hosts_are_usage '--hosts is "3": must be a whole number from 1 to 2' "$convoy" run --hosts 3
usage pipeline_trace_of_nothing_is_usage '--requests is 0: must be at least 1' "$convoy" run --requests 0 --trace-out x
usage perf_transfer_unknown_path_is_usage 'must be one of auto, lend, push, pull' "$convoy" perf transfer --path fly

# -- the file that comes out is the file that went in ----------------------------------------------------------------

tensors() { python3 tests/unit/read_safetensors.py "$1" | tail -n +2 | LC_ALL=C sort; } # metadata and order do not travel

same_tensors() { # NAME IN OUT
    local why=
    tensors "$2" >"$work/$1.in" && tensors "$3" >"$work/$1.out" && [ -s "$work/$1.in" ] || why="a file is no good"
    cmp -s "$work/$1.in" "$work/$1.out" || why="the files differ"
    report "$1" "$why"
}

passed='^pipeline passed: every tensor of 12 requests equals '
passes pipeline_of_the_default_tensors_passes "$passed" "${run[@]}" --out "$work/plain" --trace-out "$work/plain.json"
same_tensors pipeline_default_file_is_the_same "$work/plain/in.safetensors" "$work/plain/out.safetensors"
passes pipeline_leaves_no_lease '^  leaks: 0 in 4 pools at the end \(0 bytes quarantined\)' \
    cat "$work/pipeline_of_the_default_tensors_passes.all"
passes pipeline_reads_in_place '^  denoiser -> decoder +12 .* lend$' cat "$work/pipeline_of_the_default_tensors_passes.all"
cat >"$work/members.py" <<'PYTHON'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
names = {event["pid"] for event in events if event["ph"] == "M"}
requests = {event["name"].split()[0] for event in events if event["name"].startswith("request-")}
assert all(event["pid"] in names for event in events)
print(f"{len(names)} processes, requests {len(requests)}")
PYTHON
passes pipeline_trace_has_all_members '^4 processes, requests 12$' python3 "$work/members.py" "$work/plain.json"

cat >"$work/make.py" <<'PYTHON'
import json, struct, sys
header, data = {"__metadata__": {"a": "b"}}, b""
def add(name, dtype, shape, count):
    global data
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + count]}
    data += bytes((len(data) + 31 * i) % 251 for i in range(count))
add("odd", "U8", [3], 3)
add("list.7", "F32", [], 4)          # a list with holes, out of order, of different types
add("list.0", "F64", [2, 0], 0)
add("list.2", "BF16", [1] * 16, 2)
add("x", "I64", [2], 16)             # no list: a tensor has the bare name
add("x.0", "I64", [1], 8)
add("proj.0", "F16", [5], 10)
add("proj.weight", "F8_E5M2", [70000], 70000)
add("\u00e9\u4e2d \"quoted\"", "C64", [1], 8)
add("secret", "Q9_VENDOR", [123, 456], 1001)
add("n" * 255, "BOOL", [0], 0)
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
sys.stdout.buffer.write(struct.pack("<Q", len(text)) + text + data)
PYTHON
python3 "$work/make.py" >"$work/own.safetensors"
passes pipeline_of_an_own_file_passes "$passed$work/own.safetensors, and so does $work/own/out.safetensors\$" \
    "${run[@]}" --tensors "$work/own.safetensors" --out "$work/own"
same_tensors pipeline_own_file_is_the_same "$work/own.safetensors" "$work/own/out.safetensors"
printf '\002\0\0\0\0\0\0\0{}' >"$work/empty.safetensors"
passes pipeline_of_no_tensors_carries_scalars "$passed" "${run[@]}" --tensors "$work/empty.safetensors" --out "$work/none"
for roles in 1:1:1 3:1:2 2:3:2; do
    passes "pipeline_of_${roles//:/_}_passes" "$passed" "${run[@]}" --roles $roles --out "$work/roles"
done
passes pipeline_paced_by_the_trace_passes "$passed" "${run[@]}" --speed 2 --out "$work/paced"
passes pipeline_of_no_requests_is_none '^replay passed' "${run[@]}" --requests 0 --out "$work/zero"
report pipeline_of_no_requests_writes_nothing "$(ls "$work/zero" | grep safetensors)"

# -- what goes wrong is told, with exit code 1 -----------------------------------------------------------------------

fails pipeline_missing_file_is_named 'opening .*/gone.safetensors: No such file' \
    "${run[@]}" --tensors "$work/gone.safetensors" --out "$work/gone"
fails pipeline_file_that_is_none_is_refused 'trace.jsonl' "${run[@]}" --tensors "$trace" --out "$work/bad"
report pipeline_file_that_is_none_starts_nothing "$(ls -d "$work/bad" 2>/dev/null)"
fails pipeline_unwritable_trace_is_named 'writing --trace-out /nowhere/t.json' \
    "${run[@]}" --trace-out /nowhere/t.json --out "$work/unwritable"

# Kills one role, or asks the whole run to stop, once all four processes are there; the last request comes much later.
slow=$work/slow.jsonl
printf '{"timestamp": %d, "input_length": 100, "output_length": 1}\n' 0 10 20 30 40 8000 >"$slow"
disturb() { # NAME PATTERN SIGNAL CHILD; CHILD - is the command itself
    local name=$1 pattern=$2 signal=$3 child=$4 code=0 why= line pid children= victim
    mkfifo "$work/$name.lines"
    "$convoy" run --dp 1 --tp 1 --speed 2 --timeout-ms 500 --trace "$slow" --out "$work/$name" >"$work/$name.lines" 2>&1 &
    pid=$!
    while read -r line; do
        printf '%s\n' "$line" >>"$work/$name.all"
        [[ $line == pipeline:* ]] || continue
        for _ in $(seq 2000); do
            children=$(pgrep -P "$pid" | sort -n | tr '\n' ' ')
            [ "$(wc -w <<<"$children")" -eq 4 ] && break
        done
        victim=$pid
        [ "$child" = - ] || victim=$(cut -d ' ' -f "$child" <<<"$children")
        kill "-$signal" "$victim" || why="nobody to signal"
    done <"$work/$name.lines"
    wait "$pid" || code=$?
    [ "$code" -eq 1 ] || why="exit code $code, expected 1"
    grep -qE -- "$pattern" "$work/$name.all" || why="${why:+$why; }nothing matches \"$pattern\""
    report "$name" "$why"
}
disturb pipeline_dead_encoder_is_named '^encoder 0: killed by SIGKILL' KILL 1
disturb pipeline_dead_denoiser_is_named '^denoiser 0: killed by SIGKILL' KILL 2
disturb pipeline_dead_decoder_is_named '^decoder 0: killed by SIGKILL' KILL 4
# One that hangs costs its neighbours their deadlines, and is ended with them.
disturb pipeline_hanging_denoiser_is_ended '^denoiser 1: killed by SIGKILL' STOP 3 # the last request is for it
passes pipeline_hanging_denoiser_costs_a_deadline '^encoder 0: failed after . requests, TIMED_OUT: ' \
    cat "$work/pipeline_hanging_denoiser_is_ended.all"
disturb pipeline_interrupt_ends_it '^pipeline FAILED: it was interrupted$' TERM -

# -- measuring -------------------------------------------------------------------------------------------------------

perf=("$convoy" perf transfer --n 30)
passes perf_transfer_prints_text '^  view: [0-9.]+ GB/s by lend; 1.97 MB asked, 1.97 MB moved' "${perf[@]}" --bytes 65536
passes perf_transfer_prints_phases '^  load +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+   receiver: ' \
    cat "$work/perf_transfer_prints_text.all"
passes perf_transfer_prints_json '"what": "transfer"' "${perf[@]}" --bytes 4096 --tensors 64 --json
for path in lend push pull; do
    passes "perf_transfer_path_${path}_is_taken" "^  (view|copy): .* GB/s by $path;" "${perf[@]}" --path $path --net shm
done
fails perf_transfer_path_that_cannot_be_had_is_told '--path is lend, and the library took the path ' \
    "${perf[@]}" --path lend --mem host
# What a build or a machine does not have is refused in its own words.
refused='convoy perf transfer: (sender|receiver): [A-Z_]+: .+'
either perf_transfer_net_ucx_runs_or_is_refused 'GB/s by UCX' "$refused" "${perf[@]}" --net ucx
either perf_transfer_mem_host_runs_or_is_refused 'GB/s by ' "$refused" "${perf[@]}" --mem host
either perf_transfer_mem_cuda_runs_or_is_refused 'GB/s by ' "$refused" "${perf[@]}" --mem cuda
fails perf_transfer_ends_at_its_deadline 'not done after 1 s' "$convoy" perf transfer --n 1000000 --deadline 1

# -- two hosts -------------------------------------------------------------------------------------------------------

if has_namespaces; then
    either pipeline_two_hosts_runs_or_says_what_is_missing "$passed" '^pipeline FAILED: .*connecting to ' \
        "${run[@]}" --hosts 2 --out "$work/hosts"
    report pipeline_two_hosts_leaves_no_namespace "$(ip netns | grep -E 'convoy-[0-9]+-[01]' | head -n 1)"
else
    echo "[  SKIPPED ] pipeline_two_hosts"
    echo "    skipped: this user cannot make network namespaces"
fi

[ "$failures" -eq 0 ]
