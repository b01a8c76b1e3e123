/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocking poll rounds that go the short way, over real engines: that they do, with the same results as the whole way,
 * and that whatever is not as before is left to that.
 */
#include "tests/lib/expect.h"
#include "tests/lib/poll_pair.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_poll_quick_reduces_by_minimum(void **state)
{
    (void)state;
    for (uint32_t lists = 1; lists <= POLL_PAIR_LISTS; lists += 2) {
        for (size_t entries = 1; entries + lists < POLL_PAIR_ENTRIES; entries += 9) { /* short and wide ones */
            struct poll_pair *pair = poll_pair_create(NULL, lists, entries, false);
            poll_pair_fill(pair, lists, entries, 2, 4);
            poll_pair_round(pair, true, 2);
            EXPECT(!poll_pair_was_short(pair) || pair->sides[0].poll->quick.round.moved == CONVOY_POLL_MOVED_YES);
            poll_pair_fill(pair, lists, entries, 4, 2);
            poll_pair_round(pair, true, 2);
            EXPECT(!poll_pair_was_short(pair) || pair->sides[0].poll->quick.round.moved == CONVOY_POLL_MOVED_NO);
            EXPECT_EQUAL(pair->sides[0].result.round, 3);
            EXPECT_EQUAL(pair->sides[0].idles, 2);
            poll_pair_destroy(pair);
        }
    }
}

/* What the caller does not want is not written. */
static void test_poll_quick_without_room_for_states(void **state)
{
    (void)state;
    for (uint32_t lists = 1; lists <= POLL_PAIR_LISTS; lists += 2) {
        struct poll_pair *pair = poll_pair_create(NULL, lists, 5, false);
        poll_pair_fill(pair, lists, 5, 2, 4);
        pair->sides[0].list_results[0].states = NULL;
        poll_pair_round(pair, true, 2);
        EXPECT_EQUAL(pair->sides[0].out[0][0], 0xa5);
        poll_pair_destroy(pair);
    }
}

/* One of them makes the call another one than before. */
static void change_count(struct poll_side *side) { side->lists[1].count++; }
static void change_name(struct poll_side *side) { side->lists[1].name = "decoded"; }
static void change_name_length(struct poll_side *side) { side->lists[1].name_length = 3; }
static void change_digest(struct poll_side *side) { side->lists[0].digest = 5; }
static void change_lists(struct poll_side *side) { side->call.list_count = 2; }
static void change_bytes(struct poll_side *side) { side->lists[2].state_bytes = 0; }

static void change_flags(struct poll_side *side)
{
    static const uint8_t flags[POLL_PAIR_ENTRIES];
    side->lists[2].entry_flags = flags;
}

static int32_t read_two(void *user, size_t list, size_t entry)
{
    (void)user;
    (void)list;
    (void)entry;
    return 2;
}

static void change_read(struct poll_side *side)
{
    side->lists[0].states = NULL;
    side->lists[0].read = read_two;
}

static void test_poll_quick_other_calls_go_the_whole_way(void **state)
{
    (void)state;
    static void (*const changes[])(struct poll_side *) = {change_count, change_name,  change_name_length, change_digest,
                                                     change_lists, change_flags, change_read,        change_bytes};
    struct poll_pair *pair = poll_pair_create(NULL, POLL_PAIR_LISTS, 5, false);
    for (uint32_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        poll_pair_fill(pair, POLL_PAIR_LISTS, 5, 2, 4);
        poll_pair_round(pair, i == 0, 2); /* it is as the first one; afterwards, as the change before */
        poll_pair_round(pair, true, 2);
        changes[i](&pair->sides[0]);
        changes[i](&pair->sides[1]);
        poll_pair_round(pair, false, 2);
    }
    poll_pair_destroy(pair);
}

/* Nothing is sent, and the words are those of the whole way. */
static void test_poll_quick_refused_calls_send_nothing(void **state)
{
    (void)state;
    struct poll_pair *pair = poll_pair_create(NULL, 1, 5, false);
    struct poll_side *side = &pair->sides[0];
    side->states[0][3] = 5;
    EXPECT_STATUS(poll_pair_reduce(pair), CONVOY_INVALID_ARGUMENT, &side->member->error);
    EXPECT_TEXT(side->member->error.text, "5");
    poll_pair_fill(pair, 1, 5, 2, 4);
    poll_pair_round(pair, false, 2);
    side->list_results[0].states_capacity = 4;
    EXPECT_STATUS(poll_pair_reduce(pair), CONVOY_BUFFER_TOO_SMALL, &side->member->error);
    poll_pair_fill(pair, 1, 5, 2, 4);
    side->result.list_capacity = 0;
    EXPECT_STATUS(poll_pair_reduce(pair), CONVOY_BUFFER_TOO_SMALL, &side->member->error);
    poll_pair_fill(pair, 1, 5, 2, 4);
    poll_pair_round(pair, false, 2);
    EXPECT_EQUAL(side->result.round, 3); /* the refused ones have no number */
    poll_pair_destroy(pair);
}

/* A newer peer has a state that this build does not know. */
static void test_poll_quick_unknown_states_are_bootstrapping(void **state)
{
    (void)state;
    for (uint32_t lists = 1; lists <= POLL_PAIR_LISTS; lists += 2) {
        struct poll_pair *pair = poll_pair_create(NULL, lists, 5, false);
        struct poll_side *side = &pair->sides[0];
        struct convoy_engine *other = pair->sides[1].member->engine;
        poll_pair_fill(pair, lists, 5, 3, 4);
        EXPECT_OK(poll_side_start(&pair->sides[1]), NULL);
        other->own_cells[other->next_round & 1]->payload[2] = 9;
        EXPECT_OK(poll_pair_reduce(pair), NULL);
        EXPECT(poll_pair_was_short(pair));
        EXPECT_EQUAL(side->poll->quick.round.moved, CONVOY_POLL_MOVED_UNKNOWN);
        EXPECT_EQUAL(side->list_results[0].unknown_count, 1);
        EXPECT_BYTES(side->out[0], ((const uint8_t[]){3, 3, CONVOY_STATE_BOOTSTRAPPING, 3, 3}), 5);
        EXPECT_OK(poll_pair_test_other(pair), NULL);
        EXPECT_EQUAL(pair->sides[1].list_results[0].unknown_count, 1);
        poll_pair_round(pair, true, 3); /* and is gone again */
        EXPECT_EQUAL(side->list_results[0].unknown_count, 0);
        poll_pair_destroy(pair);
    }
}

static void test_poll_quick_timeout_leaves_the_round_open(void **state)
{
    (void)state;
    struct poll_pair *pair = poll_pair_create(NULL, 1, 5, false);
    struct poll_side *side = &pair->sides[0];
    struct convoy_group_info info = {.struct_size = sizeof info};
    poll_pair_fill(pair, 1, 5, 2, 4);
    EXPECT_STATUS(convoy_poll_reduce(side->poll, &side->call, CONVOY_NS_PER_MS, &side->result, &side->member->error),
                  CONVOY_TIMED_OUT, NULL);
    EXPECT_TEXT(side->member->error.text, "in round 2 (poll) and did not hear from rank 11");
    EXPECT_EQUAL(side->result.report->member_count, 1);
    convoy_engine_info(side->member->engine, &info);
    EXPECT_EQUAL(info.state, CONVOY_GROUP_STUCK);
    EXPECT_EQUAL(info.operation, side->poll->operation);
    EXPECT_STATUS(poll_pair_reduce(pair), CONVOY_BUSY, &side->member->error);
    EXPECT_OK(poll_side_start(&pair->sides[1]), NULL);
    EXPECT_OK(convoy_poll_test(side->poll, info.operation, &side->result, &side->member->error), NULL);
    EXPECT_EQUAL(side->out[0][4], 2);
    EXPECT_EQUAL(side->recorded_round, 2);
    EXPECT_EQUAL(side->recorded_input, 2);
    EXPECT_OK(poll_pair_test_other(pair), NULL);
    poll_pair_round(pair, false, 2); /* after a call that was refused */
    poll_pair_round(pair, true, 2);
    poll_pair_destroy(pair);
}

/* How the other contributes to a round that this member begins the short way, and how that ends. */
struct ending {
    uint64_t tag;
    uint64_t digest;
    uint32_t critical_flags;
    int32_t status;
    const char *text;
};

static void test_poll_quick_unlike_peers_end_the_round_as_the_whole_way_does(void **state)
{
    (void)state;
    static const struct ending endings[] = {
        {8, 0, 0, CONVOY_DIVERGED, "step tag differs: 8 is at rank 11, 7 at this rank 10"},
        {7, 5, 0, CONVOY_DIVERGED, "digest differs: 5 is at rank 11, 0 at this rank 10"},
        {7, 0, CONVOY_CALL_ERROR_ROW, CONVOY_PEER_ERROR, "rank 11 contributed no row in round"},
        {0, 0, 0, CONVOY_OK, ""}, /* no tag differs from none */
    };
    struct poll_pair *pair = poll_pair_create(NULL, 1, 5, false);
    struct poll_side *side = &pair->sides[0];
    for (uint32_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        poll_pair_fill(pair, 1, 5, 2, 4);
        poll_pair_round(pair, i == 0, 2);
        pair->sides[1].call.tag = endings[i].tag;
        pair->sides[1].lists[0].digest = endings[i].digest;
        pair->sides[1].call.critical_flags = endings[i].critical_flags;
        EXPECT_OK(poll_side_start(&pair->sides[1]), NULL);
        uint32_t records = side->records;
        EXPECT_STATUS(poll_pair_reduce(pair), endings[i].status, &side->member->error);
        EXPECT_TEXT(side->member->error.text, endings[i].text);
        EXPECT_EQUAL(side->recorded_status, endings[i].status);
        EXPECT_EQUAL(side->recorded_input, 2);
        EXPECT_EQUAL(side->records, records + 1);
        EXPECT_EQUAL(poll_pair_test_other(pair), endings[i].status);
    }
    poll_pair_destroy(pair);
}

static void test_poll_quick_sealed_cell_is_left_to_the_whole_way(void **state)
{
    (void)state;
    struct poll_pair *pair = poll_pair_create(NULL, 1, 5, false);
    struct poll_side *other = &pair->sides[1];
    EXPECT_OK(poll_side_start(other), NULL);
    EXPECT_STATUS(convoy_poll_abandon(other->poll, other->operation, NULL), CONVOY_BROKEN, NULL);
    EXPECT_STATUS(poll_pair_reduce(pair), CONVOY_BROKEN, NULL);
    EXPECT_TEXT(pair->sides[0].member->error.text, "rank 11 abandoned round 2");
    EXPECT(!poll_pair_was_short(pair));
    poll_pair_destroy(pair);
}

static void test_poll_quick_dead_peer_is_noticed(void **state)
{
    (void)state;
    struct poll_pair *pair = poll_pair_create("{\"yield_us\": 0}", 1, 5, false);
    neighbours_kill(pair->all, 1);
    EXPECT_STATUS(poll_pair_reduce(pair), CONVOY_PEER_LOST, NULL);
    EXPECT_TEXT(pair->sides[0].member->error.text, "rank 11 was lost (its process ended) in round 2");
    EXPECT_EQUAL(pair->sides[0].recorded_status, CONVOY_PEER_LOST);
    poll_pair_destroy(pair);
}

/* The other comes while this one does what can wait; who comes late puts that aside in short. */
static void test_poll_quick_idle_and_keep(void **state)
{
    (void)state;
    struct poll_pair *pair = poll_pair_create(NULL, 1, 5, true);
    struct poll_side *side = &pair->sides[0];
    poll_pair_round(pair, true, 3); /* the first after a rest */
    EXPECT_EQUAL(side->keeps, 1);
    EXPECT_EQUAL(side->idles, 0);
    poll_pair_destroy(pair);
    pair = poll_pair_create(NULL, 1, 5, false);
    side = &pair->sides[0];
    side->bring = &pair->sides[1];
    EXPECT_OK(poll_pair_reduce(pair), &side->member->error);
    EXPECT(poll_pair_was_short(pair));
    EXPECT_EQUAL(side->idles, 1);
    EXPECT_EQUAL(convoy_engine_waited(side->member->engine)->kind, CONVOY_WAIT_NONE);
    EXPECT_EQUAL(convoy_engine_waited(side->member->engine)->bytes_received, 5);
    poll_pair_destroy(pair);
}

/* A short round that is to be recorded in full. */
static void test_poll_quick_record_is_as_of_the_whole_way(void **state)
{
    (void)state;
    struct poll_pair *pair = poll_pair_create(NULL, 1, 5, false);
    struct poll_side *side = &pair->sides[0];
    poll_pair_fill(pair, 1, 5, 2, 4);
    poll_pair_round(pair, true, 2);
    EXPECT_EQUAL(side->records, 1);
    convoy_poll_quick_record(side->poll);
    EXPECT_EQUAL(side->records, 2);
    EXPECT_EQUAL(side->recorded_round, 2);
    EXPECT_EQUAL(side->recorded_input, 2);
    EXPECT_EQUAL(side->recorded_status, CONVOY_OK);
    poll_pair_destroy(pair);
}

/* What the engine does not note. */
static void test_poll_quick_note_is_of_usual_rounds(void **state)
{
    (void)state;
    struct poll_pair *pair = poll_pair_create(NULL, 1, 5, false);
    struct convoy_engine *engine = pair->sides[0].member->engine;
    struct convoy_quick quick;
    convoy_engine_quick_note(engine, &quick);
    EXPECT_EQUAL(quick.generation, 1);
    EXPECT_EQUAL(quick.fingerprint, engine->fingerprint);
    EXPECT(convoy_engine_quick_begin(engine, &quick) == engine->own_cells[0]->payload); /* round 2 */
    engine->waiting.is_settled = false;
    convoy_engine_quick_note(engine, &quick);
    EXPECT_EQUAL(quick.generation, 0);
    EXPECT(convoy_engine_quick_begin(engine, &quick) == NULL);
    engine->waiting.is_settled = true;
    engine->contribution.is_error = true;
    convoy_engine_quick_note(engine, &quick);
    EXPECT_EQUAL(quick.generation, 0);
    engine->contribution.is_error = false;
    engine->contribution.errors_as_presence = true;
    convoy_engine_quick_note(engine, &quick);
    EXPECT_EQUAL(quick.generation, 0);
    engine->contribution.errors_as_presence = false;
    poll_pair_destroy(pair);
}

/* -- with a second thread ---------------------------------------------------------------------------------------- */

static void *reduce_main(void *argument)
{
    return (void *)(intptr_t)poll_pair_reduce(argument);
}

static void test_poll_quick_sleeper_comes_back_to_the_short_way(void **state)
{
    (void)state;
    struct poll_pair *pair = poll_pair_create("{\"yield_us\": 0, \"spin_pauses\": 0}", 1, 5, false);
    struct poll_side *side = &pair->sides[0];
    pthread_t thread;
    void *status = NULL;
    poll_pair_fill(pair, 1, 5, 4, 2);
    EXPECT_EQUAL(pthread_create(&thread, NULL, reduce_main, pair), 0);
    while (atomic_load(&convoy_segment_head(&side->member->engine->segment)->sleepers) == 0) {
        (void)sched_yield();
    }
    EXPECT_OK(poll_side_start(&pair->sides[1]), NULL);
    EXPECT_EQUAL(pthread_join(thread, &status), 0);
    EXPECT_OK((int32_t)(intptr_t)status, &side->member->error);
    EXPECT(poll_pair_was_short(pair));
    EXPECT_EQUAL(side->out[0][0], 2);
    EXPECT_EQUAL(convoy_engine_waited(side->member->engine)->kind, CONVOY_WAIT_SLEEP);
    EXPECT_OK(poll_pair_test_other(pair), NULL);
    poll_pair_round(pair, true, 2);
    poll_pair_destroy(pair);
}

/* Both go the short way, each with its own states. */
static void *rounds_main(void *argument)
{
    struct poll_side *side = argument;
    for (uint32_t round = 0; round < POLL_PAIR_ROUNDS; round++) {
        poll_side_round_fill(side, round);
        if (convoy_poll_reduce(side->poll, &side->call, 0, &side->result, &side->member->error) != CONVOY_OK ||
            !poll_side_round_is_right(side, round)) {
            return side;
        }
    }
    return side->poll->quick.round.input == NULL ? side : NULL;
}

static void pair_run_both(struct poll_pair *pair)
{
    pthread_t thread;
    void *failed = NULL;
    EXPECT_EQUAL(pthread_create(&thread, NULL, rounds_main, &pair->sides[1]), 0);
    void *own = rounds_main(&pair->sides[0]);
    EXPECT_EQUAL(pthread_join(thread, &failed), 0);
    EXPECT(own == NULL && failed == NULL);
}

static void test_poll_quick_rounds_of_two_threads(void **state)
{
    (void)state;
    static const char *const settings[] = {NULL, "{\"spin_pauses\": 100000}", "{\"yield_us\": 0, \"spin_pauses\": 0}"};
    for (uint32_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        struct poll_pair *pair = poll_pair_create(settings[i], 1, 5, i == 0);
        pair_run_both(pair);
        poll_pair_destroy(pair);
    }
}

/* Around all bounds of packing and of blocks. */
static void test_poll_quick_rounds_of_all_sizes(void **state)
{
    (void)state;
    for (uint32_t lists = 1; lists <= POLL_PAIR_LISTS; lists += 2) {
        for (size_t entries = 7; entries < 72; entries += lists == 1 ? 1 : 5) {
            struct poll_pair *pair = poll_pair_create(NULL, lists, entries, true);
            pair_run_both(pair);
            poll_pair_destroy(pair);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_poll_quick_reduces_by_minimum),
        cmocka_unit_test(test_poll_quick_without_room_for_states),
        cmocka_unit_test(test_poll_quick_other_calls_go_the_whole_way),
        cmocka_unit_test(test_poll_quick_refused_calls_send_nothing),
        cmocka_unit_test(test_poll_quick_unknown_states_are_bootstrapping),
        cmocka_unit_test(test_poll_quick_timeout_leaves_the_round_open),
        cmocka_unit_test(test_poll_quick_unlike_peers_end_the_round_as_the_whole_way_does),
        cmocka_unit_test(test_poll_quick_sealed_cell_is_left_to_the_whole_way),
        cmocka_unit_test(test_poll_quick_dead_peer_is_noticed),
        cmocka_unit_test(test_poll_quick_idle_and_keep),
        cmocka_unit_test(test_poll_quick_record_is_as_of_the_whole_way),
        cmocka_unit_test(test_poll_quick_note_is_of_usual_rounds),
        cmocka_unit_test(test_poll_quick_sleeper_comes_back_to_the_short_way),
        cmocka_unit_test(test_poll_quick_rounds_of_two_threads),
        cmocka_unit_test(test_poll_quick_rounds_of_all_sizes),
    };
    return cmocka_run_group_tests_name("poll_quick", tests, NULL, NULL);
}
