/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/poll_ranks.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

static const uint8_t states_4[] = {4};

/* Calls of all ranks with the same number of positional states each. */
static struct poll_ranks *ranks_with(uint32_t count, const uint8_t *states, const size_t *lengths)
{
    struct poll_ranks *ranks = poll_ranks_create(count, 0, NULL);
    for (uint32_t i = 0; i < count; i++) {
        (void)poll_rank_add(&ranks->rank[i], states, NULL, lengths[i]);
    }
    return ranks;
}

static void assert_untouched(const struct poll_rank *rank)
{
    for (size_t i = 0; i < 16; i++) {
        assert_int_equal(rank->states[0][i], 0xa5);
    }
    assert_int_equal(rank->list_results[0].states_count, 0);
}

static void test_poll_positional_lists_of_one_round_are_reduced_by_minimum(void **state)
{
    (void)state;
    const uint8_t a[] = {4, 3, 2};
    const uint8_t b[] = {3, 4, 0};
    struct poll_ranks *ranks = poll_ranks_create(2, 0, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        (void)poll_rank_add(&ranks->rank[i], i == 0 ? a : b, NULL, 3);
        (void)poll_rank_add(&ranks->rank[i], NULL, NULL, 0);
        (void)poll_rank_add(&ranks->rank[i], i == 0 ? b : a, NULL, 1);
        ranks->rank[i].call.votes = i == 0 ? 3 : 6;
    }
    poll_ranks_run(ranks, CONVOY_OK);
    for (uint32_t i = 0; i < 2; i++) {
        const struct poll_rank *rank = &ranks->rank[i];
        assert_memory_equal(rank->states[0], ((const uint8_t[]){3, 3, 0}), 3);
        assert_int_equal(rank->states[2][0], 3);
        assert_int_equal(rank->list_results[1].states_count, 0);
        assert_int_equal(rank->result.votes_and, 2);
        assert_int_equal(rank->result.votes_or, 7);
        assert_int_equal(rank->result.round, 1);
    }
    poll_ranks_destroy(ranks);
}

/* sgl-project/sglang PR 37909: one rank brings 8 entries, the others 1. */
static void test_poll_unequal_counts_diverge_on_all_and_the_next_round_works(void **state)
{
    (void)state;
    const uint8_t states[8] = {4, 4, 4, 4, 4, 4, 4, 4};
    struct poll_ranks *ranks = ranks_with(4, states, (const size_t[]){8, 1, 1, 1});
    poll_ranks_run(ranks, CONVOY_DIVERGED);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(ranks->rank[i].report.field, CONVOY_FIELD_COUNTS);
        assert_untouched(&ranks->rank[i]);
        ranks->rank[i].lists[0].count = 8;
    }
    poll_ranks_run(ranks, CONVOY_OK);
    assert_memory_equal(ranks->rank[3].states[0], states, 8);
    poll_ranks_destroy(ranks);
}

/* sgl-project/sglang PR 37909, second half: equal counts of other requests. */
static void test_poll_unequal_digests_diverge(void **state)
{
    (void)state;
    const uint8_t states[8] = {4};
    struct poll_ranks *ranks = ranks_with(2, states, (const size_t[]){4, 4});
    ranks->rank[0].lists[0].digest = 11;
    ranks->rank[1].lists[0].digest = 12;
    poll_ranks_run(ranks, CONVOY_DIVERGED);
    assert_int_equal(ranks->rank[0].report.field, CONVOY_FIELD_DIGEST);
    poll_ranks_destroy(ranks);
}

/* The same sum of entries in another split: each list's own count counts. */
static void test_poll_counts_that_only_differ_by_list_diverge(void **state)
{
    (void)state;
    const uint8_t states[8] = {4};
    struct poll_ranks *ranks = ranks_with(2, states, (const size_t[]){3, 5});
    (void)poll_rank_add(&ranks->rank[0], states, NULL, 5);
    (void)poll_rank_add(&ranks->rank[1], states, NULL, 3);
    poll_ranks_run(ranks, CONVOY_DIVERGED);
    poll_ranks_destroy(ranks);
}

/* NVIDIA/nccl issues 1394 and 1417: a mismatch is found at every size, and nothing is written. */
static void test_poll_count_mismatch_is_found_at_every_size(void **state)
{
    (void)state;
    static const uint8_t states[2 * 4096];
    struct poll_ranks *ranks = ranks_with(2, states, (const size_t[]){0, 0});
    for (size_t n = 1; n <= 4096; n += n < 128 ? 1 : 61) {
        const size_t others[] = {n - 1, n + 1, 2 * n, n - 2};
        for (size_t k = 0; k < (n > 1 ? 4u : 3u); k++) {
            ranks->rank[0].lists[0].count = n;
            ranks->rank[1].lists[0].count = others[k];
            poll_ranks_run(ranks, CONVOY_DIVERGED);
            assert_untouched(&ranks->rank[1]);
        }
    }
    poll_ranks_destroy(ranks);
}

/* pytorch/gloo issue 179, pytorch/pytorch issue 85234: zero entries are a round like any other. */
static void test_poll_zero_entries_succeed_between_normal_rounds(void **state)
{
    (void)state;
    const uint8_t states[4] = {1, 2, 3, 4};
    struct poll_ranks *ranks = ranks_with(4, states, (const size_t[]){0, 0, 0, 0});
    for (uint32_t round = 0; round < 1000; round++) {
        for (uint32_t i = 0; i < 4; i++) {
            ranks->rank[i].lists[0].count = round % 3 == 0 ? 4 : 0;
            ranks->rank[i].lists[0].states = round % 3 == 0 ? states : NULL;
        }
        poll_ranks_run(ranks, CONVOY_OK);
        assert_int_equal(ranks->rank[1].list_results[0].states_count, round % 3 == 0 ? 4 : 0);
    }
    poll_ranks_destroy(ranks);
}

/* SemiAnalysisAI/InferenceX issue 2151: a rank whose list became empty takes part and is seen. */
static void test_poll_positional_empty_among_others_diverges(void **state)
{
    (void)state;
    const uint8_t states[3] = {4, 4, 4};
    struct poll_ranks *ranks = ranks_with(4, states, (const size_t[]){3, 0, 3, 3});
    poll_ranks_run(ranks, CONVOY_DIVERGED);
    poll_ranks_destroy(ranks);
}

/* sgl-project/sglang PR 31075, PR 14494: only 0 to 4 are states; the refusal names value, key and range. */
static void test_poll_bad_state_is_refused_and_nothing_is_sent(void **state)
{
    (void)state;
    const int64_t bad[] = {5, 255, -1, INT_MAX, INT_MIN, INT64_MAX};
    const uint64_t keys[] = {77};
    struct poll_ranks *ranks = poll_ranks_create(2, 0, NULL);
    struct poll_rank *rank = &ranks->rank[1];
    struct convoy_poll_list *list = poll_rank_add(rank, NULL, keys, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        list->states = &bad[i];
        list->state_bytes = 8;
        char text[32];
        (void)snprintf(text, sizeof text, "state is %lld", (long long)bad[i]);
        assert_int_equal(convoy_poll_start(rank->poll, &rank->call, &rank->operation, &rank->error),
                         CONVOY_INVALID_ARGUMENT);
        assert_non_null(strstr(rank->error.text, text));
        assert_non_null(strstr(rank->error.text, "key 77"));
        assert_int_equal(rank->operation, 0);
    }
    assert_int_equal(convoy_engine_next_round(fake_group_engine(ranks->group, 1)), 1);
    poll_ranks_destroy(ranks);
}

/* The peers of a refused call are told when it asked for that, and the group goes on. */
static void test_poll_refused_call_with_post_error_tells_the_peers(void **state)
{
    (void)state;
    const uint8_t states[] = {9};
    struct poll_ranks *ranks = ranks_with(2, (const uint8_t[]){4}, (const size_t[]){1, 1});
    struct poll_rank *bad = &ranks->rank[1];
    struct poll_rank *good = &ranks->rank[0];
    bad->lists[0].states = states;
    bad->call.hint_flags = CONVOY_CALL_POST_ERROR;
    bad->operation = 77;
    assert_int_equal(convoy_poll_start(bad->poll, &bad->call, &bad->operation, &bad->error), CONVOY_INVALID_ARGUMENT);
    convoy_operation row_of = bad->operation;
    assert_true(row_of != 0 && row_of != 77);
    assert_int_equal(convoy_poll_test(bad->poll, row_of, &bad->result, &bad->error), CONVOY_IN_PROGRESS);
    bad->call.hint_flags = 0;
    assert_int_equal(convoy_poll_start(bad->poll, &good->call, &bad->operation, &bad->error), CONVOY_BUSY);
    assert_true(bad->operation == row_of);
    assert_int_equal(convoy_poll_reduce(good->poll, &good->call, 0, &good->result, &good->error), CONVOY_PEER_ERROR);
    /* Once its lists are known, the row differs from the others in nothing but being an error. */
    const struct convoy_contribution *row = fake_group_contribution(ranks->group, 1);
    assert_true(row->is_error);
    assert_memory_equal(&row->header, &fake_group_contribution(ranks->group, 0)->header, sizeof row->header);
    assert_int_equal(convoy_poll_wait(bad->poll, row_of, 0, &bad->result, &bad->error), CONVOY_PEER_ERROR);
    assert_int_equal(convoy_poll_test(bad->poll, row_of, &bad->result, &bad->error), CONVOY_PEER_ERROR);
    bad->lists[0].states = good->lists[0].states;
    poll_ranks_run(ranks, CONVOY_OK);
    assert_int_equal(convoy_poll_test(bad->poll, row_of, &bad->result, &bad->error), CONVOY_CLOSED);
    poll_ranks_destroy(ranks);
}

/* reduce waits for the row's end; what it could not wait for is the group's operation still. */
static void test_poll_refused_reduce_leaves_a_row_that_can_be_waited_for(void **state)
{
    (void)state;
    const uint8_t states[] = {9};
    struct poll_ranks *ranks = ranks_with(2, (const uint8_t[]){4}, (const size_t[]){1, 1});
    struct poll_rank *bad = &ranks->rank[1];
    struct poll_rank *good = &ranks->rank[0];
    bad->lists[0].states = states;
    bad->call.hint_flags = CONVOY_CALL_POST_ERROR;
    assert_int_equal(convoy_poll_reduce(bad->poll, &bad->call, 1, &bad->result, &bad->error), CONVOY_INVALID_ARGUMENT);
    assert_non_null(strstr(bad->error.text, "9"));
    convoy_operation row = bad->poll->operation;
    assert_true(convoy_poll_owns(bad->poll, row));
    assert_int_equal(convoy_poll_wait(bad->poll, row, 1, &bad->result, &bad->error), CONVOY_TIMED_OUT);
    assert_int_equal(convoy_poll_reduce(good->poll, &good->call, 0, &good->result, &good->error), CONVOY_PEER_ERROR);
    assert_int_equal(convoy_poll_wait(bad->poll, row, 1, &bad->result, &bad->error), CONVOY_PEER_ERROR);
    bad->lists[0].states = good->lists[0].states;
    poll_ranks_run(ranks, CONVOY_OK);
    poll_ranks_destroy(ranks);
}

/* A row that cannot be posted, since an operation is open, is none. */
static void test_poll_refused_call_while_one_is_open_has_no_row(void **state)
{
    (void)state;
    const uint8_t states[] = {9};
    struct poll_ranks *ranks = ranks_with(2, (const uint8_t[]){4}, (const size_t[]){1, 1});
    struct poll_rank *one = &ranks->rank[0];
    struct poll_rank *other = &ranks->rank[1];
    convoy_operation none = 77;
    assert_int_equal(convoy_poll_start(one->poll, &one->call, &one->operation, &one->error), CONVOY_OK);
    const void *sound = one->lists[0].states;
    one->lists[0].states = states;
    one->call.hint_flags = CONVOY_CALL_POST_ERROR;
    assert_true(convoy_poll_start(one->poll, &one->call, &none, &one->error) < 0);
    assert_true(none == 0);
    one->lists[0].states = sound;
    assert_int_equal(convoy_poll_test(one->poll, one->operation, &one->result, &one->error), CONVOY_IN_PROGRESS);
    assert_int_equal(convoy_poll_reduce(other->poll, &other->call, 0, &other->result, &other->error), CONVOY_OK);
    assert_int_equal(convoy_poll_test(one->poll, one->operation, &one->result, &one->error), CONVOY_OK);
    poll_ranks_destroy(ranks);
}

static void test_poll_explicit_error_row_ends_the_round_for_all(void **state)
{
    (void)state;
    struct poll_ranks *ranks = ranks_with(2, (const uint8_t[]){4}, (const size_t[]){1, 1});
    ranks->rank[0].call.critical_flags = CONVOY_CALL_ERROR_ROW;
    ranks->rank[0].call.list_count = 900; /* ignored */
    poll_ranks_run(ranks, CONVOY_PEER_ERROR);
    poll_ranks_destroy(ranks);
}

/* NVIDIA/TensorRT-LLM PR 15363: an entry that never gets ready holds up nothing but itself. */
static void test_poll_stuck_entry_does_not_stop_the_others(void **state)
{
    (void)state;
    const uint64_t keys[] = {1, 2, 3, 4, 5};
    uint8_t states[3][5];
    struct poll_ranks *ranks = poll_ranks_create(3, 0, NULL);
    for (uint32_t i = 0; i < 3; i++) {
        (void)poll_rank_add(&ranks->rank[i], states[i], keys, 5);
    }
    for (uint32_t round = 0; round < 200; round++) {
        for (uint32_t i = 0; i < 3; i++) {
            memset(states[i], round < 10 * i ? 3 : 4, 5);
            states[i][4] = i == 1 ? 3 : 4;
        }
        poll_ranks_run(ranks, CONVOY_OK);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_memory_equal(ranks->rank[i].states[0], ((const uint8_t[]){4, 4, 4, 4, 3}), 5);
    }
    poll_ranks_destroy(ranks);
}

/* pytorch/pytorch issue 192920: a column of a table, three widths, unaligned. */
static void test_poll_strides_widths_and_alignment_are_honoured(void **state)
{
    (void)state;
    uint8_t raw[1 + 8 * 3 * 5];
    const uint32_t widths[] = {1, 4, 8};
    for (size_t w = 0; w < 3; w++) {
        memset(raw, 0x77, sizeof raw);
        for (size_t i = 0; i < 5; i++) {
            int64_t value = (int64_t)i;
            memcpy(raw + 1 + i * 3 * widths[w], &value, widths[w]);
        }
        struct poll_ranks *ranks = ranks_with(1, raw + 1, (const size_t[]){5});
        ranks->rank[0].lists[0].state_bytes = widths[w];
        ranks->rank[0].lists[0].state_stride = 3 * widths[w];
        poll_ranks_run(ranks, CONVOY_OK);
        assert_memory_equal(ranks->rank[0].states[0], ((const uint8_t[]){0, 1, 2, 3, 4}), 5);
        poll_ranks_destroy(ranks);
    }
}

/* pytorch/pytorch issue 21480: inputs are only read, outputs only written on success. */
static void test_poll_time_out_writes_nothing_and_inputs_may_be_read_only(void **state)
{
    (void)state;
    uint8_t *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    struct poll_ranks *ranks = ranks_with(2, page, (const size_t[]){16, 16});
    struct poll_rank *rank = &ranks->rank[0];
    assert_int_equal(convoy_poll_reduce(rank->poll, &rank->call, 1000, &rank->result, &rank->error), CONVOY_TIMED_OUT);
    assert_untouched(rank);
    assert_int_not_equal(rank->report.operation, 0);
    struct poll_rank *late = &ranks->rank[1];
    assert_int_equal(convoy_poll_reduce(late->poll, &late->call, 0, &late->result, &late->error), CONVOY_OK);
    assert_int_equal(convoy_poll_wait(rank->poll, rank->report.operation, 1000, &rank->result, &rank->error), CONVOY_OK);
    assert_int_equal(rank->states[0][0], 0);
    poll_ranks_destroy(ranks);
    (void)munmap(page, 4096);
}

static void test_poll_small_buffer_is_refused_before_sending_or_kept_for_another_try(void **state)
{
    (void)state;
    struct poll_ranks *ranks = ranks_with(1, (const uint8_t[]){4, 3}, (const size_t[]){2});
    struct poll_rank *rank = &ranks->rank[0];
    rank->list_results[0].states_capacity = 1;
    assert_int_equal(convoy_poll_reduce(rank->poll, &rank->call, 0, &rank->result, &rank->error),
                     CONVOY_BUFFER_TOO_SMALL);
    assert_int_equal(convoy_engine_next_round(fake_group_engine(ranks->group, 0)), 1);
    assert_int_equal(convoy_poll_start(rank->poll, &rank->call, &rank->operation, &rank->error), CONVOY_OK);
    assert_int_equal(convoy_poll_test(rank->poll, rank->operation, &rank->result, &rank->error),
                     CONVOY_BUFFER_TOO_SMALL);
    assert_untouched(rank);
    rank->list_results[0].states_capacity = 2;
    assert_int_equal(convoy_poll_test(rank->poll, rank->operation, &rank->result, &rank->error), CONVOY_OK);
    assert_memory_equal(rank->states[0], ((const uint8_t[]){4, 3}), 2);
    poll_ranks_destroy(ranks);
}

static void test_poll_stale_operation_is_closed(void **state)
{
    (void)state;
    struct poll_ranks *ranks = ranks_with(1, (const uint8_t[]){4}, (const size_t[]){1});
    struct poll_rank *rank = &ranks->rank[0];
    poll_ranks_run(ranks, CONVOY_OK);
    convoy_operation old = rank->operation;
    poll_ranks_run(ranks, CONVOY_OK);
    assert_int_equal(convoy_poll_test(rank->poll, old, &rank->result, &rank->error), CONVOY_CLOSED);
    assert_int_equal(convoy_poll_test(rank->poll, 0, &rank->result, &rank->error), CONVOY_CLOSED);
    poll_ranks_destroy(ranks);
}

/* A result that reopen hands over is read by its operation, and decides also where nobody reads it. */
static void test_poll_result_handed_over_by_reopen_is_read_and_decides(void **state)
{
    (void)state;
    const uint64_t keys[] = {5};
    for (uint32_t is_read = 0; is_read < 2; is_read++) {
        struct poll_ranks *ranks = poll_ranks_create(2, 0, NULL);
        for (uint32_t i = 0; i < 2; i++) {
            struct poll_rank *rank = &ranks->rank[i];
            (void)poll_rank_add(rank, states_4, keys, 1);
            assert_int_equal(convoy_poll_start(rank->poll, &rank->call, &rank->operation, NULL), CONVOY_OK);
        }
        struct poll_rank *rank = &ranks->rank[0];
        fake_group_hide(ranks->group, 0);
        assert_int_equal(convoy_poll_test(rank->poll, rank->operation, &rank->result, NULL), CONVOY_PEER_LOST);
        fake_group_hand_over(ranks->group, 0);
        if (is_read != 0) {
            assert_int_equal(convoy_poll_test(rank->poll, rank->operation, &rank->result, NULL), CONVOY_OK);
            assert_int_equal(rank->outcomes[0][0].flags, 0);
        }
        poll_ranks_run(ranks, CONVOY_OK);
        assert_int_equal(rank->outcomes[0][0].flags, CONVOY_OUTCOME_DECIDED);
        poll_ranks_destroy(ranks);
    }
}

static void test_poll_lost_round_needs_a_reopen(void **state)
{
    (void)state;
    struct poll_ranks *ranks = ranks_with(2, (const uint8_t[]){4}, (const size_t[]){1, 1});
    struct poll_rank *rank = &ranks->rank[0];
    assert_int_equal(convoy_poll_start(rank->poll, &rank->call, &rank->operation, NULL), CONVOY_OK);
    fake_group_lose(ranks->group, 1);
    assert_int_equal(convoy_poll_test(rank->poll, rank->operation, &rank->result, NULL), CONVOY_PEER_LOST);
    assert_int_equal(convoy_poll_start(rank->poll, &rank->call, &rank->operation, NULL), CONVOY_BROKEN);
    fake_group_reopen(ranks->group);
    poll_ranks_run(ranks, CONVOY_OK);
    poll_ranks_destroy(ranks);
}

/* How often each kind of record came, and the last short one. */
struct recorded {
    uint32_t whole;
    uint32_t repeats;
    uint32_t may_repeat;
    uint8_t input[4];
    uint8_t output[4];
    struct convoy_call_values values;
};

static void recorded_whole(void *user, const struct convoy_poll_record *record)
{
    struct recorded *recorded = user;
    recorded->whole++;
    recorded->may_repeat = record->may_repeat;
}

static bool recorded_repeat(void *user, const struct convoy_call_values *values)
{
    struct recorded *recorded = user;
    recorded->repeats++;
    recorded->values = *values;
    memcpy(recorded->input, values->input, sizeof recorded->input);
    memcpy(recorded->output, values->output, sizeof recorded->output);
    return true;
}

/* One call of a group of one: its status, and which records came in all. */
static void recorded_call(struct poll_rank *rank, const struct recorded *recorded, int32_t status, uint32_t whole,
                          uint32_t repeats)
{
    assert_int_equal(convoy_poll_reduce(rank->poll, &rank->call, 0, &rank->result, NULL), status);
    assert_int_equal(recorded->whole, whole);
    assert_int_equal(recorded->repeats, repeats);
}

/* A round that differs from the one before in its states only is recorded in short; any other difference is not. */
static void test_poll_like_the_one_before_is_recorded_in_short(void **state)
{
    (void)state;
    uint8_t states[4] = {4, 3, 2, 1};
    struct recorded recorded = {0};
    struct fake_group *group = fake_group_create(1, 4096);
    struct convoy_group_options options = {.blob_bytes_max = 4096};
    const struct convoy_poll_options poll = {.engine = fake_group_engine(group, 0), .group = &options,
                                             .record = recorded_whole, .repeat = recorded_repeat,
                                             .record_user = &recorded};
    static struct poll_rank rank;
    assert_int_equal(convoy_poll_open(&poll, &rank.poll, NULL), CONVOY_OK);
    poll_rank_reset(&rank);
    struct convoy_poll_list *list = poll_rank_add(&rank, states, NULL, 4);
    recorded_call(&rank, &recorded, CONVOY_OK, 1, 0);
    assert_int_equal(recorded.may_repeat, 1);
    states[0] = 0;
    rank.call.tag = 9;
    recorded_call(&rank, &recorded, CONVOY_OK, 1, 1);
    assert_memory_equal(recorded.input, states, 4);
    assert_memory_equal(recorded.output, states, 4);
    assert_int_equal(recorded.values.round, 2);
    assert_int_equal(recorded.values.tag, 9);
    list->name = "x";
    list->name_length = 1;
    recorded_call(&rank, &recorded, CONVOY_OK, 2, 1);
    list->name = "y";
    recorded_call(&rank, &recorded, CONVOY_OK, 3, 1);
    recorded_call(&rank, &recorded, CONVOY_OK, 3, 2);
    list->digest = 1;
    recorded_call(&rank, &recorded, CONVOY_OK, 4, 2);
    states[3] = 5;
    recorded_call(&rank, &recorded, CONVOY_INVALID_ARGUMENT, 4, 2);
    states[3] = 4;
    list->count = 2;
    recorded_call(&rank, &recorded, CONVOY_OK, 5, 2);
    list->state_stride = 2;
    recorded_call(&rank, &recorded, CONVOY_OK, 6, 2);
    assert_int_equal(rank.states[0][1], states[2]);
    recorded_call(&rank, &recorded, CONVOY_OK, 7, 2);
    convoy_poll_close(rank.poll);
    fake_group_destroy(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_poll_positional_lists_of_one_round_are_reduced_by_minimum),
        cmocka_unit_test(test_poll_unequal_counts_diverge_on_all_and_the_next_round_works),
        cmocka_unit_test(test_poll_unequal_digests_diverge),
        cmocka_unit_test(test_poll_counts_that_only_differ_by_list_diverge),
        cmocka_unit_test(test_poll_count_mismatch_is_found_at_every_size),
        cmocka_unit_test(test_poll_zero_entries_succeed_between_normal_rounds),
        cmocka_unit_test(test_poll_positional_empty_among_others_diverges),
        cmocka_unit_test(test_poll_bad_state_is_refused_and_nothing_is_sent),
        cmocka_unit_test(test_poll_refused_call_with_post_error_tells_the_peers),
        cmocka_unit_test(test_poll_refused_reduce_leaves_a_row_that_can_be_waited_for),
        cmocka_unit_test(test_poll_refused_call_while_one_is_open_has_no_row),
        cmocka_unit_test(test_poll_explicit_error_row_ends_the_round_for_all),
        cmocka_unit_test(test_poll_stuck_entry_does_not_stop_the_others),
        cmocka_unit_test(test_poll_strides_widths_and_alignment_are_honoured),
        cmocka_unit_test(test_poll_time_out_writes_nothing_and_inputs_may_be_read_only),
        cmocka_unit_test(test_poll_small_buffer_is_refused_before_sending_or_kept_for_another_try),
        cmocka_unit_test(test_poll_stale_operation_is_closed),
        cmocka_unit_test(test_poll_result_handed_over_by_reopen_is_read_and_decides),
        cmocka_unit_test(test_poll_lost_round_needs_a_reopen),
        cmocka_unit_test(test_poll_like_the_one_before_is_recorded_in_short),
    };
    return cmocka_run_group_tests_name("poll", tests, NULL, NULL);
}
