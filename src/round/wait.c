/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for the others. A cross-core wake costs tens of microseconds in a virtual machine, a cache line 0.1, a yield
 * 0.6, so: a few pauses (only when members do not outnumber processors: a spinner would keep the late one from
 * running), then yield, and a futex only after a long idle. How long to yield follows how late peers usually are: who
 * waits longer than the yield window anyway goes to sleep early.
 */
#include "core/hot.h"
#include "round/engine_internal.h"
#include "round/remote.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WAIT_YIELD_MIN_NS 100000u
#define WAIT_USUAL_SHIFT 3 /* moving average over about 8 waits */
#define WAIT_LOOKS_MIN 64u   /* between two yields, where there is a processor for each member: about three times as long */
#define WAIT_LOOKS_MAX 1024u /* as a yield, during which nothing is noticed; and more where nobody else wants the processor */
#define WAIT_YIELD_ALONE_NS 5000u /* who is back that soon was alone */

/* How many processors the members of this host may run on together; 0 while a member is still opening. */
static uint32_t wait_cpu_count(const struct convoy_engine *engine)
{
    uint32_t count = 0;
    for (uint32_t word = 0; word < CONVOY_CPU_WORDS; word++) {
        uint64_t cpus = 0;
        for (uint32_t local = 0; local < engine->local_count; local++) {
            struct convoy_member_slot *slot = convoy_segment_slot(&engine->segment, local);
            if (atomic_load(&slot->opened) == 0) {
                return 0;
            }
            cpus |= atomic_load_explicit(&slot->cpus[word], memory_order_relaxed);
        }
        count += (uint32_t)__builtin_popcountll(cpus);
    }
    return count;
}

void convoy_engine_waiting_init(struct convoy_engine *engine)
{
    struct convoy_member_slot *slot = convoy_segment_slot(&engine->segment, engine->local_index);
    uint64_t mask[CONVOY_CPU_WORDS] = {0};
    if (syscall(SYS_sched_getaffinity, 0, sizeof mask, mask) <= 0) { /* raw: the size of the mask is ours to choose */
        mask[0] = 1;
    }
    for (uint32_t word = 0; word < CONVOY_CPU_WORDS; word++) {
        atomic_store_explicit(&slot->cpus[word], mask[word], memory_order_relaxed);
    }
    atomic_store(&slot->opened, 1);
}

static void wait_settle(struct convoy_engine *engine)
{
    uint32_t cpus = wait_cpu_count(engine);
    if (cpus != 0) {
        bool is_crowded = engine->local_count > cpus;
        engine->waiting.pauses = is_crowded ? 0 : (uint32_t)engine->runtime->settings.spin_pauses;
        engine->waiting.looks = WAIT_LOOKS_MIN;
        engine->waiting.is_settled = true;
    }
}

static uint64_t wait_yield_window(const struct convoy_engine *engine)
{
    uint64_t most = engine->runtime->settings.yield_us * 1000;
    uint64_t window = engine->waiting.usual_ns * 4;
    if (engine->waiting.usual_ns > most) { /* usually later than yielding could bridge: do not burn the window */
        window = WAIT_YIELD_MIN_NS;
    } else if (window < most / 2) {
        window = most / 2;
    }
    return window < most ? window : most;
}

CONVOY_HOT
void convoy_engine_wait_learn(struct convoy_engine *engine, uint64_t waited_ns)
{
    engine->waited.wait_ns += waited_ns;
    uint64_t usual = engine->waiting.usual_ns;
    engine->waiting.usual_ns = usual - (usual >> WAIT_USUAL_SHIFT) + (waited_ns >> WAIT_USUAL_SHIFT);
}

/* Never misses a wake: the announcement, the last look and the publisher's swap and look are one total order (seal.c). */
void convoy_engine_sleep(struct convoy_engine *engine, uint64_t ns)
{
    struct convoy_segment_head *head = convoy_segment_head(&engine->segment);
    struct timespec timeout = {.tv_sec = (time_t)(ns / CONVOY_NS_PER_S), .tv_nsec = (long)(ns % CONVOY_NS_PER_S)};
    (void)atomic_fetch_add(&head->sleepers, 1);
    uint32_t wake = atomic_load(&head->wake);
    if (convoy_engine_collect(engine) == CONVOY_IN_PROGRESS && atomic_load(&engine->cancel_requested) == 0) {
        /* EINTR and EAGAIN end the slice early, which is harmless: the caller looks again. */
        (void)syscall(SYS_futex, (void *)&head->wake, FUTEX_WAIT, wake, &timeout, NULL, 0);
    }
    (void)atomic_fetch_sub(&head->sleepers, 1);
}

/* Who is asked to end the wait: this engine, the one beside it, or nobody (NULL). */
static struct convoy_engine *wait_find_cancel(struct convoy_engine *engine)
{
    struct convoy_engine *beside = engine->beside;
    if (atomic_load(&engine->cancel_requested) != 0) {
        return engine;
    }
    return beside != NULL && atomic_load(&beside->cancel_requested) != 0 ? beside : NULL;
}

static int32_t wait_canceled(struct convoy_engine *engine, struct convoy_engine *by)
{
    atomic_store(&by->cancel_requested, 0);
    if (by != engine) { /* the words that were said there */
        char text[CONVOY_CANCEL_TEXT_BYTES];
        (void)pthread_mutex_lock(&by->report_lock);
        memcpy(text, by->cancel_text, sizeof text);
        (void)pthread_mutex_unlock(&by->report_lock);
        (void)pthread_mutex_lock(&engine->report_lock);
        memcpy(engine->cancel_text, text, sizeof text);
        (void)pthread_mutex_unlock(&engine->report_lock);
    }
    atomic_store(&engine->was_stuck, 1);
    atomic_store_explicit(&engine->state, CONVOY_ENGINE_STUCK, memory_order_relaxed);
    convoy_engine_report_fill(engine, CONVOY_CANCELED, CONVOY_FIELD_NONE);
    return CONVOY_CANCELED;
}

static int32_t wait_timed_out(struct convoy_engine *engine)
{
    if (CONVOY_MUTATED(timeout_ends_operation)) {
        return convoy_engine_end(engine, CONVOY_TIMED_OUT, NULL);
    }
    atomic_store(&engine->was_stuck, 1);
    atomic_store_explicit(&engine->state, CONVOY_ENGINE_STUCK, memory_order_relaxed);
    convoy_engine_report_fill(engine, CONVOY_TIMED_OUT, CONVOY_FIELD_NONE);
    return CONVOY_TIMED_OUT;
}

/* How long earlier waits for the open operation took. */
static uint64_t wait_spent(const struct convoy_engine *engine)
{
    bool is_same = engine->slices.operation == atomic_load_explicit(&engine->operation, memory_order_relaxed);
    return is_same ? engine->slices.spent_ns : 0;
}

/* The wait ends and the operation does not. */
static void wait_keep(struct convoy_engine *engine, uint64_t spent_ns, uint64_t look_at_ns)
{
    engine->slices = (struct convoy_slices){
        .operation = atomic_load_explicit(&engine->operation, memory_order_relaxed),
        .spent_ns = spent_ns,
        .look_at_ns = look_at_ns,
    };
}

/* The operation has ended: all waits for it were one. */
static void wait_over(struct convoy_engine *engine, uint64_t spent_ns)
{
    convoy_engine_wait_learn(engine, spent_ns);
    engine->slices.operation = 0;
}

/* A few looks with pauses in between. */
CONVOY_HOT
static int32_t wait_look(struct convoy_engine *engine)
{
    int32_t status = convoy_engine_collect(engine);
    for (uint32_t i = 1; i < engine->waiting.looks && engine->waiting.pauses != 0 && status == CONVOY_IN_PROGRESS; i++) {
        convoy_engine_pause();
        status = convoy_engine_collect(engine);
    }
    return status;
}

/* Gives the processor to whoever wants it. While nobody does, ever less often. */
CONVOY_HOT
static void wait_yield(struct convoy_engine *engine, uint64_t now)
{
    uint32_t looks = engine->waiting.looks * 2;
    convoy_engine_seat_watch(engine, atomic_load_explicit(&engine->round, memory_order_relaxed));
    engine->waited.yields++;
    (void)sched_yield();
    bool is_alone = convoy_now_ns() - now < WAIT_YIELD_ALONE_NS;
    engine->waiting.looks = !is_alone ? WAIT_LOOKS_MIN : looks < WAIT_LOOKS_MAX ? looks : WAIT_LOOKS_MAX;
}

/* Yields, then sleeps, until the round ends. A look for dead peers every liveness_ms, whichever way it waits. A further wait
 * for an operation goes on where the one before stood. */
CONVOY_HOT
static int32_t wait_slow(struct convoy_engine *engine, uint64_t timeout_ns)
{
    uint64_t started = convoy_now_ns();
    uint64_t spent = wait_spent(engine);
    uint64_t deadline = convoy_deadline_after(started, timeout_ns);
    uint64_t yield_until = convoy_deadline_after(started, convoy_deadline_left(spent, wait_yield_window(engine)));
    uint64_t liveness_ns = engine->runtime->settings.liveness_ms * CONVOY_NS_PER_MS;
    uint64_t look_at = started + CONVOY_NS_PER_MS < started + liveness_ns ? started + CONVOY_NS_PER_MS : started;
    engine->wait_until_ns = deadline;
    if (spent != 0) {
        look_at = engine->slices.look_at_ns;
    } else {
        engine->waiting.ask_ns = convoy_deadline_after(started, timeout_ns / 4);
    }
    for (;;) {
        int32_t status = engine->remote != NULL ? convoy_engine_collect(engine) : wait_look(engine);
        if (status != CONVOY_IN_PROGRESS) {
            wait_over(engine, spent + (convoy_now_ns() - started));
            return status;
        }
        struct convoy_engine *by = wait_find_cancel(engine);
        if (by != NULL) {
            wait_keep(engine, spent + (convoy_now_ns() - started), look_at);
            return wait_canceled(engine, by);
        }
        uint64_t now = convoy_now_ns();
        if (now >= look_at) {
            convoy_engine_check_peers(engine);
            look_at = now + liveness_ns;
            continue; /* a seal may have ended the round */
        }
        if (now >= deadline) {
            wait_keep(engine, spent + (now - started), look_at);
            return wait_timed_out(engine);
        }
        uint64_t slice = convoy_deadline_left(now, deadline < look_at ? deadline : look_at);
        engine->waited.kind = engine->remote != NULL ? CONVOY_WAIT_NETWORK
                              : now < yield_until    ? CONVOY_WAIT_YIELD
                                                     : CONVOY_WAIT_SLEEP;
        if (engine->remote != NULL) {
            convoy_remote_wait(engine, now < yield_until, slice);
        } else if (now < yield_until) {
            wait_yield(engine, now);
        } else {
            engine->waited.sleeps++;
            convoy_engine_sleep(engine, slice);
        }
    }
}

CONVOY_HOT
static int32_t wait_once(struct convoy_engine *engine, uint64_t timeout_ns)
{
    uint32_t pauses = engine->remote != NULL ? convoy_remote_pauses(engine) : engine->waiting.pauses;
    for (uint32_t i = 0; i <= pauses; i++) {
        int32_t status = convoy_engine_collect(engine);
        if (status != CONVOY_IN_PROGRESS) {
            engine->waited.kind = i != 0 && engine->waited.kind < CONVOY_WAIT_SPIN ? CONVOY_WAIT_SPIN : engine->waited.kind;
            uint64_t spent = wait_spent(engine);
            if (spent != 0) { /* it came between two waits */
                wait_over(engine, spent);
            }
            return status;
        }
        convoy_engine_pause();
    }
    return wait_slow(engine, timeout_ns);
}

CONVOY_HOT
int32_t convoy_engine_wait_until(struct convoy_engine *engine, uint64_t timeout_ns)
{
    if (!engine->waiting.is_settled) {
        wait_settle(engine);
    }
    engine->wait_until_ns = 0;
    int32_t status = wait_once(engine, timeout_ns);
    if (status != CONVOY_PEER_LOST || !engine->degrade) {
        return status;
    }
    uint64_t deadline = engine->wait_until_ns;
    deadline = deadline != 0 ? deadline : convoy_deadline_after(convoy_now_ns(), timeout_ns);
    for (;;) { /* each turn goes on without at least one more member, so this ends */
        status = convoy_engine_degrade(engine, status, deadline, true);
        if (status != CONVOY_IN_PROGRESS) {
            return status;
        }
        uint64_t left = convoy_deadline_left(convoy_now_ns(), deadline);
        status = wait_once(engine, left != 0 ? left : 1);
    }
}
