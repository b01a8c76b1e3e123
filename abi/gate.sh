# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What every gate shares. A gate prints one line when it passes; otherwise every fault, and ends with 1. A tool that is
# missing is a fault, never a skip.
set -eu
export LC_ALL=C
gate=$(basename "$0" .sh)
faults=0

fault() {
    echo "$gate: $*" >&2
    faults=$((faults + 1))
}

need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null 2>&1 || fault "needs $tool, which is not installed"
    done
    [ "$faults" -eq 0 ] || exit 1
}

finish() {
    [ "$faults" -eq 0 ] || { echo "$gate: $faults faults" >&2; exit 1; }
    echo "$gate: ok"
}
