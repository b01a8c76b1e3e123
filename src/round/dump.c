/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state dump, callable from another thread while a round hangs: only words and atomics are read, no cell that its
 * owner may be writing.
 */
#include "round/remote.h"

#include <stdio.h>

static const char *dump_state(const struct convoy_engine *engine)
{
    switch (atomic_load_explicit(&engine->state, memory_order_relaxed)) {
    case CONVOY_ENGINE_OPEN:
        return "active";
    case CONVOY_ENGINE_STUCK:
        return "stuck";
    case CONVOY_ENGINE_BROKEN:
        return "broken";
    default:
        return "ready";
    }
}

/* The last round of a local member, from its words alone. */
static uint64_t dump_local_round(const struct convoy_engine *engine, uint32_t local)
{
    uint64_t last = 0;
    for (uint64_t parity = 0; parity < 2; parity++) {
        uint64_t word = atomic_load(&convoy_segment_cell(&engine->segment, local, parity)->word);
        if (convoy_word_reason(word) == CONVOY_SEAL_NONE && word > last) {
            last = word;
        }
    }
    return convoy_word_round(last);
}

static const char *dump_local_link(const struct convoy_engine *engine, uint32_t local)
{
    const struct convoy_member_slot *slot = convoy_segment_slot(&engine->segment, local);
    if (atomic_load(&slot->closed) != 0) {
        return "closed";
    }
    return atomic_load(&slot->opened) != 0 ? "connected" : "connecting";
}

static json_t *dump_member(const struct convoy_engine *engine, uint32_t member, uint32_t local)
{
    bool is_local = local < engine->local_count;
    uint64_t round = 0;
    const char *link = "remote";
    if (is_local) {
        round = dump_local_round(engine, local);
        link = member == engine->own_index ? "self" : dump_local_link(engine, local);
    } else {
        round = atomic_load_explicit(&convoy_segment_status(&engine->segment, member)->round, memory_order_relaxed);
    }
    return json_pack("{s:i, s:i, s:i, s:s, s:s, s:I, s:I}", "rank", (int)convoy_engine_rank(engine, member), "index",
                     (int)member, "host",
                     engine->local.hosts.host_of != NULL ? (int)engine->local.hosts.host_of[member] : 0, "transport",
                     is_local ? (member == engine->own_index ? "none" : "shared memory") : "ucx", "link", link,
                     "round_sent",
                     (json_int_t)atomic_load_explicit(&engine->round, memory_order_relaxed), "round_received",
                     (json_int_t)round);
}

json_t *convoy_engine_dump(struct convoy_engine *engine)
{
    uint64_t now = convoy_now_ns();
    uint64_t published = atomic_load_explicit(&engine->published_ns, memory_order_relaxed);
    json_t *members = json_array();
    uint32_t local = 0;
    for (uint32_t member = 0; member < engine->member_count; member++) {
        bool is_local = local < engine->local_count && engine->local_members[local] == member;
        (void)json_array_append_new(members, dump_member(engine, member, is_local ? local : engine->local_count));
        local += is_local;
    }
    char epoch[24]; /* as text: it exceeds what many readers of JSON keep of a number */
    (void)snprintf(epoch, sizeof epoch, "%llu", (unsigned long long)convoy_engine_epoch(engine));
    json_t *out = json_pack(
        "{s:s%, s:s, s:i, s:s, s:I, s:I, s:o*}", "group", engine->group->name, engine->group->name_length, "state",
        dump_state(engine), "own_rank", (int)convoy_engine_rank(engine, engine->own_index), "epoch",
        epoch, "round",
        (json_int_t)atomic_load_explicit(&engine->round, memory_order_relaxed), "age_ns",
        (json_int_t)convoy_deadline_left(published, now), "members", members);
    if (out != NULL && engine->remote != NULL) {
        (void)json_object_set_new(out, "hosts", convoy_remote_dump(engine));
    }
    return out;
}
