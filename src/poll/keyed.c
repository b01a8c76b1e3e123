/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/keyed.h"

#include "core/fault.h"

#define XXH_INLINE_ALL
#include <string.h>
#include <xxhash.h>

#define MEMBERS_MAX 1024u
#define ENTRY_BYTES_MIN 9u /* a key and a state */

void convoy_keyed_place(struct convoy_keyed *keyed, size_t bytes_max, uint8_t *positional_states,
                        struct convoy_memory_plan *plan)
{
    memset(keyed, 0, sizeof *keyed);
    keyed->bytes_max = bytes_max;
    keyed->capacity = (uint32_t)(bytes_max / ENTRY_BYTES_MIN);
    keyed->positional.states = positional_states;
    keyed->unpacked = convoy_memory_place(plan, keyed->capacity, sizeof *keyed->unpacked);
    for (uint32_t i = 0; i < CONVOY_KEYED_TABLES; i++) {
        convoy_table_place(&keyed->tables[i], keyed->capacity, plan);
    }
}

/* A table that neither holds what was merged nor what is agreed on. */
static uint32_t table_spare(const struct convoy_keyed *keyed)
{
    uint32_t spare = 0;
    while (spare == keyed->current ||
           (keyed->agreed.is_there && spare == keyed->agreed.table && !CONVOY_MUTATED(agreed_overwritten))) {
        spare++;
    }
    return spare;
}

void convoy_keyed_prepare(struct convoy_keyed *keyed, const struct convoy_payload_shape *shape)
{
    bool is_alike = keyed->slots == shape->keyed_count &&
                    memcmp(keyed->list_of, shape->list_of, sizeof shape->list_of[0] * shape->keyed_count) == 0;
    if (!is_alike) { /* the identities of the last round belong to other lists */
        keyed->current = table_spare(keyed); /* the others may not know that yet, and refer to the ones before */
        convoy_table_clear(&keyed->tables[keyed->current]);
        keyed->slots = shape->keyed_count;
        memcpy(keyed->list_of, shape->list_of, sizeof keyed->list_of);
        keyed->version++;
    }
    keyed->positional.shape = shape;
}

size_t convoy_keyed_outcome_bytes(const struct convoy_keyed *keyed, uint64_t entries, bool has_generations)
{
    return convoy_payload_layout(keyed->positional.shape, (size_t)entries, has_generations, false).bytes;
}

size_t convoy_keyed_partial_bytes_max(size_t bytes_max)
{
    return sizeof(struct convoy_payload_head) + bytes_max + sizeof(uint16_t) * (bytes_max / ENTRY_BYTES_MIN);
}

static void unknown_attribute(struct convoy_keyed *keyed, const struct convoy_payload_view *view)
{
    const struct convoy_payload_shape *shape = keyed->positional.shape;
    uint32_t at = 0;
    for (uint32_t slot = 0; slot < shape->keyed_count; slot++) {
        keyed->positional.unknown[shape->list_of[slot]] +=
            convoy_positional_unknown(view->states + at, view->counts[slot]);
        at += view->counts[slot];
    }
}

/* Saturates: what one host sends, the next one must be able to pass on. */
static void overflow_note(struct convoy_keyed *keyed, uint64_t entries)
{
    uint64_t sum = keyed->overflow_entries + entries;
    keyed->has_overflow = true;
    keyed->overflow_entries = sum < UINT32_MAX ? sum : UINT32_MAX;
}

static void tables_merge(struct convoy_keyed *keyed, const struct convoy_payload_view *view)
{
    uint32_t spare = table_spare(keyed);
    struct convoy_table *into = &keyed->tables[spare];
    const struct convoy_table *from = keyed->is_fresh ? NULL : &keyed->tables[keyed->current];
    uint64_t count = convoy_table_union(from, keyed->positional.shape, view, into, keyed->capacity);
    if (count > keyed->capacity ||
        convoy_keyed_outcome_bytes(keyed, count, into->has_generations) > keyed->bytes_max) {
        overflow_note(keyed, count);
        return;
    }
    keyed->current = spare;
    keyed->is_fresh = false;
    keyed->version++;
}

/* After an overflow the identities that the last table lacks are only counted, each source for itself. */
static void overflow_add(struct convoy_keyed *keyed, const struct convoy_payload_view *view)
{
    const struct convoy_payload_shape *shape = keyed->positional.shape;
    const struct convoy_table *from = keyed->is_fresh ? NULL : &keyed->tables[keyed->current];
    uint64_t known = from != NULL ? from->starts[shape->keyed_count] : 0;
    overflow_note(keyed, convoy_table_union(from, shape, view, &keyed->tables[table_spare(keyed)], 0) - known);
}

static void table_min(struct convoy_keyed *keyed, const struct convoy_payload_view *view)
{
    struct convoy_table *table = &keyed->tables[keyed->current];
    if (keyed->is_fresh) {
        memset(table->states, CONVOY_STATE_SUCCESS, view->entries);
        memset(table->listed, 0, sizeof *table->listed * view->entries);
        keyed->is_fresh = false;
    }
    convoy_table_listed_add(table, view);
    if (convoy_positional_min(table->states, view->states, view->entries) != 0) {
        unknown_attribute(keyed, view);
    }
}

/* The current table holds the last round's identities when a round begins: the usual first member brings them again. */
static int32_t keyed_add(struct convoy_keyed *keyed, const struct convoy_payload_view *view, uint32_t members)
{
    const struct convoy_payload_shape *shape = keyed->positional.shape;
    bool is_same = convoy_table_matches(&keyed->tables[keyed->current], shape, view);
    if ((!is_same || view->listed != NULL) && !convoy_table_is_sound(shape, view, members)) {
        return CONVOY_MALFORMED;
    }
    convoy_positional_add(&keyed->positional, view->positional, members);
    if (keyed->has_overflow) {
        overflow_add(keyed, view);
    } else if (is_same) {
        table_min(keyed, view);
    } else {
        tables_merge(keyed, view);
        if (convoy_positional_unknown(view->states, view->entries) != 0) {
            unknown_attribute(keyed, view);
        }
    }
    return CONVOY_OK;
}

/* -- identities that all agree on --------------------------------------------------------------------------------- */

bool convoy_keyed_is_whole(const struct convoy_keyed *keyed)
{
    const struct convoy_table *table = &keyed->tables[keyed->current];
    uint32_t members = keyed->positional.members;
    uint64_t whole = members * 0x0001000100010001ull;
    uint64_t different = 0;
    uint32_t count = table->starts[keyed->positional.shape->keyed_count];
    uint32_t i = 0;
    for (; count - i >= 8; i += 8) {
        uint64_t words[2];
        memcpy(words, table->listed + i, sizeof words);
        different |= (words[0] ^ whole) | (words[1] ^ whole);
    }
    for (; i < count; i++) {
        different |= table->listed[i] ^ members;
    }
    return different == 0;
}

static uint32_t identities_digest(const struct convoy_keyed *keyed, const struct convoy_table *table)
{
    uint32_t entries = table->starts[keyed->slots];
    uint64_t digest = XXH3_64bits(table->starts, sizeof *table->starts * (keyed->slots + 1u));
    digest = XXH3_64bits_withSeed(table->keys, sizeof *table->keys * entries, digest);
    return (uint32_t)(table->has_generations ? XXH3_64bits_withSeed(table->generations,
                                                                    sizeof *table->generations * entries, digest)
                                             : digest);
}

void convoy_keyed_agree(struct convoy_keyed *keyed)
{
    struct convoy_keyed_agreed *agreed = &keyed->agreed;
    if (keyed->slots == 0 || keyed->has_overflow || !convoy_keyed_is_whole(keyed)) {
        agreed->is_there = false;
        return;
    }
    if (agreed->is_there && (agreed->version == keyed->version || CONVOY_MUTATED(agreed_stale))) {
        return;
    }
    agreed->is_there = true;
    agreed->table = keyed->current;
    agreed->version = keyed->version;
    agreed->digest = identities_digest(keyed, &keyed->tables[keyed->current]);
    agreed->slots = keyed->slots;
    memcpy(agreed->list_of, keyed->list_of, sizeof agreed->list_of);
}

bool convoy_keyed_is_agreed(const struct convoy_keyed *keyed)
{
    return keyed->agreed.is_there && keyed->agreed.version == keyed->version &&
           keyed->positional.shape->positional_bytes == 0 &&
           keyed->positional.shape->keyed_count == keyed->positional.shape->list_count;
}

/* Whether the payload has states alone. */
static bool same_is(const struct convoy_payload_shape *shape, const uint8_t *payload, size_t bytes)
{
    uint32_t flags;
    if (shape->positional_bytes != 0 || bytes < sizeof(struct convoy_payload_same)) {
        return false;
    }
    memcpy(&flags, payload, sizeof flags);
    return flags == CONVOY_PAYLOAD_SAME;
}

/* MALFORMED: it refers to what this member does not know. */
static int32_t same_read(struct convoy_keyed *keyed, const uint8_t *payload, size_t bytes,
                         struct convoy_payload_view *view_out)
{
    const struct convoy_payload_shape *shape = keyed->positional.shape;
    const struct convoy_keyed_agreed *agreed = &keyed->agreed;
    const struct convoy_table *table = &keyed->tables[agreed->table];
    struct convoy_payload_same same;
    memcpy(&same, payload, sizeof same);
    bool is_known = agreed->is_there && agreed->slots == shape->keyed_count && agreed->digest == same.digest &&
                    memcmp(agreed->list_of, shape->list_of, sizeof shape->list_of[0] * shape->keyed_count) == 0;
    uint32_t entries = is_known ? table->starts[agreed->slots] : 0;
    if (!is_known || bytes != sizeof same + convoy_payload_short_bytes(entries)) {
        return CONVOY_MALFORMED;
    }
    bool is_packed = convoy_packed_pays(entries);
    for (uint32_t i = 0; i < entries; i++) {
        const uint8_t *states = payload + sizeof same;
        keyed->unpacked[i] = is_packed ? convoy_packed_state(states, entries, i) : states[i];
    }
    *view_out = (struct convoy_payload_view){
        .positional = payload,
        .entries = entries,
        .keys = (const uint8_t *)table->keys,
        .generations = table->has_generations ? (const uint8_t *)table->generations : NULL,
        .states = keyed->unpacked,
    };
    for (uint32_t slot = 0; slot < agreed->slots; slot++) {
        view_out->counts[slot] = table->starts[slot + 1] - table->starts[slot];
    }
    return CONVOY_OK;
}

/* -- merge operations -------------------------------------------------------------------------------------------- */

static void ops_begin(void *state)
{
    struct convoy_keyed *keyed = state;
    convoy_positional_begin(&keyed->positional);
    keyed->is_fresh = true;
    keyed->has_overflow = false;
    keyed->overflow_entries = 0;
}

static int32_t ops_member(void *state, uint32_t index, const uint8_t *payload, size_t bytes)
{
    struct convoy_keyed *keyed = state;
    struct convoy_payload_view view;
    (void)index;
    int32_t status = same_is(keyed->positional.shape, payload, bytes)
                         ? same_read(keyed, payload, bytes, &view)
                         : convoy_payload_read(keyed->positional.shape, payload, bytes, false, &view);
    if (status != CONVOY_OK || keyed->positional.members >= MEMBERS_MAX) {
        return CONVOY_MALFORMED;
    }
    status = keyed_add(keyed, &view, 1);
    keyed->positional.votes_or |= view.votes_or;
    return status;
}

/* A lost member is left out of this epoch: it counts neither as listing an identity nor as lacking it. */
static void ops_absent(void *state, uint32_t index, enum convoy_absence absence, int32_t reason)
{
    (void)state;
    (void)index;
    (void)absence;
    (void)reason;
}

static size_t encode_tables(const struct convoy_keyed *keyed, uint8_t *out, size_t capacity)
{
    const struct convoy_payload_shape *shape = keyed->positional.shape;
    const struct convoy_table *table = &keyed->tables[keyed->current];
    uint32_t entries = table->starts[shape->keyed_count];
    struct convoy_payload_layout at = convoy_payload_layout(shape, entries, table->has_generations, true);
    if (at.bytes > capacity) {
        return 0;
    }
    memset(out, 0, at.keys); /* the paddings too: no stale memory leaves the process */
    memcpy(out, keyed->positional.states, shape->positional_bytes);
    uint32_t head[1 + CONVOY_POLL_LISTS_MAX] = {table->has_generations ? CONVOY_PAYLOAD_GENERATIONS : 0};
    for (uint32_t slot = 0; slot < shape->keyed_count; slot++) {
        head[1 + slot] = table->starts[slot + 1] - table->starts[slot];
    }
    memcpy(out + at.counts, head, sizeof head[0] * (1u + shape->keyed_count));
    memcpy(out + at.keys, table->keys, sizeof *table->keys * entries);
    memcpy(out + at.generations, table->generations, at.listed - at.generations);
    memcpy(out + at.listed, table->listed, sizeof *table->listed * entries);
    memcpy(out + at.states, table->states, entries);
    return at.bytes;
}

static size_t ops_encode(const void *state, uint8_t *out, size_t capacity)
{
    const struct convoy_keyed *keyed = state;
    struct convoy_payload_head head;
    if (capacity < sizeof head || keyed->positional.members == 0) {
        return 0;
    }
    convoy_positional_head(&keyed->positional, &head);
    head.flags = keyed->has_overflow ? CONVOY_PAYLOAD_OVERFLOW : 0;
    head.needed = keyed->overflow_entries;
    memcpy(out, &head, sizeof head);
    if (keyed->has_overflow) {
        return sizeof head;
    }
    size_t bytes = encode_tables(keyed, out + sizeof head, capacity - sizeof head);
    return bytes != 0 ? sizeof head + bytes : 0;
}

static int32_t ops_partial(void *state, const uint8_t *bytes, size_t length)
{
    struct convoy_keyed *keyed = state;
    struct convoy_payload_head head;
    struct convoy_payload_view view;
    if (length < sizeof head) {
        return CONVOY_MALFORMED;
    }
    memcpy(&head, bytes, sizeof head);
    bool has_overflow = (head.flags & CONVOY_PAYLOAD_OVERFLOW) != 0;
    if (has_overflow ? length != sizeof head || head.needed > UINT32_MAX : head.needed != 0) {
        return CONVOY_MALFORMED;
    }
    if (!has_overflow && convoy_payload_read(keyed->positional.shape, bytes + sizeof head, length - sizeof head, true,
                                             &view) != CONVOY_OK) {
        return CONVOY_MALFORMED;
    }
    int32_t status = convoy_positional_take_head(&keyed->positional, &head);
    if (status != CONVOY_OK || !has_overflow) {
        return status == CONVOY_OK ? keyed_add(keyed, &view, head.members) : status;
    }
    keyed->positional.members += head.members;
    overflow_note(keyed, head.needed);
    return CONVOY_OK;
}

const struct convoy_merge_ops convoy_keyed_ops = {
    .begin = ops_begin,
    .member = ops_member,
    .absent = ops_absent,
    .encode = ops_encode,
    .partial = ops_partial,
};
