/* SPDX-License-Identifier: Apache-2.0 */
#include "load/tables.h"

#include "core/error.h"

#include <string.h>

/* What stands in for a missing slot ignores its arguments; only their types matter, for the call to be a legal one. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Slots that came with a later minor: what is lacking is then most likely a newer build, so the text says of which version. */
static const struct {
    const char *slot;
    const char *since;
} later_slots[] = {{"transfer admission_set", "transfer 1.1"}};

static int32_t unsupported(struct convoy_error *error, const char *slot)
{
    for (size_t i = 0; i < sizeof later_slots / sizeof later_slots[0]; i++) {
        if (strcmp(later_slots[i].slot, slot) == 0) {
            return convoy_error_set(error, CONVOY_UNSUPPORTED, "%s is of %s: the plugin that is loaded does not offer it",
                                    slot, later_slots[i].since);
        }
    }
    return convoy_error_set(error, CONVOY_UNSUPPORTED, "%s: the plugin that is loaded does not offer it", slot);
}

/* X(family, slot, parameters without the error) */
#define CORE_SLOTS(X)                                                                                                  \
    X(core, context_open, (const struct convoy_context_config *a, convoy_context **b, struct convoy_error *error))     \
    X(core, context_close, (convoy_context *a, uint64_t b, struct convoy_error *error))                                \
    X(core, context_describe,                                                                                          \
      (convoy_context *a, uint32_t b, struct convoy_text_buffer *c, struct convoy_error *error))                       \
    X(core, group_open,                                                                                                \
      (convoy_context *a, const struct convoy_group_options *b, convoy_group **c, struct convoy_error *error))         \
    X(core, group_open_start,                                                                                          \
      (convoy_context *a, const struct convoy_group_options *b, convoy_group **c, struct convoy_error *error))         \
    X(core, group_open_test, (convoy_group *a, struct convoy_error *error))                                            \
    X(core, group_open_wait, (convoy_group *a, uint64_t b, struct convoy_error *error))                                \
    X(core, group_close, (convoy_group *a, uint64_t b, struct convoy_error *error))                                    \
    X(core, group_cancel, (convoy_group *a, const char *b, size_t c, struct convoy_error *error))                      \
    X(core, group_reopen,                                                                                              \
      (convoy_group *a, uint64_t b, struct convoy_reopen_result *c, struct convoy_error *error))                       \
    X(core, operation_abandon, (convoy_group *a, convoy_operation b, struct convoy_error *error))                      \
    X(core, operation_report, (convoy_group *a, struct convoy_report *b, struct convoy_error *error))                  \
    X(core, group_info, (convoy_group *a, struct convoy_group_info *b, struct convoy_error *error))                    \
    X(core, group_describe,                                                                                            \
      (convoy_group *a, uint32_t b, struct convoy_text_buffer *c, struct convoy_error *error))

#define POLL_SLOTS(X)                                                                                                  \
    X(poll, reduce_start,                                                                                              \
      (convoy_group *a, const struct convoy_poll_call *b, convoy_operation *c, struct convoy_error *error))            \
    X(poll, reduce_test,                                                                                               \
      (convoy_group *a, convoy_operation b, struct convoy_poll_result *c, struct convoy_error *error))                 \
    X(poll, reduce_wait,                                                                                               \
      (convoy_group *a, convoy_operation b, uint64_t c, struct convoy_poll_result *d, struct convoy_error *error))     \
    X(poll, reduce,                                                                                                    \
      (convoy_group *a, const struct convoy_poll_call *b, uint64_t c, struct convoy_poll_result *d,                    \
       struct convoy_error *error))                                                                                    \
    X(poll, reduce2_start,                                                                                             \
      (convoy_group *a, convoy_group *b, const struct convoy_poll_call *c, convoy_operation *d,                        \
       struct convoy_error *error))                                                                                    \
    X(poll, reduce2_test,                                                                                              \
      (convoy_group *a, convoy_operation b, struct convoy_poll_result *c, struct convoy_error *error))                 \
    X(poll, reduce2_wait,                                                                                              \
      (convoy_group *a, convoy_operation b, uint64_t c, struct convoy_poll_result *d, struct convoy_error *error))     \
    X(poll, reduce2_abandon, (convoy_group *a, convoy_operation b, struct convoy_error *error))                        \
    X(poll, consensus, (const struct convoy_poll_consensus *a, uint8_t *b, struct convoy_error *error))

#define SYNC_SLOTS(X)                                                                                                  \
    X(sync, gather_start,                                                                                              \
      (convoy_group *a, const struct convoy_sync_call *b, convoy_operation *c, struct convoy_error *error))            \
    X(sync, gather_test,                                                                                               \
      (convoy_group *a, convoy_operation b, struct convoy_sync_result *c, struct convoy_error *error))                 \
    X(sync, gather_wait,                                                                                               \
      (convoy_group *a, convoy_operation b, uint64_t c, struct convoy_sync_result *d, struct convoy_error *error))     \
    X(sync, gather,                                                                                                    \
      (convoy_group *a, const struct convoy_sync_call *b, uint64_t c, struct convoy_sync_result *d,                    \
       struct convoy_error *error))                                                                                    \
    X(sync, padded_size,                                                                                               \
      (const struct convoy_sync_padding *a, struct convoy_sync_padded *b, struct convoy_error *error))                 \
    X(sync, starts, (const struct convoy_sync_padding *a, int64_t b, int64_t *c, struct convoy_error *error))

#define TRANSFER_SLOTS(X)                                                                                              \
    X(transfer, engine_open,                                                                                           \
      (convoy_context *a, const struct convoy_transfer_options *b,                                                     \
       convoy_transfer_engine **c, struct convoy_error *error))                                                        \
    X(transfer, engine_close, (convoy_transfer_engine *a, uint64_t b, struct convoy_error *error))                     \
    X(transfer, engine_info, (convoy_transfer_engine *a, struct convoy_engine_info *b, struct convoy_error *error))    \
    X(transfer, engine_describe,                                                                                       \
      (convoy_transfer_engine *a, uint32_t b, struct convoy_text_buffer *c, struct convoy_error *error))               \
    X(transfer, pool_figures,                                                                                          \
      (convoy_transfer_engine *a, struct convoy_engine_figures *b, struct convoy_error *error))                        \
    X(transfer, pool_fits, (convoy_transfer_engine *a, const uint64_t *b, size_t c, struct convoy_error *error))       \
    X(transfer, pool_resize, (convoy_transfer_engine *a, uint64_t b, struct convoy_error *error))                      \
    X(transfer, peer_connect,                                                                                          \
      (convoy_transfer_engine *a, const char *b, size_t c, uint64_t d, convoy_peer *e, struct convoy_error *error))    \
    X(transfer, peer_disconnect, (convoy_transfer_engine *a, convoy_peer b, struct convoy_error *error))               \
    X(transfer, peer_info,                                                                                             \
      (convoy_transfer_engine *a, convoy_peer b, struct convoy_peer_info *c, struct convoy_error *error))              \
    X(transfer, stage_start,                                                                                           \
      (convoy_transfer_engine *a, const struct convoy_stage *b, convoy_transfer *c, struct convoy_error *error))       \
    X(transfer, descriptor,                                                                                            \
      (convoy_transfer_engine *a, convoy_transfer b, uint32_t c,                                                       \
       struct convoy_text_buffer *d, struct convoy_error *error))                                                      \
    X(transfer, send_start,                                                                                            \
      (convoy_transfer_engine *a, const struct convoy_stage *b, const struct convoy_send *c,                           \
       convoy_transfer *d, struct convoy_error *error))                                                                \
    X(transfer, accept_start,                                                                                          \
      (convoy_transfer_engine *a, const struct convoy_load *b, convoy_transfer *c, struct convoy_error *error))        \
    X(transfer, load_start,                                                                                            \
      (convoy_transfer_engine *a, const struct convoy_load *b, convoy_transfer *c, struct convoy_error *error))        \
    X(transfer, transfer_test,                                                                                         \
      (convoy_transfer_engine *a, convoy_transfer b, struct convoy_transfer_result *c, struct convoy_error *error))    \
    X(transfer, transfer_wait,                                                                                         \
      (convoy_transfer_engine *a, convoy_transfer b, uint64_t c,                                                       \
       struct convoy_transfer_result *d, struct convoy_error *error))                                                  \
    X(transfer, send,                                                                                                  \
      (convoy_transfer_engine *a, const struct convoy_stage *b, const struct convoy_send *c,                           \
       convoy_transfer *d, struct convoy_error *error))                                                                \
    X(transfer, accept,                                                                                                \
      (convoy_transfer_engine *a, const struct convoy_load *b, convoy_transfer *c, struct convoy_error *error))        \
    X(transfer, payload,                                                                                               \
      (convoy_transfer_engine *a, convoy_transfer b, struct convoy_payload *c, struct convoy_error *error))            \
    X(transfer, release, (convoy_transfer_engine *a, convoy_transfer b, struct convoy_error *error))                   \
    X(transfer, abort,                                                                                                 \
      (convoy_transfer_engine *a, convoy_transfer b, const char *c, size_t d, struct convoy_error *error))             \
    X(transfer, reserve,                                                                                               \
      (convoy_transfer_engine *a, const struct convoy_reserve *b,                                                      \
       struct convoy_reservation *c, struct convoy_error *error))                                                      \
    X(transfer, query,                                                                                                 \
      (convoy_transfer_engine *a, const struct convoy_transfer_query *b, uint64_t c,                                   \
       struct convoy_transfer_answer *d, struct convoy_error *error))                                                  \
    X(transfer, completions,                                                                                           \
      (convoy_transfer_engine *a, struct convoy_completion *b, size_t c, size_t d,                                     \
       size_t *e, struct convoy_error *error))                                                                         \
    X(transfer, memory_register, (convoy_transfer_engine *a, void *b, uint64_t c, struct convoy_error *error))         \
    X(transfer, memory_deregister, (convoy_transfer_engine *a, void *b, uint64_t c, struct convoy_error *error))       \
    X(transfer, transfer_sync,                                                                                         \
      (convoy_transfer_engine *a, const struct convoy_raw *b, uint64_t c, struct convoy_error *error))                 \
    X(transfer, admission_set,                                                                                         \
      (convoy_transfer_engine *a, const struct convoy_admission *b, struct convoy_error *error))

#define MOVE_SLOTS(X)                                                                                                  \
    X(move, holdings, (convoy_context *a, struct convoy_holdings *b, struct convoy_error *error))                      \
    X(move, quiesce, (convoy_context *a, uint64_t b, struct convoy_error *error))                                      \
    X(move, resume, (convoy_context *a, struct convoy_error *error))                                                   \
    X(move, export_state,                                                                                              \
      (convoy_context *a, const struct convoy_export_options *b, struct convoy_text_buffer *c,                         \
       struct convoy_error *error))                                                                                    \
    X(move, import_state,                                                                                              \
      (convoy_context *a, const struct convoy_exported_state *b, struct convoy_moved *c, struct convoy_error *error))  \
    X(move, retire, (convoy_context *a, uint64_t b, struct convoy_error *error))

#define DEFINE_MISSING(family, slot, parameters)                                                                       \
    static int32_t missing_##family##_##slot parameters                                                                \
    {                                                                                                                  \
        return unsupported(error, #family " " #slot);                                                                  \
    }
#define MISSING_ROW(family, slot, parameters) .slot = missing_##family##_##slot,
#define COUNT_ONE(family, slot, parameters) +1

CORE_SLOTS(DEFINE_MISSING)
POLL_SLOTS(DEFINE_MISSING)
SYNC_SLOTS(DEFINE_MISSING)
TRANSFER_SLOTS(DEFINE_MISSING)
MOVE_SLOTS(DEFINE_MISSING)

/* A slot that was added to a header and not to the list above would stay NULL. */
#define CHECK_COUNT(family, slots)                                                                                     \
    _Static_assert(sizeof(struct convoy_##family##_table) ==                                                           \
                       sizeof(struct convoy_table_header) + (0 slots(COUNT_ONE)) * sizeof(void (*)(void)),             \
                   "the list lacks a slot of " #family)
CHECK_COUNT(core, CORE_SLOTS);
CHECK_COUNT(poll, POLL_SLOTS);
CHECK_COUNT(sync, SYNC_SLOTS);
CHECK_COUNT(transfer, TRANSFER_SLOTS);
CHECK_COUNT(move, MOVE_SLOTS);

void convoy_host_tables_init(struct convoy_host_tables *tables)
{
    *tables = (struct convoy_host_tables){
        .core = {.header = {sizeof tables->core, CONVOY_CORE_MAJOR, 0}, CORE_SLOTS(MISSING_ROW)},
        .poll = {.header = {sizeof tables->poll, CONVOY_POLL_MAJOR, 0}, POLL_SLOTS(MISSING_ROW)},
        .sync = {.header = {sizeof tables->sync, CONVOY_SYNC_MAJOR, 0}, SYNC_SLOTS(MISSING_ROW)},
        .transfer = {.header = {sizeof tables->transfer, CONVOY_TRANSFER_MAJOR, 0}, TRANSFER_SLOTS(MISSING_ROW)},
        .move = {.header = {sizeof tables->move, CONVOY_MOVE_MAJOR, 0}, MOVE_SLOTS(MISSING_ROW)},
    };
}

/* Copies slot by slot; the bytes of a function pointer are looked at, not its type, which differs from slot to slot. */
static void take_slots(void *own, size_t own_bytes, const struct convoy_table_header *table)
{
    typedef void (*slot_fn)(void);
    static const char null_slot[sizeof(slot_fn)];
    size_t bytes = table->table_size < own_bytes ? table->table_size : own_bytes;
    size_t offset = sizeof *table;
    for (; bytes >= offset && bytes - offset >= sizeof(slot_fn); offset += sizeof(slot_fn)) {
        const char *theirs = (const char *)table + offset;
        if (memcmp(theirs, null_slot, sizeof null_slot) != 0) {
            memcpy((char *)own + offset, theirs, sizeof(slot_fn));
        }
    }
}

void convoy_host_tables_take(struct convoy_host_tables *tables, const char *family,
                             const struct convoy_table_header *table)
{
    if (table == NULL) {
        return;
    }
    if (strcmp(family, "core") == 0) {
        take_slots(&tables->core, sizeof tables->core, table);
    } else if (strcmp(family, "poll") == 0) {
        take_slots(&tables->poll, sizeof tables->poll, table);
    } else if (strcmp(family, "sync") == 0) {
        take_slots(&tables->sync, sizeof tables->sync, table);
    } else if (strcmp(family, "transfer") == 0) {
        take_slots(&tables->transfer, sizeof tables->transfer, table);
    } else if (strcmp(family, "move") == 0) {
        take_slots(&tables->move, sizeof tables->move, table);
    }
}
