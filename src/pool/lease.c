/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/lease.h"

#include "core/fault.h"
#include "core/memory.h"
#include "pool/lease_parts.h"

#include <string.h>

#define NONE CONVOY_LEASE_NO_ENTRY

/* -- life ---------------------------------------------------------------------------------------------------------- */

struct convoy_leases *convoy_leases_create(uint32_t lease_count, uint32_t reference_count)
{
    if (lease_count == 0 || lease_count >= NONE - 1 || reference_count >= NONE) {
        return NULL;
    }
    struct convoy_leases *leases = convoy_memory_zalloc(sizeof *leases);
    if (leases == NULL) {
        return NULL;
    }
    leases->entries = convoy_memory_table(lease_count, sizeof *leases->entries);
    leases->references = convoy_memory_table(reference_count, sizeof *leases->references);
    if (leases->entries == NULL || leases->references == NULL) {
        convoy_leases_destroy(leases);
        return NULL;
    }
    leases->lease_count = lease_count;
    leases->reference_count = reference_count;
    leases->first_free = leases->last_free = leases->unused = NONE;
    return leases;
}

void convoy_leases_destroy(struct convoy_leases *leases)
{
    if (leases != NULL) {
        convoy_memory_table_free(leases->entries);
        convoy_memory_table_free(leases->references);
        convoy_memory_free(leases);
    }
}

/* -- handles ------------------------------------------------------------------------------------------------------- */

static convoy_lease handle_of(const struct convoy_leases *leases, uint32_t at)
{
    return (uint64_t)leases->entries[at].generation << 32 | (at + 1);
}

static bool is_live(const struct convoy_leases *leases, convoy_lease lease)
{
    uint32_t at = (uint32_t)lease - 1;
    return at < leases->lease_top && leases->entries[at].state != CONVOY_LEASE_FREE &&
           (leases->entries[at].generation == lease >> 32 || CONVOY_MUTATED(stale_handle_taken));
}

/* NULL, and counted: stale. */
static struct lease_entry *entry_of(struct convoy_leases *leases, convoy_lease lease)
{
    if (!is_live(leases, lease)) {
        leases->stale++;
        return NULL;
    }
    return &leases->entries[(uint32_t)lease - 1];
}

/* -- entries ------------------------------------------------------------------------------------------------------- */

static void entry_own(struct lease_entry *entry, const struct convoy_lease_owner *owner)
{
    entry->attempt = owner->attempt;
    entry->request_length = (uint32_t)owner->request_length;
    if (owner->request_length != 0) {
        memcpy(entry->request, owner->request, owner->request_length);
    }
    entry->request[owner->request_length] = '\0';
}

static bool is_referred_to(const struct lease_entry *entry)
{
    return (entry->references[0] | entry->references[1] | entry->references[2]) != 0 &&
           !CONVOY_MUTATED(freed_while_read) && (entry->end != CONVOY_LEASE_END_EXPIRED || !CONVOY_MUTATED(deadline_frees_all));
}

/* FREED when that was the last that kept a retired lease; OK otherwise. */
static enum convoy_lease_status entry_settle(struct convoy_leases *leases, struct lease_entry *entry,
                                             struct convoy_buddy_block *block_out)
{
    if (entry->state != CONVOY_LEASE_RETIRED || is_referred_to(entry)) {
        return CONVOY_LEASE_OK;
    }
    uint32_t at = (uint32_t)(entry - leases->entries);
    *block_out = entry->block;
    entry->state = CONVOY_LEASE_FREE;
    entry->next_free = NONE;
    if (leases->first_free == NONE) {
        leases->first_free = at;
    } else {
        leases->entries[leases->last_free].next_free = at;
    }
    leases->last_free = at;
    return CONVOY_LEASE_FREED;
}

/* The one that was freed first, else one that was never used; NONE: all are taken. */
static uint32_t take_free(struct convoy_leases *leases)
{
    uint32_t at = leases->first_free;
    if (at != NONE) {
        leases->first_free = leases->entries[at].next_free;
    } else if (leases->lease_top < leases->lease_count) {
        at = leases->lease_top++;
        leases->entries[at].first = NONE;
    }
    return at;
}

enum convoy_lease_status convoy_lease_take(struct convoy_leases *leases, const struct convoy_lease_take *take,
                                           convoy_lease *lease_out)
{
    if (take->owner.request_length > CONVOY_REQUEST_BYTES || take->asked > take->block.bytes) {
        return CONVOY_LEASE_TOO_LARGE;
    }
    uint32_t at = take_free(leases);
    if (at == NONE) {
        return CONVOY_LEASE_FULL;
    }
    struct lease_entry *entry = &leases->entries[at];
    entry->generation += !CONVOY_MUTATED(generation_kept);
    entry->state = CONVOY_LEASE_TAKEN;
    entry->end = CONVOY_LEASE_END_NONE;
    entry->block = take->block;
    entry->asked = take->asked;
    entry->filled = 0;
    entry->taken_ns = take->now_ns;
    entry->deadline_ns = take->deadline_ns;
    entry_own(entry, &take->owner);
    *lease_out = handle_of(leases, at);
    return CONVOY_LEASE_OK;
}

enum convoy_lease_status convoy_lease_filled(struct convoy_leases *leases, convoy_lease lease, uint64_t bytes)
{
    struct lease_entry *entry = entry_of(leases, lease);
    if (entry == NULL) {
        return CONVOY_LEASE_STALE;
    }
    if (entry->state != CONVOY_LEASE_TAKEN) {
        return CONVOY_LEASE_BAD_STATE;
    }
    if (bytes > entry->block.bytes) {
        return CONVOY_LEASE_TOO_LARGE;
    }
    entry->filled = bytes;
    entry->state = CONVOY_LEASE_READY;
    return CONVOY_LEASE_OK;
}

enum convoy_lease_status convoy_lease_retire(struct convoy_leases *leases, convoy_lease lease,
                                             enum convoy_lease_end end, struct convoy_buddy_block *block_out)
{
    struct lease_entry *entry = entry_of(leases, lease);
    if (entry == NULL) {
        return CONVOY_LEASE_STALE;
    }
    if (entry->state == CONVOY_LEASE_RETIRED) {
        return CONVOY_LEASE_BAD_STATE;
    }
    entry->state = CONVOY_LEASE_RETIRED;
    entry->end = end;
    return entry_settle(leases, entry, block_out);
}

enum convoy_lease_status convoy_lease_adopt(struct convoy_leases *leases, convoy_lease lease,
                                            const struct convoy_lease_owner *owner, uint64_t deadline_ns)
{
    struct lease_entry *entry = entry_of(leases, lease);
    if (entry == NULL) {
        return CONVOY_LEASE_STALE;
    }
    if (entry->state != CONVOY_LEASE_TAKEN) {
        return CONVOY_LEASE_BAD_STATE;
    }
    if (owner->request_length > CONVOY_REQUEST_BYTES) {
        return CONVOY_LEASE_TOO_LARGE;
    }
    entry_own(entry, owner);
    entry->deadline_ns = deadline_ns;
    return CONVOY_LEASE_OK;
}

/* -- references ---------------------------------------------------------------------------------------------------- */

/* What names the reference, of this lease's, or NULL. */
static uint32_t *find_reference(struct convoy_leases *leases, struct lease_entry *entry, uint32_t peer,
                                enum convoy_reference kind)
{
    uint32_t *link = &entry->first;
    while (*link != NONE) {
        struct lease_reference *reference = &leases->references[*link];
        if (reference->peer == peer && reference->kind == (uint32_t)kind) {
            return link;
        }
        link = &reference->next;
    }
    return NULL;
}

static bool may_begin(const struct lease_entry *entry, enum convoy_reference kind)
{
    switch (kind) {
    case CONVOY_REFERENCE_READ:
        return entry->state == CONVOY_LEASE_READY;
    case CONVOY_REFERENCE_WRITE:
        return entry->state == CONVOY_LEASE_TAKEN;
    case CONVOY_REFERENCE_DEVICE:
        return true;
    case CONVOY_REFERENCE_KINDS:
        break;
    }
    return false;
}

enum convoy_lease_status convoy_lease_refer(struct convoy_leases *leases, convoy_lease lease, uint32_t peer,
                                            enum convoy_reference kind)
{
    struct lease_entry *entry = entry_of(leases, lease);
    if (entry == NULL) {
        return CONVOY_LEASE_STALE;
    }
    if (!may_begin(entry, kind)) {
        return CONVOY_LEASE_BAD_STATE;
    }
    const uint32_t *link = find_reference(leases, entry, peer, kind);
    uint32_t at = link != NULL ? *link : convoy_leases_take_reference(leases);
    if (at == NONE) {
        return CONVOY_LEASE_FULL;
    }
    struct lease_reference *reference = &leases->references[at];
    if (link == NULL) {
        *reference = (struct lease_reference){(uint32_t)(entry - leases->entries), peer, (uint32_t)kind, 0, entry->first};
        entry->first = at;
    }
    reference->count++;
    entry->references[kind]++;
    return CONVOY_LEASE_OK;
}

/* Ends `count` of a reference, which *link names. */
static enum convoy_lease_status end_reference(struct convoy_leases *leases, uint32_t *link, uint32_t count,
                                              struct convoy_buddy_block *block_out)
{
    uint32_t at = *link;
    struct lease_reference *reference = &leases->references[at];
    struct lease_entry *entry = &leases->entries[reference->entry];
    entry->references[reference->kind] -= count;
    reference->count -= count;
    if (reference->count == 0) {
        *link = reference->next;
        reference->next = leases->unused;
        leases->unused = at;
    }
    return entry_settle(leases, entry, block_out);
}

enum convoy_lease_status convoy_lease_unrefer(struct convoy_leases *leases, convoy_lease lease, uint32_t peer,
                                              enum convoy_reference kind, struct convoy_buddy_block *block_out)
{
    struct lease_entry *entry = entry_of(leases, lease);
    if (entry == NULL) {
        return CONVOY_LEASE_STALE;
    }
    uint32_t *link = find_reference(leases, entry, peer, kind);
    return link != NULL ? end_reference(leases, link, 1, block_out) : CONVOY_LEASE_UNKNOWN;
}

enum convoy_lease_status convoy_lease_drop_peer(struct convoy_leases *leases, uint32_t peer, uint32_t *cursor,
                                                convoy_lease *lease_out, struct convoy_buddy_block *block_out)
{
    while (*cursor < leases->reference_top) {
        const struct lease_reference *reference = &leases->references[(*cursor)++];
        if (reference->count == 0 || (reference->peer != peer && !CONVOY_MUTATED(others_dropped)) ||
            CONVOY_MUTATED(dead_reader_kept)) {
            continue;
        }
        struct lease_entry *entry = &leases->entries[reference->entry];
        *lease_out = handle_of(leases, reference->entry);
        uint32_t *link = find_reference(leases, entry, reference->peer, (enum convoy_reference)reference->kind);
        return end_reference(leases, link, reference->count, block_out);
    }
    return CONVOY_LEASE_UNKNOWN;
}

/* -- looking ------------------------------------------------------------------------------------------------------- */

convoy_lease convoy_lease_expired(const struct convoy_leases *leases, uint64_t now_ns, uint32_t *cursor)
{
    while (*cursor < leases->lease_top) {
        uint32_t at = (*cursor)++;
        const struct lease_entry *entry = &leases->entries[at];
        bool may_expire = entry->state == CONVOY_LEASE_TAKEN || entry->state == CONVOY_LEASE_READY;
        if (may_expire && entry->deadline_ns != CONVOY_LEASE_NEVER && now_ns >= entry->deadline_ns) {
            return handle_of(leases, at);
        }
    }
    return CONVOY_LEASE_NONE;
}

convoy_lease convoy_lease_next(const struct convoy_leases *leases, uint32_t *cursor)
{
    while (*cursor < leases->lease_top) {
        uint32_t at = (*cursor)++;
        if (leases->entries[at].state != CONVOY_LEASE_FREE) {
            return handle_of(leases, at);
        }
    }
    return CONVOY_LEASE_NONE;
}

bool convoy_lease_look(const struct convoy_leases *leases, convoy_lease lease, struct convoy_lease_view *view_out)
{
    if (!is_live(leases, lease)) {
        return false;
    }
    const struct lease_entry *entry = &leases->entries[(uint32_t)lease - 1];
    *view_out = (struct convoy_lease_view){
        .lease = lease,
        .state = (enum convoy_lease_state)entry->state,
        .end = (enum convoy_lease_end)entry->end,
        .owner = {entry->request, entry->request_length, entry->attempt},
        .block = entry->block,
        .asked = entry->asked,
        .filled = entry->filled,
        .taken_ns = entry->taken_ns,
        .deadline_ns = entry->deadline_ns,
    };
    memcpy(view_out->references, entry->references, sizeof entry->references);
    return true;
}

void convoy_lease_figures(const struct convoy_leases *leases, struct convoy_lease_figures *figures_out)
{
    struct convoy_lease_figures figures = {.stale = leases->stale};
    figures.counts[CONVOY_LEASE_FREE] = leases->lease_count - leases->lease_top;
    for (uint32_t i = 0; i < leases->lease_top; i++) {
        const struct lease_entry *entry = &leases->entries[i];
        figures.counts[entry->state]++;
        figures.bytes[entry->state] += entry->state != CONVOY_LEASE_FREE ? entry->block.bytes : 0;
        for (uint32_t kind = 0; kind < CONVOY_REFERENCE_KINDS && entry->state != CONVOY_LEASE_FREE; kind++) {
            figures.references[kind] += entry->references[kind];
        }
    }
    *figures_out = figures;
}

const char *convoy_lease_state_name(enum convoy_lease_state state)
{
    static const char *const names[] = {"free", "taken", "ready", "retired"};
    return (uint32_t)state < CONVOY_LEASE_STATES ? names[state] : "unknown";
}

const char *convoy_lease_end_name(enum convoy_lease_end end)
{
    static const char *const names[] = {"none", "released", "aborted", "expired", "closed"};
    return (uint32_t)end < sizeof names / sizeof names[0] ? names[end] : "unknown";
}
