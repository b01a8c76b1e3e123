/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meeting through the host's own all-gather. Every member makes the same calls whatever it finds, since one that left
 * early would leave the others hanging in a callback that has no deadline:
 *
 *   connect:  {hello bytes} | hellos, padded | MACs | notices (each member's verdict on all the others)
 *   exchange: {blob bytes, or "failed"} | blobs, padded -- or notices if anybody failed
 */
#include "net/auth.h"
#include "net/carrier.h"

#include "core/bytes.h"
#include "core/error.h"
#include "core/memory.h"
#include "net/message.h"
#include "net/roster.h"

#define GATHER_LENGTH_BYTES 4u
#define GATHER_FAILED UINT32_MAX
#define GATHER_NOTICE_BYTES (4u + CONVOY_NOTICE_BYTES_MAX)

struct gather {
    uint32_t count;
    uint8_t lengths[GATHER_LENGTH_BYTES * CONVOY_HELLO_MEMBERS_MAX];
    uint8_t *mine;  /* padded copy of what this member brings to the running call */
    uint8_t *table; /* what came back; blobs of the last exchange point into it */
};

/* The callback, with a cell of `bytes` per member. data: at most `bytes`. The result is in gather->table. */
static int32_t gather_call(struct convoy_bootstrap *bootstrap, const void *data, size_t data_bytes, size_t bytes,
                           struct convoy_error *error)
{
    struct gather *gather = bootstrap->state;
    if (data_bytes > bytes) { /* the lengths that came back do not have this member's own among them */
        return convoy_error_set(error, CONVOY_SYSTEM,
                                "the host's all-gather lost what this member brought: %zu bytes, the largest that came "
                                "back is %zu",
                                data_bytes, bytes);
    }
    convoy_memory_free(gather->mine);
    convoy_memory_free(gather->table);
    gather->mine = convoy_memory_zalloc(bytes);
    gather->table = convoy_memory_array(gather->count, bytes);
    if (gather->mine == NULL || gather->table == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to gather %zu bytes from %u members", bytes,
                                gather->count);
    }
    if (data_bytes != 0) {
        memcpy(gather->mine, data, data_bytes);
    }
    const struct convoy_group_options *options = bootstrap->options;
    int32_t code = options->allgather(options->allgather_user, gather->mine, bytes, gather->table);
    if (code != 0) {
        return convoy_error_set(error, CONVOY_SYSTEM, "the host's all-gather of %zu bytes returned %d", bytes, code);
    }
    return CONVOY_OK;
}

/* Gathers one length per member into gather->lengths; the same bound on all members decides the same everywhere. */
static int32_t gather_lengths(struct convoy_bootstrap *bootstrap, uint32_t mine, struct convoy_error *error)
{
    struct gather *gather = bootstrap->state;
    uint8_t length[GATHER_LENGTH_BYTES];
    convoy_bytes_put_u32(length, mine);
    int32_t status = gather_call(bootstrap, length, sizeof length, sizeof length, error);
    if (status == CONVOY_OK) {
        memcpy(gather->lengths, gather->table, (size_t)gather->count * GATHER_LENGTH_BYTES);
    }
    return status;
}

static uint32_t gather_length(const struct gather *gather, uint32_t index)
{
    return convoy_bytes_u32(gather->lengths + GATHER_LENGTH_BYTES * index);
}

/* The longest; MALFORMED names the first member beyond `limit`. */
static int32_t gather_longest(const struct convoy_bootstrap *bootstrap, uint32_t limit, uint32_t *longest_out,
                              struct convoy_error *error)
{
    const struct gather *gather = bootstrap->state;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < gather->count; i++) {
        uint32_t length = gather_length(gather, i);
        if (length > limit) {
            int32_t id = bootstrap->options->member_ids[i];
            return convoy_error_set_peer(error, CONVOY_MALFORMED, id, 0,
                                         "member %d announces %u bytes where at most %u are allowed", id, length,
                                         limit);
        }
        longest = length > longest ? length : longest;
    }
    *longest_out = longest;
    return CONVOY_OK;
}

/* Everybody's verdict. Own failure goes first; else the failure of the lowest index, with its member named. */
static int32_t gather_notices(struct convoy_bootstrap *bootstrap, int32_t status, struct convoy_error *error)
{
    struct gather *gather = bootstrap->state;
    struct convoy_notice notice;
    uint8_t bytes[GATHER_NOTICE_BYTES] = {0};
    if (status != CONVOY_OK) {
        convoy_notice_from_error(&notice, error, 0);
        convoy_bytes_put_u32(bytes, (uint32_t)convoy_notice_encode(&notice, bytes + 4));
    }
    struct convoy_error second = CONVOY_ERROR_INIT;
    int32_t called = gather_call(bootstrap, bytes, sizeof bytes, sizeof bytes, status == CONVOY_OK ? error : &second);
    if (status != CONVOY_OK || called != CONVOY_OK) {
        return status != CONVOY_OK ? status : called;
    }
    for (uint32_t i = 0; i < gather->count; i++) {
        const uint8_t *theirs = gather->table + (size_t)i * GATHER_NOTICE_BYTES;
        int32_t id = bootstrap->options->member_ids[i];
        uint32_t length = convoy_bytes_u32(theirs);
        if (length == 0) {
            continue;
        }
        if (length > CONVOY_NOTICE_BYTES_MAX || !convoy_notice_decode(theirs + 4, length, &notice)) {
            return convoy_error_set_peer(error, CONVOY_MALFORMED, id, 0, "member %d sent a malformed notice", id);
        }
        notice.rank = id;
        (void)convoy_notice_to_error(&notice, error);
        return convoy_error_prefix(error, notice.status, "member %d", id);
    }
    return CONVOY_OK;
}

/* -- connect ----------------------------------------------------------------------------------------------------- */

/* What connect keeps until it is done: all hellos, one cell of `cell_bytes` each. */
struct gather_hellos {
    uint8_t *cells;
    uint32_t cell_bytes;
};

static void gather_mac(const struct convoy_bootstrap *bootstrap, const struct gather_hellos *hellos, uint32_t index,
                       uint8_t mac_out[CONVOY_AUTH_BYTES])
{
    const struct gather *gather = bootstrap->state;
    uint8_t number[4];
    convoy_bytes_put_u32(number, index);
    const struct convoy_auth_text key = {.bytes = bootstrap->runtime->secret,
                                         .count = bootstrap->runtime->secret_bytes};
    const struct convoy_auth_text texts[2] = {
        {.bytes = number, .count = sizeof number},
        {.bytes = hellos->cells, .count = (size_t)gather->count * hellos->cell_bytes},
    };
    convoy_auth_mac(key, CONVOY_AUTH_GATHER, texts, 2, mac_out);
}

static int32_t gather_check_macs(struct convoy_bootstrap *bootstrap, const struct gather_hellos *hellos,
                                 struct convoy_error *error)
{
    struct gather *gather = bootstrap->state;
    uint8_t mac[CONVOY_AUTH_BYTES];
    gather_mac(bootstrap, hellos, bootstrap->options->own_index, mac);
    int32_t status = gather_call(bootstrap, mac, sizeof mac, sizeof mac, error);
    for (uint32_t i = 0; i < gather->count && status == CONVOY_OK; i++) {
        gather_mac(bootstrap, hellos, i, mac);
        if (!convoy_auth_equal(mac, gather->table + (size_t)i * CONVOY_AUTH_BYTES)) {
            int32_t id = bootstrap->options->member_ids[i];
            status = convoy_error_set_peer(error, CONVOY_UNAUTHENTICATED, id, 0,
                                           "member %d does not hold the same secret, or heard other hellos", id);
        }
    }
    return status;
}

/* One hello of the others against this member's. */
static int32_t gather_check_hello(struct convoy_bootstrap *bootstrap, const struct convoy_hello *theirs,
                                  uint32_t index, struct convoy_error *error)
{
    bool dooms;
    int32_t id = bootstrap->options->member_ids[index];
    if (!theirs->has_group || !theirs->has_offer) {
        return convoy_error_set_peer(error, CONVOY_MALFORMED, id, 0, "the hello of member %d lacks its group", id);
    }
    int32_t status = convoy_roster_check(&bootstrap->hello, theirs, &dooms, error);
    if (status == CONVOY_OK && theirs->group.own_index != index) {
        status = convoy_error_set_peer(error, CONVOY_DIVERGED, theirs->group.own_id, 0,
                                       "member %d gives index %u and stands at %u in the host's all-gather",
                                       theirs->group.own_id, theirs->group.own_index, index);
    }
    return status;
}

static int32_t gather_check_hellos(struct convoy_bootstrap *bootstrap, const struct gather_hellos *hellos,
                                   struct convoy_error *error)
{
    const struct gather *gather = bootstrap->state;
    bootstrap->wire = bootstrap->runtime->wire_max;
    for (uint32_t i = 0; i < gather->count; i++) {
        struct convoy_hello theirs;
        const uint8_t *cell = hellos->cells + (size_t)i * hellos->cell_bytes;
        int32_t status = convoy_hello_decode(cell, gather_length(gather, i), &theirs, error);
        if (status != CONVOY_OK) {
            error->rank = bootstrap->options->member_ids[i];
            return convoy_error_prefix(error, status, "member %d", error->rank);
        }
        status = gather_check_hello(bootstrap, &theirs, i, error);
        if (status != CONVOY_OK) {
            return status;
        }
        bootstrap->wire = theirs.wire_max < bootstrap->wire ? theirs.wire_max : bootstrap->wire;
        if (i == bootstrap->options->listener_index) {
            bootstrap->epoch = theirs.offer_epoch;
            memcpy(bootstrap->salt, theirs.offer_salt, sizeof bootstrap->salt);
        }
    }
    return CONVOY_OK;
}

/* All hellos into memory of their own: the next call reuses the table. */
static int32_t gather_hellos_fetch(struct convoy_bootstrap *bootstrap, struct gather_hellos *hellos_out,
                                   struct convoy_error *error)
{
    struct gather *gather = bootstrap->state;
    uint8_t bytes[CONVOY_HELLO_BYTES_MAX];
    size_t length = convoy_hello_encode(&bootstrap->hello, bytes);
    int32_t status = gather_lengths(bootstrap, (uint32_t)length, error);
    if (status == CONVOY_OK) {
        status = gather_longest(bootstrap, CONVOY_HELLO_BYTES_MAX, &hellos_out->cell_bytes, error);
    }
    if (status == CONVOY_OK) {
        status = gather_call(bootstrap, bytes, length, hellos_out->cell_bytes, error);
    }
    if (status == CONVOY_OK) {
        hellos_out->cells = gather->table;
        gather->table = NULL;
    }
    return status;
}

static int32_t gather_connect(struct convoy_bootstrap *bootstrap, struct convoy_error *error)
{
    struct gather *gather = convoy_memory_zalloc(sizeof *gather);
    if (gather == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to gather");
    }
    gather->count = (uint32_t)bootstrap->options->member_count;
    bootstrap->state = gather;
    struct convoy_hello *hello = &bootstrap->hello;
    hello->has_offer = true;
    int32_t status = convoy_carrier_offer(bootstrap, &hello->offer_epoch, hello->offer_salt, error);
    struct gather_hellos hellos = {.cells = NULL};
    if (status == CONVOY_OK) {
        status = gather_hellos_fetch(bootstrap, &hellos, error);
    }
    if (status != CONVOY_OK) {
        return status; /* all members saw the same lengths, or the callback itself is broken */
    }
    status = gather_check_macs(bootstrap, &hellos, error);
    if (status == CONVOY_OK) {
        status = gather_check_hellos(bootstrap, &hellos, error);
    }
    convoy_memory_free(hellos.cells);
    return gather_notices(bootstrap, status, error);
}

/* -- afterwards -------------------------------------------------------------------------------------------------- */

static int32_t gather_exchange(struct convoy_bootstrap *bootstrap, const struct convoy_blob *mine,
                               struct convoy_blob *blobs_out, struct convoy_error *error)
{
    struct gather *gather = bootstrap->state;
    uint32_t cell_bytes = 0;
    if (bootstrap->is_canceled) {
        struct convoy_error said = CONVOY_ERROR_INIT;
        (void)convoy_carrier_say_canceled(bootstrap, &said);
        convoy_carrier_gather.fail(bootstrap, &said);
        return CONVOY_CANCELED;
    }
    int32_t status = gather_lengths(bootstrap, (uint32_t)mine->bytes, error);
    if (status != CONVOY_OK) {
        return status;
    }
    for (uint32_t i = 0; i < gather->count; i++) {
        if (gather_length(gather, i) == GATHER_FAILED) {
            return gather_notices(bootstrap, CONVOY_OK, error);
        }
    }
    status = gather_longest(bootstrap, CONVOY_BOOTSTRAP_BLOB_MAX, &cell_bytes, error);
    if (status == CONVOY_OK) {
        status = gather_call(bootstrap, mine->data, mine->bytes, cell_bytes, error);
    }
    for (uint32_t i = 0; i < gather->count && status == CONVOY_OK; i++) {
        blobs_out[i] = (struct convoy_blob){.data = gather->table + (size_t)i * cell_bytes,
                                            .bytes = gather_length(gather, i)};
    }
    return status;
}

static void gather_fail(struct convoy_bootstrap *bootstrap, const struct convoy_error *cause)
{
    struct convoy_error own = *cause;
    struct convoy_error second = CONVOY_ERROR_INIT;
    if (gather_lengths(bootstrap, GATHER_FAILED, &second) == CONVOY_OK) {
        (void)gather_notices(bootstrap, cause->status < 0 ? cause->status : CONVOY_INVARIANT, &own);
    }
}

static void gather_close(struct convoy_bootstrap *bootstrap)
{
    struct gather *gather = bootstrap->state;
    convoy_memory_free(gather->mine);
    convoy_memory_free(gather->table);
    convoy_memory_free(gather);
}

const struct convoy_carrier convoy_carrier_gather = {
    .connect = gather_connect, .exchange = gather_exchange, .fail = gather_fail, .close = gather_close};
