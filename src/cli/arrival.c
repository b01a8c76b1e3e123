/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/arrival.h"

#include "cli/dtype_names.h"
#include "core/error.h"
#include "core/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ARRIVAL_LABEL_BYTES 96u

void convoy_arrival_fini(struct convoy_arrival *arrival)
{
    convoy_memory_free(arrival->tensors);
    convoy_memory_free(arrival->lists);
    convoy_memory_free(arrival->sources);
    *arrival = (struct convoy_arrival){0};
}

/* The old contents are not kept: they are asked for again. */
static int32_t arrival_grow(void **array, size_t *capacity, size_t wanted, size_t bytes, struct convoy_error *error)
{
    if (wanted <= *capacity) {
        return CONVOY_OK;
    }
    convoy_memory_free(*array);
    *array = convoy_memory_array(wanted, bytes);
    *capacity = *array != NULL ? wanted : 0;
    return *array != NULL ? CONVOY_OK
                          : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the list of %zu tensors", wanted);
}

static int32_t arrival_ask(struct convoy_arrival *arrival, const struct convoy_transfer_host *host,
                           convoy_transfer transfer, struct convoy_error *error)
{
    arrival->payload = (struct convoy_payload){
        .struct_size = sizeof arrival->payload,
        .tensors = arrival->tensors,
        .tensor_stride = sizeof arrival->tensors[0],
        .tensor_capacity = arrival->tensor_capacity,
        .lists = arrival->lists,
        .list_stride = sizeof arrival->lists[0],
        .list_capacity = arrival->list_capacity,
    };
    return convoy_host_transfer_payload(host->engine, transfer, &arrival->payload, error);
}

int32_t convoy_arrival_look(struct convoy_arrival *arrival, const struct convoy_transfer_host *host,
                            convoy_transfer transfer, struct convoy_error *error)
{
    int32_t status = arrival_ask(arrival, host, transfer, error);
    size_t tensors = arrival->payload.tensor_count;
    size_t lists = arrival->payload.list_count;
    if (status != CONVOY_OK || (tensors <= arrival->tensor_capacity && lists <= arrival->list_capacity)) {
        return status;
    }
    status = arrival_grow((void **)&arrival->tensors, &arrival->tensor_capacity, tensors, sizeof *arrival->tensors,
                          error);
    if (status == CONVOY_OK) {
        status = arrival_grow((void **)&arrival->lists, &arrival->list_capacity, lists, sizeof *arrival->lists, error);
    }
    return status == CONVOY_OK ? arrival_ask(arrival, host, transfer, error) : status;
}

int32_t convoy_arrival_stage(struct convoy_arrival *arrival, struct convoy_stage *stage_out,
                             struct convoy_error *error)
{
    const struct convoy_payload *payload = &arrival->payload;
    int32_t status = arrival_grow((void **)&arrival->sources, &arrival->source_capacity, payload->tensor_count,
                                  sizeof *arrival->sources, error);
    if (status != CONVOY_OK) {
        return status;
    }
    for (size_t i = 0; i < payload->tensor_count; i++) {
        const struct convoy_tensor_view *view = &arrival->tensors[i];
        arrival->sources[i] = (struct convoy_tensor_source){
            .name = view->name,
            .name_length = view->name_length,
            .dtype = view->dtype,
            .dtype_length = view->dtype_length,
            .data = view->data,
            .shape = view->shape,
            .bytes = view->bytes,
            .rank = view->rank,
            .flags = view->flags,
            .list_index = view->list_index,
        };
    }
    *stage_out = (struct convoy_stage){
        .struct_size = sizeof *stage_out,
        .request = payload->request,
        .request_length = payload->request_length,
        .tensors = arrival->sources,
        .tensor_stride = sizeof arrival->sources[0],
        .tensor_count = payload->tensor_count,
        .lists = arrival->lists,
        .list_stride = sizeof arrival->lists[0],
        .list_count = payload->list_count,
        .scalars = payload->scalars,
        .scalars_length = payload->scalars_length,
    };
    return CONVOY_OK;
}

/* -- comparing ------------------------------------------------------------------------------------------------------- */

static bool text_is(const char *text, size_t length, const char *other, size_t other_length)
{
    return length == other_length && (length == 0 || memcmp(text, other, length) == 0);
}

static bool is_namesake(const struct convoy_tensor_view *view, const struct convoy_tensor_source *source)
{
    return text_is(view->name, view->name_length, source->name, source->name_length) && view->flags == source->flags &&
           view->list_index == source->list_index;
}

/* Senders keep the order, so the same place is looked at first. */
static const struct convoy_tensor_source *find_source(const struct convoy_parcel *parcel,
                                                      const struct convoy_tensor_view *view, size_t guess)
{
    if (guess < parcel->count && is_namesake(view, &parcel->tensors[guess])) {
        return &parcel->tensors[guess];
    }
    for (size_t i = 0; i < parcel->count; i++) {
        if (is_namesake(view, &parcel->tensors[i])) {
            return &parcel->tensors[i];
        }
    }
    return NULL;
}

static const char *label_of(const struct convoy_tensor_view *view, char text_out[ARRIVAL_LABEL_BYTES])
{
    int shown = (int)(view->name_length < 64 ? view->name_length : 64);
    if ((view->flags & CONVOY_TENSOR_LISTED) != 0) {
        (void)snprintf(text_out, ARRIVAL_LABEL_BYTES, "%.*s.%" PRIu32, shown, view->name, view->list_index);
    } else {
        (void)snprintf(text_out, ARRIVAL_LABEL_BYTES, "%.*s", shown, view->name);
    }
    return text_out;
}

static uint64_t first_difference(const uint8_t *left, const uint8_t *right, uint64_t bytes)
{
    uint64_t at = 0;
    while (at < bytes && left[at] == right[at]) {
        at++;
    }
    return at;
}

static int32_t check_tensor(const struct convoy_tensor_view *view, const struct convoy_tensor_source *source,
                            struct convoy_error *error)
{
    char label[ARRIVAL_LABEL_BYTES];
    size_t dtype_length = 0;
    const char *dtype = convoy_dtype_file_name(view->dtype, view->dtype_length, &dtype_length);
    (void)label_of(view, label);
    if (!text_is(dtype, dtype_length, source->dtype, source->dtype_length)) {
        return convoy_error_set(error, CONVOY_INVARIANT, "tensor %s came with dtype %.*s, sent was %.*s", label,
                                (int)dtype_length, dtype, (int)source->dtype_length, source->dtype);
    }
    if (view->rank != source->rank ||
        (view->rank != 0 && memcmp(view->shape, source->shape, view->rank * sizeof view->shape[0]) != 0)) {
        return convoy_error_set(error, CONVOY_INVARIANT, "tensor %s came with another shape (%u and %u dimensions)",
                                label, view->rank, source->rank);
    }
    if (view->bytes != source->bytes) {
        return convoy_error_set(error, CONVOY_INVARIANT, "tensor %s came with %llu bytes, sent were %llu", label,
                                (unsigned long long)view->bytes, (unsigned long long)source->bytes);
    }
    if (view->bytes != 0 && memcmp(view->data, source->data, view->bytes) != 0) {
        return convoy_error_set(error, CONVOY_INVARIANT, "tensor %s came with another byte at %llu of %llu", label,
                                (unsigned long long)first_difference(view->data, source->data, view->bytes),
                                (unsigned long long)view->bytes);
    }
    return CONVOY_OK;
}

static int32_t check_lists(const struct convoy_arrival *arrival, const struct convoy_parcel *expected,
                           struct convoy_error *error)
{
    size_t matches = 0;
    for (size_t i = 0; i < arrival->payload.list_count; i++) {
        const struct convoy_tensor_list_entry *found = &arrival->lists[i];
        for (size_t j = 0; j < expected->list_count; j++) {
            const struct convoy_tensor_list_entry *wanted = &expected->lists[j];
            matches += text_is(found->name, found->name_length, wanted->name, wanted->name_length) &&
                       found->length == wanted->length;
        }
    }
    if (arrival->payload.list_count != expected->list_count || matches != expected->list_count) {
        return convoy_error_set(error, CONVOY_INVARIANT,
                                "%zu lists came, of which %zu have name and length of one of the %zu that were sent",
                                arrival->payload.list_count, matches, expected->list_count);
    }
    return CONVOY_OK;
}

static int32_t check_tensors(const struct convoy_arrival *arrival, const struct convoy_parcel *expected,
                             uint8_t *is_there, struct convoy_error *error)
{
    for (size_t i = 0; i < arrival->payload.tensor_count; i++) {
        const struct convoy_tensor_view *view = &arrival->tensors[i];
        const struct convoy_tensor_source *source = find_source(expected, view, i);
        char label[ARRIVAL_LABEL_BYTES];
        if (source == NULL || is_there[source - expected->tensors] != 0) {
            return convoy_error_set(error, CONVOY_INVARIANT, "tensor %s came %s", label_of(view, label),
                                    source == NULL ? "and was not sent" : "twice");
        }
        is_there[source - expected->tensors] = 1;
        int32_t status = check_tensor(view, source, error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}

int32_t convoy_arrival_check(const struct convoy_arrival *arrival, const struct convoy_parcel *expected,
                             struct convoy_error *error)
{
    const struct convoy_payload *payload = &arrival->payload;
    if (!text_is(payload->scalars, payload->scalars_length, expected->scalars, strlen(expected->scalars))) {
        return convoy_error_set(error, CONVOY_INVARIANT, "scalars came as %.*s, sent were %.100s",
                                (int)(payload->scalars_length < 100 ? payload->scalars_length : 100),
                                payload->scalars != NULL ? payload->scalars : "", expected->scalars);
    }
    if (payload->tensor_count != expected->count) {
        return convoy_error_set(error, CONVOY_INVARIANT, "%zu tensors came, sent were %zu", payload->tensor_count,
                                expected->count);
    }
    uint8_t *is_there = convoy_memory_zalloc(expected->count);
    if (is_there == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to compare %zu tensors", expected->count);
    }
    int32_t status = check_tensors(arrival, expected, is_there, error);
    convoy_memory_free(is_there);
    return status == CONVOY_OK ? check_lists(arrival, expected, error) : status;
}
