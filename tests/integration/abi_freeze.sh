#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Freezing a release, in a copy of the tree with a history of its own: what is refused, what is written, and that no edit of it
# goes unseen. Usage: tests/integration/abi_freeze.sh. Prints cmocka's result lines.
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=$PWD/build generator=$PWD/build/release/tests/abi/golden
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

report() { # NAME CODE: what the last command printed is shown on failure
    if [ "$2" -eq 0 ]; then
        echo "[       OK ] $1"
    else
        echo "[  FAILED  ] $1"
        tail -n 20 "$work/out" | sed 's/^/    /'
        failures=$((failures + 1))
    fi
}

mkdir "$work/tree"
cp -a Makefile include src plugin abi "$work/tree/"
cd "$work/tree" || exit 1
rm -rf abi/v*
save() { # a commit of all that is there
    git add -A && git -c user.name=test -c user.email=test@localhost commit -q -m "$1"
}
git init -q . && save base
release=$(sed -n 's/^RELEASE := \([0-9]*\.[0-9]*\)\..*/\1/p' Makefile)
freeze() { abi/freeze.sh "$1" "$bin" "$generator" >"$work/out" 2>&1; }
refuses() { # VERSION WORDS: a freeze of it is refused with these words, and leaves nothing
    ! freeze "$1" && grep -q "$2" "$work/out" && [ -z "$(git status --porcelain -- abi)" ]
}
frozen_fails() { ! abi/frozen.sh >"$work/out" 2>&1 && grep -q "$1" "$work/out"; }

refuses 9.9 "the Makefile builds release"
report freeze_of_another_version_is_refused $?
refuses one "is no release"
report freeze_of_a_word_is_refused $?
touch dirt
refuses "$release" "changes that are not committed"
report freeze_of_a_dirty_tree_is_refused $?
rm dirt
abi/frozen.sh >"$work/out" 2>&1
report frozen_without_a_release_passes $?

head=$(git rev-parse HEAD)
freeze "$release" && [ "$(cat "abi/v$release/commit")" = "$head" ] && (cd "abi/v$release" && sha256sum --quiet -c SHA256SUMS) &&
    [ "$(find "abi/v$release/golden" -type f | wc -l)" -gt 150 ] && [ -s "abi/v$release/include/convoy/core.h" ]
report freeze_writes_all_parts $?
refuses_again() { ! freeze "$release" && grep -q "never written again" "$work/out"; }
refuses_again
report freeze_of_a_frozen_release_is_refused $?
abi/frozen.sh >"$work/out" 2>&1 && grep -q "not committed yet" "$work/out"
report frozen_release_passes_before_its_commit $?
save frozen
abi/frozen.sh >"$work/out" 2>&1 && abi/layout.sh check "$bin/libconvoy.so.1" >>"$work/out" 2>&1 &&
    abi/registry.sh check >>"$work/out" 2>&1 && abi/golden.sh "$generator" >>"$work/out" 2>&1 &&
    abi/diff.sh "$bin/libconvoy.so.1" >>"$work/out" 2>&1
report frozen_release_passes_every_gate $?
"$bin/convoy" compat "host:$release" "$bin/libconvoy.so.1" --abi abi >"$work/out" 2>&1 &&
    "$bin/convoy" compat "$release" "$bin/libconvoy.so.1" --abi abi >>"$work/out" 2>&1
report frozen_release_is_known_to_compat $?

# A function more at the end of a table: an addition once the family's minor is higher, and not before.
sed -E -e '/^struct convoy_poll_table /{n;:next;n;/^  /bnext;s/^/  9999    8 int32_t (*more)(convoy_group *)\n/}' \
    "abi/v$release/layout.txt" >"$work/longer"
! abi/append.sh "abi/v$release/layout.txt" "$work/longer" >"$work/out" 2>&1 && grep -q "CONVOY_POLL_MINOR is still" "$work/out"
report longer_table_of_the_same_minor_is_refused $?
sed -i -E 's/^(constant CONVOY_POLL_MINOR) [0-9]+/\1 99/' "$work/longer"
abi/append.sh "abi/v$release/layout.txt" "$work/longer" >"$work/out" 2>&1 &&
    grep -q "added slot convoy_poll_table: int32_t (\*more)" "$work/out"
report longer_table_of_a_higher_minor_is_an_addition $?
! abi/append.sh "$work/longer" "abi/v$release/layout.txt" >"$work/out" 2>&1
report shorter_table_is_refused $?

echo >>"abi/v$release/include/convoy/core.h"
frozen_fails "is not the one that was frozen"
report frozen_edit_is_seen $?
(cd "abi/v$release" && find . -type f ! -name SHA256SUMS | sort | xargs sha256sum >SHA256SUMS)
frozen_fails "differs from the commit that added it"
report frozen_edit_with_new_sums_is_seen $?
save "an edit of what is frozen"
frozen_fails "differs from the commit that added it"
report frozen_edit_that_was_committed_is_seen $?
rm -rf "abi/v$release"
frozen_fails "the frozen v$release is gone"
report frozen_release_that_is_gone_is_seen $?
[ "$failures" -eq 0 ]
