/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/poll_pair.h"

#include "tests/lib/expect.h"

#include <stdlib.h>

static void on_record(void *user, const struct convoy_poll_record *record)
{
    struct poll_side *side = user;
    side->records++;
    side->recorded_status = record->status;
    side->recorded_round = record->round;
    side->recorded_input = record->list_count != 0 && record->lists[0].count != 0 ? record->lists[0].input[0] : 0;
}

static bool on_repeat(void *user, const struct convoy_call_values *values)
{
    struct poll_side *side = user;
    side->records++;
    side->recorded_status = CONVOY_OK;
    side->recorded_round = values->round;
    side->recorded_input = *(const uint8_t *)values->input;
    return true;
}

int32_t poll_side_start(struct poll_side *side)
{
    return convoy_poll_start(side->poll, &side->call, &side->operation, &side->member->error);
}

static void on_idle(void *user)
{
    struct poll_side *side = user;
    struct poll_side *other = side->bring;
    side->idles++;
    side->bring = NULL;
    if (other != NULL) {
        EXPECT_OK(poll_side_start(other), &other->member->error);
    }
}

static void on_keep(void *user)
{
    ((struct poll_side *)user)->keeps++;
}

static void side_fill(struct poll_side *side, uint32_t list_count, size_t entries, uint8_t state)
{
    memset(side->out, 0xa5, sizeof side->out);
    for (uint32_t i = 0; i < POLL_PAIR_LISTS; i++) {
        memset(side->states[i], state, sizeof side->states[i]);
        side->lists[i] = (struct convoy_poll_list){
            .name = "prefill", .name_length = 7, .count = entries + i, .states = side->states[i], .state_bytes = 1};
        side->list_results[i] = (struct convoy_poll_list_result){.states = side->out[i], .states_capacity = POLL_PAIR_ENTRIES};
    }
    side->call = (struct convoy_poll_call){.struct_size = sizeof side->call, .votes = 3, .lists = side->lists,
                                           .list_stride = sizeof side->lists[0], .list_count = list_count, .tag = 7};
    side->result = (struct convoy_poll_result){.struct_size = sizeof side->result, .lists = side->list_results,
                                               .list_stride = sizeof side->list_results[0], .list_capacity = POLL_PAIR_LISTS,
                                               .report = &side->member->report};
    side->member->report = (struct convoy_report){.struct_size = sizeof side->member->report,
                                                  .members = side->member->rows,
                                                  .member_stride = sizeof side->member->rows[0],
                                                  .member_capacity = NEIGHBOURS_MAX};
    side->member->error = (struct convoy_error)CONVOY_ERROR_INIT;
}

static void side_open(struct poll_pair *pair, uint32_t index, bool keeps)
{
    struct poll_side *side = &pair->sides[index];
    side->all = pair->all;
    side->member = &pair->all->members[index];
    const struct convoy_poll_options options = {.engine = side->member->engine, .group = &side->member->options,
                                                .timeout_ns = NEIGHBOURS_LONG_NS, .record = on_record,
                                                .repeat = on_repeat, .keep = keeps ? on_keep : NULL,
                                                .settle = on_idle, .record_user = side};
    EXPECT_OK(convoy_poll_open(&options, &side->poll, &side->member->error), &side->member->error);
}

void poll_pair_fill(struct poll_pair *pair, uint32_t list_count, size_t entries, uint8_t first, uint8_t second)
{
    side_fill(&pair->sides[0], list_count, entries, first);
    side_fill(&pair->sides[1], list_count, entries, second);
    pair->sides[1].call.votes = 6;
}

int32_t poll_pair_reduce(struct poll_pair *pair)
{
    struct poll_side *side = &pair->sides[0];
    side->member->error = (struct convoy_error)CONVOY_ERROR_INIT;
    return convoy_poll_reduce(side->poll, &side->call, 0, &side->result, &side->member->error);
}

int32_t poll_pair_test_other(struct poll_pair *pair)
{
    struct poll_side *side = &pair->sides[1];
    return convoy_poll_test(side->poll, side->operation, &side->result, &side->member->error);
}

bool poll_pair_was_short(const struct poll_pair *pair)
{
    return pair->sides[0].poll->quick.round.input != NULL;
}

static size_t entries_of(const struct poll_side *side)
{
    size_t entries = 0;
    for (uint32_t i = 0; i < side->call.list_count; i++) {
        entries += side->lists[i].count;
    }
    return entries;
}

/* One round; the other side first, the whole way. Whose states go by the half byte is not alone then. */
void poll_pair_round(struct poll_pair *pair, bool is_short, uint8_t state)
{
    EXPECT_OK(poll_side_start(&pair->sides[1]), &pair->sides[1].member->error);
    EXPECT_OK(poll_pair_reduce(pair), &pair->sides[0].member->error);
    EXPECT_OK(poll_pair_test_other(pair), &pair->sides[1].member->error);
    EXPECT_EQUAL(poll_pair_was_short(pair), is_short && !convoy_packed_pays(entries_of(&pair->sides[0])));
    for (uint32_t side = 0; side < 2; side++) {
        const struct poll_side *one = &pair->sides[side];
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
struct poll_pair *poll_pair_create(const char *settings, uint32_t list_count, size_t entries, bool keeps)
{
    struct poll_pair *pair = calloc(1, sizeof *pair);
    EXPECT(pair != NULL);
    pair->all = neighbours_create(2, settings, 0);
    side_open(pair, 0, keeps);
    side_open(pair, 1, keeps);
    poll_pair_fill(pair, list_count, entries, 4, 3);
    poll_pair_round(pair, false, 3);
    pair->sides[0].idles = 0;
    return pair;
}

void poll_pair_destroy(struct poll_pair *pair)
{
    convoy_poll_close(pair->sides[0].poll);
    convoy_poll_close(pair->sides[1].poll);
    neighbours_destroy(pair->all);
    free(pair);
}

/* State of an identity at a member, so that neighbours differ. Nothing ends: a keyed identity that has is not asked
 * about again. */
static uint8_t state_of(uint32_t member, uint32_t round, uint64_t identity)
{
    uint64_t mixed = (identity * 7 + round * 3 + member * 11) * 0x9e3779b97f4a7c15u;
    return (uint8_t)(1 + (mixed >> 40) % 3);
}

/* Which identity an entry is; of keyed lists, every member has another order. */
static uint64_t identity_of(const struct poll_side *side, uint32_t list, uint32_t entry)
{
    bool is_keyed = (side->lists[list].flags & CONVOY_POLL_KEYED) != 0;
    return is_keyed ? side->keys[entry] : list * 1000 + entry;
}

void poll_side_round_fill(struct poll_side *side, uint32_t round)
{
    for (uint32_t list = 0; list < side->call.list_count; list++) {
        for (uint32_t i = 0; i < side->lists[list].count; i++) {
            side->states[list][i] = state_of(side->member->options.own_index, round, identity_of(side, list, i));
        }
    }
}

bool poll_side_round_is_right(const struct poll_side *side, uint32_t round)
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
