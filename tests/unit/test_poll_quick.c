/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocking poll rounds that go the short way, over real engines: that they do, with the same results as the whole way,
 * and that whatever is not as before is left to that. The other member mostly comes first, so that nobody waits.
 */
#include "poll/poll.h"
#include "tests/lib/expect.h"
#include "tests/lib/neighbours.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define LISTS 3u
#define ENTRIES 80u

struct side {
    struct neighbours *all;
    struct neighbour *member;
    struct convoy_poll *poll;
    uint8_t states[LISTS][ENTRIES];
    uint8_t out[LISTS][ENTRIES];
    uint64_t keys[ENTRIES];
    struct convoy_poll_list lists[LISTS];
    struct convoy_poll_list_result list_results[LISTS];
    struct convoy_poll_call call;
    struct convoy_poll_result result;
    convoy_operation operation;
    uint32_t records;
    uint32_t keeps;
    uint32_t idles;
    int32_t recorded_status;
    uint64_t recorded_round;
    uint8_t recorded_input; /* first state of the first list */
    struct side *bring; /* starts this side's round in the next idle call */
};

struct pair {
    struct neighbours *all;
    struct side sides[2];
};

static void on_record(void *user, const struct convoy_poll_record *record)
{
    struct side *side = user;
    side->records++;
    side->recorded_status = record->status;
    side->recorded_round = record->round;
    side->recorded_input = record->list_count != 0 && record->lists[0].count != 0 ? record->lists[0].input[0] : 0;
}

static bool on_repeat(void *user, const struct convoy_call_values *values)
{
    struct side *side = user;
    side->records++;
    side->recorded_status = CONVOY_OK;
    side->recorded_round = values->round;
    side->recorded_input = *(const uint8_t *)values->input;
    return true;
}

static int32_t side_start(struct side *side)
{
    return convoy_poll_start(side->poll, &side->call, &side->operation, &side->member->error);
}

static void on_idle(void *user)
{
    struct side *side = user;
    struct side *other = side->bring;
    side->idles++;
    side->bring = NULL;
    if (other != NULL) {
        EXPECT_OK(side_start(other), &other->member->error);
    }
}

static void on_keep(void *user)
{
    ((struct side *)user)->keeps++;
}

static void side_fill(struct side *side, uint32_t list_count, size_t entries, uint8_t state)
{
    memset(side->out, 0xa5, sizeof side->out);
    for (uint32_t i = 0; i < LISTS; i++) {
        memset(side->states[i], state, sizeof side->states[i]);
        side->lists[i] = (struct convoy_poll_list){
            .name = "prefill", .name_length = 7, .count = entries + i, .states = side->states[i], .state_bytes = 1};
        side->list_results[i] = (struct convoy_poll_list_result){.states = side->out[i], .states_capacity = ENTRIES};
    }
    side->call = (struct convoy_poll_call){.struct_size = sizeof side->call, .votes = 3, .lists = side->lists,
                                           .list_stride = sizeof side->lists[0], .list_count = list_count, .tag = 7};
    side->result = (struct convoy_poll_result){.struct_size = sizeof side->result, .lists = side->list_results,
                                               .list_stride = sizeof side->list_results[0], .list_capacity = LISTS,
                                               .report = &side->member->report};
    side->member->report = (struct convoy_report){.struct_size = sizeof side->member->report,
                                                  .members = side->member->rows,
                                                  .member_stride = sizeof side->member->rows[0],
                                                  .member_capacity = NEIGHBOURS_MAX};
    side->member->error = (struct convoy_error)CONVOY_ERROR_INIT;
}

static void side_open(struct pair *pair, uint32_t index, bool keeps)
{
    struct side *side = &pair->sides[index];
    side->all = pair->all;
    side->member = &pair->all->members[index];
    const struct convoy_poll_options options = {.engine = side->member->engine, .group = &side->member->options,
                                                .timeout_ns = NEIGHBOURS_LONG_NS, .record = on_record,
                                                .repeat = on_repeat, .keep = keeps ? on_keep : NULL,
                                                .settle = on_idle, .record_user = side};
    EXPECT_OK(convoy_poll_open(&options, &side->poll, &side->member->error), &side->member->error);
}

static void pair_fill(struct pair *pair, uint32_t list_count, size_t entries, uint8_t first, uint8_t second)
{
    side_fill(&pair->sides[0], list_count, entries, first);
    side_fill(&pair->sides[1], list_count, entries, second);
    pair->sides[1].call.votes = 6;
}

static int32_t pair_reduce(struct pair *pair)
{
    struct side *side = &pair->sides[0];
    side->member->error = (struct convoy_error)CONVOY_ERROR_INIT;
    return convoy_poll_reduce(side->poll, &side->call, 0, &side->result, &side->member->error);
}

static int32_t pair_test_other(struct pair *pair)
{
    struct side *side = &pair->sides[1];
    return convoy_poll_test(side->poll, side->operation, &side->result, &side->member->error);
}

static bool was_short(const struct pair *pair)
{
    return pair->sides[0].poll->quick.round.input != NULL;
}

static size_t entries_of(const struct side *side)
{
    size_t entries = 0;
    for (uint32_t i = 0; i < side->call.list_count; i++) {
        entries += side->lists[i].count;
    }
    return entries;
}

/* One round; the other side first, the whole way. Whose states go by the half byte is not alone then. */
static void pair_round(struct pair *pair, bool is_short, uint8_t state)
{
    EXPECT_OK(side_start(&pair->sides[1]), &pair->sides[1].member->error);
    EXPECT_OK(pair_reduce(pair), &pair->sides[0].member->error);
    EXPECT_OK(pair_test_other(pair), &pair->sides[1].member->error);
    EXPECT_EQUAL(was_short(pair), is_short && !convoy_packed_pays(entries_of(&pair->sides[0])));
    for (uint32_t side = 0; side < 2; side++) {
        const struct side *one = &pair->sides[side];
        EXPECT_EQUAL(one->result.votes_and, 2);
        EXPECT_EQUAL(one->result.votes_or, 7);
        EXPECT_EQUAL(one->result.round, pair->sides[0].result.round);
        EXPECT_EQUAL(one->result.epoch, NEIGHBOURS_EPOCH);
        for (uint32_t i = 0; i < one->call.list_count; i++) {
            EXPECT_EQUAL(one->list_results[i].states_count, one->lists[i].count);
            for (uint32_t k = 0; k < one->lists[i].count && one->list_results[i].states != NULL; k++) {
                EXPECT_EQUAL(one->out[i][k], state);
            }
        }
    }
}

/* Its first round has gone the whole way, so the next can go the short one. */
static struct pair *pair_create(const char *settings, uint32_t list_count, size_t entries, bool keeps)
{
    struct pair *pair = calloc(1, sizeof *pair);
    EXPECT(pair != NULL);
    pair->all = neighbours_create(2, settings, 0);
    side_open(pair, 0, keeps);
    side_open(pair, 1, keeps);
    pair_fill(pair, list_count, entries, 4, 3);
    pair_round(pair, false, 3);
    pair->sides[0].idles = 0;
    return pair;
}

static void pair_destroy(struct pair *pair)
{
    convoy_poll_close(pair->sides[0].poll);
    convoy_poll_close(pair->sides[1].poll);
    neighbours_destroy(pair->all);
    free(pair);
}

static void test_poll_quick_reduces_by_minimum(void **state)
{
    (void)state;
    for (uint32_t lists = 1; lists <= LISTS; lists += 2) {
        for (size_t entries = 1; entries + lists < ENTRIES; entries += 9) { /* short and wide ones */
            struct pair *pair = pair_create(NULL, lists, entries, false);
            pair_fill(pair, lists, entries, 2, 4);
            pair_round(pair, true, 2);
            EXPECT(!was_short(pair) || pair->sides[0].poll->quick.round.moved == CONVOY_POLL_MOVED_YES);
            pair_fill(pair, lists, entries, 4, 2);
            pair_round(pair, true, 2);
            EXPECT(!was_short(pair) || pair->sides[0].poll->quick.round.moved == CONVOY_POLL_MOVED_NO);
            EXPECT_EQUAL(pair->sides[0].result.round, 3);
            EXPECT_EQUAL(pair->sides[0].idles, 2);
            pair_destroy(pair);
        }
    }
}

/* What the caller does not want is not written. */
static void test_poll_quick_without_room_for_states(void **state)
{
    (void)state;
    for (uint32_t lists = 1; lists <= LISTS; lists += 2) {
        struct pair *pair = pair_create(NULL, lists, 5, false);
        pair_fill(pair, lists, 5, 2, 4);
        pair->sides[0].list_results[0].states = NULL;
        pair_round(pair, true, 2);
        EXPECT_EQUAL(pair->sides[0].out[0][0], 0xa5);
        pair_destroy(pair);
    }
}

/* One of them makes the call another one than before. */
static void change_count(struct side *side) { side->lists[1].count++; }
static void change_name(struct side *side) { side->lists[1].name = "decoded"; }
static void change_name_length(struct side *side) { side->lists[1].name_length = 3; }
static void change_digest(struct side *side) { side->lists[0].digest = 5; }
static void change_lists(struct side *side) { side->call.list_count = 2; }
static void change_bytes(struct side *side) { side->lists[2].state_bytes = 0; }

static void change_flags(struct side *side)
{
    static const uint8_t flags[ENTRIES];
    side->lists[2].entry_flags = flags;
}

static int32_t read_two(void *user, size_t list, size_t entry)
{
    (void)user;
    (void)list;
    (void)entry;
    return 2;
}

static void change_read(struct side *side)
{
    side->lists[0].states = NULL;
    side->lists[0].read = read_two;
}

static void test_poll_quick_other_calls_go_the_whole_way(void **state)
{
    (void)state;
    static void (*const changes[])(struct side *) = {change_count, change_name,  change_name_length, change_digest,
                                                     change_lists, change_flags, change_read,        change_bytes};
    struct pair *pair = pair_create(NULL, LISTS, 5, false);
    for (uint32_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        pair_fill(pair, LISTS, 5, 2, 4);
        pair_round(pair, i == 0, 2); /* it is as the first one; afterwards, as the change before */
        pair_round(pair, true, 2);
        changes[i](&pair->sides[0]);
        changes[i](&pair->sides[1]);
        pair_round(pair, false, 2);
    }
    pair_destroy(pair);
}

/* Nothing is sent, and the words are those of the whole way. */
static void test_poll_quick_refused_calls_send_nothing(void **state)
{
    (void)state;
    struct pair *pair = pair_create(NULL, 1, 5, false);
    struct side *side = &pair->sides[0];
    side->states[0][3] = 5;
    EXPECT_STATUS(pair_reduce(pair), CONVOY_INVALID_ARGUMENT, &side->member->error);
    EXPECT_TEXT(side->member->error.text, "5");
    pair_fill(pair, 1, 5, 2, 4);
    pair_round(pair, false, 2);
    side->list_results[0].states_capacity = 4;
    EXPECT_STATUS(pair_reduce(pair), CONVOY_BUFFER_TOO_SMALL, &side->member->error);
    pair_fill(pair, 1, 5, 2, 4);
    side->result.list_capacity = 0;
    EXPECT_STATUS(pair_reduce(pair), CONVOY_BUFFER_TOO_SMALL, &side->member->error);
    pair_fill(pair, 1, 5, 2, 4);
    pair_round(pair, false, 2);
    EXPECT_EQUAL(side->result.round, 3); /* the refused ones have no number */
    pair_destroy(pair);
}

/* A newer peer has a state that this build does not know. */
static void test_poll_quick_unknown_states_are_bootstrapping(void **state)
{
    (void)state;
    for (uint32_t lists = 1; lists <= LISTS; lists += 2) {
        struct pair *pair = pair_create(NULL, lists, 5, false);
        struct side *side = &pair->sides[0];
        struct convoy_engine *other = pair->sides[1].member->engine;
        pair_fill(pair, lists, 5, 3, 4);
        EXPECT_OK(side_start(&pair->sides[1]), NULL);
        other->own_cells[other->next_round & 1]->payload[2] = 9;
        EXPECT_OK(pair_reduce(pair), NULL);
        EXPECT(was_short(pair));
        EXPECT_EQUAL(side->poll->quick.round.moved, CONVOY_POLL_MOVED_UNKNOWN);
        EXPECT_EQUAL(side->list_results[0].unknown_count, 1);
        EXPECT_BYTES(side->out[0], ((const uint8_t[]){3, 3, CONVOY_STATE_BOOTSTRAPPING, 3, 3}), 5);
        EXPECT_OK(pair_test_other(pair), NULL);
        EXPECT_EQUAL(pair->sides[1].list_results[0].unknown_count, 1);
        pair_round(pair, true, 3); /* and is gone again */
        EXPECT_EQUAL(side->list_results[0].unknown_count, 0);
        pair_destroy(pair);
    }
}

static void test_poll_quick_timeout_leaves_the_round_open(void **state)
{
    (void)state;
    struct pair *pair = pair_create(NULL, 1, 5, false);
    struct side *side = &pair->sides[0];
    struct convoy_group_info info = {.struct_size = sizeof info};
    pair_fill(pair, 1, 5, 2, 4);
    EXPECT_STATUS(convoy_poll_reduce(side->poll, &side->call, CONVOY_NS_PER_MS, &side->result, &side->member->error),
                  CONVOY_TIMED_OUT, NULL);
    EXPECT_TEXT(side->member->error.text, "in round 2 (poll) and did not hear from rank 11");
    EXPECT_EQUAL(side->result.report->member_count, 1);
    convoy_engine_info(side->member->engine, &info);
    EXPECT_EQUAL(info.state, CONVOY_GROUP_STUCK);
    EXPECT_EQUAL(info.operation, side->poll->operation);
    EXPECT_STATUS(pair_reduce(pair), CONVOY_BUSY, &side->member->error);
    EXPECT_OK(side_start(&pair->sides[1]), NULL);
    EXPECT_OK(convoy_poll_test(side->poll, info.operation, &side->result, &side->member->error), NULL);
    EXPECT_EQUAL(side->out[0][4], 2);
    EXPECT_EQUAL(side->recorded_round, 2);
    EXPECT_EQUAL(side->recorded_input, 2);
    EXPECT_OK(pair_test_other(pair), NULL);
    pair_round(pair, false, 2); /* after a call that was refused */
    pair_round(pair, true, 2);
    pair_destroy(pair);
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
    struct pair *pair = pair_create(NULL, 1, 5, false);
    struct side *side = &pair->sides[0];
    for (uint32_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        pair_fill(pair, 1, 5, 2, 4);
        pair_round(pair, i == 0, 2);
        pair->sides[1].call.tag = endings[i].tag;
        pair->sides[1].lists[0].digest = endings[i].digest;
        pair->sides[1].call.critical_flags = endings[i].critical_flags;
        EXPECT_OK(side_start(&pair->sides[1]), NULL);
        uint32_t records = side->records;
        EXPECT_STATUS(pair_reduce(pair), endings[i].status, &side->member->error);
        EXPECT_TEXT(side->member->error.text, endings[i].text);
        EXPECT_EQUAL(side->recorded_status, endings[i].status);
        EXPECT_EQUAL(side->recorded_input, 2);
        EXPECT_EQUAL(side->records, records + 1);
        EXPECT_EQUAL(pair_test_other(pair), endings[i].status);
    }
    pair_destroy(pair);
}

static void test_poll_quick_sealed_cell_is_left_to_the_whole_way(void **state)
{
    (void)state;
    struct pair *pair = pair_create(NULL, 1, 5, false);
    struct side *other = &pair->sides[1];
    EXPECT_OK(side_start(other), NULL);
    EXPECT_STATUS(convoy_poll_abandon(other->poll, other->operation, NULL), CONVOY_BROKEN, NULL);
    EXPECT_STATUS(pair_reduce(pair), CONVOY_BROKEN, NULL);
    EXPECT_TEXT(pair->sides[0].member->error.text, "rank 11 abandoned round 2");
    EXPECT(!was_short(pair));
    pair_destroy(pair);
}

static void test_poll_quick_dead_peer_is_noticed(void **state)
{
    (void)state;
    struct pair *pair = pair_create("{\"yield_us\": 0}", 1, 5, false);
    neighbours_kill(pair->all, 1);
    EXPECT_STATUS(pair_reduce(pair), CONVOY_PEER_LOST, NULL);
    EXPECT_TEXT(pair->sides[0].member->error.text, "rank 11 was lost (its process ended) in round 2");
    EXPECT_EQUAL(pair->sides[0].recorded_status, CONVOY_PEER_LOST);
    pair_destroy(pair);
}

/* The other comes while this one does what can wait; who comes late puts that aside in short. */
static void test_poll_quick_idle_and_keep(void **state)
{
    (void)state;
    struct pair *pair = pair_create(NULL, 1, 5, true);
    struct side *side = &pair->sides[0];
    pair_round(pair, true, 3); /* the first after a rest */
    EXPECT_EQUAL(side->keeps, 1);
    EXPECT_EQUAL(side->idles, 0);
    pair_destroy(pair);
    pair = pair_create(NULL, 1, 5, false);
    side = &pair->sides[0];
    side->bring = &pair->sides[1];
    EXPECT_OK(pair_reduce(pair), &side->member->error);
    EXPECT(was_short(pair));
    EXPECT_EQUAL(side->idles, 1);
    EXPECT_EQUAL(convoy_engine_waited(side->member->engine)->kind, CONVOY_WAIT_NONE);
    EXPECT_EQUAL(convoy_engine_waited(side->member->engine)->bytes_received, 5);
    pair_destroy(pair);
}

/* A short round that is to be recorded in full. */
static void test_poll_quick_record_is_as_of_the_whole_way(void **state)
{
    (void)state;
    struct pair *pair = pair_create(NULL, 1, 5, false);
    struct side *side = &pair->sides[0];
    pair_fill(pair, 1, 5, 2, 4);
    pair_round(pair, true, 2);
    EXPECT_EQUAL(side->records, 1);
    convoy_poll_quick_record(side->poll);
    EXPECT_EQUAL(side->records, 2);
    EXPECT_EQUAL(side->recorded_round, 2);
    EXPECT_EQUAL(side->recorded_input, 2);
    EXPECT_EQUAL(side->recorded_status, CONVOY_OK);
    pair_destroy(pair);
}

/* What the engine does not note. */
static void test_poll_quick_note_is_of_usual_rounds(void **state)
{
    (void)state;
    struct pair *pair = pair_create(NULL, 1, 5, false);
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
    pair_destroy(pair);
}

/* -- with a second thread ---------------------------------------------------------------------------------------- */

static void *reduce_main(void *argument)
{
    return (void *)(intptr_t)pair_reduce(argument);
}

static void test_poll_quick_sleeper_comes_back_to_the_short_way(void **state)
{
    (void)state;
    struct pair *pair = pair_create("{\"yield_us\": 0, \"spin_pauses\": 0}", 1, 5, false);
    struct side *side = &pair->sides[0];
    pthread_t thread;
    void *status = NULL;
    pair_fill(pair, 1, 5, 4, 2);
    EXPECT_EQUAL(pthread_create(&thread, NULL, reduce_main, pair), 0);
    while (atomic_load(&convoy_segment_head(&side->member->engine->segment)->sleepers) == 0) {
        (void)sched_yield();
    }
    EXPECT_OK(side_start(&pair->sides[1]), NULL);
    EXPECT_EQUAL(pthread_join(thread, &status), 0);
    EXPECT_OK((int32_t)(intptr_t)status, &side->member->error);
    EXPECT(was_short(pair));
    EXPECT_EQUAL(side->out[0][0], 2);
    EXPECT_EQUAL(convoy_engine_waited(side->member->engine)->kind, CONVOY_WAIT_SLEEP);
    EXPECT_OK(pair_test_other(pair), NULL);
    pair_round(pair, true, 2);
    pair_destroy(pair);
}

#define THREAD_ROUNDS 500u

/* State of an identity at a member, so that neighbours differ. Nothing ends: a keyed identity that has is not asked
 * about again. */
static uint8_t state_of(uint32_t member, uint32_t round, uint64_t identity)
{
    uint64_t mixed = (identity * 7 + round * 3 + member * 11) * 0x9e3779b97f4a7c15u;
    return (uint8_t)(1 + (mixed >> 40) % 3);
}

/* Which identity an entry is; of keyed lists, every member has another order. */
static uint64_t identity_of(const struct side *side, uint32_t list, uint32_t entry)
{
    bool is_keyed = (side->lists[list].flags & CONVOY_POLL_KEYED) != 0;
    return is_keyed ? side->keys[entry] : list * 1000 + entry;
}

static void round_fill(struct side *side, uint32_t round)
{
    for (uint32_t list = 0; list < side->call.list_count; list++) {
        for (uint32_t i = 0; i < side->lists[list].count; i++) {
            side->states[list][i] = state_of(side->member->options.own_index, round, identity_of(side, list, i));
        }
    }
}

static bool round_is_right(const struct side *side, uint32_t round)
{
    bool is_right = side->result.round == round + 2;
    for (uint32_t list = 0; list < side->call.list_count && is_right; list++) {
        is_right = side->list_results[list].states_count == side->lists[list].count &&
                   side->list_results[list].unknown_count == 0 && side->out[list][side->lists[list].count] == 0xa5;
        for (uint32_t i = 0; i < side->lists[list].count && is_right; i++) {
            uint64_t identity = identity_of(side, list, i);
            uint8_t first = state_of(0, round, identity);
            uint8_t second = state_of(1, round, identity);
            is_right = side->out[list][i] == (first < second ? first : second);
        }
    }
    return is_right;
}

/* Both go the short way, each with its own states. */
static void *rounds_main(void *argument)
{
    struct side *side = argument;
    for (uint32_t round = 0; round < THREAD_ROUNDS; round++) {
        round_fill(side, round);
        if (convoy_poll_reduce(side->poll, &side->call, 0, &side->result, &side->member->error) != CONVOY_OK ||
            !round_is_right(side, round)) {
            return side;
        }
    }
    return side->poll->quick.round.input == NULL ? side : NULL;
}

static void pair_run_both(struct pair *pair)
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
        struct pair *pair = pair_create(settings[i], 1, 5, i == 0);
        pair_run_both(pair);
        pair_destroy(pair);
    }
}

/* Around all bounds of packing and of blocks. */
static void test_poll_quick_rounds_of_all_sizes(void **state)
{
    (void)state;
    for (uint32_t lists = 1; lists <= LISTS; lists += 2) {
        for (size_t entries = 7; entries < 72; entries += lists == 1 ? 1 : 5) {
            struct pair *pair = pair_create(NULL, lists, entries, true);
            pair_run_both(pair);
            pair_destroy(pair);
        }
    }
}

/* -- keyed lists ----------------------------------------------------------------------------------------------------- */

/* The second member has the same identities in another order. */
static void side_key(struct side *side, size_t entries, uint64_t salt)
{
    uint32_t shift = side->member->options.own_index * 5;
    for (size_t i = 0; i < entries; i++) {
        side->keys[i] = ((i + shift) % entries + 1) * 0x9e3779b97f4a7c15u + salt;
    }
    side->lists[0].flags = CONVOY_POLL_KEYED;
    side->lists[0].keys = side->keys;
}

static void pair_key(struct pair *pair, size_t entries, uint64_t salt)
{
    pair_fill(pair, 1, entries, 2, 3);
    side_key(&pair->sides[0], entries, salt);
    side_key(&pair->sides[1], entries, salt);
}

static struct pair *pair_create_keyed(size_t entries)
{
    struct pair *pair = pair_create(NULL, 1, entries, true);
    pair_key(pair, entries, 0);
    pair_round(pair, false, 2);
    return pair;
}

static void *keyed_main(void *argument)
{
    struct side *side = argument;
    side->result.round = 0;
    for (uint32_t round = 0; round < THREAD_ROUNDS; round++) {
        round_fill(side, round);
        int32_t status = convoy_poll_reduce(side->poll, &side->call, 0, &side->result, &side->member->error);
        side->result.round--; /* one more went before */
        if (status != CONVOY_OK || !round_is_right(side, round) ||
            side->list_results[0].outcome_count != side->lists[0].count) {
            return side;
        }
    }
    return side->poll->quick.round.input == NULL ? side : NULL;
}

static void test_poll_quick_keyed_rounds_of_all_sizes(void **state)
{
    (void)state;
    for (size_t entries = 1; entries < 72; entries += entries < 30 ? 7 : 1) {
        struct pair *pair = pair_create_keyed(entries);
        pthread_t thread;
        void *failed = NULL;
        EXPECT_EQUAL(pthread_create(&thread, NULL, keyed_main, &pair->sides[1]), 0);
        void *own = keyed_main(&pair->sides[0]);
        EXPECT_EQUAL(pthread_join(thread, &failed), 0);
        EXPECT(own == NULL && failed == NULL);
        pair_destroy(pair);
    }
}

/* `whole` brings its identities, the other member refers to the last ones. */
static void keyed_meeting(struct pair *pair, uint32_t whole)
{
    struct side *side = &pair->sides[1 - whole];
    struct side *other = &pair->sides[whole];
    EXPECT_OK(side_start(other), &other->member->error);
    EXPECT_OK(convoy_poll_reduce(side->poll, &side->call, 0, &side->result, &side->member->error), &side->member->error);
    EXPECT_OK(convoy_poll_test(other->poll, other->operation, &other->result, NULL), NULL);
}

/* The two go the short way now. */
static void pair_warm_up(struct pair *pair)
{
    for (uint32_t side = 0; side < 2; side++) {
        keyed_meeting(pair, side);
        keyed_meeting(pair, side);
        EXPECT(pair->sides[1 - side].poll->quick.engine.generation != 0);
    }
}

/* One of them may have others now. */
static void test_poll_quick_keyed_meets_the_whole_way(void **state)
{
    (void)state;
    for (size_t entries = 5; entries < 72; entries += 29) {
        for (uint32_t whole = 0; whole < 2; whole++) {
            struct pair *pair = pair_create_keyed(entries);
            pair_warm_up(pair);
            side_key(&pair->sides[whole], entries, 77); /* each lacks what the other lists */
            keyed_meeting(pair, whole);
            for (uint32_t side = 0; side < 2; side++) {
                EXPECT_EQUAL(pair->sides[side].list_results[0].outcome_count, 2 * entries);
                for (size_t i = 0; i < entries; i++) {
                    EXPECT_EQUAL(pair->sides[side].out[0][i], CONVOY_STATE_BOOTSTRAPPING);
                }
            }
            pair_key(pair, entries, 0); /* and back */
            pair_round(pair, false, 2);
            pair_round(pair, false, 2);
            pair_destroy(pair);
        }
    }
}

/* What one member refers to is what all had agreed on, not what there was before. */
static void test_poll_quick_keyed_identities_change_together(void **state)
{
    (void)state;
    struct pair *pair = pair_create_keyed(40);
    for (uint64_t salt = 1; salt < 5; salt++) {
        pair_warm_up(pair);
        pair_key(pair, 40, salt);
        pair_round(pair, false, 2);
        EXPECT_EQUAL(pair->sides[0].list_results[0].outcome_count, 40);
    }
    pair_destroy(pair);
}

/* An end is told once, and answered from then on. */
static void test_poll_quick_keyed_ends_are_remembered(void **state)
{
    (void)state;
    struct pair *pair = pair_create_keyed(5);
    memset(pair->sides[0].states[0], 4, ENTRIES);
    memset(pair->sides[1].states[0], 4, ENTRIES);
    pair_round(pair, false, 4);
    memset(pair->sides[0].states[0], 2, ENTRIES);
    pair_round(pair, false, 4);
    pair_destroy(pair);
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
        cmocka_unit_test(test_poll_quick_keyed_rounds_of_all_sizes),
        cmocka_unit_test(test_poll_quick_keyed_meets_the_whole_way),
        cmocka_unit_test(test_poll_quick_keyed_identities_change_together),
        cmocka_unit_test(test_poll_quick_keyed_ends_are_remembered),
    };
    return cmocka_run_group_tests_name("poll_quick", tests, NULL, NULL);
}
