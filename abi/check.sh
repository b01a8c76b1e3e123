#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All gates, one after another, also when one fails. Usage: abi/check.sh DIRECTORY (where libconvoy.so.1 and convoy are)
set -u
bin=${1:?usage: abi/check.sh DIRECTORY}
here=$(dirname "$0")
failed=()
"$here/symbols.sh" "$bin/libconvoy.so.1" || failed+=(symbols)
"$here/layout.sh" check "$bin/libconvoy.so.1" || failed+=(layout)
"$here/registry.sh" check || failed+=(registry)
"$here/headers.sh" || failed+=(headers)
"$here/manifest.sh" "$bin" || failed+=(manifest)
"$here/python.sh" check || failed+=(python)
[ ${#failed[@]} -eq 0 ] && exit 0
echo "abi-check: failed: ${failed[*]}" >&2
exit 1
