/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What moves an engine: messages are taken by whoever is there, a host thread that polls or else the progress thread. A ring
 * says that its reader sleeps only while nobody polls, so between two engines that are polled nothing is ever woken.
 */
#include "core/clock.h"
#include "core/error.h"
#include "core/fault.h"
#include "net/liveness.h"
#include "xfer/device_jobs.h"
#include "xfer/far.h"
#include "xfer/raw.h"
#include "xfer/resize.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#define TICK_NS (2 * CONVOY_NS_PER_MS) /* a host that has polled within it is taken to poll on */
#define WAITER_TICK_MS 10
#define IDLE_MS 1000
#define DOOR_POLLS 96u
#define OWN_POLLS 3u
#define READY_AGAIN_NS (CONVOY_NS_PER_MS / 5)
#define LOOKS_BEFORE_YIELD 64u

/* -- deadlines ----------------------------------------------------------------------------------------------------- */

static void timed_out(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, uint64_t now_ns)
{
    bool is_lease = entry->state == CONVOY_TRANSFER_STAGED || entry->kind == CONVOY_XFER_SLOT;
    bool is_out = entry->kind == CONVOY_XFER_SEND && entry->is_lent;
    bool is_in_flight = entry->users != 0 && !CONVOY_MUTATED(swept_in_flight);
    if (entry->state == CONVOY_TRANSFER_STAGED && is_in_flight) { /* what is sent is not swept */
        entry->deadline_ns = convoy_deadline_after(now_ns, entry->lease_ns);
        return;
    }
    entry->users++;
    if (is_lease) {
        CONVOY_XFER_NOTE(engine, leases_expired);
    }
    if (entry->refused_status != CONVOY_OK) {
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, CONVOY_PEER_ERROR,
                               "peer %s did not take %llu bytes: status %d", engine->peers[entry->peer].session,
                               (unsigned long long)entry->payload_bytes, entry->refused_status);
    } else if (entry->place == CONVOY_XFER_PLACE_WAITING) {
        char why[CONVOY_ADMISSION_WHY_BYTES];
        convoy_xfer_admission_why(engine, entry, why);
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, CONVOY_TIMED_OUT, "its deadline has passed: %s", why);
    } else {
        convoy_xfer_entry_fail(engine, entry, CONVOY_TRANSFER_FAILED, CONVOY_TIMED_OUT, "%s in state %s",
                               is_lease ? "its lease has expired" : "its deadline has passed",
                               convoy_xfer_state_name(entry->state));
    }
    entry->deadline_ns = CONVOY_DEADLINE_NEVER;
    if (is_out) {
        convoy_xfer_send_withdraw(engine, entry);
    }
    entry->users--;
    convoy_xfer_entry_settle(engine, entry);
}

static bool is_due(const struct convoy_xfer_entry *entry, uint64_t now_ns)
{
    return entry->deadline_ns <= now_ns || entry->retry_ns <= now_ns;
}

static void act(struct convoy_xfer *engine, struct convoy_xfer_entry *entry, uint64_t now_ns)
{
    bool is_over = convoy_xfer_state_is_end(entry->state) && entry->state != CONVOY_TRANSFER_STAGED;
    if (entry->deadline_ns <= now_ns && is_over) {
        entry->deadline_ns = CONVOY_DEADLINE_NEVER;
    } else if (entry->deadline_ns <= now_ns) {
        timed_out(engine, entry, now_ns);
    } else if (entry->kind == CONVOY_XFER_SEND) {
        convoy_xfer_send_again(engine, entry);
    } else if (entry->kind == CONVOY_XFER_LOAD && entry->state == CONVOY_TRANSFER_WAITING) {
        entry->retries++;
        CONVOY_XFER_NOTE(engine, retries);
        convoy_xfer_load_again(engine, entry);
    } else if (entry->landing != 0) {
        entry->retries++;
        CONVOY_XFER_NOTE(engine, retries);
        convoy_far_load_again(engine, entry);
    } else {
        entry->retry_ns = CONVOY_DEADLINE_NEVER;
    }
}

/* Whatever is due; ending one may free others, so the list is looked at afresh each time. */
static void pump_timers(struct convoy_xfer *engine, uint64_t now_ns)
{
    uint32_t at = engine->active_first;
    engine->timer_ns = CONVOY_DEADLINE_NEVER;
    convoy_raw_timers(engine, now_ns);
    while (at != CONVOY_XFER_NOBODY) {
        struct convoy_xfer_entry *entry = &engine->entries[at];
        if (is_due(entry, now_ns)) {
            act(engine, entry, now_ns);
            at = engine->active_first;
            continue;
        }
        convoy_xfer_timer(engine, entry->deadline_ns);
        convoy_xfer_timer(engine, entry->retry_ns);
        at = entry->next;
    }
}

/* -- sleeping ------------------------------------------------------------------------------------------------------ */

static void awake_all(struct convoy_xfer *engine)
{
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        if (engine->peers[i].ring_memory != NULL) {
            convoy_ring_awake(&engine->peers[i].ring);
        }
    }
    engine->is_dozing = false;
}

/* false: something is there already. */
static bool doze_all(struct convoy_xfer *engine)
{
    engine->is_dozing = true;
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        struct convoy_xfer_peer *peer = &engine->peers[i];
        if (peer->ring_memory != NULL && !peer->ring.is_malformed && !convoy_ring_doze(&peer->ring)) {
            awake_all(engine);
            return false;
        }
    }
    return true;
}

/* What there is to sleep on beside the engine's own files, -1 = nothing. */
static int far_file(const struct convoy_xfer *engine)
{
    return engine->far != NULL ? convoy_bulk_fd(engine->far->bulk) : -1;
}

/* Polls with what else there is to sleep on: what bulk has to do first keeps from sleeping. [no lock] */
static void poll_all(struct convoy_bulk *bulk, struct pollfd *polls, uint32_t count, int timeout_ms)
{
    bool is_ready = bulk != NULL && !convoy_bulk_arm(bulk);
    (void)poll(polls, count, is_ready ? 0 : timeout_ms);
}

/* How long to sleep at most. Nobody says when a full ring has room again, so that is looked at now and then; never in a
 * loop, which would keep everybody else from the lock for as long as that peer stands still. */
static int idle_ms(const struct convoy_xfer *engine)
{
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        if (engine->peers[i].state != 0 && engine->peers[i].backlog_count != 0) {
            return (int)(TICK_NS / CONVOY_NS_PER_MS);
        }
    }
    return IDLE_MS;
}

void convoy_xfer_wake(struct convoy_xfer *engine)
{
    const uint64_t one = 1;
    if (engine->waiters != 0) {
        (void)!write(engine->wake_fd, &one, sizeof one);
    }
    if (engine->followers != 0) {
        (void)pthread_cond_broadcast(&engine->changed);
    }
}

void convoy_xfer_kick(struct convoy_xfer *engine)
{
    const uint64_t one = 1;
    (void)!write(engine->kick_fd, &one, sizeof one);
    convoy_xfer_wake(engine);
}

void convoy_xfer_pump(struct convoy_xfer *engine)
{
    if (engine->is_parked) {
        return;
    }
    if (engine->is_dozing) {
        awake_all(engine);
        if (engine->is_progress_asleep) { /* it relies on being woken by peers, who now wake nobody */
            engine->is_progress_asleep = false;
            convoy_xfer_kick(engine);
        }
    }
    convoy_xfer_hear(engine);
    if (engine->far != NULL) {
        convoy_far_pump(engine);
    }
    uint64_t now = convoy_now_ns();
    if (now >= engine->timer_ns) {
        pump_timers(engine, now);
    }
    if (engine->far != NULL) {
        convoy_far_timers(engine, now);
    }
    if (engine->device != NULL) {
        convoy_xfer_device_pump(engine);
    }
}

static void drain(int fd)
{
    uint64_t count;
    (void)!read(fd, &count, sizeof count);
}

/* Another thread sleeps on wake_fd already, and takes the messages. */
static void sleep_follower(struct convoy_xfer *engine, uint64_t end_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(end_ns / CONVOY_NS_PER_S),
                                   .tv_nsec = (long)(end_ns % CONVOY_NS_PER_S)};
    if (convoy_xfer_is_owing(engine)) { /* carried out first: what is waited for may hang on it */
        convoy_xfer_unlock(engine);
        convoy_xfer_lock(engine);
        return;
    }
    engine->followers++;
    (void)pthread_cond_timedwait(&engine->changed, &engine->lock, &until);
    engine->followers--;
}

static void sleep_waiter(struct convoy_xfer *engine, uint64_t until_ns)
{
    convoy_xfer_admission_run(engine); /* whose timers bound this sleep */
    uint64_t end = engine->timer_ns < until_ns ? engine->timer_ns : until_ns;
    uint64_t longest = convoy_deadline_after(convoy_now_ns(), (uint64_t)(uint32_t)idle_ms(engine) * CONVOY_NS_PER_MS);
    struct pollfd polls[2] = {{.fd = engine->wake_fd, .events = POLLIN}, {.fd = far_file(engine), .events = POLLIN}};
    end = end < longest ? end : longest;
    if (engine->waiters != 0) {
        sleep_follower(engine, end);
        return;
    }
    engine->waiters = 1;
    if (doze_all(engine)) {
        struct convoy_bulk *bulk = engine->far != NULL ? engine->far->bulk : NULL;
        convoy_xfer_unlock(engine);
        poll_all(bulk, polls, 2, convoy_deadline_poll_ms(convoy_now_ns(), end));
        convoy_xfer_lock(engine);
        drain(engine->wake_fd);
    }
    engine->waiters = 0;
    engine->attended_ns = convoy_now_ns();
    if (engine->followers != 0) { /* this one may not come back */
        (void)pthread_cond_broadcast(&engine->changed);
    }
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

void convoy_xfer_pause(struct convoy_xfer *engine, uint64_t until_ns, bool is_asking,
                       struct convoy_xfer_pausing *pausing)
{
    uint64_t now = convoy_now_ns();
    uint64_t yield_ns = engine->runtime->settings.yield_us * 1000;
    pausing->since_ns = pausing->looks++ == 0 ? now : pausing->since_ns;
    if (now - pausing->since_ns >= yield_ns) {
        uint64_t again = convoy_deadline_after(now, READY_AGAIN_NS);
        sleep_waiter(engine, is_asking && again < until_ns ? again : until_ns);
        return;
    }
    convoy_xfer_unlock(engine);
    if (pausing->looks < LOOKS_BEFORE_YIELD && engine->runtime->settings.spin_pauses != 0) {
        relax();
    } else {
        (void)sched_yield();
    }
    convoy_xfer_lock(engine);
}

/* -- the progress thread ------------------------------------------------------------------------------------------- */

/* What it sleeps on: its own kick, what peers wake it by, connections, deaths. */
static uint32_t gather_polls(struct convoy_xfer *engine, struct pollfd *polls, bool is_mine)
{
    uint32_t count = 0;
    polls[count++] = (struct pollfd){.fd = engine->kick_fd, .events = POLLIN};
    polls[count++] = (struct pollfd){.fd = is_mine && engine->waiters == 0 ? engine->wake_fd : -1, .events = POLLIN};
    polls[count++] = (struct pollfd){.fd = is_mine && engine->waiters == 0 ? far_file(engine) : -1, .events = POLLIN};
    for (uint32_t i = 0; i < engine->peer_top; i++) {
        struct convoy_xfer_peer *peer = &engine->peers[i];
        peer->is_polled = true;
        bool is_watched = peer->state != 0 && !peer->is_dead && peer->pid_fd >= 0;
        polls[count++] = (struct pollfd){.fd = is_watched ? peer->pid_fd : -1, .events = POLLIN};
        polls[count++] = (struct pollfd){.fd = peer->state == CONVOY_PEER_IS_CONNECTED ? peer->tcp_fd : -1,
                                         .events = convoy_far_has_output(engine, peer) ? POLLIN | POLLOUT : POLLIN};
    }
    return count + convoy_xfer_shares_polls(engine, polls + count);
}

/* Deaths are proven by the process; an end of the connection alone ends the transfers, not the quarantine. What the peer
 * said before is taken first. One that came into its place during the poll is not the one that was polled, even if its
 * descriptors have the same numbers. */
static void note_deaths(struct convoy_xfer *engine, const struct pollfd *polls, uint32_t peer_count)
{
    for (uint32_t i = 0; i < peer_count && i < engine->peer_top; i++) {
        struct convoy_xfer_peer *peer = &engine->peers[i];
        const struct pollfd *process = &polls[OWN_POLLS + 2 * i];
        const struct pollfd *link = &polls[OWN_POLLS + 1 + 2 * i];
        if (!peer->is_polled) {
            continue;
        }
        bool is_dead = process->fd >= 0 && process->fd == peer->pid_fd && (process->revents & POLLIN) != 0;
        bool is_cut = link->fd >= 0 && link->fd == peer->tcp_fd && link->revents != 0;
        if ((is_dead || is_cut) && peer->state != 0 && !peer->is_dead) {
            convoy_xfer_hear_peer(engine, peer);
        }
        if (is_cut && peer->state == CONVOY_PEER_IS_CONNECTED && peer->lane->is_far) {
            convoy_far_heard(engine, peer);
            continue;
        }
        if (is_dead && peer->state != 0 && !peer->is_dead) {
            convoy_xfer_peer_end(engine, peer, CONVOY_PEER_IS_LOST, true);
        } else if (is_cut && peer->state == CONVOY_PEER_IS_CONNECTED) {
            convoy_xfer_peer_end(engine, peer, CONVOY_PEER_IS_LOST, false);
        }
    }
}

static int progress_timeout(const struct convoy_xfer *engine, bool is_mine)
{
    if (!is_mine) {
        return engine->waiters != 0 ? WAITER_TICK_MS : (int)(TICK_NS / CONVOY_NS_PER_MS);
    }
    int ms = convoy_deadline_poll_ms(convoy_now_ns(), engine->timer_ns);
    int longest = idle_ms(engine);
    return ms < longest ? ms : longest;
}

/* Small copies are done right here: to wake another thread for them takes longer. */
static void pump_and_copy(struct convoy_xfer *engine)
{
    struct convoy_raw_copy *copy;
    engine->is_progress_at_it = true;
    convoy_xfer_pump(engine);
    engine->is_progress_at_it = false;
    while ((copy = convoy_raw_copy_next(engine, CONVOY_XFER_INLINE_BYTES)) != NULL) {
        convoy_raw_copy_run(engine, copy);
    }
}

static void progress_once(struct convoy_xfer *engine, struct pollfd *polls)
{
    bool is_mine = engine->waiters == 0 && convoy_now_ns() - engine->attended_ns > TICK_NS;
    if (is_mine || !engine->is_dozing) {
        if (is_mine) {
            pump_and_copy(engine);
        }
        if ((is_mine || engine->waiters != 0) && !doze_all(engine)) {
            pump_and_copy(engine); /* it came in between */
            return;
        }
    }
    uint32_t peer_count = engine->peer_top;
    uint32_t count = gather_polls(engine, polls, is_mine);
    struct convoy_bulk *bulk = polls[2].fd >= 0 ? engine->far->bulk : NULL;
    int timeout = progress_timeout(engine, is_mine);
    engine->is_progress_asleep = is_mine;
    engine->progress_until_ns = convoy_deadline_after(convoy_now_ns(), (uint64_t)(uint32_t)timeout * CONVOY_NS_PER_MS);
    convoy_xfer_unlock(engine);
    count += convoy_xfer_door_polls(engine, polls + count, DOOR_POLLS);
    poll_all(bulk, polls, count, timeout);
    convoy_xfer_door_step(engine);
    if (convoy_pool_has_ended(engine->pool)) {
        convoy_xfer_reap(engine);
    }
    if ((polls[0].revents & POLLIN) != 0) {
        drain(engine->kick_fd);
    }
    convoy_xfer_lock(engine);
    engine->is_progress_asleep = false;
    if (polls[1].fd >= 0 && (polls[1].revents & POLLIN) != 0 && engine->waiters == 0) {
        drain(engine->wake_fd); /* else it may say what came after the one that waits had looked */
    }
    note_deaths(engine, polls, peer_count);
    convoy_xfer_shares_step(engine);
}

void *convoy_xfer_progress_main(void *argument)
{
    struct convoy_xfer *engine = argument;
    convoy_xfer_lock(engine);
    while (engine->is_parked && !engine->must_stop) {
        (void)pthread_cond_wait(&engine->changed, &engine->lock);
    }
    while (!engine->must_stop) {
        progress_once(engine, engine->polls);
    }
    convoy_xfer_unlock(engine);
    return NULL;
}

uint32_t convoy_xfer_polls_max(uint32_t peer_max)
{
    return OWN_POLLS + 1 + DOOR_POLLS + 3 * peer_max;
}
