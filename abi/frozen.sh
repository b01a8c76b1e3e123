#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gate: nothing under abi/vX.Y/ is edited, ever: its files are those of its SHA256SUMS, and those of the commit that added it.
# A release that was frozen just now and is not committed yet has the first half only, and is said. Usage: abi/frozen.sh
. "$(dirname "$0")/gate.sh"
need git sha256sum find sort diff

git -C "$top" rev-parse --is-inside-work-tree >/dev/null 2>&1 || { fault "no git history here, so that edits cannot be seen"; finish; }

check_sums() { # $1: folder
    local name=${1##*/}
    [ -s "$1/SHA256SUMS" ] || { fault "$name has no SHA256SUMS"; return; }
    (cd "$1" && sha256sum --quiet --strict -c SHA256SUMS) >/dev/null 2>"$work/words" ||
        fault "$name: a file is not the one that was frozen: $(cd "$1" && sha256sum --quiet -c SHA256SUMS 2>/dev/null | tr '\n' ' ')"
    (cd "$1" && find . -type f ! -name SHA256SUMS | sort) >"$work/there"
    sed 's/^[0-9a-f]*  //' "$1/SHA256SUMS" | sort >"$work/listed"
    diff "$work/listed" "$work/there" >"$work/difference" ||
        fault "$name: files were added or are gone: $(grep '^[<>]' "$work/difference" | tr '\n' ' ')"
}

check_history() { # $1: folder
    local path=abi/${1##*/} added from
    added=$(git -C "$top" log --diff-filter=A --format=%H -- "$path/SHA256SUMS" | tail -n 1)
    [ -n "$added" ] || { echo "$gate: ${1##*/} is not committed yet"; return; }
    git -C "$top" diff --quiet "$added" -- "$path" || fault "${1##*/} differs from the commit that added it, $added"
    from=$(cat "$1/commit" 2>/dev/null)
    git -C "$top" merge-base --is-ancestor "$from" HEAD 2>/dev/null && return
    if [ "$(git -C "$top" rev-parse --is-shallow-repository 2>/dev/null)" = true ]; then
        fault "${1##*/}: its commit ${from:-(none)} is not in this history, which is shallow: git fetch --unshallow, then again"
    else
        fault "${1##*/}: its commit ${from:-(none)} is not in this history, so that it cannot be built again"
    fi
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for release in $(frozen_releases); do
    check_sums "$release"
    check_history "$release"
done
# A release that the history has and the folder lacks. (No commit yet: there is none.)
for name in $(git -C "$top" ls-tree --name-only HEAD abi/ 2>/dev/null | sed -n 's|^abi/\(v[0-9]*\.[0-9]*\)$|\1|p'); do
    [ -d "$top/abi/$name" ] || fault "the frozen $name is gone"
done
finish
