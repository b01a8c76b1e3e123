/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transfer engine: its pool, its peers, its transfers. What the calls mean is in convoy/transfer.h; structs come at full
 * size here, arrays with their stride. Every call may be made by any thread but open and close.
 */
#ifndef CONVOY_XFER_ENGINE_H
#define CONVOY_XFER_ENGINE_H

#include "convoy/transfer.h"
#include "net/runtime.h"
#include "wire/json_string.h"
#include "wire/manifest.h"

struct convoy_xfer;

/* Every value is set and in its range. */
struct convoy_xfer_options {
    char host[256];
    uint16_t port;
    uint32_t pool_kind;
    void *pool_memory;
    uint64_t pool_bytes;
    uint64_t block_bytes;
    uint64_t lease_ns;
    uint64_t timeout_ns; /* what 0 means in calls */
    uint32_t transfer_max;
    uint32_t peer_max;
    uint32_t prealloc_count;
    uint64_t prealloc_bytes;
    uint32_t device; /* CONVOY_DEVICE_* */
    uint32_t device_number;
    const struct convoy_device_table *device_table; /* while it is opened */
    uint64_t bounce_bytes;
    bool is_private;
    bool must_notify;
};

/* INVALID_ARGUMENT names option, value and range; UNSUPPORTED, LIMIT, NO_MEMORY, SYSTEM. gives */
int32_t convoy_xfer_open(struct convoy_runtime *runtime, const struct convoy_transfer_options *options,
                         struct convoy_xfer **engine_out, struct convoy_error *error);

/* Ends all that goes on and says goodbye. OK: destroy it once no call is inside. DRAIN_TIMEOUT: it stays closing. */
int32_t convoy_xfer_close(struct convoy_xfer *engine, uint64_t deadline_ns, struct convoy_error *error);
void convoy_xfer_destroy(struct convoy_xfer *engine);

void convoy_xfer_info(struct convoy_xfer *engine, struct convoy_engine_info *info_out);
int32_t convoy_xfer_figures(struct convoy_xfer *engine, struct convoy_engine_figures *figures_out,
                            struct convoy_error *error);
int32_t convoy_xfer_fits(struct convoy_xfer *engine, const uint64_t *bytes, size_t count, struct convoy_error *error);
int32_t convoy_xfer_admission_set(struct convoy_xfer *engine, const struct convoy_admission *limits,
                                  struct convoy_error *error);
int32_t convoy_xfer_resize(struct convoy_xfer *engine, uint64_t bytes, struct convoy_error *error);
/* New JSON; NULL = out of memory. gives */
json_t *convoy_xfer_describe(struct convoy_xfer *engine, uint32_t topic);
/* The stats as Prometheus text (convoy_memory_free); NULL = out of memory. gives */
char *convoy_xfer_prometheus(struct convoy_xfer *engine, size_t *length_out);

int32_t convoy_xfer_connect(struct convoy_xfer *engine, const char *session, size_t length, uint64_t timeout_ns,
                            convoy_peer *peer_out, struct convoy_error *error);
int32_t convoy_xfer_disconnect(struct convoy_xfer *engine, convoy_peer peer, struct convoy_error *error);
int32_t convoy_xfer_peer_info(struct convoy_xfer *engine, convoy_peer peer, struct convoy_peer_info *info_out,
                              struct convoy_error *error);

/* is_awaited: the caller waits for it next, so no other thread needs to be woken for the copy. */
int32_t convoy_xfer_stage(struct convoy_xfer *engine, const struct convoy_stage *stage, bool is_awaited,
                          convoy_transfer *staged_out, struct convoy_error *error);
int32_t convoy_xfer_send(struct convoy_xfer *engine, const struct convoy_stage *stage, const struct convoy_send *send,
                         bool is_awaited, convoy_transfer *transfer_out, struct convoy_error *error);
int32_t convoy_xfer_accept(struct convoy_xfer *engine, const struct convoy_load *load, bool is_awaited,
                           convoy_transfer *transfer_out, struct convoy_error *error);
int32_t convoy_xfer_load(struct convoy_xfer *engine, const struct convoy_load *load, convoy_transfer *transfer_out,
                         struct convoy_error *error);

/* Gives form's bytes (convoy_memory_free). */
int32_t convoy_xfer_descriptor(struct convoy_xfer *engine, convoy_transfer staged, uint32_t form, char **text_out,
                               size_t *bytes_out, struct convoy_error *error);

/* deadline_ns 0: one look. result_out: may be NULL; written whatever the status, but for CLOSED. */
int32_t convoy_xfer_wait(struct convoy_xfer *engine, convoy_transfer transfer, uint64_t deadline_ns,
                         struct convoy_transfer_result *result_out, struct convoy_error *error);

/* What a STAGED or LOADED transfer holds; pointers live until release. */
struct convoy_xfer_contents {
    const struct convoy_manifest *manifest;
    const uint8_t *base; /* where its offsets count from */
    struct convoy_span request;
    struct convoy_span session;
    struct convoy_span scalars;
    uint32_t attempt;
    int32_t priority;
};
int32_t convoy_xfer_contents(struct convoy_xfer *engine, convoy_transfer transfer,
                             struct convoy_xfer_contents *contents_out, struct convoy_error *error);
int32_t convoy_xfer_release(struct convoy_xfer *engine, convoy_transfer transfer, struct convoy_error *error);
int32_t convoy_xfer_abort(struct convoy_xfer *engine, convoy_transfer transfer, const char *reason, size_t length,
                          struct convoy_error *error);

/* slots_out: reserve->count elements. */
int32_t convoy_xfer_reserve(struct convoy_xfer *engine, const struct convoy_reserve *reserve,
                            struct convoy_reserved_slot *slots_out, struct convoy_reservation *reservation_out,
                            struct convoy_error *error);
int32_t convoy_xfer_query(struct convoy_xfer *engine, const struct convoy_transfer_query *query, uint64_t timeout_ns,
                          struct convoy_transfer_answer *answer_out, struct convoy_error *error);
/* false: there is none. */
bool convoy_xfer_completion(struct convoy_xfer *engine, struct convoy_completion *completion_out);

int32_t convoy_xfer_register(struct convoy_xfer *engine, void *memory, uint64_t bytes, struct convoy_error *error);
int32_t convoy_xfer_deregister(struct convoy_xfer *engine, void *memory, uint64_t bytes, struct convoy_error *error);
int32_t convoy_xfer_raw(struct convoy_xfer *engine, const struct convoy_raw *raw, uint64_t timeout_ns,
                        struct convoy_error *error);

#endif
