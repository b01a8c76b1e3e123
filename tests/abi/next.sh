#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a fabricated next release, 1.9.0, from a copy of this tree: what a later minor may add, added everywhere at once. A slot
# at the end of each table, fields at the ends of structs, flags, a status, a family, minors one higher, one wire version
# more, an item in the hello, a field in a message, items in the exported state that may be dropped.
# Usage: tests/abi/next.sh OUT [KIND BASE] (built in OUT/build). KIND makes another one from a BASE that this has made:
#   level    its wire range is this tree's
#   apart    its wire range does not meet this tree's
#   middle, overrun, lenient, critical   broken on purpose: a field in the middle of a struct; OUT structs written beyond
#            their size; what a longer IN struct has is ignored; an item of the exported state that nobody knows is critical
set -eu
export LC_ALL=C
top=$(cd "$(dirname "$0")/../.." && pwd)
usage="usage: tests/abi/next.sh OUT [level|apart|middle|overrun|lenient|critical BASE]"
out=${1:?$usage} kind=${2:-plain} base=${3:-}
parts=$top/tests/abi/next

die() { echo "next: $*" >&2; exit 1; }

# An edit that changes nothing is an error: the tree has moved on, and this script must follow. $1: file, $2...: sed's arguments
edit() {
    local file=$1
    shift
    sed "$@" "$file" >"$file.edited"
    settle "$file" "$*"
}

# What was written beside a file takes its place; one that is as before keeps its time.
settle() { # $1: file, $2: what was meant
    ! cmp -s "$1" "$1.edited" || die "$1: no effect: $2"
    mv "$1.edited" "$1"
}

# Adds a line at the end of a struct. $1: file, $2: the struct's tag, $3: the line
tail_of() {
    awk -v head="struct convoy_$2 {" -v line="    $3" '
        $0 == head { inside = 1 }
        inside && $0 == "};" { print line; inside = 0 }
        { print }' "$1" >"$1.edited"
    settle "$1" "a field at the end of $2"
}

# The size that a struct had first; one that has grown before keeps what is said there. $1: its tag, $2: the first field since,
# $3...: files
since() {
    local tag=$1 field=$2
    shift 2
    for file in "$@"; do
        grep -q "CONVOY_SHAPE_SINCE($tag," "$file" && continue
        edit "$file" "s/CONVOY_SHAPE($tag)/CONVOY_SHAPE_SINCE($tag, offsetof(struct convoy_$tag, $field))/"
    done
}

# Puts a function around the one behind a slot: it counts the field `trial` of what came in, and sets that of what goes out.
# $1: file, $2: slot, $3: function, $4: parameters, $5: arguments, $6: kind or "", $7: the IN struct, $8: the OUT struct or ""
wrap() {
    local file=$1 slot=$2 function=$3
    {
        printf 'static int32_t trial_%s(%s)\n{\n    int32_t status = CONVOY_OK;\n' "$slot" "$4"
        [ -z "$6" ] || printf '    status = convoy_trial_take(CONVOY_TRIAL_%s, CONVOY_TRIAL_OF(%s), error);\n' "$6" "$7"
        printf '    status = status == CONVOY_OK ? %s(%s) : status;\n' "$function" "$5"
        [ -z "$8" ] || printf '    if (status == CONVOY_OK && %s != NULL && %s) {\n        %s->trial = CONVOY_TRIAL_SEEN;\n    }\n' \
            "$8" "$8->struct_size >= sizeof *$8" "$8"
        printf '    return status;\n}\n\n'
    } >"$file.wrapper"
    awk -v wrapper="$file.wrapper" '
        /^const struct convoy_[a-z]*_table convoy_/ { while ((getline line <wrapper) > 0) print line }
        { print }' "$file" >"$file.edited"
    settle "$file" "a function around $slot"
    rm "$file.wrapper"
    edit "$file" "s/^    \.$slot = $function,/    .$slot = trial_$slot,/"
}

build() {
    make -j2 DEPS=no build/libconvoy.so.1 build/libconvoy_loader.a build/convoy >build.log 2>&1 ||
        die "does not build: $(grep -m 5 'error\|Error' build.log)"
    echo "next: built $out/build/libconvoy.so.1"
}

# -- another kind of one that is there --

if [ "$kind" != plain ]; then
    [ -r "$base/build/libconvoy.so.1" ] || die "$base/build/libconvoy.so.1 is not there: make a plain one first"
    rm -rf "$out"
    cp -a "$base" "$out"
    cd "$out"
    wire=$(sed -n 's/^#define CONVOY_WIRE_MAX //p' src/core/version.h)
    case $kind in
    level) edit src/core/version.h "s/^#define CONVOY_WIRE_MAX .*/#define CONVOY_WIRE_MAX $((wire - 1))/" ;;
    apart) edit src/core/version.h "s/^#define CONVOY_WIRE_MIN .*/#define CONVOY_WIRE_MIN $wire/" ;;
    middle) edit include/convoy/core.h '/^struct convoy_group_info {/,/^};/s/^    uint64_t epoch;$/    uint64_t trial_middle;\n&/' ;;
    overrun) for family in core sync; do edit plugin/table_$family.c 's/ && out->struct_size >= sizeof \*out//'; done ;;
    lenient) edit plugin/sized.c 's/ && unknown < bytes)/ \&\& unknown > bytes)/' ;;
    critical) edit plugin/move_state.c 's/^    convoy_bundle_put_u64(writer, 900, 1900);/    convoy_bundle_put(writer, 900, CONVOY_BUNDLE_CRITICAL, "critical", 8);/' ;;
    *) die "$usage" ;;
    esac
    build
    exit 0
fi

# -- the copy: times are kept, so that make compiles again what an edit touched and nothing else --

mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -rf "$out"
mkdir -p "$out/build/release"
cp -a "$top"/{Makefile,include,plugin,src,tests} "$out/"
[ ! -d "$top/build/release/obj" ] || cp -a "$top/build/release/obj" "$out/build/release/"
cd "$out"
public=include/convoy

# -- a family, and what all families get --

cp "$parts/trial.h.in" $public/trial.h
cp "$parts/trial.c.in" plugin/trial.c
cp "$parts/plugin_trial.h.in" plugin/trial.h
edit Makefile -e 's/^RELEASE := .*/RELEASE := 1.9.0/' -e '/^PLUGIN_SOURCES :=/s/$/ trial/'
touch plugin/query.c plugin/manifest.c # know the release from the command line
edit $public/convoy.h '/convoy\/transfer.h/a #include "convoy/trial.h"'
edit $public/base.h '/^#define CONVOY_SYSTEM /a #define CONVOY_TRIAL_REFUSED (-208) /* a field `trial` asked for it */'
edit plugin/tables.h '/convoy_move_table_1_0/a extern const struct convoy_trial_table convoy_trial_table_1_0;'
edit plugin/families.h -e 's/^\(    X(move, .*convoy_move_table_1_0)\)$/\1 \\/' \
    -e '/^    X(move,/a \    X(x-trial, CONVOY_TRIAL_MAJOR, CONVOY_TRIAL_MINOR, convoy_trial_table_1_0)'
grep -q 'X(move, .*) \\$' plugin/families.h || die "the list of families does not go on behind move"
for family in core poll sync transfer move; do
    upper=${family^^}
    minor=$(sed -n "s/^#define CONVOY_${upper}_MINOR //p" "$public/$family.h")
    edit "$public/$family.h" "s/^#define CONVOY_${upper}_MINOR .*/#define CONVOY_${upper}_MINOR $((minor + 1))/"
    tail_of "$public/$family.h" "${family}_table" \
        'int32_t (*trial)(uint32_t given, uint32_t *answer_out, struct convoy_error *error);'
    edit "plugin/table_$family.c" -e '/^#include "tables.h"/a #include "trial.h"' \
        -e '/^const struct convoy_[a-z]*_table /,/^};/s/^};/    .trial = convoy_trial_answer,\n};/'
    awk -v head="#define ${upper}_SLOTS(X)" -v row="    X($family, trial, (uint32_t a, uint32_t *b, struct convoy_error *error))" '
        index($0, head) == 1 { inside = 1 }
        inside && !/\\$/ { print $0 " \\"; print row; inside = 0; next }
        { print }' src/load/tables.c >src/load/tables.c.edited
    settle src/load/tables.c "a slot in the loader's list of $family"
    edit $public/loader.h "/^int32_t convoy_host_context_close(/i int32_t convoy_host_${family}_trial(convoy_loader *loader, uint32_t given, uint32_t *answer_out, struct convoy_error *error);"
    cat >>src/load/host_core.c <<TEXT

int32_t convoy_host_${family}_trial(convoy_loader *loader, uint32_t given, uint32_t *answer_out, struct convoy_error *error)
{
    return loader != NULL ? convoy_loader_tables(loader)->$family.trial(given, answer_out, error)
                          : convoy_host_no_handle(error, "loader");
}
TEXT
done

# -- longer structs --

for pair in poll:poll_call sync:sync_call core:group_options payload:stage payload:send payload:load \
    poll:poll_result sync:sync_result core:group_info transfer:engine_info transfer:peer_info payload:transfer_result; do
    tail_of "$public/${pair%%:*}.h" "${pair#*:}" 'uint64_t trial; /* see convoy/trial.h; 0 = as before */'
done
since poll_call trial plugin/table_poll.c
since poll_result trial plugin/table_poll.c
since sync_call trial plugin/table_sync.c
since sync_result trial plugin/table_sync.c
since group_options trial plugin/group_options.c
since group_info trial plugin/group.c
since engine_info trial plugin/transfer_engine.c
since stage trial plugin/transfer_in.c
for tag in peer_info send load transfer_result; do since $tag trial plugin/table_transfer.c; done

failed='struct convoy_error *error'
wrap plugin/table_core.c group_open convoy_group_open \
    "convoy_context *context, const struct convoy_group_options *in, convoy_group **group_out, $failed" \
    "context, in, group_out, error" GROUP in ""
wrap plugin/table_core.c group_info convoy_group_info "convoy_group *group, struct convoy_group_info *out, $failed" \
    "group, out, error" "" "" out
wrap plugin/table_poll.c reduce table_reduce \
    "convoy_group *group, const struct convoy_poll_call *in, uint64_t timeout_ns, struct convoy_poll_result *out, $failed" \
    "group, in, timeout_ns, out, error" REDUCE in out
wrap plugin/table_sync.c gather table_gather \
    "convoy_group *group, const struct convoy_sync_call *in, uint64_t timeout_ns, struct convoy_sync_result *out, $failed" \
    "group, in, timeout_ns, out, error" GATHER in out
wrap plugin/table_transfer.c engine_info convoy_transfer_engine_info \
    "convoy_transfer_engine *engine, struct convoy_engine_info *out, $failed" "engine, out, error" "" "" out
wrap plugin/table_transfer.c peer_info table_peer_info \
    "convoy_transfer_engine *engine, convoy_peer peer, struct convoy_peer_info *out, $failed" "engine, peer, out, error" "" "" out
wrap plugin/table_transfer.c stage_start table_stage_start \
    "convoy_transfer_engine *engine, const struct convoy_stage *in, convoy_transfer *staged_out, $failed" \
    "engine, in, staged_out, error" STAGE in ""
wrap plugin/table_transfer.c send_start table_send_start \
    "convoy_transfer_engine *engine, const struct convoy_stage *stage, const struct convoy_send *in, convoy_transfer *transfer_out, $failed" \
    "engine, stage, in, transfer_out, error" SEND in ""
for slot in accept_start load_start; do
    wrap plugin/table_transfer.c $slot table_$slot \
        "convoy_transfer_engine *engine, const struct convoy_load *in, convoy_transfer *transfer_out, $failed" \
        "engine, in, transfer_out, error" LOAD in ""
done
wrap plugin/table_transfer.c transfer_wait table_transfer_wait \
    "convoy_transfer_engine *engine, convoy_transfer transfer, uint64_t timeout_ns, struct convoy_transfer_result *out, $failed" \
    "engine, transfer, timeout_ns, out, error" "" "" out

# -- flags: a critical one, and a hint that is counted --

edit $public/core.h '/^#define CONVOY_GROUP_DEGRADE /a #define CONVOY_GROUP_TRIAL 2u      /* critical: no effect */\n#define CONVOY_GROUP_TRIAL_HINT 1u /* hint: counted */'
edit plugin/group_options.c -e 's/~CONVOY_GROUP_DEGRADE)/~(CONVOY_GROUP_DEGRADE | CONVOY_GROUP_TRIAL))/' \
    -e '/^#include "sized.h"/a #include "trial.h"' \
    -e 's/^    group->options = full;$/&\n    (void)convoy_trial_take(CONVOY_TRIAL_HINT, full.hint_flags \& CONVOY_GROUP_TRIAL_HINT, NULL);/'
grep -q 'CONVOY_TRIAL_HINT' plugin/group_options.c || die "the hint is not counted"

# -- between peers: a wire version more, an item of the hello, a field of the hosts' messages --

wire=$(sed -n 's/^#define CONVOY_WIRE_MAX //p' src/core/version.h)
edit src/core/version.h "s/^#define CONVOY_WIRE_MAX .*/#define CONVOY_WIRE_MAX $((wire + 1))/"
edit src/net/hello.c 's/^    size_t length = (size_t)(at - bytes_out);$/    at = item_begin(at, 40, 8);\n    convoy_bytes_put_u64(at, 1900);\n    at += 8;\n&/'
edit src/wire/control.h 's/^\( *\)FIELD(exact_bytes, .*$/&\n\1FIELD(trial, "convoy_trial", INTEGER, CONVOY_CONTROL_INTEGER_MAX, "no meaning") \\/'
edit src/wire/control_schema.c 's/CHANGED(exact_bytes), /&CHANGED(trial), /'
edit src/xfer/descriptor_json.c 's/^        \.exact_bytes = /        .trial = 1900,\n&/'

# -- what one build hands to another: an item and a field that may be dropped --

edit plugin/move_state.c -e 's/^    uint64_t refused;$/&\n    uint64_t trial;/' \
    -e 's/^    CONVOY_BUNDLE_FIELD(4, struct context_fields, refused),$/&\n    CONVOY_BUNDLE_FIELD(90, struct context_fields, trial),/' \
    -e 's/^        \.refused = .*$/&\n        .trial = 1900,/' \
    -e 's/^    save_context(context, writer);$/&\n    convoy_bundle_put_u64(writer, 900, 1900);/'
[ "$(grep -c '1900\|trial' plugin/move_state.c)" -eq 4 ] || die "plugin/move_state.c: only some edits took hold"
edit plugin/group_state.c '/^int32_t convoy_group_save(/,/^}/s/^    save_options(group, writer);$/&\n    convoy_bundle_put_u64(writer, 901, 1900);/'

build
