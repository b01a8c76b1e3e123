/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening the links, the progress thread, and who drives the worker. The caller drives it while it is in a call (it
 * holds the lock); the thread looks in when the caller has been away for a while, and sleeps on the worker's descriptor
 * when nothing goes on. So a busy group costs a hundred glances a second, and an idle one nothing.
 */
#include "round/remote_internal.h"

#include <errno.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define REMOTE_GLANCE_MS 10
#define REMOTE_DESCRIPTORS 24u /* what one UCX context and worker take, with a margin */
#define REMOTE_BUSY_TURNS 7 /* empty looks at the worker, from the send on, before this member yields its processor */
#define REMOTE_LOOKS_MAX 16 /* a look at the worker is a system call: about as many as a message takes to come back */
#define REMOTE_ALONE_NS 1500   /* a yield that nobody takes is back by then */
#define REMOTE_WATCH_NS 1500   /* after such a one a leader looks for so long at its host before it yields again: a member
                                 that contributes right then would have it wait for two switches of the processor */
#define REMOTE_SHARED_YIELDS 256 /* for so long after a yield that somebody took, the processor counts as shared */

static void remote_free(struct convoy_remote *remote)
{
    uint32_t count = remote->engine->member_count;
    for (uint32_t host = 0; host < CONVOY_HOSTS_MAX; host++) {
        for (uint32_t parity = 0; parity < 2; parity++) {
            convoy_memory_free(remote->hosts[host].partial[parity].bytes);
            convoy_memory_free(remote->hosts[host].rows[parity].bytes);
        }
    }
    for (uint32_t member = 0; remote->addresses != NULL && member < count; member++) {
        convoy_memory_free(remote->addresses[member]);
    }
    convoy_memory_free(remote->addresses);
    convoy_memory_free(remote->address_bytes);
    convoy_memory_free(remote->scratch);
    convoy_memory_free(remote->diverged_rows);
    convoy_memory_free(remote->reopen.result);
    if (remote->wake_fd >= 0) {
        (void)close(remote->wake_fd);
    }
    (void)pthread_mutex_destroy(&remote->lock);
    convoy_memory_free(remote);
}

static bool remote_allocate_host(struct convoy_remote *remote, uint32_t host)
{
    size_t row_bytes = remote->engine->member_count * sizeof(struct convoy_partial_row);
    bool is_whole = true;
    for (uint32_t parity = 0; parity < 2; parity++) {
        struct convoy_remote_host *slot = &remote->hosts[host];
        slot->partial[parity].bytes = convoy_memory_zalloc(remote->blob_bytes);
        slot->rows[parity].bytes = convoy_memory_zalloc(row_bytes);
        is_whole = is_whole && slot->partial[parity].bytes != NULL && slot->rows[parity].bytes != NULL;
    }
    return is_whole;
}

static int32_t remote_allocate(struct convoy_remote *remote, struct convoy_error *error)
{
    uint32_t count = remote->engine->member_count;
    remote->addresses = convoy_memory_array(count, sizeof *remote->addresses);
    remote->address_bytes = convoy_memory_array(count, sizeof *remote->address_bytes);
    remote->scratch = convoy_memory_aligned(CONVOY_LINE_BYTES, remote->blob_bytes);
    remote->diverged_rows = convoy_memory_array(count, sizeof *remote->diverged_rows);
    remote->reopen.result = convoy_memory_zalloc(remote->blob_bytes);
    bool is_whole = remote->addresses != NULL && remote->address_bytes != NULL && remote->scratch != NULL &&
                    remote->diverged_rows != NULL && remote->reopen.result != NULL;
    for (uint32_t host = 0; host < remote->host_count && is_whole; host++) {
        is_whole = host == remote->own_host || remote_allocate_host(remote, host);
    }
    if (!is_whole) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to exchange rounds with %u hosts",
                                remote->host_count);
    }
    remote->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return remote->wake_fd >= 0 ? CONVOY_OK
                                : convoy_error_set_errno(error, CONVOY_SYSTEM, errno, "eventfd of a progress thread");
}

static struct convoy_remote *remote_create(struct convoy_engine *engine)
{
    struct convoy_remote *remote = convoy_memory_zalloc(sizeof *remote);
    if (remote == NULL) {
        return NULL;
    }
    const struct convoy_host_map *hosts = &engine->local.hosts;
    remote->engine = engine;
    remote->wake_fd = -1;
    remote->host_count = hosts->host_count;
    remote->own_host = hosts->host_of[engine->own_index];
    remote->blob_bytes = engine->segment.geometry.blob_bytes;
    memcpy(remote->token, engine->agreement.session, sizeof remote->token);
    (void)pthread_mutex_init(&remote->lock, NULL);
    for (uint32_t member = engine->member_count; member-- > 0;) { /* backwards: the lowest member leads */
        uint32_t host = hosts->host_of[member];
        if (host < CONVOY_HOSTS_MAX) {
            remote->hosts[host].leader = member;
            remote->hosts[host].member_count++;
        }
    }
    return remote;
}

/* Everybody's worker address, in one exchange. */
static int32_t remote_exchange(struct convoy_remote *remote, struct convoy_bootstrap *bootstrap,
                               struct convoy_error *error)
{
    uint32_t count = remote->engine->member_count;
    struct convoy_blob *blobs = convoy_memory_array(count, sizeof *blobs);
    if (blobs == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %u worker addresses", count);
    }
    size_t bytes = 0;
    const void *mine = convoy_link_address(remote->link, &bytes);
    int32_t status = convoy_bootstrap_exchange(bootstrap, mine, bytes, blobs, error);
    for (uint32_t member = 0; member < count && status == CONVOY_OK; member++) {
        remote->addresses[member] = convoy_memory_zalloc(blobs[member].bytes);
        remote->address_bytes[member] = blobs[member].bytes;
        if (remote->addresses[member] == NULL) {
            status = convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for worker addresses");
        } else {
            memcpy(remote->addresses[member], blobs[member].data, blobs[member].bytes);
        }
    }
    convoy_memory_free(blobs);
    return status;
}

/* Endpoints are made when there is something to send, long after the open: that no interface reaches a host is said
 * now, and not by a round that hears nothing. */
static int32_t remote_reach(const struct convoy_remote *remote, struct convoy_error *error)
{
    for (uint32_t host = 0; host < remote->host_count; host++) {
        uint32_t leader = remote->hosts[host].leader;
        if (host == remote->own_host) {
            continue;
        }
        int32_t status = convoy_link_reach(remote->link, leader, remote->addresses[leader],
                                           remote->address_bytes[leader], error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

/* UCX ends the process when it cannot open what it needs, so that is looked at before it is asked. */
static int32_t remote_check_descriptors(struct convoy_error *error)
{
    int fds[REMOTE_DESCRIPTORS];
    uint32_t count = 0;
    while (count < REMOTE_DESCRIPTORS && (fds[count] = eventfd(0, EFD_CLOEXEC)) >= 0) {
        count++;
    }
    int reason = errno;
    for (uint32_t i = 0; i < count; i++) {
        (void)close(fds[i]);
    }
    return count == REMOTE_DESCRIPTORS
               ? CONVOY_OK
               : convoy_error_set_errno(error, CONVOY_SYSTEM, reason, "links to other hosts need %u descriptors, %u are left",
                                        REMOTE_DESCRIPTORS, count);
}

int32_t convoy_remote_open(struct convoy_engine *engine, struct convoy_bootstrap *bootstrap,
                           size_t partial_bytes_max, struct convoy_error *error)
{
    (void)partial_bytes_max; /* the segment was planned with it */
    if (engine->local.hosts.host_count > CONVOY_HOSTS_MAX) {
        return convoy_error_set(error, CONVOY_LIMIT, "group %.*s spans %u hosts, at most %u are possible",
                                (int)engine->group->name_length, engine->group->name,
                                engine->local.hosts.host_count, CONVOY_HOSTS_MAX);
    }
    struct convoy_remote *remote = remote_create(engine);
    if (remote == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for links to other hosts");
    }
    int32_t status = remote_allocate(remote, error);
    if (status == CONVOY_OK) {
        status = remote_check_descriptors(error);
    }
    if (status == CONVOY_OK) {
        const struct convoy_link_options options = {
            .runtime = engine->runtime,
            .peer_count = engine->member_count,
            .message_bytes_max = remote->blob_bytes,
            .recv = convoy_remote_recv,
            .down = convoy_remote_down,
            .user = remote,
        };
        status = convoy_link_open(&options, &remote->link, error);
    }
    if (status == CONVOY_OK) {
        status = remote_exchange(remote, bootstrap, error);
    }
    if (status == CONVOY_OK) {
        status = remote_reach(remote, error);
    }
    if (status != CONVOY_OK) {
        if (remote->link != NULL) {
            convoy_link_close(remote->link, convoy_now_ns());
        }
        remote_free(remote);
        return status;
    }
    engine->remote = remote;
    return CONVOY_OK;
}

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
        last = activity;
        if (is_away && pthread_mutex_trylock(&remote->lock) == 0) {
            remote_glance(remote);
            must_glance = convoy_engine_is_open(remote->engine) || remote->reopen.is_wanted ||
                          convoy_link_pending(remote->link) != 0;
            is_armed = convoy_link_arm(remote->link);
            (void)pthread_mutex_unlock(&remote->lock);
            if (!is_armed) {
                continue;
            }
        }
        struct pollfd fds[2] = {{.fd = remote->wake_fd, .events = POLLIN},
                                {.fd = is_armed ? convoy_link_fd(remote->link) : -1, .events = POLLIN}};
        (void)poll(fds, 2, must_glance || !is_armed ? REMOTE_GLANCE_MS : 1000);
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
    if (remote->has_thread) {
        atomic_store(&remote->is_stopping, 1);
        uint64_t one = 1;
        (void)!write(remote->wake_fd, &one, sizeof one);
        convoy_runtime_thread_join(engine->runtime, remote->thread);
    }
    (void)pthread_mutex_lock(&remote->lock);
    remote_say_goodbye(remote);
    convoy_link_close(remote->link, deadline_ns);
    (void)pthread_mutex_unlock(&remote->lock);
    engine->remote = NULL;
    remote_free(remote);
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
    return json_pack("{s:i, s:o*, s:I, s:I, s:I, s:I}", "hosts", (int)remote->host_count, "link",
                     convoy_link_describe(remote->link), "dropped_token", remote_counted(&remote->dropped_token),
                     "dropped_stale", remote_counted(&remote->dropped_stale), "dropped_repeat",
                     remote_counted(&remote->dropped_repeat), "dropped_bad", remote_counted(&remote->dropped_bad));
}
