/* SPDX-License-Identifier: Apache-2.0 */
/* pytorch/gloo issue 209, openucx/ucc issue 567: groups of one fail to form, or abort in some operations.
 * sgl-project/sglang PRs 14294, 25025, 36568: at data-parallel size 1 the gather takes time for nothing, or is skipped and
 * leaves outputs unfilled.
 * Here a group of one member works for every call, without sockets, threads or files, and gives what a member of a larger
 * group gets when all bring the same. */
#include "tests/abi/hygiene.h"

#include "tests/lib/expect.h"
#include "tests/lib/plugin.h"
#include "tests/lib/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS 4
#define WIDTH 7
#define STATES 5
#define KEYS 3

/* All that one member gets out of one poll round, one keyed round and one gather. */
struct outputs {
    uint8_t positional[STATES];
    uint8_t keyed[KEYS];
    struct convoy_poll_outcome outcomes[KEYS];
    uint64_t outcome_count;
    uint32_t votes[6];
    uint64_t rounds[3];
    int64_t first[WIDTH]; /* row of this member's data-parallel rank */
    int64_t row[WIDTH];   /* this member's cell of the table */
    struct convoy_sync_reduced reduced[WIDTH];
    uint8_t presence;
};

static const int64_t own_row[WIDTH] = {17, INT64_MAX, 1, 0, 1, 2, INT64_MIN};
static const uint8_t own_states[STATES] = {0, 1, 2, 3, 4};
static const uint64_t own_keys[KEYS] = {900, 7, UINT64_MAX};
static const uint32_t own_generations[KEYS] = {0, 5, 1};
static const uint8_t key_states[KEYS] = {4, 3, 1};

static const struct convoy_sync_schema schema = {.struct_size = sizeof schema, .builtin = "sglang-7", .builtin_length = 8};

static void poll_rounds(struct plugin_member *member, struct outputs *out)
{
    const struct convoy_poll_list lists[2] = {
        {.name = "plain", .name_length = 5, .count = STATES, .states = own_states},
        {.name = "keyed", .name_length = 5, .count = KEYS, .states = key_states, .keys = own_keys,
         .generations = own_generations, .flags = CONVOY_POLL_KEYED}};
    struct convoy_poll_list_result results[2] = {
        {.states = out->positional, .states_capacity = STATES},
        {.states = out->keyed, .states_capacity = KEYS, .outcomes = out->outcomes,
         .outcome_stride = sizeof out->outcomes[0], .outcome_capacity = KEYS}};
    struct convoy_poll_call call = {.struct_size = sizeof call, .votes = 0xf0f0f0f0u, .list_stride = sizeof lists[0],
                                    .list_count = 1, .tag = 3};
    struct convoy_poll_result result = {.struct_size = sizeof result, .list_stride = sizeof results[0],
                                        .list_capacity = 1};
    for (int i = 0; i < 2; i++) {
        call.lists = &lists[i];
        result.lists = &results[i];
        EXPECT_OK(member->plugin.poll->reduce(member->group, &call, 0, &result, &member->error), &member->error);
        out->votes[2 * i] = result.votes_and;
        out->votes[2 * i + 1] = result.votes_or;
        out->rounds[i] = result.round;
    }
    out->outcome_count = results[1].outcome_count;
    for (size_t i = 0; i < out->outcome_count; i++) { /* the one thing that tells how many there are */
        EXPECT_EQUAL(out->outcomes[i].listed_by, member->options.member_count);
        out->outcomes[i].listed_by = 0;
    }
}

static void gather_round(struct plugin_member *member, struct outputs *out)
{
    int64_t table[MEMBERS * WIDTH];
    int64_t first[MEMBERS * WIDTH];
    uint8_t presence[MEMBERS];
    size_t index = member->options.own_index;
    struct convoy_sync_call call = {.struct_size = sizeof call, .row = own_row, .votes = 5};
    struct convoy_sync_result result = {.struct_size = sizeof result, .table = table, .table_capacity = MEMBERS * WIDTH,
                                        .first = first, .first_capacity = MEMBERS * WIDTH, .reduced = out->reduced,
                                        .reduced_capacity = WIDTH, .presence = presence, .presence_capacity = MEMBERS};
    EXPECT_OK(member->plugin.sync->gather(member->group, &call, 0, &result, &member->error), &member->error);
    (void)memcpy(out->row, table + index * WIDTH, sizeof out->row);
    (void)memcpy(out->first, first + index * WIDTH, sizeof out->first);
    out->presence = presence[index];
    out->votes[4] = result.votes_and;
    out->votes[5] = result.votes_or;
    out->rounds[2] = result.round;
}

static void fill(struct plugin_member *member, struct outputs *out)
{
    (void)memset(out, 0, sizeof *out);
    poll_rounds(member, out);
    gather_round(member, out);
}

static struct plugin_member *open_one(void)
{
    struct plugin_member *member = plugin_member_create(0, 1, "one", 0);
    member->options.schema = &schema;
    plugin_member_open(member);
    return member;
}

static void run_four(const struct rank *rank, void *port)
{
    struct outputs outputs;
    struct outputs alone;
    struct plugin_member *member = plugin_member_create(rank->index, MEMBERS, "four", *(const uint16_t *)port);
    member->options.schema = &schema;
    plugin_member_open(member);
    fill(member, &outputs);
    struct plugin_member *one = open_one(); /* beside the large group, in the same process */
    fill(one, &alone);
    /* a sum of one differs from a sum of four, but the built-in row has none */
    EXPECT_BYTES(&alone, &outputs, sizeof alone);
    plugin_member_destroy(one);
    plugin_member_destroy(member);
}

static void test_size_one_gives_what_four_equal_members_get(void **state)
{
    (void)state;
    uint16_t port = plugin_port();
    struct ranks *ranks = ranks_create(MEMBERS, 0);
    ranks_start(ranks, run_four, &port, 0);
    ranks_finish(ranks);
}

/* Descriptors and threads before, while it is open, and after use are the same. */
static void test_size_one_takes_no_socket_thread_or_file(void **state)
{
    (void)state;
    struct hygiene before;
    struct hygiene open;
    struct outputs outputs;
    struct plugin_member *member = plugin_member_create(0, 1, "one", 0);
    member->options.schema = &schema;
    hygiene_take(&before);
    plugin_member_open(member);
    hygiene_take(&open);
    hygiene_compare(&before, &open, 0);
    fill(member, &outputs);
    hygiene_take(&open);
    hygiene_compare(&before, &open, 0);
    plugin_member_destroy(member);
    hygiene_take(&open);
    hygiene_compare(&before, &open, 0);
}

/* What comes out is never the memory that went in, nor the fallback. */
static void test_size_one_output_never_aliases_input_or_fallback(void **state)
{
    (void)state;
    struct plugin_member *member = open_one();
    int64_t row[WIDTH] = {1, 2, 3, 4, 5, 6, 7};
    int64_t table[WIDTH];
    struct convoy_sync_call call = {.struct_size = sizeof call, .row = row};
    struct convoy_sync_result result = {.struct_size = sizeof result, .table = table, .table_capacity = WIDTH};
    const struct convoy_sync_table *sync = member->plugin.sync;
    EXPECT_OK(sync->gather(member->group, &call, 0, &result, &member->error), &member->error);
    row[0] = 99;
    EXPECT_EQUAL(table[0], 1);
    call.row = NULL; /* the fallbacks; writing over what came out must not change them */
    EXPECT_OK(sync->gather(member->group, &call, 0, &result, &member->error), &member->error);
    int64_t fallback = table[2];
    (void)memset(table, 0x77, sizeof table);
    EXPECT_OK(sync->gather(member->group, &call, 0, &result, &member->error), &member->error);
    EXPECT_EQUAL(table[2], fallback);
    call.row = table; /* input and output in one place */
    table[2] = 5;
    EXPECT_OK(sync->gather(member->group, &call, 0, &result, &member->error), &member->error);
    EXPECT_EQUAL(table[2], 5);
    plugin_member_destroy(member);
}

/* Split forms, two levels, cancel, abandon, reopen: nothing needs a peer. */
static void test_size_one_has_every_form_of_every_call(void **state)
{
    (void)state;
    struct plugin_member *member = open_one();
    struct plugin_member *second = open_one();
    const struct convoy_poll_table *poll = member->plugin.poll;
    const struct convoy_core_table *core = member->plugin.core;
    const struct convoy_poll_call call = {.struct_size = sizeof call, .votes = 6};
    struct convoy_poll_result result = {.struct_size = sizeof result};
    struct convoy_reopen_result reopened = {.struct_size = sizeof reopened};
    struct convoy_error *error = &member->error;
    convoy_operation operation = 0;
    EXPECT_OK(poll->reduce_start(member->group, &call, &operation, error), error);
    EXPECT_OK(poll->reduce_test(member->group, operation, &result, error), error);
    EXPECT_OK(poll->reduce2_start(member->group, second->group, &call, &operation, error), error);
    EXPECT_OK(poll->reduce2_wait(member->group, operation, 0, &result, error), error);
    EXPECT_EQUAL(result.votes_or, 6);
    EXPECT_OK(core->group_cancel(member->group, NULL, 0, error), error);
    EXPECT_OK(poll->reduce_start(member->group, &call, &operation, error), error);
    EXPECT_OK(core->operation_abandon(member->group, operation, error), error); /* complete: nothing to give up */
    EXPECT_OK(poll->reduce_test(member->group, operation, &result, error), error);
    EXPECT_OK(core->group_reopen(member->group, 0, &reopened, error), error);
    EXPECT_EQUAL(reopened.lost_count, 0);
    plugin_member_destroy(second);
    plugin_member_destroy(member);
}

/* sgl-project/sglang issue 5527: a sum over ranks was compared with a limit per rank, so the graph was never used. The
 * rule has a name, and the reason says which one refused. */
static void test_size_one_padded_size_names_its_rule(void **state)
{
    (void)state;
    struct plugin_member *member = open_one();
    const int64_t captures[3] = {32, 64, 160};
    int64_t tokens[16];
    struct convoy_sync_padding padding = {.struct_size = sizeof padding, .layout = CONVOY_LAYOUT_MAX, .tokens = tokens,
                                          .token_count = 16, .captures = captures, .capture_count = 3, .limit = 160};
    struct convoy_sync_padded padded = {.struct_size = sizeof padded};
    for (int i = 0; i < 16; i++) {
        tokens[i] = 32;
    }
    EXPECT_OK(member->plugin.sync->padded_size(&padding, &padded, &member->error), &member->error);
    EXPECT_EQUAL(padded.eligible, 1);
    EXPECT_EQUAL(padded.extent, 32);
    padding.layout = CONVOY_LAYOUT_SUM;
    EXPECT_OK(member->plugin.sync->padded_size(&padding, &padded, &member->error), &member->error);
    EXPECT_EQUAL(padded.eligible, 0);
    EXPECT_EQUAL(padded.reason, CONVOY_PADDED_OVER_LIMIT);
    EXPECT_EQUAL(padded.figure, 512);
    plugin_member_destroy(member);
}

/* vllm-project/vllm PR 25906: ranks picked different graphs from unpadded counts. One function answers for all. */
static void test_size_one_padded_size_is_the_smallest_capture_for_all(void **state)
{
    (void)state;
    struct plugin_member *member = open_one();
    const int64_t captures[3] = {8, 16, 32};
    int64_t tokens[4] = {7, 8, 16, 0};
    const struct convoy_sync_padding padding = {.struct_size = sizeof padding, .tokens = tokens, .token_count = 4,
                                                .captures = captures, .capture_count = 3};
    struct convoy_sync_padded padded = {.struct_size = sizeof padded};
    EXPECT_OK(member->plugin.sync->padded_size(&padding, &padded, &member->error), &member->error);
    EXPECT_EQUAL(padded.extent, 16);
    tokens[0] = 33;
    EXPECT_OK(member->plugin.sync->padded_size(&padding, &padded, &member->error), &member->error);
    EXPECT_EQUAL(padded.eligible, 0);
    EXPECT_EQUAL(padded.reason, CONVOY_PADDED_NO_CAPTURE);
    plugin_member_destroy(member);
}

/* sgl-project/sglang issue 30712: two rules for the start of a rank, and the field of the second was empty. */
static void test_size_one_starts_of_both_layouts_and_none_without_an_extent(void **state)
{
    (void)state;
    struct plugin_member *member = open_one();
    const int64_t tokens[4] = {11, 13, 17, 19};
    int64_t starts[4] = {0};
    struct convoy_sync_padding padding = {.struct_size = sizeof padding, .layout = CONVOY_LAYOUT_SUM, .tokens = tokens,
                                          .token_count = 4};
    EXPECT_OK(member->plugin.sync->starts(&padding, 0, starts, &member->error), &member->error);
    EXPECT_EQUAL(starts[2], 24);
    padding.layout = CONVOY_LAYOUT_MAX;
    EXPECT_OK(member->plugin.sync->starts(&padding, 32, starts, &member->error), &member->error);
    EXPECT_EQUAL(starts[2], 64);
    EXPECT_STATUS(member->plugin.sync->starts(&padding, 0, starts, &member->error), CONVOY_INVALID_ARGUMENT,
                  &member->error);
    EXPECT_TEXT(member->error.text, "extent is 0");
    plugin_member_destroy(member);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size_one_takes_no_socket_thread_or_file),
        cmocka_unit_test(test_size_one_gives_what_four_equal_members_get),
        cmocka_unit_test(test_size_one_output_never_aliases_input_or_fallback),
        cmocka_unit_test(test_size_one_has_every_form_of_every_call),
        cmocka_unit_test(test_size_one_padded_size_names_its_rule),
        cmocka_unit_test(test_size_one_padded_size_is_the_smallest_capture_for_all),
        cmocka_unit_test(test_size_one_starts_of_both_layouts_and_none_without_an_extent),
    };
    return cmocka_run_group_tests_name("size_one", tests, NULL, NULL);
}
