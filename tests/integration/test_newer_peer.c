/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer of a newer release brings states that this one does not know. There is no such release yet, so rank 1 plays it:
 * it opens the group as usual, and then writes its cells of the shared segment by itself.
 */
#include "tests/lib/describe.h"
#include "tests/lib/exchange.h"
#include "tests/lib/expect.h"
#include "tests/lib/ranks.h"

#include "round/cell.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define NEWER_STATES 96u
#define NEWER_USUAL 4u /* rounds in which it behaves, so that its cells can be told by what lies in them */
#define NEWER_STILL 2500u
#define NEWER_LONG_NS 20000000000ull
#define NEWER_UNKNOWN 7u
#define NEWER_GENERATION 1u

/* What rank 1 sees of the segment: the cells of both members, by parity. */
struct newer_peer {
    struct convoy_cell *cells[2][2];
};

static uint8_t newer_state(uint32_t rank, size_t at)
{
    return (uint8_t)((at * 7 + rank * 3 + at / 5) % 5);
}

static void newer_fill(struct exchange *exchange, uint32_t rank)
{
    exchange_init(exchange, NEWER_STATES, 0);
    for (size_t i = 0; i < NEWER_STATES; i++) {
        exchange->states[i] = newer_state(rank, i);
    }
    exchange->result.report = NULL;
}

/* The one memfd that this process has mapped. */
static uint8_t *newer_segment(size_t *bytes_out)
{
    char line[512];
    unsigned long start = 0;
    unsigned long end = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    EXPECT(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL &&
           (strstr(line, "memfd") == NULL || sscanf(line, "%lx-%lx rw-s", &start, &end) != 2)) {
    }
    (void)fclose(maps);
    EXPECT(end > start);
    *bytes_out = end - start;
    return (uint8_t *)start; /* NOLINT(performance-no-int-to-ptr) */
}

static void newer_find(struct newer_peer *peer)
{
    size_t bytes;
    uint8_t *base = newer_segment(&bytes);
    const size_t before = offsetof(struct convoy_cell, payload);
    memset(peer, 0, sizeof *peer);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct exchange exchange;
        newer_fill(&exchange, rank);
        for (size_t at = before; at + NEWER_STATES <= bytes; at += CONVOY_CELL_INLINE_BYTES) {
            if (memcmp(base + at, exchange.states, NEWER_STATES) == 0) {
                struct convoy_cell *cell = (struct convoy_cell *)(void *)(base + at - before);
                peer->cells[rank][atomic_load(&cell->word) & 1] = cell;
            }
        }
        EXPECT(peer->cells[rank][0] != NULL && peer->cells[rank][1] != NULL);
    }
}

/* Waits for rank 0's contribution and brings the same round, with one state that is not known if so wanted. */
static void newer_come(const struct newer_peer *peer, uint64_t round, bool is_newer)
{
    const struct convoy_cell *theirs = peer->cells[0][round & 1];
    struct convoy_cell *own = peer->cells[1][round & 1];
    uint8_t *payload = (uint8_t *)own + offsetof(struct convoy_cell, payload);
    const uint64_t word = convoy_word(NEWER_GENERATION, round);
    while (atomic_load(&theirs->word) != word) { /* ends with the test's deadline */
        (void)sched_yield();
    }
    own->cold = theirs->cold;
    own->fingerprint = theirs->fingerprint;
    own->votes = theirs->votes;
    own->info = theirs->info;
    own->tag = theirs->tag;
    for (size_t i = 0; i < NEWER_STATES; i++) {
        payload[i] = is_newer && i == NEWER_STATES - 1 ? NEWER_UNKNOWN : newer_state(1, i);
    }
    atomic_store(&own->word, word);
}

static void newer_expect(const struct exchange *exchange, bool is_newer)
{
    for (size_t i = 0; i < NEWER_STATES; i++) {
        uint8_t mine = newer_state(0, i);
        uint8_t theirs = newer_state(1, i);
        theirs = is_newer && i == NEWER_STATES - 1 ? CONVOY_STATE_BOOTSTRAPPING : theirs;
        EXPECT_EQUAL(exchange->states_out[i], mine < theirs ? mine : theirs);
    }
    EXPECT_EQUAL(exchange->list_result.unknown_count, is_newer);
}

static void newer_reduce(struct plugin_member *member, bool is_newer)
{
    struct exchange exchange;
    newer_fill(&exchange, 0);
    EXPECT_OK(exchange_reduce(&exchange, member, NEWER_LONG_NS), &member->error);
    newer_expect(&exchange, is_newer);
}

/* The result is not taken, so nobody was told of the unknown state; the next call's result is its own. */
static void newer_reduce_without_room(struct plugin_member *member)
{
    struct exchange exchange;
    convoy_operation operation = 0;
    newer_fill(&exchange, 0);
    exchange.list_result.states_capacity = NEWER_STATES - 1;
    EXPECT_OK(member->plugin.poll->reduce_start(member->group, &exchange.call, &operation, &member->error),
              &member->error);
    EXPECT_STATUS(member->plugin.poll->reduce_wait(member->group, operation, NEWER_LONG_NS, &exchange.result,
                                                   &member->error),
                  CONVOY_BUFFER_TOO_SMALL, &member->error);
}

static void newer_rank(const struct rank *rank, void *argument)
{
    struct plugin_member *member = plugin_member_create(rank->index, 2, "newer", *(const uint16_t *)argument);
    struct newer_peer peer;
    plugin_member_open(member);
    for (uint32_t i = 0; i < NEWER_USUAL; i++) {
        struct exchange exchange;
        newer_fill(&exchange, rank->index);
        EXPECT_OK(exchange_reduce(&exchange, member, NEWER_LONG_NS), &member->error);
        newer_expect(&exchange, false);
    }
    rank_barrier(rank);
    if (rank->index == 1) {
        newer_find(&peer);
    }
    rank_barrier(rank);
    uint64_t round = NEWER_USUAL + 1;
    for (uint32_t i = 0; i < NEWER_STILL; i++) {
        rank->index == 0 ? newer_reduce(member, true) : newer_come(&peer, round++, true);
    }
    rank->index == 0 ? newer_reduce(member, false) : newer_come(&peer, round++, false);
    rank->index == 0 ? newer_reduce_without_room(member) : newer_come(&peer, round++, true);
    rank->index == 0 ? newer_reduce(member, false) : newer_come(&peer, round++, false);
    if (rank->index == 0) {
        json_t *stats = describe_group(member, CONVOY_TOPIC_STATS);
        EXPECT_EQUAL(describe_number(stats, "operations.poll.rounds.OK"), NEWER_USUAL + NEWER_STILL + 3);
        EXPECT_EQUAL(describe_number(stats, "operations.poll.unknown_states"), NEWER_STILL);
        EXPECT_EQUAL(describe_number(stats, "events.stall"), NEWER_STILL / 1000);
        json_decref(stats);
    }
    rank_barrier(rank);
    plugin_member_destroy(member);
}

/* They count as Bootstrapping, are counted, and do not look like progress. */
static void test_newer_peer_states_are_bootstrapping_in_every_round(void **state)
{
    (void)state;
    uint16_t port = plugin_port();
    struct ranks *ranks = ranks_create(2, 4096);
    ranks_start(ranks, newer_rank, &port, 0);
    ranks_finish(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newer_peer_states_are_bootstrapping_in_every_round),
    };
    return cmocka_run_group_tests_name("newer_peer", tests, NULL, NULL);
}
