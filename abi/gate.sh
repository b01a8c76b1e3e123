# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What every gate shares. A gate prints one line when it passes; otherwise every fault, and ends with 1. A tool that is
# missing is a fault, never a skip.
set -eu
export LC_ALL=C
gate=$(basename "$0" .sh)
: "${top:=$(cd "$(dirname "$0")/.." && pwd)}"
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

# With ABI_MEMO set to a folder (abi/mutate.sh, whose trees differ in little), what depends on files alone is kept there.
# memo NAME FILE...: where that of these files is, or is to be put with keep; nothing and status 1 without ABI_MEMO.
memo() {
    local name=$1 digest
    shift
    [ -n "${ABI_MEMO:-}" ] || return 1
    digest=$(find "$@" -type f | sort | xargs -d '\n' sha256sum | sed "s|$top/||" | sha256sum)
    echo "$ABI_MEMO/$name-${digest%% *}"
}

# keep PLACE FILE: a copy of a file or folder, whole or not there at all, as other lanes look for it meanwhile.
keep() {
    local part
    part=$(mktemp -d "$ABI_MEMO/part.XXXXXX")
    cp -r "$2" "$part/whole"
    mv -T "$part/whole" "$1" 2>/dev/null || true # another lane was first, with the same
    rm -rf "$part"
}

# Folders of the frozen releases, oldest first.
frozen_releases() {
    find "$top/abi" -mindepth 1 -maxdepth 1 -type d -name 'v[0-9]*.[0-9]*' | sort -V
}
