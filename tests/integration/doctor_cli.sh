#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `convoy doctor` as an operator runs it: the page, its JSON, where settings come from, UCX absent, no plugin, usage.
# Usage: tests/integration/doctor_cli.sh; BIN=folder of the build. Prints cmocka's result lines.
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=${BIN:-build}
convoy=$bin/convoy
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# check NAME EXPECTED_CODE "PATTERN;PATTERN..." COMMAND...: exit code as expected, and every pattern in what it printed.
check() {
    local name=$1 wanted=$2 patterns=$3 code=0 why= pattern
    shift 3
    "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null || code=$?
    [ "$code" -eq "$wanted" ] || why="exit code $code, expected $wanted; "
    while IFS= read -r -d ';' pattern; do
        cat "$work/$name.out" "$work/$name.err" | grep -qE -- "$pattern" || why="${why}nothing matches \"$pattern\"; "
    done <<<"$patterns;"
    if [ -z "$why" ]; then
        echo "[       OK ] $name"
    else
        echo "[  FAILED  ] $name"
        echo "    $why"
        cat "$work/$name.out" "$work/$name.err" | sed 's/^/    | /' | tail -n 60
        failures=$((failures + 1))
    fi
}

check doctor_page_has_every_section 0 \
    '^plugin$;release +[0-9];/dev/shm;sealed memfd +works;process_vm_readv;locked memory;cores +[0-9]+ usable;net namespace +[0-9]+;supported +1\.13;CUDA driver +[^ ];timeout_ms +5000 +default' \
    "$convoy" doctor
check doctor_ucx_found_names_file_version_and_devices 0 \
    'file +/.*libucp;version +1\.;loaded by +convoy;tcp/lo;0 replaced;libc functions patched +none' "$convoy" doctor
check doctor_without_a_driver_says_so 0 'CUDA driver +none: /nowhere/libcuda.so.1: cannot open' \
    env CONVOY_CUDA_LIBRARY=/nowhere/libcuda.so.1 "$convoy" doctor
check doctor_json_is_one_object 0 \
    '^\{$;"opened": true;"streaming_threshold_bytes";"supported": "1\.13;"source": "default";^\}$' "$convoy" doctor --json
check doctor_setting_names_its_source 0 'ucx_tls +"tcp" +environment;UCX TLS +"tcp" +CONVOY_' \
    env CONVOY_UCX_TLS=tcp "$convoy" doctor
check doctor_ucx_variable_names_its_source 0 'UCX TLS +"tcp,self" +UCX_' env UCX_TLS=tcp,self "$convoy" doctor
check doctor_ucx_absent_says_what_to_install 0 'not usable .*libucx0;timeout_ms' \
    env CONVOY_UCX_LIBRARY=/nowhere/libucp.so.0 "$convoy" doctor
check doctor_peer_names_the_interface 0 'host +127\.0\.0\.1;interface +lo, from 127\.0\.0\.1' \
    "$convoy" doctor --peer 127.0.0.1
check doctor_peer_without_address_is_said 0 'not reachable' "$convoy" doctor --peer no.such.host.invalid
check doctor_without_plugin_prints_the_rest_and_fails 1 '/dev/shm;convoy doctor: .*nowhere' \
    "$convoy" doctor --plugin /nowhere/libconvoy.so.1
check doctor_bad_setting_is_told 1 'timeout_ms' env CONVOY_TIMEOUT_MS=0 "$convoy" doctor
check doctor_unknown_option_is_usage 2 'unknown option --nonsense' "$convoy" doctor --nonsense
check doctor_help_is_text 0 'usage: convoy doctor' "$convoy" doctor --help

exit $((failures != 0))
