/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/fake_transfer.h"

#include "core/error.h"
#include "load/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fake_transfer fake;

static void fake_end_at_once(struct fake_transfer_entry *entry)
{
    entry->result.times_ns[CONVOY_TIME_RETURNED] = 1;
    entry->result.is_source_free = 1;
    entry->payload = entry->kind == FAKE_ACCEPT ? fake.instant(fake.accept_count++) : NULL;
    entry->status = entry->kind != FAKE_ACCEPT || entry->payload != NULL ? CONVOY_OK : CONVOY_IN_PROGRESS;
}

static int32_t fake_start(enum fake_transfer_kind kind, convoy_transfer *transfer_out, struct convoy_error *error)
{
    int32_t status = fake.every_status[kind] != CONVOY_OK ? fake.every_status[kind] : fake.next_status[kind];
    fake.next_status[kind] = CONVOY_OK;
    if (status != CONVOY_OK) {
        return convoy_error_set(error, status, "the test refuses");
    }
    if (fake.count == FAKE_TRANSFERS_MAX) {
        abort();
    }
    fake.entries[++fake.count] = (struct fake_transfer_entry){.kind = kind, .status = CONVOY_IN_PROGRESS};
    *transfer_out = fake.count;
    if (fake.instant != NULL) {
        fake_end_at_once(&fake.entries[fake.count]);
    }
    return CONVOY_OK;
}

static struct fake_transfer_entry *fake_find(convoy_transfer transfer)
{
    if (transfer == 0 || transfer > fake.count || fake.entries[transfer].is_released) {
        return NULL;
    }
    return &fake.entries[transfer];
}

static int32_t fake_stage_start(convoy_transfer_engine *engine, const struct convoy_stage *stage,
                                convoy_transfer *staged_out, struct convoy_error *error)
{
    (void)engine;
    int32_t status = fake_start(FAKE_STAGE, staged_out, error);
    if (status == CONVOY_OK) {
        (void)snprintf(fake.entries[fake.count].request, sizeof fake.entries[0].request, "%.*s",
                       (int)stage->request_length, stage->request);
    }
    return status;
}

static int32_t fake_send_start(convoy_transfer_engine *engine, const struct convoy_stage *stage,
                               const struct convoy_send *send, convoy_transfer *transfer_out,
                               struct convoy_error *error)
{
    (void)engine;
    (void)stage;
    int32_t status = fake_start(FAKE_SEND, transfer_out, error);
    if (status == CONVOY_OK) {
        fake.entries[fake.count].staged = send->staged;
        fake.entries[fake.count].peer = send->peer;
    }
    return status;
}

static int32_t fake_accept_start(convoy_transfer_engine *engine, const struct convoy_load *load,
                                 convoy_transfer *transfer_out, struct convoy_error *error)
{
    (void)engine;
    (void)load;
    return fake_start(FAKE_ACCEPT, transfer_out, error);
}

static int32_t fake_test(convoy_transfer_engine *engine, convoy_transfer transfer,
                         struct convoy_transfer_result *result_out, struct convoy_error *error)
{
    (void)engine;
    const struct fake_transfer_entry *entry = fake_find(transfer);
    if (entry == NULL) {
        return convoy_error_set(error, CONVOY_CLOSED, "stale");
    }
    if (result_out != NULL) {
        *result_out = entry->result;
        result_out->is_source_free = entry->result.is_source_free != 0 || entry->is_aborted;
    }
    return entry->status < 0 ? convoy_error_set(error, entry->status, "%s", entry->text != NULL ? entry->text : "")
                             : entry->status;
}

static int32_t fake_wait(convoy_transfer_engine *engine, convoy_transfer transfer, uint64_t timeout_ns,
                         struct convoy_transfer_result *result_out, struct convoy_error *error)
{
    (void)timeout_ns;
    fake.wait_count++;
    return fake_test(engine, transfer, result_out, error);
}

static int32_t fake_payload(convoy_transfer_engine *engine, convoy_transfer transfer,
                            struct convoy_payload *payload_out, struct convoy_error *error)
{
    (void)engine;
    const struct fake_transfer_entry *entry = fake_find(transfer);
    if (entry == NULL || entry->payload == NULL) {
        return convoy_error_set(error, CONVOY_BAD_STATE, "nothing there");
    }
    struct convoy_payload answer = *entry->payload;
    for (size_t i = 0; i < answer.tensor_count && i < payload_out->tensor_capacity; i++) {
        payload_out->tensors[i] = entry->payload->tensors[i];
    }
    for (size_t i = 0; i < answer.list_count && i < payload_out->list_capacity; i++) {
        payload_out->lists[i] = entry->payload->lists[i];
    }
    answer.tensors = payload_out->tensors;
    answer.lists = payload_out->lists;
    *payload_out = answer;
    return CONVOY_OK;
}

static int32_t fake_release(convoy_transfer_engine *engine, convoy_transfer transfer, struct convoy_error *error)
{
    (void)engine;
    struct fake_transfer_entry *entry = fake_find(transfer);
    if (entry == NULL) {
        return convoy_error_set(error, CONVOY_CLOSED, "stale");
    }
    entry->is_released = true;
    return CONVOY_OK;
}

static int32_t fake_abort(convoy_transfer_engine *engine, convoy_transfer transfer, const char *reason,
                          size_t reason_length, struct convoy_error *error)
{
    (void)engine;
    (void)reason;
    (void)reason_length;
    struct fake_transfer_entry *entry = fake_find(transfer);
    if (entry == NULL) {
        return convoy_error_set(error, CONVOY_CLOSED, "stale");
    }
    entry->is_aborted = true;
    return CONVOY_OK;
}

static int32_t fake_connect(convoy_transfer_engine *engine, const char *session, size_t session_length,
                            uint64_t timeout_ns, convoy_peer *peer_out, struct convoy_error *error)
{
    (void)engine;
    (void)timeout_ns;
    if (fake.connect_status != CONVOY_OK) {
        return convoy_error_set(error, fake.connect_status, "the test refuses");
    }
    (void)snprintf(fake.sessions[fake.connect_count], sizeof fake.sessions[0], "%.*s", (int)session_length, session);
    *peer_out = ++fake.connect_count;
    return CONVOY_OK;
}

static int32_t fake_figures(convoy_transfer_engine *engine, struct convoy_engine_figures *figures_out,
                            struct convoy_error *error)
{
    (void)engine;
    (void)error;
    *figures_out = fake.figures;
    figures_out->struct_size = sizeof *figures_out;
    if (fake.figures_looks != 0) {
        fake.figures_looks--;
        figures_out->ready_count = 1;
    }
    return CONVOY_OK;
}

static const struct convoy_transfer_table fake_table = {
    .header = {.table_size = sizeof fake_table, .major = CONVOY_TRANSFER_MAJOR},
    .pool_figures = fake_figures,
    .peer_connect = fake_connect,
    .stage_start = fake_stage_start,
    .send_start = fake_send_start,
    .accept_start = fake_accept_start,
    .transfer_test = fake_test,
    .transfer_wait = fake_wait,
    .payload = fake_payload,
    .release = fake_release,
    .abort = fake_abort,
};

/* A handle of the loader's with nothing behind it but the table. */
static struct convoy_host_tables fake_tables;
static struct convoy_host_engine fake_engine;

struct fake_transfer *fake_transfer_reset(void)
{
    memset(&fake, 0, sizeof fake);
    memset(&fake_engine, 0, sizeof fake_engine);
    convoy_host_tables_init(&fake_tables);
    convoy_host_tables_take(&fake_tables, "transfer", &fake_table.header);
    convoy_handle_bind_first(&fake_engine.handle, &fake_tables, NULL);
    fake.host.engine = &fake_engine;
    return &fake;
}

uint32_t fake_transfer_live(void)
{
    uint32_t live = 0;
    for (uint32_t i = 1; i <= fake.count; i++) {
        live += !fake.entries[i].is_released;
    }
    return live;
}
