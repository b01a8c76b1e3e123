/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/check.h"

#include "core/error.h"

#include <stdio.h>
#include <string.h>

#define CHECK_STRIDE_MAX (UINT32_C(1) << 30)

#define NAME_BYTES_MAX 31
#define CRITICAL_KNOWN CONVOY_CALL_ERROR_ROW
#define LIST_FLAGS_KNOWN (CONVOY_POLL_KEYED | CONVOY_POLL_ABSENT_SKIP)

const char *convoy_check_list_name(const struct convoy_poll_list *list, uint32_t list_index, char *buffer)
{
    if (list->name == NULL || list->name_length == 0) {
        (void)snprintf(buffer, CONVOY_CHECK_NAME_BYTES, "list %u", list_index);
        return buffer;
    }
    int length = list->name_length < NAME_BYTES_MAX ? (int)list->name_length : NAME_BYTES_MAX;
    (void)snprintf(buffer, CONVOY_CHECK_NAME_BYTES, "list %u \"%.*s\"", list_index, length, list->name);
    return buffer;
}

/* One list under check. */
struct subject {
    const struct convoy_poll_list *list;
    uint32_t index;
    struct convoy_error *error;
};

static int32_t refuse_number(const struct subject *subject, const char *parameter, uint64_t value, const char *allowed)
{
    char name[CONVOY_CHECK_NAME_BYTES];
    return convoy_error_set(subject->error, CONVOY_INVALID_ARGUMENT, "%s: %s is %llu, allowed: %s",
                            convoy_check_list_name(subject->list, subject->index, name), parameter,
                            (unsigned long long)value, allowed);
}

static int32_t refuse_null(const struct subject *subject, const char *parameter, const char *because)
{
    char name[CONVOY_CHECK_NAME_BYTES];
    return convoy_error_set(subject->error, CONVOY_INVALID_ARGUMENT, "%s: %s is NULL, but needed %s",
                            convoy_check_list_name(subject->list, subject->index, name), parameter, because);
}

static int32_t check_numbers(const struct subject *subject)
{
    const struct convoy_poll_list *list = subject->list;
    uint32_t width = list->state_bytes;
    if ((list->flags & ~LIST_FLAGS_KNOWN) != 0) {
        return refuse_number(subject, "flags", list->flags, "KEYED (1), ABSENT_SKIP (2) and their sum");
    }
    if (list->flags == CONVOY_POLL_ABSENT_SKIP) {
        return refuse_number(subject, "flags", list->flags, "ABSENT_SKIP (2) only together with KEYED (1)");
    }
    if (width != 0 && width != 1 && width != 4 && width != 8) {
        return refuse_number(subject, "state_bytes", width, "0, 1, 4, 8");
    }
    if (list->state_stride != 0 &&
        (list->state_stride < (width != 0 ? width : 1) || list->state_stride > CHECK_STRIDE_MAX)) {
        return refuse_number(subject, "state_stride", list->state_stride, "0, or state_bytes to 1073741824");
    }
    if (list->gate > CONVOY_GATE_HOST) {
        return refuse_number(subject, "gate", list->gate, "0 to 2");
    }
    if (list->stamp_stride != 0 &&
        (list->stamp_stride < sizeof(struct convoy_poll_stamp) || list->stamp_stride > CHECK_STRIDE_MAX)) {
        return refuse_number(subject, "stamp_stride", list->stamp_stride, "0, or 16 to 1073741824");
    }
    return list->reserved != 0 ? refuse_number(subject, "reserved", list->reserved, "0") : CONVOY_OK;
}

static int32_t check_pointers(const struct subject *subject)
{
    const struct convoy_poll_list *list = subject->list;
    if (list->name == NULL && list->name_length != 0) {
        return refuse_null(subject, "name", "with a name_length that is not 0");
    }
    if (list->count == 0) {
        return CONVOY_OK;
    }
    if (list->states == NULL && list->read == NULL) {
        return refuse_null(subject, "states", "without a read callback");
    }
    if (list->keys == NULL && (list->flags & CONVOY_POLL_KEYED) != 0) {
        return refuse_null(subject, "keys", "in a keyed list");
    }
    if (list->keys == NULL && list->gate == CONVOY_GATE_IDENTITY) {
        return refuse_null(subject, "keys", "with gate IDENTITY");
    }
    if (list->stamps == NULL && list->gate != CONVOY_GATE_NONE) {
        return refuse_null(subject, "stamps", "with a gate");
    }
    return CONVOY_OK;
}

int32_t convoy_check_bytes(size_t bytes, size_t bytes_max, struct convoy_error *error)
{
    if (bytes <= bytes_max) {
        return CONVOY_OK;
    }
    return convoy_error_set(error, CONVOY_LIMIT,
                            "the lists need %zu bytes, the group's blob_bytes_max is %zu; open it with a larger one",
                            bytes, bytes_max);
}

static int32_t check_lists(const struct convoy_poll_call *call, size_t bytes_max,
                           struct convoy_payload_shape *shape_out, struct convoy_error *error)
{
    for (uint32_t i = 0; i < call->list_count; i++) {
        struct subject subject = {&call->lists[i], i, error};
        int32_t status = check_numbers(&subject);
        status = status == CONVOY_OK ? check_pointers(&subject) : status;
        status = status == CONVOY_OK ? convoy_check_bytes(subject.list->count, bytes_max, error) : status;
        if (status != CONVOY_OK) {
            return status;
        }
        convoy_payload_shape_add(shape_out, (uint32_t)subject.list->count, subject.list->flags);
    }
    size_t bytes = shape_out->keyed_count == 0
                       ? shape_out->positional_bytes
                       : convoy_payload_layout(shape_out, shape_out->keyed_entries, false, false).bytes;
    return convoy_check_bytes(bytes, bytes_max, error);
}

int32_t convoy_check_call(const struct convoy_poll_call *call, size_t bytes_max, struct convoy_payload_shape *shape_out,
                          struct convoy_error *error)
{
    memset(shape_out, 0, sizeof *shape_out);
    if ((call->critical_flags & ~CRITICAL_KNOWN) != 0) {
        return convoy_error_set(error, CONVOY_UNSUPPORTED, "call.critical_flags is %#x, this build knows %#x",
                                call->critical_flags, CRITICAL_KNOWN);
    }
    if ((call->critical_flags & CONVOY_CALL_ERROR_ROW) != 0) {
        return CONVOY_OK;
    }
    if (call->reserved != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "call.reserved is %u, allowed: 0", call->reserved);
    }
    if (call->list_count > CONVOY_POLL_LISTS_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "call.list_count is %zu, allowed: 0 to %d",
                                call->list_count, CONVOY_POLL_LISTS_MAX);
    }
    if (call->list_count != 0 && call->lists == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "call.lists is NULL, but list_count is %zu",
                                call->list_count);
    }
    return check_lists(call, bytes_max, shape_out, error);
}

static int32_t check_list_result(const struct convoy_poll_list_result *list, uint32_t index, uint32_t count,
                                 struct convoy_error *error)
{
    if (list->states != NULL && list->states_capacity < count) {
        return convoy_error_set(error, CONVOY_BUFFER_TOO_SMALL,
                                "result.lists[%u].states_capacity is %zu, the list has %u entries", index,
                                list->states_capacity, count);
    }
    if (list->outcomes != NULL && list->outcome_stride != 0 &&
        list->outcome_stride < sizeof(struct convoy_poll_outcome)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "result.lists[%u].outcome_stride is %zu, allowed: 0, or at least %zu", index,
                                list->outcome_stride, sizeof(struct convoy_poll_outcome));
    }
    return CONVOY_OK;
}

int32_t convoy_check_result(const struct convoy_poll_result *result, const struct convoy_payload_shape *shape,
                            struct convoy_error *error)
{
    size_t capacity = result->lists != NULL ? result->list_capacity : 0;
    if (capacity < shape->list_count) {
        return convoy_error_set(error, CONVOY_BUFFER_TOO_SMALL, "result.list_capacity is %zu, the call has %u lists",
                                capacity, shape->list_count);
    }
    for (uint32_t i = 0; i < shape->list_count; i++) {
        int32_t status = check_list_result(&result->lists[i], i, shape->counts[i], error);
        if (status != CONVOY_OK) {
            return status;
        }
    }
    return CONVOY_OK;
}
