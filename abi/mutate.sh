#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Breaks the ABI in a scratch copy, one way at a time, and expects a gate to notice. Prints which gate caught which.
# The copy has a history of its own, in which its ABI was frozen just before, so that the gates over frozen releases are tried
# too, whatever is frozen in the tree itself.
# Usage: abi/mutate.sh DIRECTORY GENERATOR [NAME...] (where libconvoy.so.1 and convoy are; build/ for the release variant; and
# tests/abi's golden).
# Ends with "N passed, N failed, N skipped".
. "$(dirname "$0")/gate.sh"
need "${CC:-cc}" sed awk make cp strip ar git
usage="usage: abi/mutate.sh DIRECTORY GENERATOR [NAME...]"
bin=${1:?$usage} own_generator=$PWD/${2:?$usage}
shift 2
top=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

save() { # a commit of all that is there
    git add -A && git -c user.name=mutate -c user.email=mutate@localhost commit -q -m "$1"
}

# What every copy is a copy of: the tree with its ABI frozen. $1: where
make_base() {
    local release
    mkdir -p "$1/build/release"
    cp -a "$top"/{Makefile,include,plugin,src,abi} "$1/"
    rm -rf "$1"/abi/v[0-9]*
    cp -a "$top/$bin/libconvoy.so.1" "$top/$bin/convoy" "$1/build/"
    cd "$1"
    echo build/ >.gitignore
    git init -q . && save base
    release=$(sed -n 's/^RELEASE := \([0-9]*\.[0-9]*\)\..*/\1/p' Makefile)
    abi/freeze.sh "$release" build "$own_generator" && save frozen && git repack -adq
}

# Times are kept, so that make in a copy rebuilds what a mutation touched and nothing else.
fresh_copy() {
    rm -rf "$scratch/tree"
    cp -a "$origin" "$scratch/tree"
    cd "$scratch/tree"
    generator=$own_generator
    frozen=$(echo abi/v[0-9]*)
}

# What a mistaken developer does next: the drafts follow the mutation, so that only what is frozen can notice.
redraft() {
    abi/layout.sh draft && abi/registry.sh draft && abi/python.sh draft
}

# Sums of the frozen files as they are now, as one would write them to hide an edit.
new_sums() {
    (cd "$frozen" && find . -type f ! -name SHA256SUMS | sort | xargs sha256sum >SHA256SUMS)
}

# The generator of golden frames with one source compiled again. $1: its path
rebuild_generator() {
    generator=$scratch/golden-mutant
    "${CC:-cc}" -D_GNU_SOURCE -DCONVOY_RELEASE='"1.0.0"' -Iinclude -Isrc -Iplugin -I. -std=c11 -O2 -g -c "$1" -o "$scratch/mutant.o" &&
        "${CC:-cc}" "$top"/build/release/obj/tests/abi/golden{,_*}.o "$scratch/mutant.o" "$top/build/release/obj/objects.a" \
            -Wl,-Bstatic -ljansson -lsodium -Wl,-Bdynamic -lcmocka -ldl -lpthread -lm -o "$generator"
}

# A library that is linked again from the objects there are, with other flags. $1: added flags
relink() {
    read -r -a static <<<"-Wl,-Bstatic -ljansson -lsodium -Wl,-Bdynamic"
    # shellcheck disable=SC2086  # the flags are several words
    "${CC:-cc}" -O2 -g -shared -Wl,-soname,libconvoy.so.1 -Wl,--version-script="$map" -Wl,--exclude-libs,ALL \
        -Wl,-z,nodelete -Wl,-z,now -Wl,-z,relro -Wl,--build-id=sha1 $(cat "$scratch/objects") ${2:-} "${static[@]}" \
        -ldl -lpthread ${1:-} -o build/libconvoy.so.1 && "$top/build/release/obj/stamp" build/libconvoy.so.1
}

# One source file compiled again as the release variant has it, and the library linked with it. $1: its path
rebuild() {
    local object=$scratch/mutant.o
    "${CC:-cc}" -D_GNU_SOURCE -DCONVOY_RELEASE='"1.0.0"' -Iinclude -Isrc -Iplugin -I. -std=c11 -fPIC \
        -fvisibility=hidden -fno-plt -fno-common -O2 -g -c "$1" -o "$object" || return 1
    sed "s|[^ ]*/${1%.c}\.o|$object|" "$scratch/all-objects" >"$scratch/objects"
    relink
    cp "$scratch/all-objects" "$scratch/objects"
}

extra_object() { # $1: C text
    echo "$1" >"$scratch/extra.c"
    "${CC:-cc}" -fPIC -O2 -g -c "$scratch/extra.c" -o "$scratch/extra.o"
}

edit() { # $1: file, $2...: sed arguments; a mutation that changes nothing is a defect of this script
    local file=$1
    shift
    cp -a "$file" "$scratch/before"
    sed -i "$@" "$file"
    if cmp -s "$file" "$scratch/before"; then
        fault "the mutation of $file no longer applies: $*"
    fi
}

# -- mutations: each function breaks the tree in the current directory ------------------------------------------------

core=include/convoy/core.h poll=include/convoy/poll.h base=include/convoy/base.h sync=include/convoy/sync.h
transfer=include/convoy/transfer.h payload=include/convoy/payload.h

m_fields_reordered() { edit $core -e '/^struct convoy_group_info/,/^};/{/uint32_t own_index;/d; s/\( *\)uint32_t host_count;/&\n\1uint32_t own_index;/}'; }
m_field_inserted() { edit $core '/^struct convoy_group_info/,/^};/s/\( *\)uint32_t state;/&\n\1uint32_t inserted;\n\1uint32_t inserted_too;/'; }
m_field_appended() { edit $base '/^struct convoy_error {/,/^};/s/\( *\)char text\[.*$/&\n\1uint64_t appended;/'; }
m_field_removed() { edit $sync '/^struct convoy_sync_call/,/^};/{/uint64_t mask_version;/d}'; }
m_field_retyped() { edit $base '/^struct convoy_member_report/,/^};/s/int32_t  *rank;/uint32_t rank;/'; }
m_same_size_swap() { edit $poll '/^struct convoy_poll_result/,/^};/{s/votes_and;/votes_swap;/; s/votes_or;/votes_and;/; s/votes_swap;/votes_or;/}'; }
m_typedef_signed() { edit $base 's/^typedef uint64_t convoy_operation;/typedef int64_t convoy_operation;/'; }
m_signature_changed() { edit $core 's/(\*group_close)(convoy_group \*group, uint64_t timeout_ns,/(*group_close)(convoy_group *group, int64_t timeout_ns,/'; }
m_signature_arguments_swapped() { edit $core 's/(\*operation_abandon)(convoy_group \*group, convoy_operation operation,/(*operation_abandon)(convoy_operation operation, convoy_group *group,/'; }
m_callback_changed() { edit $core 's/^typedef void (\*convoy_log_fn)(void \*user, uint32_t level,/typedef void (*convoy_log_fn)(uint32_t level, void *user,/'; }
m_slot_dropped() { edit $core '/^ *int32_t (\*operation_report)/,/;/d'; }
m_slots_reordered() { edit $core -e 's/(\*group_open_test)(/(*group_swap)(/' -e 's/(\*group_open_wait)(convoy_group \*group, uint64_t timeout_ns, /(*group_open_test)(convoy_group *group, uint64_t timeout_ns, /' -e 's/(\*group_swap)(/(*group_open_wait)(/'; }
m_status_renumbered() { edit $base 's/^#define CONVOY_BUSY (-204)/#define CONVOY_BUSY (-216)/'; }
m_status_reused() { edit $base 's/^#define CONVOY_BUSY (-204)/#define CONVOY_BUSY (-203)/'; }
m_status_dropped() { edit src/core/status.h '/X(STALE_EPOCH,/d'; }
m_status_retry_changed() { edit src/core/status.h 's/X(DIVERGED, true/X(DIVERGED, false/'; }
m_state_order_changed() { edit $poll -e 's/CONVOY_STATE_TRANSFERRING 3/CONVOY_STATE_TRANSFERRING 2/' -e 's/CONVOY_STATE_WAITING_FOR_INPUT 2/CONVOY_STATE_WAITING_FOR_INPUT 3/'; }
m_flag_moved() { edit $poll 's/CONVOY_POLL_ABSENT_SKIP 2u/CONVOY_POLL_ABSENT_SKIP 4u/'; }
m_fallback_changed() { edit src/sync/schema.c '0,/"decode_graph"/s/\("decode_graph"[^0-9]*\)1/\10/'; }
m_column_renamed() { edit src/sync/schema.c 's/"extend"/"extended"/'; }
m_padding_introduced() { edit $core '/^struct convoy_reopen_result/,/^};/{/uint32_t reserved;/d}'; }
m_banned_type() { edit $core 's/uint32_t log_level; /long log_level; /'; }
m_header_not_alone() { edit $sync '/#include "convoy\/poll.h"/d'; }
m_symbol_leaked() { edit plugin/convoy.map 's/convoy_query;/convoy_query; convoy_leak;/'; extra_object '__attribute__((visibility("default"))) int convoy_leak(void) { return 0; }'; map=plugin/convoy.map relink "" "$scratch/extra.o"; }
m_symbol_version_lost() { edit plugin/convoy.map 's/CONVOY_1/CONVOY_2/'; map=plugin/convoy.map relink; }
m_entry_hidden() { edit plugin/convoy.map 's/convoy_query;/convoy_other;/'; map=plugin/convoy.map relink; }
m_data_exported() { edit plugin/convoy.map 's/convoy_query;/convoy_query; convoy_data;/'; extra_object '__attribute__((visibility("default"))) int convoy_data = 1;'; map=plugin/convoy.map relink "" "$scratch/extra.o"; }
m_thread_local_added() { extra_object 'static __thread int slot; int *convoy_slot(void); __attribute__((used)) int *convoy_slot(void) { return &slot; }'; relink "" "$scratch/extra.o"; }
m_constructor_added() { extra_object '__attribute__((constructor)) static void early(void) { __asm__ volatile(""); }'; relink "" "$scratch/extra.o"; }
m_library_needed() { relink "-Wl,--no-as-needed -lm"; }
m_lazy_binding() { relink "-Wl,-z,lazy"; }
m_run_path_added() { relink "-Wl,-rpath,/opt/lib"; }
m_build_id_lost() { relink "-Wl,--build-id=none"; }
m_soname_changed() { relink "-Wl,-soname,libconvoy.so.2"; }
m_dwarf_stripped() { strip --strip-debug build/libconvoy.so.1; }
m_note_lost() { strip --remove-section=.note.convoy build/libconvoy.so.1; }
m_file_damaged() { printf '\377' | dd of=build/libconvoy.so.1 bs=1 seek=9000 conv=notrunc 2>/dev/null; }
m_minor_bumped_in_manifest_only() { edit plugin/families.h 's/FIRST(core, CONVOY_CORE_MAJOR, CONVOY_CORE_MINOR/FIRST(core, CONVOY_CORE_MAJOR, 7/'; rebuild plugin/manifest.c; }
m_library_of_other_headers() { edit include/convoy/query.h '/^struct convoy_host_info/,/^};/s/uint32_t reserved;/uint32_t other;/'; rebuild plugin/query.c; cp -a "$top/include/convoy/query.h" include/convoy/; }
m_device_field_retyped() { edit include/convoy/device.h '/^struct convoy_device_table/,/^};/s/uint32_t name_length;/int32_t name_length;/'; }
m_macro_with_work() { edit $poll 's/^#define CONVOY_POLL_LISTS_MAX 8/&\n#define CONVOY_POLL_SIZE(x) (sizeof *(x))/'; }
m_inline_function() { edit $base 's/^#define CONVOY_OK 0/&\nstatic inline int32_t convoy_is_ok(int32_t status) { return status == 0; }/'; }
m_python_field_renamed() { edit plugin/python/convoy/_abi.py '0,/("error_reason", c_int32)/s//("error_cause", c_int32)/'; }
m_python_slot_moved() { edit plugin/python/convoy/_abi.py 's/("reduce_test", 16,/("reduce_test", 24,/'; }
m_python_status_renumbered() { edit plugin/python/convoy/_abi.py 's/^BUSY = -204/BUSY = -216/'; }

m_drafted_field_reordered() { m_fields_reordered && redraft; }
m_drafted_field_inserted() { m_field_inserted && redraft; }
m_drafted_field_appended() { edit $core '/^struct convoy_group_info {/,/^};/s/^};/    uint64_t appended;\n};/' && redraft; }
m_drafted_field_retyped() { m_field_retyped && redraft; }
m_drafted_same_size_swap() { m_same_size_swap && redraft; }
m_drafted_signature_changed() { m_signature_changed && redraft; }
m_drafted_slot_dropped() { m_slot_dropped && redraft; }
m_drafted_status_renumbered() { m_status_renumbered && redraft; }
m_drafted_fallback_changed() { m_fallback_changed && redraft; }
m_drafted_state_order_changed() { m_state_order_changed && redraft; }
m_drafted_message_field_renamed() { m_message_field_renamed && redraft; }
m_drafted_state_tag_reused() { edit plugin/move_state.c 's/CONVOY_BUNDLE_FIELD(4, struct context_fields, refused)/CONVOY_BUNDLE_FIELD(4, struct context_fields, salts)/' && redraft; }
m_message_field_renamed() { edit src/wire/control.h 's/"slot_offset", INTEGER/"slot_place", INTEGER/'; }
m_message_field_optional() { edit src/wire/control_schema.c '0,/CONVOY_CONTROL_ALWAYS/s//CONVOY_CONTROL_NEVER/'; }
m_state_tag_twice() { edit plugin/move_state.c 's/CONVOY_BUNDLE_FIELD(4, struct context_fields, refused)/CONVOY_BUNDLE_FIELD(3, struct context_fields, refused)/'; }
m_state_tag_twice_in_short() { edit src/xfer/move_state.c 's/OPTION(9, transfer_max)/OPTION(8, transfer_max)/'; }
m_unknown_state_counts_otherwise() { edit src/poll/positional.c 's/is_known ? state : CONVOY_STATE_BOOTSTRAPPING/is_known ? state : CONVOY_STATE_FAILED/'; }
m_frozen_header_edited() { edit "$frozen/include/convoy/core.h" 's/uint32_t log_level;/uint32_t log_amount;/'; }
m_frozen_layout_edited() { edit "$frozen/layout.txt" 's/^struct convoy_core_table 120/struct convoy_core_table 112/' && new_sums; }
m_frozen_edit_committed() { edit "$frozen/status.tsv" 's/BUSY/BUSIER/' && new_sums && save edit; }
m_frozen_file_added() { echo more >"$frozen/more.txt"; }
m_frozen_file_gone() { rm "$frozen/symbols.txt"; }
m_frozen_release_gone() { rm -rf "$frozen"; }
m_frozen_commit_unknown() { # as if it had been frozen somewhere else, and added here
    git rm -rq --cached "$frozen" && git -c user.name=mutate -c user.email=mutate@localhost commit -q --amend --allow-empty -m without &&
        printf '%040d\n' 0 >"$frozen/commit" && new_sums && save with
}
m_golden_byte_changed() { printf '\001' | dd of="$frozen/golden/hello.plain" bs=1 seek=24 conv=notrunc 2>/dev/null; new_sums; }
m_golden_answer_changed() { edit "$frozen/golden/index.tsv" '/^hello.bad-magic/s/MALFORMED/OK/' && new_sums; }
m_encoder_changed() { edit src/xfer/notice.c 's/entry_out->type = (uint16_t)notice->type/entry_out->type = (uint16_t)(notice->type ^ 1)/' && rebuild_generator src/xfer/notice.c; }
# What transfer 1.1 added is kept as what was there from the first.
m_drafted_field_of_1_1_removed() { edit $payload '/^struct convoy_send {/,/^};/{/int32_t priority;/d; /uint32_t reserved_2;/d}' && redraft; }
m_drafted_field_of_1_1_retyped() { edit $payload '/^struct convoy_stage {/,/^};/s/int32_t priority;/uint32_t priority;/' && redraft; }
m_drafted_field_of_1_1_inserted_before() { edit $transfer '/^struct convoy_engine_info {/,/^};/s/^    uint32_t admitted_count;/    uint64_t inserted;\n&/' && redraft; }
m_drafted_slot_of_1_1_dropped() { edit $transfer '/(\*admission_set)/,/;/d' && redraft; }
m_drafted_minor_lowered() { edit $transfer 's/^#define CONVOY_TRANSFER_MINOR 1/#define CONVOY_TRANSFER_MINOR 0/' && redraft; }
m_drafted_status_of_1_1_renumbered() { edit $base 's/^#define CONVOY_OVERLOADED (-206)/#define CONVOY_OVERLOADED (-207)/' && redraft; }
m_drafted_message_priority_renamed() { edit src/wire/control.h 's/"convoy_priority", SIGNED/"convoy_rank", SIGNED/' && redraft; }
m_drafted_message_priority_always_written() { edit src/wire/control_schema.c 's/CHANGED(priority)/ALWAYS(priority)/' && redraft; }
m_encoder_of_the_priority_changed() { edit src/xfer/descriptor.c 's/put_u32(out + 76, (uint32_t)descriptor->priority)/put_u32(out + 76, (uint32_t)-descriptor->priority)/' && rebuild_generator src/xfer/descriptor.c; }
m_anchor_out_of_sight() { edit abi/diff.sh 's/-std=c11 -g -fPIC -shared/-std=c11 -fPIC -shared/'; }

# -- run ----------------------------------------------------------------------------------------------------------------

make -s -C "$top" --no-print-directory -f Makefile -f - print-objects >"$scratch/relative" <<'RULE'
.PHONY: print-objects
print-objects:
	@echo $(LIB_OBJECTS) $(OBJ)/plugin/stdin.o
RULE
awk -v top="$top" '{ for (i = 1; i <= NF; i++) printf "%s/%s ", top, $i }' "$scratch/relative" >"$scratch/all-objects"
cp "$scratch/all-objects" "$scratch/objects"
map=plugin/convoy.map

mkdir "$scratch/memo"
origin=$scratch/origin
make_base "$origin" >"$scratch/words" 2>&1 || {
    printf 'the tree cannot be frozen:\n%s\n' "$(cat "$scratch/words")"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
}
export ABI_MEMO=$scratch/memo
fresh_copy
abi/check.sh build "$generator" >"$scratch/words" 2>&1 || {
    printf 'the tree fails before anything is broken:\n%s\n' "$(cat "$scratch/words")"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
}
printf '%-34s %s\n' mutation "caught by"

# Gates that must catch a mutation, each of them; empty: any of all gates, and the first one is enough.
wanted_gates() { # $1: mutation
    case $1 in
    drafted_minor_*) echo layout ;;
    drafted_field_* | drafted_same_* | drafted_signature_* | drafted_slot_*) echo layout diff ;;
    drafted_* | message_* | state_tag_* | unknown_state_*) echo registry ;;
    frozen_*) echo frozen ;;
    golden_* | encoder_*) echo golden ;;
    anchor_*) echo diff ;;
    esac
}

# One mutation in the current scratch folder. Ends with 0 if a gate caught it.
try() {
    local name=$1 before=$faults wanted caught
    wanted=$(wanted_gates "$1")
    fresh_copy
    map=plugin/convoy.map
    if ! "m_$name" >"$scratch/words" 2>&1 || [ "$faults" -ne "$before" ]; then
        printf '%-34s could not be made: %s\n' "$name" "$(tail -n 3 "$scratch/words" | tr '\n' ' ')"
    else
        ABI_FIRST=$((${#wanted} == 0)) ABI_ONLY=$wanted abi/check.sh build "$generator" >"$scratch/words" 2>&1 || true
        caught=$(sed -n 's/^abi-check: failed: //p' "$scratch/words")
        printf '%-34s %s\n' "$name" "${caught:-NOTHING}"
        [ -n "$caught" ] && { [ -z "$wanted" ] || [ "$caught" = "$wanted" ]; } && return 0
        printf '%-34s (wanted: %s)\n' "$name" "${wanted:-any gate}"
    fi
    return 1
}

# Every lane-th mutation, in a scratch folder of its own; the results as words, one for each.
run_lane() {
    local lane=$1 at=0 name
    mkdir "$scratch/$lane"
    cp "$scratch/all-objects" "$scratch/objects" "$scratch/$lane/"
    scratch=$scratch/$lane
    for name in "${names[@]}"; do
        if [ $((at++ % lanes)) -eq "$lane" ]; then
            if try "$name"; then echo passed >>"$scratch/results"; else echo failed >>"$scratch/results"; fi
        fi
    done
}

names=()
for name in $(declare -F | awk '{ print $3 }' | sed -n 's/^m_//p'); do
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    names+=("$name")
done
lanes=$(nproc)
for ((lane = 0; lane < lanes; lane++)); do
    (trap - EXIT; run_lane "$lane") &
done
wait
passed=$(cat "$scratch"/*/results 2>/dev/null | grep -c '^passed$')
failed=$((${#names[@]} - passed)) # what said nothing has failed
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
