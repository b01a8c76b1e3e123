/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The progress thread, and who drives the worker. The caller drives it while it is in a call (it
 * holds the lock); the thread looks in when the caller has been away for a while, and sleeps on the worker's descriptor
 * when nothing goes on. So a busy group costs a hundred glances a second, and an idle one nothing.
 */
#include "round/remote_internal.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

#define REMOTE_GLANCE_MS 10
#define REMOTE_BUSY_TURNS 7 /* empty looks at the worker, from the send on, before this member yields its processor */
#define REMOTE_LOOKS_MAX 16 /* a look at the worker is a system call: about as many as a message takes to come back */
#define REMOTE_ALONE_NS 1500   /* a yield that nobody takes is back by then */
#define REMOTE_WATCH_NS 1500   /* after such a one a leader looks for so long at its host before it yields again: a member
                                 that contributes right then would have it wait for two switches of the processor */
#define REMOTE_SHARED_YIELDS 256 /* for so long after a yield that somebody took, the processor counts as shared */

/* One look while the caller is away: messages, dead peers, and the open round, so that others do not hang on us. */
static void remote_glance(struct convoy_remote *remote)
{
    struct convoy_engine *engine = remote->engine;
    (void)convoy_link_progress(remote->link);
    if (convoy_engine_is_open(engine) && convoy_engine_collect(engine) == CONVOY_IN_PROGRESS) {
        convoy_engine_check_peers(engine);
    } else {
        convoy_remote_check(engine, convoy_now_ns());
    }
}

static void *remote_main(void *argument)
{
    struct convoy_remote *remote = argument;
    uint64_t last = 0;
    while (atomic_load(&remote->is_stopping) == 0) {
        uint64_t activity = atomic_load(&remote->activity);
        bool is_away = activity == last;
        bool must_glance = true; /* soon again: a round is open, or peers are unwell */
        bool is_armed = false;   /* not so while a caller is inside: its messages would wake this thread, too */
        int from_fd = -1;
        last = activity;
        if (is_away && pthread_mutex_trylock(&remote->lock) == 0) {
            remote_glance(remote);
            must_glance = convoy_engine_is_open(remote->engine) || remote->reopen.is_wanted ||
                          convoy_link_pending(remote->link) != 0 || remote->unanswered != 0;
            is_armed = convoy_link_arm(remote->link);
            from_fd = is_armed ? remote->from_fd : -1;
            (void)pthread_mutex_unlock(&remote->lock);
            if (!is_armed) {
                continue;
            }
        }
        struct pollfd fds[3] = {{.fd = remote->wake_fd, .events = POLLIN},
                                {.fd = is_armed ? convoy_link_fd(remote->link) : -1, .events = POLLIN},
                                {.fd = from_fd, .events = POLLIN}};
        (void)poll(fds, 3, must_glance || !is_armed ? REMOTE_GLANCE_MS : 1000);
    }
    return NULL;
}

int32_t convoy_remote_start(struct convoy_engine *engine, struct convoy_error *error)
{
    struct convoy_remote *remote = engine->remote;
    int32_t status =
        convoy_runtime_thread_start(engine->runtime, "progress", remote_main, remote, &remote->thread);
    if (status != CONVOY_OK) {
        return convoy_error_set_errno(error, status, errno, "starting the progress thread of group %.*s",
                                      (int)engine->group->name_length, engine->group->name);
    }
    remote->has_thread = true;
    return CONVOY_OK;
}

void convoy_remote_stop(struct convoy_remote *remote)
{
    if (!remote->has_thread) {
        return;
    }
    uint64_t count = 1;
    atomic_store(&remote->is_stopping, 1);
    (void)!write(remote->wake_fd, &count, sizeof count);
    convoy_runtime_thread_join(remote->engine->runtime, remote->thread);
    (void)!read(remote->wake_fd, &count, sizeof count);
    atomic_store(&remote->is_stopping, 0);
    remote->has_thread = false;
}

/* Tells the other hosts when nobody is left on this one to do so later. */
static void remote_say_goodbye(struct convoy_remote *remote)
{
    struct convoy_engine *engine = remote->engine;
    uint32_t others = 0;
    for (uint32_t local = 0; local < engine->local_count; local++) {
        uint32_t member = engine->local_members[local];
        const struct convoy_loss *loss = &engine->losses[member];
        others += local != engine->local_index && !convoy_engine_is_lost(engine, member) && loss->is_dead == 0 &&
                  atomic_load(&convoy_segment_slot(&engine->segment, local)->closed) == 0;
    }
    if (others == 0) {
        uint64_t round = atomic_load_explicit(&engine->round, memory_order_relaxed);
        if (!convoy_engine_is_open(engine)) {
            atomic_store_explicit(&engine->round, engine->next_round, memory_order_relaxed);
        } else {
            atomic_store_explicit(&engine->round, round + 1, memory_order_relaxed);
        }
        convoy_remote_tell_failed(remote, CONVOY_PEER_LOST, engine->own_index);
    }
}

void convoy_remote_close(struct convoy_engine *engine, uint64_t deadline_ns)
{
    struct convoy_remote *remote = engine->remote;
    convoy_remote_stop(remote);
    (void)pthread_mutex_lock(&remote->lock);
    remote->stage = CONVOY_REMOTE_RUNNING; /* a frozen one says goodbye, too */
    remote_say_goodbye(remote);
    convoy_link_close(remote->link, deadline_ns);
    (void)pthread_mutex_unlock(&remote->lock);
    engine->remote = NULL;
    convoy_remote_free(remote);
}

void convoy_remote_enter(struct convoy_engine *engine)
{
    (void)pthread_mutex_lock(&engine->remote->lock);
}

void convoy_remote_leave(struct convoy_engine *engine)
{
    struct convoy_remote *remote = engine->remote;
    atomic_store_explicit(&remote->activity, atomic_load_explicit(&remote->activity, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    (void)pthread_mutex_unlock(&remote->lock);
}

/* Sleeps on the worker, for what other hosts have to say. */
static void remote_sleep_on_link(struct convoy_remote *remote, uint64_t slice_ns)
{
    if (!convoy_link_arm(remote->link)) {
        return;
    }
    struct pollfd look = {.fd = convoy_link_fd(remote->link), .events = POLLIN};
    struct timespec timeout = {.tv_sec = (time_t)(slice_ns / CONVOY_NS_PER_S),
                               .tv_nsec = (long)(slice_ns % CONVOY_NS_PER_S)};
    (void)ppoll(&look, 1, &timeout, NULL);
}

/* Whoever else is on this processor, the affinity of the members here does not tell: "hosts" may be namespaces of one
 * machine. How long a yield takes does. */
static void remote_yield(struct convoy_engine *engine)
{
    struct convoy_waiting *waiting = &engine->waiting;
    uint64_t started = convoy_now_ns();
    (void)sched_yield();
    uint64_t now = convoy_now_ns();
    if (now - started > REMOTE_ALONE_NS) {
        waiting->shared = REMOTE_SHARED_YIELDS;
        waiting->watch_ns = now + REMOTE_WATCH_NS;
    } else if (waiting->shared != 0) {
        waiting->shared--;
    }
}

uint32_t convoy_remote_pauses(const struct convoy_engine *engine)
{
    uint32_t pauses = engine->waiting.pauses;
    if (engine->waiting.shared != 0) {
        return 0;
    }
    return convoy_remote_is_leader(engine) && pauses > REMOTE_LOOKS_MAX ? REMOTE_LOOKS_MAX : pauses;
}

void convoy_remote_wait(struct convoy_engine *engine, bool is_yielding, uint64_t slice_ns)
{
    struct convoy_remote *remote = engine->remote;
    bool is_leader = convoy_remote_is_leader(engine);
    uint64_t word = convoy_word(engine->generation, atomic_load_explicit(&engine->round, memory_order_relaxed));
    if (is_yielding) {
        /* Before it has sent, a leader waits for members of its host; then for others, whose messages it can only hear
         * while it runs itself. */
        bool has_sent = remote->sent_word == word;
        if (is_leader && !has_sent && engine->waiting.pauses != 0 && convoy_now_ns() < engine->waiting.watch_ns) {
            convoy_engine_pause();
        } else if (!is_leader || !has_sent || ++engine->waiting.turn % REMOTE_BUSY_TURNS == 0) {
            remote_yield(engine);
        }
        return;
    }
    (void)convoy_link_progress(remote->link);
    if (remote->unanswered != 0) {
        convoy_remote_rewire_step(remote, convoy_now_ns());
    }
    if ((is_leader && remote->sent_word == word) || !convoy_engine_is_open(engine)) {
        remote_sleep_on_link(remote, slice_ns);
    } else {
        convoy_engine_sleep(engine, slice_ns < CONVOY_NS_PER_MS || !is_leader ? slice_ns : CONVOY_NS_PER_MS);
    }
}

static json_int_t remote_counted(const _Atomic uint64_t *counter)
{
    return (json_int_t)atomic_load_explicit(counter, memory_order_relaxed);
}

json_t *convoy_remote_dump(const struct convoy_engine *engine)
{
    const struct convoy_remote *remote = engine->remote;
    struct convoy_link *link = convoy_remote_link(remote);
    return json_pack("{s:i, s:o*, s:o*, s:I, s:I, s:I, s:I}", "hosts", (int)remote->host_count, "link",
                     link != NULL ? convoy_link_describe(link) : NULL, "rewire", convoy_remote_rewire_json(remote),
                     "dropped_token", remote_counted(&remote->dropped_token), "dropped_stale",
                     remote_counted(&remote->dropped_stale), "dropped_repeat", remote_counted(&remote->dropped_repeat),
                     "dropped_bad", remote_counted(&remote->dropped_bad));
}
