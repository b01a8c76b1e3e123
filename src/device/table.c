/* SPDX-License-Identifier: Apache-2.0 */
#include "device/table.h"

#include "core/error.h"
#include "core/memory.h"
#include "device/streamed.h"

#include <stdio.h>
#include <string.h>

struct table {
    struct convoy_device_table host;
    char name[CONVOY_TABLE_NAME_BYTES + 1];
};

/* What is neither 0 nor an error of the host's, nor an answer that the function may give. */
#define TABLE_NONSENSE INT32_MAX

static const struct convoy_device_table *host_of(const void *self)
{
    return &((const struct table *)self)->host;
}

static int32_t table_result(int32_t number)
{
    return number <= 0 && number != CONVOY_DRIVER_NOT_YET ? number : TABLE_NONSENSE;
}

/* 1: yes; 0: not yet. */
static int32_t table_answer(int32_t number)
{
    if (number == 0 || number == 1) {
        return number == 1 ? 0 : CONVOY_DRIVER_NOT_YET;
    }
    return table_result(number);
}

/* -- the driver ---------------------------------------------------------------------------------------------------- */

static int32_t table_enter(void *self)
{
    (void)self;
    return 0;
}

static void table_leave(void *self)
{
    (void)self;
}

static int32_t table_query(void *self, const void *address, struct convoy_memory_info *info_out)
{
    uint32_t struct_size = info_out->struct_size;
    int32_t number = table_result(host_of(self)->query(host_of(self)->user, address, info_out));
    bool is_whole = info_out->struct_size != struct_size; /* it wrote the struct, not fields of it: one day more than fits */
    return number == 0 && is_whole ? TABLE_NONSENSE : number;
}

static int32_t table_copy(void *self, const struct convoy_copy_piece *piece, uint32_t direction, void *stream)
{
    return table_result(host_of(self)->copy(host_of(self)->user, piece->to, piece->from, piece->bytes, direction, stream));
}

static int32_t table_event_create(void *self, void **event_out)
{
    int32_t number = table_result(host_of(self)->event_create(host_of(self)->user, event_out));
    return number == 0 && *event_out == NULL ? TABLE_NONSENSE : number;
}

static void table_event_destroy(void *self, void *event)
{
    host_of(self)->event_destroy(host_of(self)->user, event);
}

static int32_t table_event_record(void *self, void *event, void *stream)
{
    return table_result(host_of(self)->event_record(host_of(self)->user, event, stream));
}

static int32_t table_event_query(void *self, void *event)
{
    return table_answer(host_of(self)->event_query(host_of(self)->user, event));
}

static int32_t table_stream_wait(void *self, void *stream, void *event)
{
    return table_result(host_of(self)->stream_wait(host_of(self)->user, stream, event));
}

static int32_t table_stream_query(void *self, void *stream)
{
    return table_answer(host_of(self)->stream_query(host_of(self)->user, stream));
}

static int32_t table_pin(void *self, void *address, uint64_t bytes, uint32_t flags, bool *foreign_out)
{
    (void)foreign_out;
    return table_result(host_of(self)->register_range(host_of(self)->user, address, bytes, flags));
}

static int32_t table_unpin(void *self, void *address)
{
    return table_result(host_of(self)->unregister_range(host_of(self)->user, address));
}

/* The host's numbers mean nothing here. */
static bool table_is_none(int32_t number)
{
    (void)number;
    return false;
}

static void table_explain(void *self, int32_t number, char text_out[CONVOY_DRIVER_TEXT_BYTES])
{
    const struct convoy_device_table *host = host_of(self);
    char words[CONVOY_DRIVER_TEXT_BYTES] = "";
    if (number == TABLE_NONSENSE) {
        (void)snprintf(text_out, CONVOY_DRIVER_TEXT_BYTES, "the host's function gave an answer that is none");
        return;
    }
    if (host->error_text != NULL) {
        host->error_text(host->user, number, words, sizeof words);
        words[sizeof words - 1] = '\0';
    }
    (void)snprintf(text_out, CONVOY_DRIVER_TEXT_BYTES, "error %d of the host's function%s%.100s", number,
                   words[0] != '\0' ? ": " : "", words);
}

static void table_destroy(void *self)
{
    convoy_memory_free(self);
}

static const struct convoy_driver table_driver = {
    .enter = table_enter,
    .leave = table_leave,
    .query = table_query,
    .copy = table_copy,
    .event_create = table_event_create,
    .event_destroy = table_event_destroy,
    .event_record = table_event_record,
    .event_query = table_event_query,
    .stream_wait = table_stream_wait,
    .stream_query = table_stream_query,
    .pin = table_pin,
    .unpin = table_unpin,
    .is_unsupported = table_is_none,
    .is_out_of_memory = table_is_none,
    .explain = table_explain,
    .destroy = table_destroy,
};

/* -- opening ------------------------------------------------------------------------------------------------------- */

static int32_t table_check(const struct convoy_device_table *table, struct convoy_error *error)
{
    const struct {
        const char *name;
        bool is_there;
    } functions[] = {
        {"query", table->query != NULL},
        {"copy", table->copy != NULL},
        {"event_create", table->event_create != NULL},
        {"event_destroy", table->event_destroy != NULL},
        {"event_record", table->event_record != NULL},
        {"event_query", table->event_query != NULL},
        {"stream_wait", table->stream_wait != NULL},
        {"stream_query", table->stream_query != NULL},
        {"register_range", table->register_range != NULL || table->unregister_range == NULL},
        {"unregister_range", table->unregister_range != NULL || table->register_range == NULL},
    };
    if (table->name == NULL || table->name_length == 0 || table->name_length > CONVOY_TABLE_NAME_BYTES) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device table: name of %u bytes at %p, allowed are 1 to %u "
                                "bytes", table->name_length, (const void *)table->name, CONVOY_TABLE_NAME_BYTES);
    }
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (!functions[i].is_there) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device table %.*s: %s is NULL; only error_text may be, "
                                    "and register_range and unregister_range together", (int)table->name_length,
                                    table->name, functions[i].name);
        }
    }
    return CONVOY_OK;
}

int32_t convoy_table_open(const struct convoy_device_table *table, uint32_t tickets, struct convoy_device **device_out,
                          struct convoy_error *error)
{
    int32_t status = table_check(table, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct table *own = convoy_memory_zalloc(sizeof *own);
    if (own == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "device table: no memory for %zu bytes", sizeof *own);
    }
    own->host = *table;
    memcpy(own->name, table->name, table->name_length);
    const bool can_pin = table->register_range != NULL;
    const struct convoy_streamed_options options = {.driver = &table_driver, .self = own, .name = own->name,
                                                    .tickets = tickets, .calls_host = true, .needs_pinned = can_pin,
                                                    .can_pin = can_pin};
    status = convoy_streamed_make(&options, device_out, error);
    if (status != CONVOY_OK) {
        table_destroy(own);
    }
    return status;
}
