#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Freezes the ABI of a release under abi/vX.Y/, once: headers, symbols, dump of the library's types, layout, manifest,
# registries, golden frames, and the commit to build that release's plugin and hosts from, which is HEAD: the freeze is
# committed on top of it. Usage: abi/freeze.sh X.Y DIRECTORY GENERATOR (where libconvoy.so.1 and convoy are, and tests/abi's
# golden)
. "$(dirname "$0")/gate.sh"
need git nm abidw awk sha256sum find sort cp
usage="usage: abi/freeze.sh X.Y DIRECTORY GENERATOR"
release=${1:?$usage} bin=${2:?$usage} generator=${3:?$usage}
library=$bin/libconvoy.so.1
target=$top/abi/v$release

[[ $release =~ ^[0-9]+\.[0-9]+$ ]] || { fault "\"$release\" is no release: X.Y is needed, such as 1.0"; finish; }
said=$(sed -n 's/^RELEASE := //p' "$top/Makefile")
[[ $said == "$release".* ]] || fault "the Makefile builds release ${said:-(none)}, not $release"
[ ! -e "$target" ] || fault "abi/v$release is there; a frozen release is never written again"
for path in "$library" "$bin/convoy" "$generator"; do
    [ -r "$path" ] || fault "$path is not there"
done
dirt=$(git -C "$top" status --porcelain 2>&1) || fault "no git history here: $dirt"
[ -z "$dirt" ] || fault "the tree has changes that are not committed, so that HEAD is not what is frozen: $(head -n 3 <<<"$dirt" | tr '\n' ' ')"
[ "$faults" -eq 0 ] || finish

# Beside its place and then moved there, so that a freeze that fails leaves nothing.
part=$(mktemp -d "$top/abi/.freeze.XXXXXX")
trap 'rm -rf "$part"' EXIT
chmod 755 "$part"
mkdir -p "$part/include/convoy" "$part/golden"
cp "$top"/include/convoy/*.h "$part/include/convoy/"
nm -D --defined-only --with-symbol-versions "$library" | awk '$2 != "A" { print $2, $3 }' >"$part/symbols.txt"
abidw --no-corpus-path --no-comp-dir-path --headers-dir "$top/include" --drop-private-types "$library" >"$part/library.abi"
"$top/abi/layout.sh" print >"$part/layout.txt"
"$bin/convoy" inspect --manifest "$library" >"$part/manifest.json"
for name in status columns states messages state-tags; do
    "$top/abi/registry.sh" print "$name" >"$part/$name.tsv"
done
"$generator" "$part/golden"
git -C "$top" rev-parse HEAD >"$part/commit"
for name in symbols.txt library.abi layout.txt manifest.json commit golden/index.tsv; do
    [ -s "$part/$name" ] || fault "$name is empty"
done
grep -q "\"release\":\"$said\"" "$part/manifest.json" || fault "$library is of another release than $said"
[ "$faults" -eq 0 ] || finish
(cd "$part" && find . -type f ! -name SHA256SUMS | sort | xargs -d '\n' sha256sum >SHA256SUMS)
mv -T "$part" "$target"
echo "freeze: wrote abi/v$release, $(find "$target" -type f | wc -l) files, from commit $(cat "$target/commit"); commit it now"
