/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of raw transfers that a peer has not given back yet, as items, and back. */
#include "core/error.h"
#include "core/memory.h"
#include "xfer/move_parts.h"

#include <string.h>

#define ITEM_PARTS 2u  /* offset, target, bytes, where from, whether a range is in use: 8 each */
#define ITEM_LEASES 3u /* 8 each */
#define PART_WORDS 5u

static const struct convoy_bundle_field window_field_list[] = {
    CONVOY_BUNDLE_FIELD(1, struct convoy_raw_window, order.cookie),
    CONVOY_BUNDLE_FIELD(2, struct convoy_raw_window, order.since_ns),
    CONVOY_BUNDLE_FIELD(3, struct convoy_raw_window, order.peer),
    CONVOY_BUNDLE_FIELD(4, struct convoy_raw_window, order.generation),
    CONVOY_BUNDLE_FIELD(5, struct convoy_raw_window, is_far),
    CONVOY_BUNDLE_FIELD(6, struct convoy_raw_window, is_direct),
    CONVOY_BUNDLE_FIELD(7, struct convoy_raw_window, is_said),
    CONVOY_BUNDLE_FIELD(8, struct convoy_raw_window, is_given_room),
    CONVOY_BUNDLE_FIELD(9, struct convoy_raw_window, bytes),
    CONVOY_BUNDLE_FIELD(10, struct convoy_raw_window, share.generation),
    CONVOY_BUNDLE_FIELD(11, struct convoy_raw_window, share.base),
    CONVOY_BUNDLE_FIELD(12, struct convoy_raw_window, share.bytes),
    CONVOY_BUNDLE_FIELD(13, struct convoy_raw_window, last_from),
    CONVOY_BUNDLE_FIELD(14, struct convoy_raw_window, block.lease),
    CONVOY_BUNDLE_FIELD(15, struct convoy_raw_window, block.offset),
    CONVOY_BUNDLE_FIELD(16, struct convoy_raw_window, block.bytes),
    CONVOY_BUNDLE_FIELD(17, struct convoy_raw_window, block.address),
    CONVOY_BUNDLE_FIELD(18, struct convoy_raw_window, block_used),
    CONVOY_BUNDLE_FIELD(19, struct convoy_raw_window, note.lease),
    CONVOY_BUNDLE_FIELD(20, struct convoy_raw_window, note.offset),
    CONVOY_BUNDLE_FIELD(21, struct convoy_raw_window, note.bytes),
    CONVOY_BUNDLE_FIELD(22, struct convoy_raw_window, note.address),
    CONVOY_BUNDLE_FIELD(23, struct convoy_raw_window, streams),
};
CONVOY_XFER_SHAPE(window);

/* -- out ----------------------------------------------------------------------------------------------------------- */

static void save_window(const struct convoy_xfer_saving *saving, const struct convoy_raw_window *window)
{
    struct convoy_bundle_writer *writer = saving->writer;
    size_t opened = convoy_bundle_open(writer, CONVOY_XFER_ITEM_WINDOW, CONVOY_BUNDLE_CRITICAL);
    convoy_bundle_put_fields(writer, &window_shape, window);
    for (uint32_t i = 0; i < window->count; i++) {
        const uint64_t words[PART_WORDS] = {window->parts[i].offset, window->parts[i].target, window->parts[i].bytes,
                                            (uint64_t)(uintptr_t)window->pieces[i].data, window->is_range[i]};
        convoy_bundle_put(writer, ITEM_PARTS, CONVOY_BUNDLE_CRITICAL, words, sizeof words);
    }
    if (window->lease_count != 0) {
        convoy_bundle_put(writer, ITEM_LEASES, CONVOY_BUNDLE_CRITICAL, window->leases,
                          window->lease_count * sizeof window->leases[0]);
    }
    convoy_bundle_shut(writer, opened);
}

void convoy_xfer_save_windows(const struct convoy_xfer_saving *saving)
{
    for (const struct convoy_raw_window *window = saving->engine->held; window != NULL; window = window->next) {
        save_window(saving, window);
    }
}

/* -- in ------------------------------------------------------------------------------------------------------------ */

static int32_t add_part(struct convoy_raw_window *window, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    uint64_t words[PART_WORDS];
    if (item->bytes != sizeof words || window->count == CONVOY_RAW_PARTS_MAX) {
        return convoy_error_set(error, CONVOY_MALFORMED, "a part of a window has %zu bytes, or there are more than %u",
                                item->bytes, CONVOY_RAW_PARTS_MAX);
    }
    memcpy(words, item->data, sizeof words);
    uint32_t at = window->count++;
    window->parts[at] = (struct convoy_raw_part){.offset = words[0], .target = words[1], .bytes = words[2]};
    window->pieces[at] =
        (struct convoy_bulk_piece){.data = (const void *)(uintptr_t)words[3], .bytes = (size_t)words[2]};
    window->is_range[at] = words[4] != 0;
    return CONVOY_OK;
}

static int32_t inner(void *user, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    struct convoy_raw_window *window = user;
    if (item->tag == ITEM_PARTS) {
        return add_part(window, item, error);
    }
    if (item->tag != ITEM_LEASES) {
        return convoy_bundle_unknown(item, window_shape.name, error);
    }
    if (item->bytes > sizeof window->leases) {
        return convoy_error_set(error, CONVOY_MALFORMED, "a window holds more than %u slots", CONVOY_RAW_LEASES_MAX);
    }
    memcpy(window->leases, item->data, item->bytes);
    window->lease_count = (uint32_t)(item->bytes / sizeof window->leases[0]);
    return CONVOY_OK;
}

int32_t convoy_xfer_restore_window(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                   struct convoy_error *error)
{
    struct convoy_xfer *engine = restoring->engine;
    struct convoy_raw_window *window = convoy_memory_zalloc(sizeof *window);
    if (window == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a window of pieces");
    }
    const struct convoy_xfer_reading reading = {&window_shape, window, inner, window};
    int32_t status = convoy_xfer_restore_one(item, &reading, error);
    uint32_t peer = window->order.peer;
    if (status == CONVOY_OK && (peer >= engine->options.peer_max || engine->peers[peer].state == 0)) {
        status = convoy_error_set(error, CONVOY_MALFORMED, "a window is held for peer %u, which there is not", peer);
    }
    if (status != CONVOY_OK) {
        convoy_memory_free(window);
        return status;
    }
    struct convoy_raw_window **last = &engine->held;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = window;
    window->order.window = window;
    window->pool = engine->pool;
    engine->peers[peer].entries++;
    return CONVOY_OK;
}
