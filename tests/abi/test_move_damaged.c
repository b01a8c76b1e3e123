/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exported groups that are cut, changed, put in another order, or from another release: refused or read, never a crash, and
 * the group goes on in the old context, or in the new one. Nothing is left behind by any of it.
 */
#include "tests/abi/hygiene.h"
#include "tests/abi/pair.h"

#include "tests/lib/expect.h"
#include "tests/lib/moving.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define LONG_NS 5000000000ull
#define HEADER_BYTES 32u /* of a bundle: see core/bundle.h */
#define ITEM_BYTES 8u
#define CRITICAL 1u
#define TAG_GROUP 3u
#define TAG_UNKNOWN 60000u
#define MOVES 50

/* -- bundles ------------------------------------------------------------------------------------------------------- */

static uint64_t get(const uint8_t *at, size_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, at, bytes);
    return value;
}

static void put(uint8_t *at, uint64_t value, size_t bytes)
{
    memcpy(at, &value, bytes);
}

static void seal(uint8_t *state, size_t bytes)
{
    put(state + 8, bytes, 8);
    put(state + 16, XXH3_64bits(state + 24, bytes - 24), 8);
}

static size_t item_size(const uint8_t *item)
{
    return ITEM_BYTES + ((get(item + 4, 4) + 7) & ~(uint64_t)7);
}

/* A copy of the state with room for one more item. */
static uint8_t *copy(const struct moving *moving)
{
    uint8_t *state = aligned_alloc(8, moving->bytes + 64);
    EXPECT(state != NULL);
    memcpy(state, moving->state, moving->bytes);
    return state;
}

/* -- imports ------------------------------------------------------------------------------------------------------- */

static int32_t import(struct moving *moving, const uint8_t *data, size_t bytes)
{
    const struct convoy_exported_state state = {.struct_size = sizeof state, .data = data, .bytes = bytes};
    struct convoy_moved moved = {.struct_size = sizeof moved,
                                 .objects = moving->objects,
                                 .object_stride = sizeof moving->objects[0],
                                 .object_capacity = MOVING_OBJECTS};
    int32_t status = moving->to->move->import_state(moving->new_context, &state, &moved, &moving->error);
    moving->object_count = status == CONVOY_OK ? moved.object_count : 0;
    return status;
}

/* An import that made something is dropped again. */
static void reset(struct moving *moving, int32_t status)
{
    if (status == CONVOY_OK) {
        const struct convoy_core_table *core = moving->to->plugin.core;
        EXPECT_OK(core->context_close(moving->new_context, LONG_NS, &moving->error), &moving->error);
        EXPECT_OK(core->context_open(NULL, &moving->new_context, &moving->error), &moving->error);
    }
}

static bool is_refusal(int32_t status)
{
    return status == CONVOY_MALFORMED || status == CONVOY_TOO_NEW || status == CONVOY_TOO_OLD || status == CONVOY_SYSTEM ||
           status == CONVOY_NO_MEMORY || status == CONVOY_VERSION_MISMATCH || status == CONVOY_INVALID_ARGUMENT ||
           status == CONVOY_BAD_STATE; /* the word that says who owns it is not there */
}

/* A quiesced pair with rounds of all kinds behind it, and its exported state. */
static struct pair *start(struct moving *moving)
{
    struct pair *pair = pair_create();
    pair_open(pair);
    for (int i = 0; i < 5; i++) {
        pair_round(pair);
    }
    calls_start(&pair->peer_calls, CALL_SYNC);
    calls_start(&pair->calls, CALL_SYNC);
    EXPECT_OK(pair->calls.plugin.sync->gather_wait(pair->calls.group, pair->calls.operation, LONG_NS,
                                                   &pair->calls.sync_result, &pair->calls.error),
              &pair->calls.error);
    EXPECT_OK(pair->peer_calls.plugin.sync->gather_wait(pair->peer_calls.group, pair->peer_calls.operation, LONG_NS,
                                                        &pair->peer_calls.sync_result, &pair->peer_calls.error),
              &pair->peer_calls.error);
    moving_begin(moving, pair->own->context, &pair->own->config, moving_first_build(), moving_second_build());
    EXPECT_OK(moving_quiesce(moving, LONG_NS), &moving->error);
    moving_export(moving);
    return pair;
}

/* The old one goes on as if nothing had been. */
static void finish(struct pair *pair, struct moving *moving)
{
    moving_cancel(moving);
    pair_round(pair);
    pair_destroy(pair);
}

static void test_move_damaged_bits_are_noticed_by_the_digest(void **unused)
{
    (void)unused;
    struct moving moving;
    struct pair *pair = start(&moving);
    uint8_t *state = copy(&moving);
    for (size_t at = HEADER_BYTES; at < moving.bytes; at += 97) {
        state[at] ^= 4;
        EXPECT_EQUAL(import(&moving, state, moving.bytes), CONVOY_MALFORMED);
        state[at] ^= 4;
    }
    free(state);
    finish(pair, &moving);
}

static void test_move_damaged_cut_states_are_refused(void **unused)
{
    (void)unused;
    struct moving moving;
    struct pair *pair = start(&moving);
    for (size_t bytes = 0; bytes < moving.bytes; bytes += bytes < 2048 ? 8 : 104) {
        uint8_t *state = copy(&moving);
        if (bytes >= HEADER_BYTES) {
            seal(state, bytes);
        }
        int32_t status = import(&moving, state, bytes);
        EXPECT(is_refusal(status) || status == CONVOY_OK); /* OK: it ended between two objects */
        reset(&moving, status);
        free(state);
    }
    finish(pair, &moving);
}

/* Every byte once, with the digest made right again: descriptors, sizes, counts, states. */
static void test_move_damaged_bytes_that_pass_the_digest_never_crash(void **unused)
{
    (void)unused;
    struct moving moving;
    struct hygiene before;
    struct hygiene after;
    struct pair *pair = start(&moving);
    uint8_t *state = copy(&moving);
    unsigned refused = 0;
    hygiene_take(&before);
    for (size_t at = HEADER_BYTES; at < moving.bytes; at++) {
        uint8_t was = state[at];
        state[at] = (uint8_t)(was ^ (at % 3 == 0 ? 0xff : 1u << at % 8));
        seal(state, moving.bytes);
        int32_t status = import(&moving, state, moving.bytes);
        EXPECT(status == CONVOY_OK || is_refusal(status));
        refused += status != CONVOY_OK;
        reset(&moving, status);
        state[at] = was;
        at += at > 12000 ? 60 : at > 3000 ? 6 : 0; /* options and the engine come first; many rows of cells at the end */
    }
    hygiene_take(&after);
    EXPECT_EQUAL(after.fd_count, before.fd_count);
    EXPECT(refused > 100);
    free(state);
    finish(pair, &moving);
}

/* -- items --------------------------------------------------------------------------------------------------------- */

static uint8_t *group_item(uint8_t *state, size_t bytes)
{
    for (uint8_t *at = state + HEADER_BYTES; at < state + bytes; at += item_size(at)) {
        if (get(at, 2) == TAG_GROUP) {
            return at;
        }
    }
    expect_fail(EXPECT_SITE("state"), "has no group");
}

/* The last item of the group becomes one of a release that does not exist. */
static int32_t import_with_unknown(struct moving *moving, uint16_t flags)
{
    uint8_t *state = copy(moving);
    uint8_t *group = group_item(state, moving->bytes);
    uint8_t *end = group + item_size(group);
    memmove(end + 16, end, (size_t)(state + moving->bytes - end));
    memset(end, 0, 16);
    put(end, TAG_UNKNOWN, 2);
    put(end + 2, flags, 2);
    put(end + 4, 8, 4);
    put(group + 4, get(group + 4, 4) + 16, 4);
    seal(state, moving->bytes + 16);
    int32_t status = import(moving, state, moving->bytes + 16);
    free(state);
    return status;
}

static void test_move_damaged_unknown_items_are_dropped_unless_critical(void **unused)
{
    (void)unused;
    struct moving moving;
    struct pair *pair = start(&moving);
    EXPECT_STATUS(import_with_unknown(&moving, CRITICAL), CONVOY_TOO_NEW, &moving.error);
    EXPECT_TEXT(moving.error.text, "60000");
    EXPECT_OK(import_with_unknown(&moving, 0), &moving.error);
    reset(&moving, CONVOY_OK);
    finish(pair, &moving);
}

/* The items of the group that the own member has at the peer, each taken away once. */
static void test_move_damaged_missing_items_are_named_or_not_needed(void **unused)
{
    (void)unused;
    struct moving moving;
    struct pair *pair = start(&moving);
    unsigned missing = 0;
    for (size_t index = 0;; index++) {
        uint8_t *state = copy(&moving);
        uint8_t *group = group_item(state, moving.bytes);
        uint8_t *end = group + item_size(group);
        uint8_t *at = group + ITEM_BYTES;
        for (size_t i = 0; i < index && at < end; i++) {
            at += item_size(at);
        }
        if (at == end) {
            free(state);
            break;
        }
        bool is_critical = (get(at + 2, 2) & CRITICAL) != 0;
        size_t size = item_size(at);
        put(group + 4, get(group + 4, 4) - size, 4);
        memmove(at, at + size, (size_t)(state + moving.bytes - (at + size)));
        seal(state, moving.bytes - size);
        int32_t status = import(&moving, state, moving.bytes - size);
        EXPECT(!is_critical || status == CONVOY_TOO_OLD || status == CONVOY_OK || status == CONVOY_MALFORMED);
        missing += status == CONVOY_TOO_OLD;
        reset(&moving, status);
        free(state);
    }
    EXPECT(missing >= 4);
    finish(pair, &moving);
}

/* Items of the group from last to first. */
static void test_move_damaged_order_of_items_does_not_matter(void **unused)
{
    (void)unused;
    struct moving moving;
    struct pair *pair = start(&moving);
    uint8_t *state = copy(&moving);
    uint8_t *group = group_item(state, moving.bytes);
    uint8_t *end = group + item_size(group);
    uint8_t *to = end;
    const uint8_t *original = (const uint8_t *)moving.state + (group - state);
    for (const uint8_t *at = original + ITEM_BYTES; at < original + (end - group); at += item_size(at)) {
        to -= item_size(at);
        memcpy(to, at, item_size(at));
    }
    EXPECT(to == group + ITEM_BYTES);
    seal(state, moving.bytes);
    EXPECT_OK(import(&moving, state, moving.bytes), &moving.error);
    moving_complete(&moving);
    pair->own->group = moving_handle(&moving, pair->own->group);
    pair->own->context = moving.new_context;
    pair->own->plugin = moving.to->plugin;
    calls_init(&pair->calls, &pair->own->plugin, pair->own->group, moving_handle(&moving, pair->own_alone));
    pair_round(pair);
    free(state);
    pair_destroy(pair);
}

/* -- what is left behind ------------------------------------------------------------------------------------------- */

static void test_move_damaged_nothing_grows_with_moves(void **unused)
{
    (void)unused;
    struct hygiene before;
    struct hygiene after;
    struct pair *pair = pair_create();
    pair_open(pair);
    for (int i = 0; i < MOVES; i++) {
        const struct moving_build *from = i % 2 == 0 ? moving_first_build() : moving_second_build();
        const struct moving_build *to = i % 2 == 0 ? moving_second_build() : moving_first_build();
        pair_round(pair);
        moving_member(pair->own, from, to);
        calls_init(&pair->calls, &pair->own->plugin, pair->own->group, NULL);
        if (i == 1) {
            hygiene_take(&before);
        }
    }
    hygiene_take(&after);
#ifdef CONVOY_DEBUG
    EXPECT_EQUAL(after.fd_count, before.fd_count); /* handles of closed contexts are kept, each with a page */
    EXPECT_EQUAL(after.threads, before.threads);
#else
    hygiene_compare(&before, &after, 1);
#endif
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_move_damaged_bits_are_noticed_by_the_digest),
        cmocka_unit_test(test_move_damaged_cut_states_are_refused),
        cmocka_unit_test(test_move_damaged_bytes_that_pass_the_digest_never_crash),
        cmocka_unit_test(test_move_damaged_unknown_items_are_dropped_unless_critical),
        cmocka_unit_test(test_move_damaged_missing_items_are_named_or_not_needed),
        cmocka_unit_test(test_move_damaged_order_of_items_does_not_matter),
        cmocka_unit_test(test_move_damaged_nothing_grows_with_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
