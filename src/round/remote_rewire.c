/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member has a worker of its own in each build that it moves to, and so a new address. It tells that to every other
 * member, its own host's included (they ask their leader over the link, too), until each has answered:
 *
 *   path        REWIRED is due         its answer comes   the member is lost   its link goes down
 *   answered    -                      dropped            -                    may be a death (remote_peers.c)
 *   unanswered  sent; gap doubles      answered           answered             says nothing, until succession_ms are over
 *
 *   An address with a higher sequence replaces the one in use, whoever told it in whichever order; the same one is answered
 *   again; a lower one is dropped. Sequences are taken from the clock: all builds that a member moves through are in one
 *   process, one that was resumed after its importer had announced itself as well.
 *
 * What was on its way to or from the old worker may be lost with it. Whoever hears of the other's new worker, by REWIRED
 * or its answer, repeats what it has said of this generation's last two rounds, and compares generations. All else is
 * asked for again by whoever needs it: REQUEST and ASK by a waiting leader, WANT, QUERY and PROPOSE until they are answered.
 */
#include "round/remote_internal.h"

#define REWIRE_GAP_FIRST_NS (10 * CONVOY_NS_PER_MS)
#define REWIRE_GAP_MAX_NS (200 * CONVOY_NS_PER_MS)

/* Counters have one writer: whoever holds the lock. */
static void rewire_count(struct convoy_remote *remote, struct convoy_remote_path *path, uint64_t down_ns)
{
    struct convoy_engine_counters *counters = &remote->engine->counters;
    atomic_store_explicit(&path->count, path->count + 1, memory_order_relaxed);
    atomic_store_explicit(&path->down_ns, down_ns, memory_order_relaxed);
    atomic_store_explicit(&path->since_ns, 0, memory_order_relaxed);
    convoy_remote_count(&counters->rewires);
    if (down_ns > atomic_load_explicit(&counters->rewire_down_ns_max, memory_order_relaxed)) {
        atomic_store_explicit(&counters->rewire_down_ns_max, down_ns, memory_order_relaxed);
    }
}

static bool rewire_is_gone(const struct convoy_remote *remote, uint32_t member)
{
    const struct convoy_engine *engine = remote->engine;
    const struct convoy_loss *loss = &engine->losses[member];
    return convoy_engine_is_lost(engine, member) || loss->is_dead != 0 || loss->is_closed != 0 ||
           remote->hosts[engine->local.hosts.host_of[member]].is_lost;
}

/* -- telling ------------------------------------------------------------------------------------------------------- */

static void rewire_send(struct convoy_remote *remote, uint32_t member, uint64_t now_ns)
{
    uint8_t bytes[CONVOY_REWIRE_BYTES_MAX];
    const struct convoy_rewire_body body = {
        .sequence = remote->sequence, .away_ns = convoy_deadline_left(remote->frozen_ns, now_ns)};
    size_t length = 0;
    const void *address = convoy_link_address(remote->link, &length);
    memcpy(bytes, &body, sizeof body);
    memcpy(bytes + sizeof body, address, length); /* fits: link_up */
    convoy_remote_send(remote, member, CONVOY_MESSAGE_REWIRED, convoy_remote_generation(remote), bytes,
                       sizeof body + length);
}

static void rewire_answered(struct convoy_remote *remote, uint32_t member)
{
    remote->paths[member].is_unanswered = false;
    if (--remote->unanswered == 0) {
        convoy_remote_end_take_over(remote);
    }
}

void convoy_remote_rewire_step(struct convoy_remote *remote, uint64_t now_ns)
{
    if (remote->stage != CONVOY_REMOTE_RUNNING) {
        return;
    }
    convoy_remote_take_over(remote);
    for (uint32_t member = 0; member < remote->engine->member_count && remote->unanswered != 0; member++) {
        struct convoy_remote_path *path = &remote->paths[member];
        if (path->is_unanswered && rewire_is_gone(remote, member)) {
            atomic_store_explicit(&path->since_ns, 0, memory_order_relaxed);
            rewire_answered(remote, member);
        } else if (path->is_unanswered && now_ns >= path->again_ns) {
            path->again_ns = now_ns + path->gap_ns;
            path->gap_ns = 2 * path->gap_ns < REWIRE_GAP_MAX_NS ? 2 * path->gap_ns : REWIRE_GAP_MAX_NS;
            rewire_send(remote, member, now_ns);
        }
    }
}

void convoy_remote_announce(struct convoy_remote *remote, uint64_t now_ns)
{
    const struct convoy_engine *engine = remote->engine;
    remote->sequence = now_ns > remote->sequence ? now_ns : remote->sequence + 1;
    remote->announced_ns = now_ns;
    remote->unanswered = 0;
    for (uint32_t member = 0; member < engine->member_count; member++) {
        struct convoy_remote_path *path = &remote->paths[member];
        path->is_unanswered = member != engine->own_index && !rewire_is_gone(remote, member);
        path->again_ns = 0;
        path->gap_ns = REWIRE_GAP_FIRST_NS;
        remote->unanswered += path->is_unanswered;
        atomic_store_explicit(&path->since_ns, path->is_unanswered ? remote->frozen_ns : 0, memory_order_relaxed);
    }
    if (remote->unanswered == 0) {
        convoy_remote_end_take_over(remote);
    }
    convoy_remote_rewire_step(remote, now_ns);
}

bool convoy_remote_is_rewiring(const struct convoy_remote *remote, uint32_t member, uint64_t now_ns)
{
    uint64_t patience = remote->engine->runtime->settings.succession_ms * CONVOY_NS_PER_MS;
    return remote->paths[member].is_unanswered && convoy_deadline_left(remote->announced_ns, now_ns) < patience;
}

void convoy_remote_take_answer(struct convoy_remote *remote, const struct convoy_message *message, const uint8_t *data)
{
    struct convoy_rewire_body body;
    struct convoy_remote_path *path = &remote->paths[message->member];
    if (message->length != sizeof body) {
        convoy_remote_count(&remote->dropped_bad);
        return;
    }
    memcpy(&body, data, sizeof body);
    if (!path->is_unanswered || body.sequence != remote->sequence) {
        convoy_remote_count(&remote->dropped_repeat);
        return;
    }
    rewire_answered(remote, message->member);
    rewire_count(remote, path, convoy_deadline_left(remote->frozen_ns, convoy_now_ns()));
    convoy_remote_repeat(remote, message->member);
    if (message->leads != 0) {
        convoy_remote_reopen_compare(remote, message->member, message->word);
    }
}

/* -- being told ---------------------------------------------------------------------------------------------------- */

/* Puts it in place of the endpoint there was, which is never heard of again. false: no memory, and it will be told again; or
 * no address. */
static bool rewire_keep(struct convoy_remote *remote, uint32_t member, const uint8_t *address, size_t bytes)
{
    uint8_t *copy = convoy_memory_zalloc(bytes);
    if (copy == NULL) {
        return false;
    }
    memcpy(copy, address, bytes);
    struct convoy_error error = CONVOY_ERROR_INIT;
    int32_t status = convoy_link_connect(remote->link, member, copy, bytes, &error);
    if (status == CONVOY_MALFORMED) {
        convoy_remote_count(&remote->dropped_bad);
        convoy_memory_free(copy);
        return false;
    }
    if (status != CONVOY_OK) { /* tried again with the next message */
        convoy_log_line(&remote->engine->runtime->log, CONVOY_LOG_WARN, "group %.*s cannot reach rank %d where it is now: %s",
                        (int)remote->engine->group->name_length, remote->engine->group->name,
                        convoy_engine_rank(remote->engine, member), error.text);
        convoy_link_fail(remote->link, member);
    }
    convoy_memory_free(remote->addresses[member]); /* a connect that was put off until the end of progress has `copy` */
    remote->addresses[member] = copy;
    remote->address_bytes[member] = bytes;
    return true;
}

static void rewire_take(struct convoy_remote *remote, const struct convoy_message *message,
                        const struct convoy_rewire_body *body)
{
    struct convoy_remote_path *path = &remote->paths[message->member];
    struct convoy_remote_host *host = &remote->hosts[remote->engine->local.hosts.host_of[message->member]];
    path->sequence = body->sequence;
    rewire_count(remote, path, body->away_ns);
    if (host->leader == message->member) {
        host->down_ns = 0;
    }
    if (path->is_unanswered) { /* both move: what was sent to its old worker need not have been heard */
        path->again_ns = 0;
        path->gap_ns = REWIRE_GAP_FIRST_NS;
        atomic_store_explicit(&path->since_ns, remote->frozen_ns, memory_order_relaxed);
    }
}

void convoy_remote_take_rewired(struct convoy_remote *remote, const struct convoy_message *message, const uint8_t *data)
{
    struct convoy_rewire_body body;
    uint32_t member = message->member;
    if (message->length <= sizeof body || member == remote->engine->own_index) {
        convoy_remote_count(&remote->dropped_bad);
        return;
    }
    memcpy(&body, data, sizeof body);
    uint64_t known = remote->paths[member].sequence;
    if (body.sequence < known) {
        convoy_remote_drop_stale(remote);
        return;
    }
    if (body.sequence > known) {
        if (!rewire_keep(remote, member, data + sizeof body, message->length - sizeof body)) {
            return;
        }
        rewire_take(remote, message, &body);
    }
    const struct convoy_rewire_body answer = {.sequence = body.sequence};
    convoy_remote_send(remote, member, CONVOY_MESSAGE_REWIRED_ACK, convoy_remote_generation(remote), &answer,
                       sizeof answer);
    if (body.sequence > known) {
        convoy_remote_repeat(remote, member);
        if (message->leads != 0) {
            convoy_remote_reopen_compare(remote, member, message->word);
        }
    }
}

/* -- looking on ---------------------------------------------------------------------------------------------------- */

/* Members whose path has changed, or is down: "down_ns" for how long the last time, "since_ns" for how long by now. */
json_t *convoy_remote_rewire_json(const struct convoy_remote *remote)
{
    const struct convoy_engine *engine = remote->engine;
    json_t *rows = json_array();
    for (uint32_t member = 0; member < engine->member_count; member++) {
        const struct convoy_remote_path *path = &remote->paths[member];
        uint64_t count = atomic_load_explicit(&path->count, memory_order_relaxed);
        uint64_t since = atomic_load_explicit(&path->since_ns, memory_order_relaxed);
        if (count != 0 || since != 0) {
            (void)json_array_append_new(
                rows, json_pack("{s:i, s:I, s:I, s:I}", "rank", (int)convoy_engine_rank(engine, member), "down_ns",
                                (json_int_t)atomic_load_explicit(&path->down_ns, memory_order_relaxed), "since_ns",
                                (json_int_t)(since != 0 ? convoy_deadline_left(since, convoy_now_ns()) : 0), "count",
                                (json_int_t)count));
        }
    }
    return rows;
}
