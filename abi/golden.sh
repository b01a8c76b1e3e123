#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gate: this build writes every golden frame of every frozen release with the very same bytes (tests/abi/golden.h; that it
# reads them as it should is tests/abi/test_golden). Usage: abi/golden.sh GENERATOR
. "$(dirname "$0")/gate.sh"
need cmp find sort
generator=${1:?usage: abi/golden.sh GENERATOR}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$generator" "$work" || { fault "$generator cannot write the golden frames"; finish; }
[ "$(find "$work" -type f | wc -l)" -ge 150 ] || fault "fewer than 150 golden frames"
for release in $(frozen_releases); do
    for file in $(cd "$release/golden" && find . -type f ! -name index.tsv | sort); do
        cmp -s "$release/golden/$file" "$work/$file" || fault "${release##*/}: this build writes other bytes than golden/${file#./}"
    done
    grep -vxF -f "$work/index.tsv" "$release/golden/index.tsv" >"$work/gone" &&
        fault "${release##*/}: the index lacks or answers otherwise: $(tr '\t\n' ' ;' <"$work/gone")"
done
finish
