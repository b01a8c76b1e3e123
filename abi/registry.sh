#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gate: numbers and names that hosts, peers and other builds keep. Statuses (status.tsv against convoy/base.h and
# src/core/status.h), columns of the built-in rows with their fallbacks (columns.tsv against src/sync/schema.c), the order of
# poll states (states.tsv), fields of the hosts' control messages (messages.tsv), tags of an exported state (state-tags.tsv
# against the tables in the sources). What a frozen release has may be added to, and nothing else.
# Usage: abi/registry.sh check | draft | print NAME
. "$(dirname "$0")/gate.sh"
need "${CC:-cc}" awk sort diff grep tr find
top=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
registries="status columns states messages state-tags"
"${CC:-cc}" -std=c11 -D_GNU_SOURCE -DCONVOY_RELEASE='"0"' -I"$top/include" -I"$top/src" -I"$top" \
    "$top/abi/registry.c" "$top"/src/sync/schema.c "$top"/src/core/{error,status,memory}.c "$top"/src/poll/positional.c \
    "$top"/src/wire/{control_schema,json_string}.c "$top"/src/core/utf8.c -o "$work/registry" ||
    { fault "abi/registry.c does not compile"; finish; }

# Tags as the sources have them: items by #define, fields by their struct. Kind, tag, name.
print_tags() {
    printf 'kind\ttag\tname\n'
    {
        grep -rhoE '^#define CONVOY_STATE_[A-Z_]+ [0-9]+u' "$top"/plugin "$top"/src/{round,xfer,net,poll,sync,pool} |
            sed -E 's/^#define CONVOY_STATE_([A-Z_]+) ([0-9]+)u/item\t\2\t\1/'
        find "$top/plugin" "$top/src" -name '*.c' -exec awk -f "$top/abi/short_fields.awk" {} + | tr '\n' ' ' |
            grep -oE 'CONVOY_BUNDLE_FIELD(_FLAGS)?\( *[0-9]+, *[^(),]+, *[^(),]+[,)]' |
            sed -E 's/^[A-Z_]+\( *([0-9]+), *([^,]+), *([^,)]+)[,)]$/\2\t\1\t\3/'
    } | sort -t "$(printf '\t')" -k 1,1 -k 2,2n
}

print_one() { # $1: registry
    if [ "$1" = state-tags ]; then print_tags; else "$work/registry" "$1"; fi
}

# Every status of the header, whatever the list in the code says: a number of a band, or the two that are not errors.
header_statuses() {
    awk '/^\/\* -- statuses/ { on = 1 } /^\/\* -- errors/ { on = 0 }
         on && $1 == "#define" { gsub(/[()]/, "", $3); sub(/^CONVOY_/, "", $2); print $3 "\t" $2 }' \
        "$top/include/convoy/base.h" | sort
}

check_statuses() {
    tail -n +2 "$work/status.tsv" | cut -f 1,2 | sort >"$work/listed"
    header_statuses >"$work/header"
    diff "$work/listed" "$work/header" >"$work/difference" ||
        fault "base.h and src/core/status.h differ: $(tr '\n' ' ' <"$work/difference")"
    cut -f 1 "$work/header" | sort | uniq -d >"$work/twice"
    [ -s "$work/twice" ] && fault "a number has two names: $(tr '\n' ' ' <"$work/twice")"
    awk -F'\t' '$1 < 0 && !(int(-$1 / 100) ~ /^[1-59]$/) { print $2, $1 }' "$work/header" >"$work/stray"
    [ -s "$work/stray" ] && fault "outside the bands -1xx to -5xx and -9xx: $(tr '\n' ' ' <"$work/stray")"
    return 0
}

# One number in a kind of item means one thing.
check_tags() {
    cut -f 1,2 "$work/state-tags.tsv" | sort | uniq -d >"$work/twice"
    [ -s "$work/twice" ] && fault "a tag of an exported state is there twice: $(tr '\t\n' '  ' <"$work/twice")"
    return 0
}

compare() { # $1: file under abi/, $2: what it should be
    [ -s "$top/abi/$1" ] || { fault "abi/$1 is not there"; return; }
    diff "$top/abi/$1" "$2" >"$work/difference" ||
        fault "differs from abi/$1; if that is meant: make abi-draft
$(grep -E '^[<>]' "$work/difference" | head -n 20)"
}

# Lines of a frozen release that are gone. A tag may be given up, and is never another's then.
check_frozen() { # $1: folder of the release, $2: registry
    local file=$1/$2.tsv
    [ -s "$file" ] || { fault "${file#"$top"/} is not there"; return; }
    if [ "$2" = state-tags ]; then
        awk -F'\t' 'NR == FNR { name[$1 "\t" $2] = $3; next }
            ($1 "\t" $2) in name && name[$1 "\t" $2] != $3 { print $1, "tag", $2, "was", name[$1 "\t" $2] ", is", $3 }' \
            "$file" "$work/$2.tsv" >"$work/gone"
    else
        grep -vxF -f "$work/$2.tsv" "$file" >"$work/gone" || true
    fi
    [ -s "$work/gone" ] && fault "$2 of the frozen ${1##*/} is not kept: $(tr '\t\n' ' ;' <"$work/gone")"
    return 0
}

print_all() {
    local one
    for one in $registries; do
        print_one "$one" >"$work/$one.tsv" || fault "cannot print $one"
    done
}

case ${1:-} in
print)
    print_one "${2:?usage: abi/registry.sh print NAME}"
    ;;
draft)
    print_all
    [ "$faults" -eq 0 ] || finish
    for one in $registries; do
        cp "$work/$one.tsv" "$top/abi/$one.tsv"
    done
    echo "registry: wrote abi/{${registries// /,}}.tsv"
    ;;
check)
    print_all
    check_statuses
    check_tags
    for one in $registries; do
        compare "$one.tsv" "$work/$one.tsv"
        for release in $(frozen_releases); do
            check_frozen "$release" "$one"
        done
    done
    finish
    ;;
*)
    echo "usage: abi/registry.sh check | draft | print NAME" >&2
    exit 2
    ;;
esac
