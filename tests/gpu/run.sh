#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds tests/gpu/check.c with the device layer and runs it on the GPU of this machine. Needs a C compiler and the driver,
# nothing else of CUDA. Ends within two minutes; exit status 0, 1, or 77 with the reason where there is no driver or no GPU.
# CONVOY_TEST_CUDA=file takes that driver in place of libcuda.so.1.
set -u
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sources=(src/core/{copy,error,fault,log,memory}.c src/device/{bounce,cuda,cuda_library,device,ranges,streamed,ticket}.c)
if ! "${CC:-cc}" -std=c11 -O2 -g -D_GNU_SOURCE -DCONVOY_RELEASE='"check"' -Iinclude -Isrc -I. tests/gpu/check.c "${sources[@]}" \
    -ldl -lpthread -o "$work/check"; then
    echo "the check could not be built"
    exit 1
fi
timeout --kill-after=5 100 "$work/check"
code=$?
[ $code -eq 124 ] && echo "ended: over its limit of 100 s"
[ $code -eq 0 ] || [ $code -eq 77 ] || code=1
exit $code
