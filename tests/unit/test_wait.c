/* SPDX-License-Identifier: Apache-2.0 */
/* How a member of one host waits: pauses, yields, sleep, and what ends each of them. */
#include "tests/lib/expect.h"
#include "tests/lib/neighbours.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* A deadline that passes; far longer than what one yield takes where others want the processor too. */
#define WAIT_NS (200 * CONVOY_NS_PER_MS)

static const char *const sleeps_at_once = "{\"yield_us\": 0, \"spin_pauses\": 0}";

/* A first round settles how many pauses there are. */
static struct neighbours *wait_create(const char *settings)
{
    struct neighbours *all = neighbours_create(2, settings, 0);
    neighbours_expect_round(all, 0, 2);
    return all;
}

static const struct convoy_stats_wait *wait_in_vain(struct neighbours *all)
{
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    EXPECT_STATUS(neighbours_wait(all, 0, WAIT_NS), CONVOY_TIMED_OUT, NULL);
    return convoy_engine_waited(all->members[0].engine);
}

static void test_wait_yields_within_its_window(void **state)
{
    (void)state;
    struct neighbours *all = wait_create("{\"yield_us\": 1000000}");
    const struct convoy_stats_wait *waited = wait_in_vain(all);
    EXPECT_EQUAL(waited->kind, CONVOY_WAIT_YIELD);
    EXPECT(waited->yields != 0);
    EXPECT_EQUAL(waited->sleeps, 0);
    neighbours_destroy(all);
}

static void test_wait_sleeps_without_a_window(void **state)
{
    (void)state;
    struct neighbours *all = wait_create(sleeps_at_once);
    const struct convoy_stats_wait *waited = wait_in_vain(all);
    EXPECT_EQUAL(waited->kind, CONVOY_WAIT_SLEEP);
    EXPECT_EQUAL(waited->yields, 0);
    EXPECT(waited->sleeps != 0);
    EXPECT_EQUAL(atomic_load(&convoy_segment_head(&all->members[0].engine->segment)->sleepers), 0);
    neighbours_destroy(all);
}

/* Waits for one operation are one: its window does not open again, its time adds up, and the look for dead peers comes when
 * it would have. */
static void test_wait_goes_on_where_the_last_one_stood(void **state)
{
    (void)state;
    struct neighbours *all = wait_create("{\"yield_us\": 100000}");
    struct convoy_engine *engine = all->members[0].engine;
    const struct convoy_stats_wait *waited = wait_in_vain(all);
    uint32_t yields = waited->yields;
    EXPECT(engine->slices.spent_ns >= WAIT_NS);
    EXPECT_STATUS(neighbours_wait(all, 0, CONVOY_NS_PER_MS), CONVOY_TIMED_OUT, NULL);
    EXPECT_EQUAL(waited->yields, yields);
    uint64_t spent_ns = engine->slices.spent_ns;
    EXPECT(spent_ns >= WAIT_NS + CONVOY_NS_PER_MS);
    engine->slices.look_at_ns = UINT64_MAX;
    EXPECT_STATUS(neighbours_wait(all, 0, CONVOY_NS_PER_MS), CONVOY_TIMED_OUT, NULL);
    EXPECT_EQUAL(engine->slices.look_at_ns, UINT64_MAX);
    spent_ns = engine->slices.spent_ns;
    EXPECT_OK(neighbours_start(all, 1, 1), NULL);
    EXPECT_OK(neighbours_wait(all, 0, CONVOY_NS_PER_MS), NULL); /* at its first look */
    EXPECT_EQUAL(waited->wait_ns, spent_ns);
    EXPECT_OK(neighbours_wait(all, 1, CONVOY_NS_PER_MS), NULL);
    (void)wait_in_vain(all); /* the next operation has a window of its own */
    EXPECT(waited->yields != 0);
    neighbours_destroy(all);
}

/* Who usually waits for longer than it could yield does so for a moment only. */
static void test_wait_short_window_when_peers_are_usually_late(void **state)
{
    (void)state;
    struct neighbours *all = wait_create("{\"yield_us\": 1000000}"); /* beyond the deadline */
    all->members[0].engine->waiting.usual_ns = 2 * CONVOY_NS_PER_S;
    EXPECT(convoy_engine_waits_long(all->members[0].engine));
    const struct convoy_stats_wait *waited = wait_in_vain(all);
    EXPECT_EQUAL(waited->kind, CONVOY_WAIT_SLEEP);
    EXPECT(waited->sleeps != 0);
    neighbours_destroy(all);
}

static void test_wait_learns_an_average_over_about_eight(void **state)
{
    (void)state;
    struct neighbours *all = wait_create(NULL);
    struct convoy_engine *engine = all->members[0].engine;
    engine->waiting.usual_ns = 0;
    engine->waited.wait_ns = 5;
    convoy_engine_wait_learn(engine, 8000);
    EXPECT_EQUAL(engine->waiting.usual_ns, 1000);
    EXPECT_EQUAL(engine->waited.wait_ns, 8005);
    convoy_engine_wait_learn(engine, 0);
    EXPECT_EQUAL(engine->waiting.usual_ns, 875);
    for (uint32_t i = 0; i < 100; i++) {
        convoy_engine_wait_learn(engine, 8000);
    }
    EXPECT(engine->waiting.usual_ns > 7900 && engine->waiting.usual_ns <= 8000);
    neighbours_destroy(all);
}

/* Which processors members may run on, and how many pauses that leaves. */
struct crowd {
    uint64_t cpus[2]; /* of member 0 and 1 */
    bool is_open;     /* member 1 has opened */
    uint32_t pauses;
    bool is_settled;
};

static void test_wait_pauses_only_with_a_processor_for_each(void **state)
{
    (void)state;
    static const struct crowd crowds[] = {
        {{1, 1}, true, 0, true},  {{1, 2}, true, 70, true}, {{3, 3}, true, 70, true},
        {{4, 4}, true, 0, true},  {{1, 2}, false, 9, false},
    };
    struct neighbours *all = wait_create("{\"spin_pauses\": 70}");
    struct convoy_engine *engine = all->members[0].engine;
    for (uint32_t i = 0; i < sizeof crowds / sizeof crowds[0]; i++) {
        for (uint32_t member = 0; member < 2; member++) {
            struct convoy_member_slot *slot = convoy_segment_slot(&engine->segment, member);
            for (uint32_t word = 0; word < CONVOY_CPU_WORDS; word++) {
                atomic_store(&slot->cpus[word], word == 0 ? crowds[i].cpus[member] : 0);
            }
            atomic_store(&slot->opened, member == 0 || crowds[i].is_open);
        }
        engine->waiting.is_settled = false;
        engine->waiting.pauses = 9;
        EXPECT_OK(neighbours_start(all, 0, 1), NULL);
        EXPECT_OK(neighbours_start(all, 1, 1), NULL);
        EXPECT_OK(neighbours_wait(all, 0, NEIGHBOURS_LONG_NS), NULL);
        EXPECT_OK(neighbours_test(all, 1), NULL);
        EXPECT_EQUAL(engine->waiting.pauses, crowds[i].pauses);
        EXPECT_EQUAL(engine->waiting.is_settled, crowds[i].is_settled);
        EXPECT_EQUAL(convoy_engine_waited(engine)->kind, CONVOY_WAIT_NONE); /* it was over before */
    }
    neighbours_destroy(all);
}

/* Whom a member that is late was last seen to share its processor with. */
enum late_seat { LATE_ELSEWHERE, LATE_HERE, LATE_UNKNOWN };

static void late_sits(struct convoy_engine *engine, enum late_seat seat)
{
    uint32_t own = atomic_load(&convoy_segment_slot(&engine->segment, 0)->seat);
    uint32_t theirs = seat == LATE_ELSEWHERE ? own + 1 : seat == LATE_HERE ? own : 0;
    atomic_store(&convoy_segment_slot(&engine->segment, 1)->seat, theirs);
}

/* The shortest of many: what it takes when nobody else wants the processor. */
static uint64_t shortest_watch_ns(struct convoy_engine *engine, enum late_seat seat)
{
    uint64_t shortest = UINT64_MAX;
    for (uint32_t i = 0; i < 200; i++) {
        late_sits(engine, seat); /* again each time: this member may have moved */
        uint64_t started = convoy_now_ns();
        convoy_engine_seat_watch(engine, atomic_load(&engine->round));
        uint64_t took = convoy_now_ns() - started;
        shortest = took < shortest ? took : shortest;
    }
    return shortest;
}

/* Where members outnumber processors, a late one is looked for without a yield only if it does not need this processor. */
static void test_wait_watches_for_who_is_late_elsewhere(void **state)
{
    (void)state;
    struct neighbours *all = wait_create(NULL);
    struct convoy_engine *engine = all->members[0].engine;
    cpu_set_t before;
    cpu_set_t one;
    EXPECT_EQUAL(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    EXPECT_EQUAL(sched_setaffinity(0, sizeof one, &one), 0);
    engine->waiting.pauses = 0;
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    convoy_engine_seat_watch(engine, atomic_load(&engine->round)); /* says where this member sits */
    EXPECT_EQUAL(atomic_load(&convoy_segment_slot(&engine->segment, 0)->seat), (uint32_t)sched_getcpu() + 1);
    EXPECT(shortest_watch_ns(engine, LATE_ELSEWHERE) >= 10000);
    EXPECT(shortest_watch_ns(engine, LATE_HERE) < 10000);
    EXPECT(shortest_watch_ns(engine, LATE_UNKNOWN) < 10000);
    EXPECT_OK(neighbours_start(all, 1, 1), NULL); /* nobody is late any more */
    EXPECT(shortest_watch_ns(engine, LATE_ELSEWHERE) < 10000);
    EXPECT_EQUAL(sched_setaffinity(0, sizeof before, &before), 0);
    EXPECT_OK(neighbours_wait(all, 0, NEIGHBOURS_LONG_NS), NULL);
    EXPECT_OK(neighbours_test(all, 1), NULL);
    neighbours_destroy(all);
}

/* -- with a second thread ---------------------------------------------------------------------------------------- */

static void *wait_main(void *argument)
{
    struct neighbours *all = argument;
    return (void *)(intptr_t)neighbours_wait(all, 0, NEIGHBOURS_LONG_NS);
}

/* Returns once the thread sleeps, or is about to: its announcement is what others go by. */
static pthread_t wait_asleep(struct neighbours *all)
{
    pthread_t thread;
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    EXPECT_EQUAL(pthread_create(&thread, NULL, wait_main, all), 0);
    while (atomic_load(&convoy_segment_head(&all->members[1].engine->segment)->sleepers) == 0) {
        (void)sched_yield();
    }
    return thread;
}

static int32_t wait_result(pthread_t thread)
{
    void *result = NULL;
    EXPECT_EQUAL(pthread_join(thread, &result), 0);
    return (int32_t)(intptr_t)result;
}

static void test_wait_sleeper_is_woken_by_who_contributes(void **state)
{
    (void)state;
    struct neighbours *all = wait_create("{\"yield_us\": 0, \"spin_pauses\": 0, \"liveness_ms\": 1000}");
    pthread_t thread = wait_asleep(all);
    all->members[1].engine->waited.wakes = 0;
    EXPECT_OK(neighbours_start(all, 1, 2), NULL);
    EXPECT_OK(wait_result(thread), &all->members[0].error);
    EXPECT_EQUAL(all->members[0].sum, 3);
    EXPECT_EQUAL(convoy_engine_waited(all->members[0].engine)->kind, CONVOY_WAIT_SLEEP);
    EXPECT(convoy_engine_waited(all->members[1].engine)->wakes <= 1); /* 0: it was between two looks */
    EXPECT_EQUAL(convoy_engine_waited(all->members[0].engine)->bytes_received, 1);
    neighbours_destroy(all);
}

static void test_wait_sleeper_is_woken_by_a_cancel(void **state)
{
    (void)state;
    struct neighbours *all = wait_create(sleeps_at_once);
    pthread_t thread = wait_asleep(all);
    convoy_engine_cancel(all->members[0].engine, "enough", 6);
    EXPECT_STATUS(wait_result(thread), CONVOY_CANCELED, NULL);
    EXPECT_TEXT(all->members[0].error.text, "round 2 was canceled: enough");
    EXPECT_OK(neighbours_start(all, 1, 2), NULL);
    EXPECT_OK(neighbours_test(all, 0), NULL);
    neighbours_destroy(all);
}

static void test_wait_sleeper_looks_for_the_dead(void **state)
{
    (void)state;
    struct neighbours *all = wait_create(sleeps_at_once);
    pthread_t thread = wait_asleep(all);
    neighbours_kill(all, 1);
    EXPECT_STATUS(wait_result(thread), CONVOY_PEER_LOST, NULL);
    EXPECT_TEXT(all->members[0].error.text, "rank 11 was lost");
    neighbours_destroy(all);
}

static void test_wait_sleeper_hears_a_goodbye(void **state)
{
    (void)state;
    struct neighbours *all = wait_create("{\"yield_us\": 0, \"liveness_ms\": 1000}");
    pthread_t thread = wait_asleep(all);
    neighbours_close(all, 1);
    EXPECT_STATUS(wait_result(thread), CONVOY_PEER_LOST, NULL);
    EXPECT_TEXT(all->members[0].error.text, "rank 11 closed the group in round 2");
    neighbours_destroy(all);
}

/* Members that are threads of their own, round after round; the pauses are many, so that some rounds end in them. */
static void *rounds_main(void *argument)
{
    struct neighbour *member = argument;
    struct neighbours *all = member->all;
    uint32_t index = (uint32_t)(member - all->members);
    for (uint32_t round = 0; round < 200; round++) {
        if (neighbours_start(all, index, (uint8_t)(round + index)) != CONVOY_OK ||
            neighbours_wait(all, index, NEIGHBOURS_LONG_NS) != CONVOY_OK || member->sum != 2u * (uint8_t)round + 1) {
            return member;
        }
    }
    return NULL;
}

static void test_wait_rounds_of_two_threads(void **state)
{
    (void)state;
    static const char *const settings[] = {NULL, "{\"spin_pauses\": 100000}", "{\"yield_us\": 0, \"spin_pauses\": 0}"};
    for (uint32_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        struct neighbours *all = neighbours_create(2, settings[i], 0);
        pthread_t thread;
        void *failed = NULL;
        EXPECT_EQUAL(pthread_create(&thread, NULL, rounds_main, &all->members[1]), 0);
        void *own = rounds_main(&all->members[0]);
        EXPECT_EQUAL(pthread_join(thread, &failed), 0);
        EXPECT(own == NULL && failed == NULL);
        EXPECT_EQUAL(all->members[0].summary.round, 200);
        neighbours_destroy(all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wait_yields_within_its_window),
        cmocka_unit_test(test_wait_sleeps_without_a_window),
        cmocka_unit_test(test_wait_goes_on_where_the_last_one_stood),
        cmocka_unit_test(test_wait_short_window_when_peers_are_usually_late),
        cmocka_unit_test(test_wait_learns_an_average_over_about_eight),
        cmocka_unit_test(test_wait_pauses_only_with_a_processor_for_each),
        cmocka_unit_test(test_wait_watches_for_who_is_late_elsewhere),
        cmocka_unit_test(test_wait_sleeper_is_woken_by_who_contributes),
        cmocka_unit_test(test_wait_sleeper_is_woken_by_a_cancel),
        cmocka_unit_test(test_wait_sleeper_looks_for_the_dead),
        cmocka_unit_test(test_wait_sleeper_hears_a_goodbye),
        cmocka_unit_test(test_wait_rounds_of_two_threads),
    };
    return cmocka_run_group_tests_name("wait", tests, NULL, NULL);
}
