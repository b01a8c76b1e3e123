#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the C hosts that README.md prints, with the commands that it prints, and runs their two ranks; the same for the host
# in Python. What is printed is what plugin/examples has. Usage: tests/integration/readme_example.sh; BIN=folder of the
# build. Prints cmocka's result lines.
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=${BIN:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

report() { # NAME CODE FILE: what FILE has is shown on failure
    if [ "$2" -eq 0 ]; then
        echo "[       OK ] $1"
    else
        echo "[  FAILED  ] $1"
        sed 's/^/    /' "$3"
        failures=$((failures + 1))
    fi
}

printed() { # MARK FILE LINES: the README prints, behind this mark, what the file has but for its licence line, in so many lines
    sed -n "/^<!-- $1:/,/^\`\`\`\$/p" README.md | sed '1,2d;$d' >"$work/printed"
    tail -n +2 "plugin/examples/$2" | diff - "$work/printed" >"$work/difference" || return 1
    wc -l <"$work/printed" >>"$work/difference"
    [ "$(wc -l <"$work/printed")" -le "$3" ] && [ "$(wc -l <"$work/printed")" -ge 20 ]
}

printed example host.c 30
report readme_example_is_printed $? "$work/difference"

# The command as it is printed, with the paths of this build.
command=$(grep -E '^make && gcc .*host\.c' README.md | sed -e 's/^make && //' -e "s|build/|$bin/|g" -e "s|-o host|-o $work/host|")
echo "$command" >"$work/build"
bash -c "${command:-false}" >>"$work/build" 2>&1
report readme_example_builds_as_printed $? "$work/build"

# A port that nobody listens on is found by trying: the host fails when another program has it.
export CONVOY_LIBRARY=$bin/libconvoy.so.1
wanted='on the slowest rank request 0 is in state 4, request 1 in state 3'

both_ranks() { # NAME COMMAND0 COMMAND1: each with its rank and a port
    local port rank code code0=1 code1=1
    for port in 29471 31847 23911 18853; do
        $2 0 $port >"$work/rank0" 2>&1 &
        local pid=$!
        $3 1 $port >"$work/rank1" 2>&1
        code1=$?
        wait $pid
        code0=$?
        [ $code0 -eq 0 ] && [ $code1 -eq 0 ] && break
    done
    for rank in 0 1; do
        code=code$rank
        [ "${!code}" -eq 0 ] && grep -qx "rank $rank: $wanted" "$work/rank$rank"
        report "$1_rank_${rank}_sees_the_slowest" $? "$work/rank$rank"
    done
}

both_ranks readme_example "$work/host" "$work/host"
CONVOY_LIBRARY=$work/none "$work/host" 0 29471 >"$work/none.out" 2>&1
[ $? -eq 1 ] && grep -q "^rank 0: .*$work/none" "$work/none.out"
report readme_example_says_what_is_missing $? "$work/none.out"

# -- the same in Python ----------------------------------------------------------------------------------------------

printed 'python example' host.py 30
report readme_python_is_printed $? "$work/difference"
export PYTHONPATH=plugin/python PYTHONDONTWRITEBYTECODE=1
python='/usr/bin/python3 plugin/examples/host.py'
both_ranks readme_python "$python" "$python"
both_ranks readme_mixed "$work/host" "$python"
CONVOY_LIBRARY=$work/none $python 0 29471 >"$work/none.out" 2>&1
[ $? -eq 1 ] && grep -q "^rank 0: .*$work/none" "$work/none.out"
report readme_python_says_what_is_missing $? "$work/none.out"

# -- the tensor ------------------------------------------------------------------------------------------------------

printed 'tensor example' tensor.c 50
report readme_tensor_is_printed $? "$work/difference"

command=$(grep -E '^make && gcc .*tensor\.c' README.md | sed -e 's/^make && //' -e "s|build/|$bin/|g" \
    -e "s|-o tensor|-o $work/tensor|")
echo "$command" >"$work/build"
bash -c "${command:-false}" >>"$work/build" 2>&1
report readme_tensor_builds_as_printed $? "$work/build"

mkfifo "$work/session"
"$work/tensor" >"$work/session" 2>"$work/receiver.err" &
pid=$!
exec 3<"$work/session"
read -r -t 20 session <&3
"$work/tensor" "$session" >"$work/sender" 2>&1
code=$?
cat <&3 >"$work/receiver"
wait $pid
[ $? -eq 0 ] && [ $code -eq 0 ] && grep -qx 'latents of r1: the last element is 6' "$work/receiver"
result=$?
cat "$work/receiver.err" "$work/sender" >>"$work/receiver"
report readme_tensor_arrives $result "$work/receiver"
"$work/tensor" 127.0.0.1:1+1 >"$work/nobody" 2>&1
[ $? -eq 1 ] && grep -q '127.0.0.1:1' "$work/nobody"
report readme_tensor_says_who_is_not_there $? "$work/nobody"
[ "$failures" -eq 0 ]
