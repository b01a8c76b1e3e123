#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds tests/gpu/check.c with the device layer and runs it on the GPU of this machine, then tests/gpu/transfer.c with the
# library (CONVOY_LIBRARY, else build/libconvoy.so.1), which is skipped with a word where it was not built. Needs a C compiler
# and the driver, nothing else of CUDA. Ends within four minutes; exit status 0, 1, or 77 with the reason where there is no
# driver or no GPU. CONVOY_TEST_CUDA=file takes that driver in place of libcuda.so.1.
set -u
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-std=c11 -O2 -g -D_GNU_SOURCE -DCONVOY_RELEASE='"check"' -Iinclude -Isrc -I.)

# Usage: run PROGRAM ARGUMENT...
run() {
    timeout --kill-after=5 100 "$@"
    code=$?
    [ $code -eq 124 ] && echo "ended: over its limit of 100 s"
    [ $code -eq 0 ] || [ $code -eq 77 ] || code=1
    return $code
}

sources=(src/core/{copy,cpu,error,fault,log,memory}.c src/device/{cuda,cuda_library,device,ranges,streamed,ticket}.c)
if ! "${CC:-cc}" "${flags[@]}" tests/gpu/check.c "${sources[@]}" -ldl -lpthread -o "$work/check" ||
    ! "${CC:-cc}" "${flags[@]}" tests/gpu/transfer.c -ldl -o "$work/transfer"; then
    echo "the check could not be built"
    exit 1
fi
run "$work/check"
code=$?
[ $code -eq 0 ] || exit $code

library=${CONVOY_LIBRARY:-build/libconvoy.so.1}
if [ ! -r "$library" ]; then
    echo "transfers: skipped, there is no $library (make)"
    exit 0
fi
CONVOY_CUDA_LIBRARY=${CONVOY_TEST_CUDA:-} run "$work/transfer" "$library"
