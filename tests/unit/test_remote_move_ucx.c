/* SPDX-License-Identifier: Apache-2.0 */
/* Members that are hosts of their own, over real links and with their progress threads, move while the others go on with
 * rounds. What lies beside the links is taken over as it is: plugin/move.h has the whole. */
#include "round/remote_internal.h"

#include "core/bundle.h"
#include "tests/lib/expect.h"
#include "tests/lib/neighbours.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MEMBERS 3u
#define MOVES 20u
#define ROUNDS_BETWEEN 7u /* and the member's index: they move at different times, and together now and then */

/* NULL: it failed, and nothing has changed. */
static struct convoy_engine *move_import(struct convoy_engine *from, struct convoy_error *error)
{
    struct convoy_bundle_writer bundle = {0};
    struct convoy_bundle_reader reader;
    struct convoy_bundle_item item;
    struct convoy_engine *to = convoy_memory_aligned(CONVOY_LINE_BYTES, sizeof *to);
    memcpy(to, from, sizeof *to);
    to->remote = NULL;
    convoy_bundle_begin(&bundle);
    size_t opened = convoy_bundle_open(&bundle, 1, 0);
    int32_t status = convoy_remote_save(from, &bundle, error);
    convoy_bundle_shut(&bundle, opened);
    status = status == CONVOY_OK ? convoy_bundle_end(&bundle, error) : status;
    status = status == CONVOY_OK ? convoy_bundle_read(bundle.data, bundle.used, &reader, error) : status;
    if (status == CONVOY_OK && convoy_bundle_next(&reader, &item)) {
        status = convoy_remote_restore(to, &item, error);
    }
    convoy_bundle_free(&bundle);
    if (status == CONVOY_OK) {
        return to;
    }
    convoy_memory_free(to);
    return NULL;
}

static bool move_member(struct neighbour *member, uint64_t *pause_ns, uint64_t *leave_ns)
{
    struct convoy_engine *from = member->engine;
    uint64_t started = convoy_now_ns();
    if (convoy_remote_freeze(from, &member->error) != CONVOY_OK) {
        return false;
    }
    struct convoy_engine *to = move_import(from, &member->error);
    if (to == NULL || convoy_remote_thaw(to, &member->error) != CONVOY_OK) {
        return false;
    }
    uint64_t thawed = convoy_now_ns();
    member->engine = to;
    convoy_remote_retire(from);
    convoy_memory_free(from);
    *pause_ns = thawed - started > *pause_ns ? thawed - started : *pause_ns;
    uint64_t left = convoy_now_ns() - thawed;
    *leave_ns = left > *leave_ns ? left : *leave_ns;
    return true;
}

static void *rounds_main(void *argument)
{
    struct neighbour *member = argument;
    struct neighbours *all = member->all;
    uint32_t index = (uint32_t)(member - all->members);
    uint32_t rounds = (ROUNDS_BETWEEN + MEMBERS) * MOVES;
    uint32_t moves = 0;
    uint64_t pause_ns = 0;
    uint64_t leave_ns = 0;
    for (uint32_t round = 1; round <= rounds; round++) {
        if (neighbours_start(all, index, (uint8_t)(round + index)) != CONVOY_OK ||
            neighbours_wait(all, index, NEIGHBOURS_LONG_NS) != CONVOY_OK || member->summary.round != round) {
            return member;
        }
        uint32_t sum = 0;
        for (uint32_t i = 0; i < MEMBERS; i++) {
            sum += (uint8_t)(round + i);
        }
        if (member->sum != sum) {
            return member;
        }
        if (round % (ROUNDS_BETWEEN + index) == 0 && moves < MOVES) {
            moves++;
            if (!move_member(member, &pause_ns, &leave_ns)) {
                return member;
            }
        }
    }
    print_message("rank %u: %u moves, pause at most %llu us, exporter gone after %llu us\n", index, moves,
                  (unsigned long long)pause_ns / 1000, (unsigned long long)leave_ns / 1000);
    return NULL;
}

static void test_remote_move_ucx_rounds_go_on(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(MEMBERS, "{\"net\": \"ucx\"}", 0);
    pthread_t threads[MEMBERS];
    void *failed = NULL;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        EXPECT_EQUAL(pthread_create(&threads[i], NULL, rounds_main, &all->members[i]), 0);
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        void *result = NULL;
        EXPECT_EQUAL(pthread_join(threads[i], &result), 0);
        failed = failed == NULL ? result : failed;
    }
    EXPECT_TEXT(failed != NULL ? ((struct neighbour *)failed)->error.text : "", "");
    EXPECT(failed == NULL);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        const struct convoy_engine_counters *counters = convoy_engine_counters(all->members[i].engine);
        EXPECT_EQUAL(counters->members_lost, 0);
        EXPECT(counters->rewires > MOVES);
    }
    neighbours_destroy(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remote_move_ucx_rounds_go_on),
    };
    return cmocka_run_group_tests_name("remote_move_ucx", tests, NULL, NULL);
}
