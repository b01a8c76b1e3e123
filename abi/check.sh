#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All gates, one after another, also when one fails. Usage: abi/check.sh DIRECTORY GENERATOR (where libconvoy.so.1 and convoy
# are, and tests/abi's golden)
# For abi/mutate.sh: ABI_ONLY="layout diff" leaves the others out, ABI_FIRST=1 ends with the first gate that fails.
set -u
bin=${1:?usage: abi/check.sh DIRECTORY GENERATOR} generator=${2:?usage: abi/check.sh DIRECTORY GENERATOR}
here=$(dirname "$0")
top=$here/..
failed=()

is_wanted() { # $1: gate
    [ "${ABI_FIRST:-0}" -eq 0 ] || [ ${#failed[@]} -eq 0 ] || return 1
    [[ -z ${ABI_ONLY:-} || " $ABI_ONLY " == *" $1 "* ]]
}

# pass GATE FILES COMMAND...: a gate that passed on the very same files passes again (memo in abi/gate.sh).
pass() {
    local one=$1 files=$2 place=""
    shift 2
    is_wanted "$one" || return 0
    # shellcheck disable=SC2086  # the files are several words
    place=$(. "$here/gate.sh" && memo "gate-$one" "$here" $files) && [ -e "$place" ] && return
    if ! "$@"; then
        failed+=("$one")
    elif [ -n "$place" ]; then
        touch "$place"
    fi
}

library=$bin/libconvoy.so.1 include=$top/include
pass symbols "$library" "$here/symbols.sh" "$library"
pass layout "$library $include" "$here/layout.sh" check "$library"
pass registry "$include $top/src $top/plugin" "$here/registry.sh" check
pass headers "$include" "$here/headers.sh"
pass manifest "$library $bin/convoy $include" "$here/manifest.sh" "$bin"
pass python "$include $top/plugin/python/convoy/_abi.py" "$here/python.sh" check
pass golden "$generator" "$here/golden.sh" "$generator"
pass diff "$library $include" "$here/diff.sh" "$library"
! is_wanted frozen || "$here/frozen.sh" || failed+=(frozen) # never from the memo: it looks at the history too
[ ${#failed[@]} -eq 0 ] && exit 0
echo "abi-check: failed: ${failed[*]}" >&2
exit 1
