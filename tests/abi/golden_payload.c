/* SPDX-License-Identifier: Apache-2.0 */
/* Golden frames of what rounds carry: states, keyed lists, rows of a gather. */
#include "golden.h"

#include "poll/payload.h"
#include "poll/positional.h"
#include "sync/row.h"

#include <string.h>

#define STATES 37u
#define KEYS 3u

static void fill_states(uint8_t *states)
{
    for (uint32_t i = 0; i < STATES; i++) {
        states[i] = (uint8_t)(i % 5);
    }
}

static size_t encode_packed(uint32_t which, uint8_t *out)
{
    (void)which;
    uint8_t states[STATES];
    fill_states(states);
    convoy_states_pack(out, states, STATES);
    return convoy_packed_bytes(STATES);
}

static int32_t decode_packed(uint32_t which, const uint8_t *data, size_t length)
{
    (void)which;
    uint8_t states[STATES];
    fill_states(states);
    struct convoy_payload_shape shape = {0};
    convoy_payload_shape_add(&shape, STATES, 0);
    if (!convoy_payload_is_packed(&shape, length)) {
        return CONVOY_MALFORMED;
    }
    for (uint32_t i = 0; i < STATES; i++) {
        if (convoy_packed_state(data, STATES, i) != states[i]) {
            return GOLDEN_OTHER;
        }
    }
    return CONVOY_OK;
}

/* One positional list and one keyed one; `which` 1: as a host sends it, with the head and how many list each. */
static void make_shape(struct convoy_payload_shape *shape)
{
    memset(shape, 0, sizeof *shape);
    convoy_payload_shape_add(shape, 5, 0);
    convoy_payload_shape_add(shape, KEYS, CONVOY_POLL_KEYED);
}

static size_t encode_keyed(uint32_t which, uint8_t *out)
{
    static const uint64_t keys[KEYS] = {2, 0x1000000000000001ull, 0xfffffffffffffff0ull};
    static const uint32_t generations[KEYS] = {0, 7, 0};
    static const uint16_t listed[KEYS] = {2, 1, 2};
    struct convoy_payload_shape shape;
    make_shape(&shape);
    struct convoy_payload_layout layout = convoy_payload_layout(&shape, KEYS, true, which != 0);
    const uint32_t counts[2] = {CONVOY_PAYLOAD_GENERATIONS, KEYS};
    memset(out, 4, 5);
    memcpy(out + layout.counts, counts, sizeof counts);
    memcpy(out + layout.keys, keys, sizeof keys);
    memcpy(out + layout.generations, generations, sizeof generations);
    if (which != 0) {
        memcpy(out + layout.listed, listed, sizeof listed);
    }
    memset(out + layout.states, 3, KEYS);
    return layout.bytes;
}

static int32_t decode_keyed(uint32_t which, const uint8_t *data, size_t length)
{
    struct convoy_payload_shape shape;
    struct convoy_payload_view view;
    uint64_t key = 0;
    uint32_t generation = 0;
    uint16_t listed = 0;
    make_shape(&shape);
    int32_t status = convoy_payload_read(&shape, data, length, which != 0, &view);
    if (status != CONVOY_OK) {
        return status;
    }
    if (view.entries != KEYS || view.generations == NULL || (view.listed != NULL) != (which != 0)) {
        return GOLDEN_OTHER;
    }
    memcpy(&key, view.keys + sizeof key, sizeof key);
    memcpy(&generation, view.generations + sizeof generation, sizeof generation);
    if (which != 0) {
        memcpy(&listed, view.listed, sizeof listed);
    }
    return key == 0x1000000000000001ull && generation == 7 && view.positional[4] == 4 && view.states[2] == 3 &&
                   view.counts[0] == KEYS && (which == 0 || listed == 2)
               ? CONVOY_OK
               : GOLDEN_OTHER;
}

static void make_positional(struct convoy_positional *positional, struct convoy_payload_shape *shape, uint8_t *states)
{
    memset(positional, 0, sizeof *positional);
    memset(shape, 0, sizeof *shape);
    convoy_payload_shape_add(shape, STATES, 0);
    positional->shape = shape;
    positional->states = states;
}

static size_t encode_head(uint32_t which, uint8_t *out)
{
    (void)which;
    uint8_t states[STATES];
    uint8_t merged[STATES];
    struct convoy_payload_shape shape;
    struct convoy_positional positional;
    struct convoy_payload_head head;
    fill_states(states);
    states[3] = 200; /* of a newer peer */
    make_positional(&positional, &shape, merged);
    convoy_positional_begin(&positional);
    (void)convoy_positional_copy(merged, states, STATES);
    positional.members = 1;
    positional.unknown[0] = convoy_positional_unknown(states, STATES);
    positional.votes_or = 6;
    memset(&head, 0, sizeof head);
    convoy_positional_head(&positional, &head);
    memcpy(out, &head, sizeof head);
    return sizeof head;
}

static int32_t decode_head(uint32_t which, const uint8_t *data, size_t length)
{
    (void)which;
    uint8_t merged[STATES];
    struct convoy_payload_shape shape;
    struct convoy_positional positional;
    struct convoy_payload_head head;
    if (length != sizeof head) {
        return CONVOY_MALFORMED;
    }
    memcpy(&head, data, sizeof head);
    make_positional(&positional, &shape, merged);
    convoy_positional_begin(&positional);
    int32_t status = convoy_positional_take_head(&positional, &head);
    if (status != CONVOY_OK) {
        return status;
    }
    return head.members == 1 && head.flags == 0 && head.unknown[0] == 1 && positional.unknown[0] == 1 && head.votes_or == 6
               ? CONVOY_OK
               : GOLDEN_OTHER;
}

static size_t encode_same(uint32_t which, uint8_t *out)
{
    (void)which;
    struct convoy_payload_same same = {.flags = CONVOY_PAYLOAD_SAME, .digest = 0xdeadbeef};
    memcpy(out, &same, sizeof same);
    return sizeof same;
}

static int32_t decode_same(uint32_t which, const uint8_t *data, size_t length)
{
    (void)which;
    struct convoy_payload_same same;
    if (length != sizeof same) {
        return CONVOY_MALFORMED;
    }
    memcpy(&same, data, sizeof same);
    return same.flags == CONVOY_PAYLOAD_SAME && same.digest == 0xdeadbeef ? CONVOY_OK : GOLDEN_OTHER;
}

enum { ROW_NARROW, ROW_WIDE, ROW_SLOT, ROW_MASK };

static const struct convoy_row_form row_forms[] = {{4, 3, false}, {4, 3, false}, {4, 3, true}, {4, 3, true}};

static void make_row(uint32_t which, int64_t values[4], struct convoy_mask *mask)
{
    static const uint8_t active[3] = {1, 0, 1};
    const int64_t plain[4] = {1, -2, 3, which == ROW_WIDE ? INT64_C(0x123456789a) : 4};
    memcpy(values, plain, sizeof plain);
    convoy_mask_clear(mask);
    if (which == ROW_MASK) {
        convoy_mask_set(mask, 0, 12, active, 3, 3);
    }
}

static size_t encode_row(uint32_t which, uint8_t *out)
{
    int64_t values[4];
    struct convoy_mask mask;
    make_row(which, values, &mask);
    return convoy_row_encode(&row_forms[which], values, 5, &mask, out);
}

static int32_t decode_row(uint32_t which, const uint8_t *data, size_t length)
{
    int64_t wanted[4];
    int64_t values[4] = {0};
    struct convoy_mask mask;
    struct convoy_row_out row = {.values = values};
    make_row(which, wanted, &mask);
    int32_t status = convoy_row_decode(&row_forms[which], data, length, &row);
    if (status != CONVOY_OK) {
        return status;
    }
    bool is_same = memcmp(values, wanted, sizeof values) == 0 && (!row_forms[which].has_slot || row.slot == 5) &&
                   (which != ROW_MASK || (row.mask.version == 12 && !row.mask.is_full && row.mask.bits[0] == 5));
    return is_same ? CONVOY_OK : GOLDEN_OTHER;
}

static const struct golden_frame frames[] = {
    {"poll.packed", 0, encode_packed, decode_packed}, {"poll.keyed", 0, encode_keyed, decode_keyed},
    {"poll.keyed-host", 1, encode_keyed, decode_keyed}, {"poll.head", 0, encode_head, decode_head},
    {"poll.same", 0, encode_same, decode_same},       {"sync.row-narrow", ROW_NARROW, encode_row, decode_row},
    {"sync.row-wide", ROW_WIDE, encode_row, decode_row}, {"sync.row-slot", ROW_SLOT, encode_row, decode_row},
    {"sync.row-mask", ROW_MASK, encode_row, decode_row},
};

static const struct golden_bad bads[] = {
    {"poll.bad-packed-cut", "poll.packed", GOLDEN_CUT, 10, 0, CONVOY_MALFORMED},
    {"poll.bad-keyed-cut", "poll.keyed", GOLDEN_CUT, 30, 0, CONVOY_MALFORMED},
    {"poll.bad-keyed-long", "poll.keyed", GOLDEN_GROW, 5, 0, CONVOY_MALFORMED},
    {"poll.bad-keyed-count", "poll.keyed", GOLDEN_POKE, 12, 200, CONVOY_MALFORMED},
    {"poll.bad-keyed-flags", "poll.keyed", GOLDEN_POKE, 8, 0x80, CONVOY_MALFORMED},
    {"sync.bad-row-cut", "sync.row-narrow", GOLDEN_CUT, 15, 0, CONVOY_MALFORMED},
    {"sync.bad-row-flags", "sync.row-slot", GOLDEN_POKE, 20, 0xf0, CONVOY_MALFORMED},
    {"sync.bad-row-long", "sync.row-wide", GOLDEN_GROW, 4, 0, CONVOY_MALFORMED},
};

const struct golden_set golden_payload = GOLDEN_SET(frames, bads);
