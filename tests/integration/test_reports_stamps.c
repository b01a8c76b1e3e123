/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metadata slots that are used again while an older write is on its way, as users met it under load: two members
 * reduce, a third process writes stamps and payloads late, and every payload carries its owner.
 */
#include "tests/lib/crowd.h"
#include "tests/lib/expect.h"
#include "tests/lib/scale.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS 2u
#define SLOTS 64u
#define LIVE 32u
#define KEYS 48u /* a number comes again soon, in the next generation */
#define JOBS 65536u
#define REQUESTS 3000u
#define REQUESTS_FULL 100000u
#define LAG_MAX 24u /* writes that wait at most; below LIVE, so that somebody always gets its payload */

/* One member's slot: what the writer leaves there. The key is written last. */
struct slot {
    _Atomic uint64_t key; /* 0 = not written */
    _Atomic uint64_t generation;
    _Atomic uint64_t owner; /* the payload: the request that it belongs to */
};

struct job {
    uint32_t slot;
    uint32_t serial;
};

/* A member orders writes here, the writer takes them, in order, some time later. */
struct lane {
    struct slot slots[SLOTS];
    struct job jobs[JOBS];
    _Atomic uint32_t ordered;
    _Atomic uint32_t is_over;
};

struct shared {
    struct lane lanes[MEMBERS];
};

/* One member's scheduler. */
struct scheduler {
    struct lane *lane;
    uint32_t next;
    uint32_t free_slots[SLOTS]; /* a stack: what was freed last is used first */
    uint32_t free_count;
    uint32_t serials[LIVE];
    uint32_t slots[LIVE];
    uint64_t born[LIVE];
    uint32_t accepted;
    uint32_t foreign;
    /* the call */
    uint8_t states[LIVE];
    uint8_t states_out[LIVE];
    uint64_t keys[LIVE];
    uint32_t generations[LIVE];
    struct convoy_poll_stamp stamps[LIVE];
};

static uint64_t key_of(uint32_t serial)
{
    return 1 + serial % KEYS;
}

static void request_admit(struct scheduler *scheduler, uint32_t at, uint64_t round)
{
    struct lane *lane = scheduler->lane;
    uint32_t job = atomic_load_explicit(&lane->ordered, memory_order_relaxed);
    scheduler->serials[at] = scheduler->next++;
    scheduler->slots[at] = scheduler->free_slots[--scheduler->free_count];
    scheduler->born[at] = round;
    lane->jobs[job % JOBS] = (struct job){scheduler->slots[at], scheduler->serials[at]};
    atomic_store_explicit(&lane->ordered, job + 1, memory_order_release);
}

/* Every third request is canceled before its write may have come, so that its slot goes on with a write under way. */
static void request_poll(struct scheduler *scheduler, uint32_t at, uint64_t round)
{
    uint32_t serial = scheduler->serials[at];
    struct slot *slot = &scheduler->lane->slots[scheduler->slots[at]];
    bool is_canceled = serial % 3 == 0 && round >= scheduler->born[at] + 1 + serial % 4;
    scheduler->states[at] = is_canceled ? CONVOY_STATE_FAILED : CONVOY_STATE_SUCCESS;
    scheduler->keys[at] = key_of(serial);
    scheduler->generations[at] = serial / KEYS;
    scheduler->stamps[at].key = atomic_load_explicit(&slot->key, memory_order_acquire);
    scheduler->stamps[at].generation = (uint32_t)atomic_load_explicit(&slot->generation, memory_order_relaxed);
    scheduler->stamps[at].has_generation = 1;
}

static void requests_reduce(struct scheduler *scheduler, struct plugin_member *member)
{
    const struct convoy_poll_list list = {.count = LIVE,
                                          .states = scheduler->states,
                                          .flags = CONVOY_POLL_KEYED,
                                          .keys = scheduler->keys,
                                          .generations = scheduler->generations,
                                          .gate = CONVOY_GATE_IDENTITY,
                                          .stamps = scheduler->stamps};
    const struct convoy_poll_call call = {
        .struct_size = sizeof call, .lists = &list, .list_stride = sizeof list, .list_count = 1};
    struct convoy_poll_list_result list_result = {.states = scheduler->states_out, .states_capacity = LIVE};
    struct convoy_poll_result result = {.struct_size = sizeof result,
                                        .lists = &list_result,
                                        .list_stride = sizeof list_result,
                                        .list_capacity = 1};
    EXPECT_OK(member->plugin.poll->reduce(member->group, &call, CROWD_WAIT_NS, &result, &member->error),
              &member->error);
    scheduler->foreign += list_result.foreign_count;
}

static void request_end(struct scheduler *scheduler, uint32_t at, uint64_t round)
{
    if (scheduler->states_out[at] == CONVOY_STATE_SUCCESS) {
        struct slot *slot = &scheduler->lane->slots[scheduler->slots[at]];
        EXPECT_EQUAL(atomic_load(&slot->owner), scheduler->serials[at]);
        scheduler->accepted++;
    } else if (scheduler->states_out[at] != CONVOY_STATE_FAILED) {
        EXPECT_EQUAL(scheduler->states_out[at], CONVOY_STATE_TRANSFERRING);
        return;
    }
    scheduler->free_slots[scheduler->free_count++] = scheduler->slots[at];
    request_admit(scheduler, at, round);
}

static void member_run(const struct rank *rank, const struct crowd *crowd)
{
    struct shared *shared = rank->shared;
    struct scheduler scheduler = {.lane = &shared->lanes[rank->index], .next = 1};
    struct plugin_member *member = plugin_member_create(rank->index, MEMBERS, "stamps", crowd->ports[0]);
    plugin_member_open(member);
    for (uint32_t i = 0; i < SLOTS; i++) {
        scheduler.free_slots[scheduler.free_count++] = i;
    }
    for (uint32_t i = 0; i < LIVE; i++) {
        request_admit(&scheduler, i, 0);
    }
    const uint32_t requests = test_scaled(REQUESTS, REQUESTS_FULL);
    for (uint64_t round = 1; scheduler.next < requests; round++) {
        for (uint32_t i = 0; i < LIVE; i++) {
            request_poll(&scheduler, i, round);
        }
        requests_reduce(&scheduler, member);
        for (uint32_t i = 0; i < LIVE; i++) {
            request_end(&scheduler, i, round);
        }
    }
    EXPECT(scheduler.accepted > requests / 10);
    EXPECT(scheduler.foreign > 0); /* there were older writes to fall for */
    atomic_store(&scheduler.lane->is_over, 1);
    rank_barrier_of(rank, 1, MEMBERS);
    plugin_member_destroy(member);
}

static void write_job(struct lane *lane, const struct job *job)
{
    struct slot *slot = &lane->slots[job->slot];
    atomic_store_explicit(&slot->key, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&slot->owner, job->serial, memory_order_relaxed);
    atomic_store_explicit(&slot->generation, job->serial / KEYS, memory_order_relaxed);
    atomic_store_explicit(&slot->key, key_of(job->serial), memory_order_release);
}

/* Leaves up to LAG_MAX ordered writes undone, another number after every write. */
static void writer_run(struct shared *shared)
{
    uint32_t done[MEMBERS] = {0};
    for (uint32_t over = 0; over < MEMBERS;) {
        over = 0;
        for (uint32_t i = 0; i < MEMBERS; i++) {
            struct lane *lane = &shared->lanes[i];
            uint32_t lag = (done[i] * 2654435761u >> 16) % (LAG_MAX + 1);
            if (atomic_load_explicit(&lane->ordered, memory_order_acquire) > done[i] + lag) {
                write_job(lane, &lane->jobs[done[i]++ % JOBS]);
            }
            over += atomic_load(&lane->is_over) != 0;
        }
        (void)sched_yield();
    }
}

static void run(const struct rank *rank, void *crowd)
{
    if (rank->index < MEMBERS) {
        member_run(rank, crowd);
    } else {
        writer_run(rank->shared);
    }
}

/* sgl-project/sglang issues 17259 and 22716, PR 17430: 64 slots, 32 live requests, writes that come late into slots
 * that have a new owner by then. The gate compares key and generation; not one foreign payload is accepted. */
static void test_reports_stamps_late_writes_are_never_taken_for_the_new_owner(void **state)
{
    (void)state;
    crowd_run(MEMBERS + 1, run, sizeof(struct shared));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports_stamps_late_writes_are_never_taken_for_the_new_owner),
    };
    return cmocka_run_group_tests_name("reports_stamps", tests, NULL, NULL);
}
