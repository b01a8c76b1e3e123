#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gate: what the file says without being run (note, digest) is what the headers say. Usage: abi/manifest.sh DIRECTORY
. "$(dirname "$0")/gate.sh"
need awk grep readelf
bin=${1:?usage: abi/manifest.sh DIRECTORY}
top=$(cd "$(dirname "$0")/.." && pwd)
said=$("$bin/convoy" inspect "$bin/libconvoy.so.1") || fault "convoy inspect refuses $bin/libconvoy.so.1"

constant() { # $1: header, $2: name
    awk -v name="$2" '$1 == "#define" && $2 == name { print $3 }' "$top/include/convoy/$1.h"
}

for family in core poll sync transfer move; do
    major=$(constant $family "CONVOY_${family^^}_MAJOR")
    minor=$(constant $family "CONVOY_${family^^}_MINOR")
    grep -qE "(families| ) +$family $major\.0 to $major\.$minor\$" <<<"$said" ||
        fault "the manifest does not offer $family $major.0 to $major.$minor, as the header has it"
done
grep -q '^digest  *matches$' <<<"$said" || fault "the digest is missing or does not match"
grep -q '^unload  *nodelete$' <<<"$said" || fault "the manifest does not say nodelete"
grep -q '^soname  *libconvoy\.so\.1$' <<<"$said" || fault "the soname is not libconvoy.so.1"
id=$(readelf -nW "$bin/libconvoy.so.1" 2>/dev/null | awk '/Build ID:/ { print $NF }')
grep -q "^build id  *$id\$" <<<"$said" || fault "inspect and readelf see different build ids"
finish
