/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Golden frames of what one build hands to another in a running host (core/bundle.h): the frame of all of it, and the parts
 * that have neither a descriptor nor an address of this process in them. A state is of one process; in these files it is
 * process 1, and a reader is given its own.
 */
#include "golden.h"

#include "core/bundle.h"
#include "core/bytes.h"
#include "core/memory.h"
#include "pool/move.h"
#include "record_move.h"

#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define DIGEST_AT 16u
#define PROCESS_AT 24u
#define ITEM_THINGS 7u
#define ITEM_PART 8u
#define ITEM_LATER 999u
#define POOL_MEMORY ((void *)(uintptr_t)0x7f0000000000) /* never touched */

static void set_process(uint8_t *data, size_t length, uint64_t process)
{
    convoy_bytes_put_u64(data + PROCESS_AT, process);
    convoy_bytes_put_u64(data + DIGEST_AT, XXH3_64bits(data + PROCESS_AT, length - PROCESS_AT));
}

static size_t finish(struct convoy_bundle_writer *writer, uint8_t *out)
{
    size_t length = 0;
    if (convoy_bundle_end(writer, NULL) == CONVOY_OK && writer->used <= GOLDEN_BYTES_MAX) {
        length = writer->used;
        memcpy(out, writer->data, length);
        set_process(out, length, 1);
    }
    convoy_bundle_free(writer);
    return length;
}

/* As a process of number 1 would read it. room: GOLDEN_BYTES_MAX, aligned; what it spoils stays spoilt. */
static int32_t begin_read(const uint8_t *data, size_t length, uint8_t *room, struct convoy_bundle_reader *reader_out)
{
    memcpy(room, data, length);
    bool is_whole = length >= PROCESS_AT + 8 &&
                    convoy_bytes_u64(data + DIGEST_AT) == XXH3_64bits(data + PROCESS_AT, length - PROCESS_AT);
    if (is_whole && convoy_bytes_u64(data + PROCESS_AT) == 1) {
        set_process(room, length, (uint64_t)getpid());
    }
    return convoy_bundle_read(room, length, reader_out, NULL);
}

static _Alignas(64) uint8_t read_room[GOLDEN_BYTES_MAX];

/* Of one that has a single item. */
static int32_t read_first(const uint8_t *data, size_t length, struct convoy_bundle_item *item_out)
{
    struct convoy_bundle_reader reader;
    int32_t status = begin_read(data, length, read_room, &reader);
    return status == CONVOY_OK && !convoy_bundle_next(&reader, item_out) ? CONVOY_MALFORMED : status;
}

/* -- the frame ----------------------------------------------------------------------------------------------------- */

struct things {
    uint64_t wide;
    uint32_t narrow;
    bool is_so;
    uint16_t none; /* zero, which is not written */
    char name[12];
};

static const struct convoy_bundle_field things_fields[] = {
    CONVOY_BUNDLE_FIELD(1, struct things, wide),  CONVOY_BUNDLE_FIELD_FLAGS(2, struct things, narrow, CONVOY_BUNDLE_CRITICAL),
    CONVOY_BUNDLE_FIELD(3, struct things, is_so), CONVOY_BUNDLE_FIELD(4, struct things, none),
    CONVOY_BUNDLE_FIELD(9, struct things, name),
};
static const struct convoy_bundle_shape things_shape = {
    .name = "things", .fields = things_fields, .count = sizeof things_fields / sizeof things_fields[0]};

static const uint8_t part[5] = {1, 2, 3, 4, 5};

/* which: flags of the item that no reader knows. */
static size_t encode_bundle(uint32_t which, uint8_t *out)
{
    const struct things things = {.wide = 0x1122334455667788u, .narrow = 77, .is_so = true, .name = "convoy"};
    struct convoy_bundle_writer writer = {0};
    convoy_bundle_begin(&writer);
    size_t opened = convoy_bundle_open(&writer, ITEM_THINGS, CONVOY_BUNDLE_CRITICAL);
    convoy_bundle_put_fields(&writer, &things_shape, &things);
    size_t inner = convoy_bundle_open(&writer, ITEM_PART, 0);
    convoy_bundle_add(&writer, part, sizeof part);
    convoy_bundle_shut(&writer, inner);
    convoy_bundle_put(&writer, ITEM_LATER, (uint16_t)which, "later", 5);
    convoy_bundle_shut(&writer, opened);
    convoy_bundle_put_u64(&writer, ITEM_PART, 900);
    return finish(&writer, out);
}

static int32_t read_things(const struct convoy_bundle_item *item, struct things *things, uint32_t *parts)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item one;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &one)) {
        if (one.tag == CONVOY_BUNDLE_FIELDS) {
            status = convoy_bundle_get_fields(&one, &things_shape, things, NULL);
        } else if (one.tag == ITEM_PART) {
            *parts += one.bytes == sizeof part && memcmp(one.data, part, sizeof part) == 0;
        } else {
            status = convoy_bundle_unknown(&one, "things", NULL);
        }
    }
    return status == CONVOY_OK ? convoy_bundle_done(&reader, "things", NULL) : status;
}

static int32_t decode_bundle(uint32_t which, const uint8_t *data, size_t length)
{
    struct convoy_bundle_reader reader;
    struct convoy_bundle_item item;
    struct things things = {0};
    uint32_t parts = 0;
    uint64_t last = 0;
    int32_t status = begin_read(data, length, read_room, &reader);
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &item)) {
        if (item.tag == ITEM_THINGS) {
            status = read_things(&item, &things, &parts);
        } else {
            last = convoy_bundle_u64(&item);
        }
    }
    if ((which & CONVOY_BUNDLE_CRITICAL) != 0) {
        return status == CONVOY_TOO_NEW ? CONVOY_OK : status == CONVOY_OK ? GOLDEN_OTHER : status;
    }
    status = status == CONVOY_OK ? convoy_bundle_done(&reader, "all", NULL) : status;
    bool is_same = things.wide == 0x1122334455667788u && things.narrow == 77 && things.is_so && things.none == 0 &&
                   strcmp(things.name, "convoy") == 0 && parts == 1 && last == 900;
    return status != CONVOY_OK ? status : is_same ? CONVOY_OK : GOLDEN_OTHER;
}

/* -- a pool and its leases ----------------------------------------------------------------------------------------- */

static size_t encode_pool(uint32_t which, uint8_t *out)
{
    (void)which;
    const struct convoy_pool_options options = {.kind = CONVOY_POOL_HOST,
                                                .memory = POOL_MEMORY,
                                                .bytes = 1u << 20,
                                                .block_bytes = 65536,
                                                .lease_max = 8,
                                                .reference_max = 16};
    static const char *const requests[] = {"first", "second", "third"};
    struct convoy_pool *pool = NULL;
    struct convoy_slot slots[3];
    bool is_made = convoy_pool_open(&options, &pool, NULL) == CONVOY_OK;
    for (uint32_t i = 0; is_made && i < 3; i++) {
        const struct convoy_pool_request request = {.owner = {requests[i], strlen(requests[i]), i + 1},
                                                    .bytes = 70000 * (uint64_t)i,
                                                    .now_ns = 1000 + i,
                                                    .deadline_ns = 5000000 + i};
        is_made = convoy_pool_take(pool, &request, &slots[i], NULL) == CONVOY_OK;
    }
    is_made = is_made && convoy_pool_filled(pool, slots[1].lease, 69999, NULL) == CONVOY_OK &&
              convoy_pool_refer(pool, slots[1].lease, 4, CONVOY_REFERENCE_READ, NULL) == CONVOY_OK &&
              convoy_pool_retire(pool, slots[1].lease, CONVOY_LEASE_END_RELEASED, NULL) == CONVOY_OK;
    if (!is_made) {
        return 0;
    }
    struct convoy_bundle_writer writer = {0};
    convoy_bundle_begin(&writer);
    size_t opened = convoy_bundle_open(&writer, ITEM_THINGS, 0);
    convoy_pool_save(pool, &writer);
    convoy_bundle_shut(&writer, opened);
    convoy_pool_leave(pool);
    return finish(&writer, out);
}

static bool is_pool(struct convoy_pool *pool)
{
    struct convoy_pool_figures figures;
    convoy_pool_figures(pool, &figures);
    const struct convoy_lease_figures *leases = &figures.leases;
    return convoy_pool_memory(pool) == POOL_MEMORY && convoy_pool_bytes(pool) == 1u << 20 &&
           leases->counts[CONVOY_LEASE_TAKEN] == 2 && leases->counts[CONVOY_LEASE_RETIRED] == 1 &&
           leases->bytes[CONVOY_LEASE_RETIRED] == 131072 && leases->references[CONVOY_REFERENCE_READ] == 1;
}

static int32_t decode_pool(uint32_t which, const uint8_t *data, size_t length)
{
    (void)which;
    struct convoy_bundle_item item;
    struct convoy_pool *pool = NULL;
    const struct convoy_pool_options options = {.kind = CONVOY_POOL_HOST};
    int32_t status = read_first(data, length, &item);
    status = status == CONVOY_OK ? convoy_pool_restore(&options, &item, &pool, NULL) : status;
    if (status != CONVOY_OK) {
        return status;
    }
    bool is_same = is_pool(pool);
    convoy_pool_leave(pool);
    return is_same ? CONVOY_OK : GOLDEN_OTHER;
}

/* -- what a group remembers ---------------------------------------------------------------------------------------- */

#define CALLS 3u

static void log_call(struct convoy_call_log *log, uint32_t number)
{
    static const uint8_t input[4] = {3, 2, 4, 1};
    static const uint8_t output[4] = {1, 2, 3, 0};
    struct convoy_call_header header = {.round = 100 + number,
                                        .epoch = 9,
                                        .tag = 7,
                                        .operation = CONVOY_OPERATION_POLL,
                                        .votes = 5,
                                        .list_count = 1,
                                        .input_bytes = sizeof input,
                                        .lists = {{.input_count = 4, .value_bytes = 1, .name = "queue"}}};
    const struct convoy_call_end end = {.status = CONVOY_OK,
                                        .votes_and = 1,
                                        .votes_or = 7,
                                        .duration_ns = 1500 + number,
                                        .output_counts = {4},
                                        .output = output,
                                        .output_bytes = sizeof output};
    convoy_call_log_put(log, &header, input, &end);
}

static size_t encode_record(uint32_t which, uint8_t *out)
{
    (void)which;
    struct convoy_record *record = convoy_memory_zalloc(sizeof *record);
    if (record == NULL || convoy_record_open(record, 4, NULL) != CONVOY_OK) {
        return 0;
    }
    struct convoy_operation_stats *stats = &record->stats->operations[0];
    record->calls = 12345;
    record->stalls = 2;
    record->is_broken = true;
    atomic_store(&stats->bytes_sent, 4096);
    atomic_store(&stats->outcomes[0], 3);
    atomic_store(&stats->call_ns.buckets[10], 17);
    atomic_store(&stats->call_ns.sum_ns, 99);
    for (uint32_t i = 0; i < CALLS; i++) {
        log_call(record->log, i);
    }
    struct convoy_bundle_writer writer = {0};
    convoy_bundle_begin(&writer);
    size_t opened = convoy_bundle_open(&writer, ITEM_THINGS, 0);
    convoy_record_save(record, &writer);
    convoy_bundle_shut(&writer, opened);
    convoy_record_close(record);
    convoy_memory_free(record);
    return finish(&writer, out);
}

static bool is_record(const struct convoy_record *record)
{
    struct convoy_call_header header;
    uint8_t bytes[CONVOY_RECORD_ENTRY_BYTES];
    const struct convoy_operation_stats *stats = &record->stats->operations[0];
    bool is_same = record->calls == 12345 && record->stalls == 2 && record->is_broken &&
                   atomic_load(&stats->bytes_sent) == 4096 && atomic_load(&stats->outcomes[0]) == 3 &&
                   atomic_load(&stats->call_ns.buckets[10]) == 17 && atomic_load(&stats->call_ns.sum_ns) == 99 &&
                   convoy_call_log_count(record->log) == CALLS &&
                   convoy_call_log_read(record->log, CALLS, &header, bytes);
    return is_same && header.round == 102 && header.tag == 7 && header.list_count == 1 &&
           strcmp(header.lists[0].name, "queue") == 0 && header.lists[0].output_count == 4 && bytes[0] == 3 &&
           bytes[convoy_call_log_output_at(record->log, &header) + 2] == 3 && header.duration_ns == 1502;
}

static int32_t decode_record(uint32_t which, const uint8_t *data, size_t length)
{
    (void)which;
    struct convoy_bundle_item item;
    int32_t status = read_first(data, length, &item);
    struct convoy_record *record = status == CONVOY_OK ? convoy_memory_zalloc(sizeof *record) : NULL;
    if (record == NULL) {
        return status == CONVOY_OK ? CONVOY_NO_MEMORY : status;
    }
    status = convoy_record_open(record, 4, NULL);
    status = status == CONVOY_OK ? convoy_record_restore(record, &item, NULL) : status;
    status = status != CONVOY_OK || is_record(record) ? status : GOLDEN_OTHER;
    convoy_record_close(record);
    convoy_memory_free(record);
    return status;
}

/* -- all ----------------------------------------------------------------------------------------------------------- */

static const struct golden_frame frames[] = {
    {"state.bundle", 0, encode_bundle, decode_bundle},
    {"state.critical", CONVOY_BUNDLE_CRITICAL, encode_bundle, decode_bundle},
    {"state.pool", 0, encode_pool, decode_pool},
    {"state.record", 0, encode_record, decode_record},
};

static const struct golden_bad bads[] = {
    {"state.bad-magic", "state.bundle", GOLDEN_POKE, 0, 'X', CONVOY_MALFORMED},
    {"state.bad-format", "state.bundle", GOLDEN_POKE, 4, 9, CONVOY_VERSION_MISMATCH},
    {"state.bad-digest", "state.bundle", GOLDEN_POKE, DIGEST_AT, 0, CONVOY_MALFORMED},
    {"state.bad-byte", "state.pool", GOLDEN_POKE, 48, 0xff, CONVOY_MALFORMED},
    {"state.bad-cut", "state.record", GOLDEN_CUT, 200, 0, CONVOY_MALFORMED},
    {"state.bad-long", "state.bundle", GOLDEN_GROW, 8, 0, CONVOY_MALFORMED},
};

const struct golden_set golden_state = GOLDEN_SET(frames, bads);
