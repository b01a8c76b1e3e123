#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy with .clang-tidy over what is shipped. Usage: tests/lint/tidy.sh [FILE...]; without files all of src and
# plugin. Findings are printed; exits 1 when there is any, or when clang-tidy is missing.
set -u
cd "$(dirname "$0")/../.." || exit 1
command -v clang-tidy >/dev/null || {
    echo "clang-tidy is missing (package clang-tidy)"
    exit 1
}
if [ $# -eq 0 ]; then
    mapfile -t files < <(git ls-files 'src/*.c' 'plugin/*.c')
    set -- "${files[@]}"
fi
output=$(mktemp)
trap 'rm -f "$output"' EXIT
printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} clang-tidy --quiet {} -- -std=c11 -D_GNU_SOURCE \
    '-DCONVOY_RELEASE="0"' -Iinclude -Isrc -Iplugin -I. >"$output" 2>/dev/null
code=$?
sed "s|$PWD/||" "$output" | grep -E '(error|warning): ' | sort -u
[ $code -eq 0 ] && echo "clang-tidy: $# files are clean"
exit $((code != 0))
