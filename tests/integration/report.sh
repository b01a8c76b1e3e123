# SPDX-License-Identifier: Apache-2.0
# What the tests of the command share; sourced, with the repository as the folder. Sets bin, convoy, work (a folder that is
# removed at the end) and failures, which the script ends by. shellcheck shell=bash
bin=${BIN:-build}
convoy=$bin/convoy
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# report NAME WHY: cmocka's result line; WHY is empty when all is right. What the case has printed lies in $work/NAME.all.
report() {
    if [ -z "$2" ]; then
        echo "[       OK ] $1"
    else
        echo "[  FAILED  ] $1"
        echo "    $2"
        [ -f "$work/$1.all" ] && sed 's/^/    | /' "$work/$1.all" | tail -n 40
        failures=$((failures + 1))
    fi
}

# check NAME EXPECTED_CODE PATTERN COMMAND...: runs it, compares exit code, and wants PATTERN in what it printed.
check() {
    local name=$1 wanted=$2 pattern=$3 code=0 why=
    shift 3
    "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null || code=$?
    cat "$work/$name.out" "$work/$name.err" >"$work/$name.all"
    [ "$code" -eq "$wanted" ] || why="exit code $code, expected $wanted"
    grep -qE -- "$pattern" "$work/$name.all" || why="${why:+$why; }nothing matches \"$pattern\""
    report "$name" "$why"
}

# usage NAME PATTERN COMMAND...: a usage error ends with 2 and is told on stderr, with nothing on stdout.
usage() {
    check "$1" 2 "${@:2}"
    [ ! -s "$work/$1.out" ] || report "$1_stdout" "a usage error printed on stdout"
}

# Whether this user can make network namespaces.
has_namespaces() {
    ip netns add "convoy-probe-$$" 2>/dev/null && ip netns del "convoy-probe-$$"
}
