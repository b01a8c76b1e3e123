/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a member or a host sends, as arbitrary bytes, into both merges. The first byte chooses the lists, the second
 * whether the rest comes as a member's or as a host's; then what was merged must encode, and merge again elsewhere to
 * the same members.
 */
#include "poll/keyed.h"

#include <stdlib.h>
#include <string.h>

#define BYTES_MAX 1024u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void shape_choose(struct convoy_payload_shape *shape, uint8_t choice)
{
    memset(shape, 0, sizeof *shape);
    convoy_payload_shape_add(shape, choice & 15u, 0);
    if ((choice & 16) != 0) {
        convoy_payload_shape_add(shape, 0, CONVOY_POLL_KEYED);
    }
    if ((choice & 32) != 0) {
        convoy_payload_shape_add(shape, 0, CONVOY_POLL_KEYED | CONVOY_POLL_ABSENT_SKIP);
    }
    shape->has_votes = (choice & 64) != 0;
}

static void check(int is_true)
{
    if (!is_true) {
        abort();
    }
}

/* Merges the bytes twice, then what came out of it, and compares the number of members. */
static void merge_try(const struct convoy_merge_ops *ops, struct convoy_positional *members, void *state,
                      const uint8_t *data, size_t size, int is_host)
{
    static uint8_t blob[BYTES_MAX * 3];
    ops->begin(state);
    for (uint32_t i = 0; i < 2; i++) {
        int32_t status = is_host ? ops->partial(state, data, size) : ops->member(state, i, data, size);
        check(status == CONVOY_OK || status == CONVOY_MALFORMED);
        if (status != CONVOY_OK) {
            return;
        }
    }
    uint32_t count = members->members;
    size_t length = ops->encode(state, blob, convoy_keyed_partial_bytes_max(BYTES_MAX));
    check(length != 0);
    ops->begin(state);
    check(ops->partial(state, blob, length) == CONVOY_OK);
    check(members->members == count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t positional[BYTES_MAX];
    struct convoy_payload_shape shape;
    struct convoy_keyed keyed;
    struct convoy_memory_plan plan = {0};
    convoy_keyed_place(&keyed, BYTES_MAX, positional, &plan);
    if (size < 2 || !convoy_memory_plan_make(&plan)) {
        return 0;
    }
    convoy_keyed_place(&keyed, BYTES_MAX, positional, &plan);
    shape_choose(&shape, data[0]);
    convoy_keyed_prepare(&keyed, &shape);
    size_t length = size - 2 < BYTES_MAX ? size - 2 : BYTES_MAX;
    uint8_t *exact = malloc(length != 0 ? length : 1); /* of the exact size, so that a read past it is seen */
    memcpy(exact, data + 2, length);
    bool is_keyed = shape.keyed_count != 0;
    merge_try(is_keyed ? &convoy_keyed_ops : &convoy_positional_ops, &keyed.positional,
              is_keyed ? (void *)&keyed : (void *)&keyed.positional, exact, length, data[1] & 1);
    free(exact);
    convoy_memory_table_free(plan.base);
    return 0;
}
