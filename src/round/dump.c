/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state dump, callable from another thread while a round hangs: only words and atomics are read, no cell that its
 * owner may be writing, and no lock is taken that a wait holds.
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

/* Also when nobody has waited for it since: then no loss has been noted. */
static bool dump_has_ended(const struct convoy_engine *engine, uint32_t member)
{
    struct pollfd look = {.fd = engine->local.pidfds[member], .events = POLLIN};
    return poll(&look, 1, 0) == 1 && (look.revents & POLLIN) != 0;
}

static const char *dump_local_link(const struct convoy_engine *engine, uint32_t member, uint32_t local)
{
    const struct convoy_member_slot *slot = convoy_segment_slot(&engine->segment, local);
    const struct convoy_loss *loss = &engine->losses[member];
    if (member == engine->own_index) {
        return "self";
    }
    if (atomic_load(&slot->closed) != 0 || loss->is_closed != 0) {
        return "closed";
    }
    if (loss->is_dead != 0 || convoy_engine_is_lost(engine, member) || dump_has_ended(engine, member)) {
        return "lost";
    }
    return atomic_load(&slot->opened) != 0 ? "connected" : "connecting";
}

static json_t *dump_age(uint64_t age_ns)
{
    return age_ns != UINT64_MAX ? json_integer((json_int_t)age_ns) : json_null();
}

/* What of a member depends on where it is. */
struct dump_row {
    uint64_t round;
    uint64_t age_ns; /* UINT64_MAX = never heard */
    const char *link;
    char transport[CONVOY_LINK_TRANSPORTS_BYTES + 8];
};

static void dump_local(const struct convoy_engine *engine, uint32_t member, uint32_t local, struct dump_row *row)
{
    row->round = dump_local_round(engine, local);
    row->age_ns = convoy_engine_age(engine, row->round, convoy_now_ns());
    row->link = dump_local_link(engine, member, local);
    (void)snprintf(row->transport, sizeof row->transport, "%s", member == engine->own_index ? "none" : "shared memory");
}

static void dump_remote(const struct convoy_engine *engine, uint32_t member, struct dump_row *row)
{
    const struct convoy_member_status *status = convoy_segment_status(&engine->segment, member);
    uint64_t seen = atomic_load_explicit(&status->seen_ns, memory_order_relaxed);
    struct convoy_remote_look look;
    convoy_remote_look(engine, member, &look);
    row->round = atomic_load_explicit(&status->round, memory_order_relaxed);
    row->age_ns = seen != 0 ? convoy_deadline_left(seen, convoy_now_ns()) : UINT64_MAX;
    row->link = look.link;
    (void)snprintf(row->transport, sizeof row->transport, "ucx%s%s", look.transports[0] != '\0' ? " " : "",
                   look.transports);
}

/* local: its place among the members of this host, or local_count. */
static json_t *dump_member(const struct convoy_engine *engine, uint32_t member, uint32_t local)
{
    struct dump_row row;
    if (local < engine->local_count) {
        dump_local(engine, member, local, &row);
    } else {
        dump_remote(engine, member, &row);
    }
    return json_pack("{s:i, s:i, s:i, s:s, s:s, s:I, s:I, s:o}", "rank", (int)convoy_engine_rank(engine, member),
                     "index", (int)member, "host",
                     engine->local.hosts.host_of != NULL ? (int)engine->local.hosts.host_of[member] : 0, "transport",
                     row.transport, "link", row.link, "round_sent",
                     (json_int_t)atomic_load_explicit(&engine->round, memory_order_relaxed), "round_received",
                     (json_int_t)row.round, "age_ns", dump_age(row.age_ns));
}

json_t *convoy_engine_dump(struct convoy_engine *engine)
{
    uint64_t published =
        convoy_engine_latest(engine, atomic_load_explicit(&engine->published_ns, memory_order_relaxed));
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
        "{s:s%, s:s, s:i, s:s, s:I, s:o, s:o*}", "group", engine->group->name, engine->group->name_length, "state",
        dump_state(engine), "own_rank", (int)convoy_engine_rank(engine, engine->own_index), "epoch",
        epoch, "round",
        (json_int_t)atomic_load_explicit(&engine->round, memory_order_relaxed), "age_ns",
        dump_age(published != 0 ? convoy_deadline_left(published, convoy_now_ns()) : UINT64_MAX), "members", members);
    if (out != NULL && engine->remote != NULL) {
        (void)json_object_set_new(out, "hosts", convoy_remote_dump(engine));
    }
    return out;
}
