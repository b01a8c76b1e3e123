/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a device: from the order to the one answer that says it has ended. */
#include "core/clock.h"
#include "core/error.h"
#include "device/device.h"
#include "device/parts.h"

#include <sched.h>

#define PAUSE_YIELD_NS 50000u  /* a short copy ends in this; a sleep costs more */
#define PAUSE_LEAST_NS 20000u
#define PAUSE_MOST_NS 1000000u /* how late a long copy's end may be noticed */

void convoy_device_pause(uint64_t begun_ns, uint64_t deadline_ns)
{
    uint64_t now_ns = convoy_now_ns();
    uint64_t waited_ns = now_ns - begun_ns;
    if (waited_ns < PAUSE_YIELD_NS) {
        (void)sched_yield();
        return;
    }
    uint64_t pause_ns = waited_ns / 8;
    pause_ns = pause_ns < PAUSE_LEAST_NS ? PAUSE_LEAST_NS : pause_ns;
    pause_ns = pause_ns > PAUSE_MOST_NS ? PAUSE_MOST_NS : pause_ns;
    uint64_t left_ns = convoy_deadline_left(now_ns, deadline_ns);
    pause_ns = pause_ns > left_ns ? left_ns : pause_ns;
    const struct timespec pause = {.tv_nsec = (long)pause_ns};
    (void)nanosleep(&pause, NULL);
}

/* -- checks -------------------------------------------------------------------------------------------------------- */

static int32_t ready_check(const struct convoy_device *device, const struct convoy_readiness *ready,
                           struct convoy_error *error)
{
    const char *name = device->ops->name;
    if (ready->kind > CONVOY_READY_CALLBACK) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device %s: ready.kind %u, allowed are 0 to %u", name,
                                ready->kind, CONVOY_READY_CALLBACK);
    }
    if (ready->kind == CONVOY_READY_EVENT && ready->handle == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device %s: ready.handle is NULL with an event", name);
    }
    if (ready->kind == CONVOY_READY_CALLBACK && ready->is_ready == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device %s: ready.is_ready is NULL with a callback", name);
    }
    if (ready->kind == CONVOY_READY_STREAM && !device->ops->has_streams) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device %s: readiness of a stream, but it has none", name);
    }
    return CONVOY_OK;
}

/* Events of host memory are words, and so is every mark. */
static int32_t words_check(const struct convoy_device *device, const struct convoy_copy_order *order,
                           struct convoy_error *error)
{
    bool has_words = !device->ops->has_streams;
    const void *event = order->ready.kind == CONVOY_READY_EVENT ? order->ready.handle : NULL;
    if ((uintptr_t)order->mark % sizeof *order->mark != 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device %s: mark is at %p, allowed are multiples of %zu",
                                device->ops->name, (const void *)order->mark, sizeof *order->mark);
    }
    if (has_words && ((uintptr_t)event % sizeof(uint32_t) != 0 || (uintptr_t)order->event % sizeof(uint32_t) != 0)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device %s: events are at %p and %p, allowed are multiples of "
                                "%zu", device->ops->name, event, order->event, sizeof(uint32_t));
    }
    return CONVOY_OK;
}

static int32_t piece_check(const struct convoy_device *device, const struct convoy_copy_piece *piece, size_t index,
                           struct convoy_error *error)
{
    if (piece->bytes == 0) {
        return CONVOY_OK;
    }
    if (piece->to == NULL || piece->from == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device %s: piece %zu of %llu bytes has %s NULL",
                                device->ops->name, index, (unsigned long long)piece->bytes,
                                piece->to == NULL ? "to" : "from");
    }
    if (piece->bytes > UINTPTR_MAX - (uintptr_t)piece->to || piece->bytes > UINTPTR_MAX - (uintptr_t)piece->from) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device %s: piece %zu of %llu bytes ends past the address "
                                "space", device->ops->name, index, (unsigned long long)piece->bytes);
    }
    return CONVOY_OK;
}

/* bytes_out: of all pieces. */
static int32_t order_check(const struct convoy_device *device, const struct convoy_copy_order *order,
                           uint64_t *bytes_out, struct convoy_error *error)
{
    uint64_t bytes = 0;
    if (order->direction > CONVOY_COPY_ON_DEVICE || (order->count != 0 && order->pieces == NULL)) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device %s: direction %u, allowed are 0 to %u; %zu pieces "
                                "at %p", device->ops->name, order->direction, CONVOY_COPY_ON_DEVICE, order->count,
                                (const void *)order->pieces);
    }
    if (order->stream != NULL && !device->ops->has_streams) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device %s: stream is %p, allowed is NULL",
                                device->ops->name, order->stream);
    }
    for (size_t i = 0; i < order->count; i++) {
        int32_t status = piece_check(device, &order->pieces[i], i, error);
        if (status != CONVOY_OK) {
            return status;
        }
        if (order->pieces[i].bytes > UINT64_MAX - bytes) {
            return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device %s: the pieces have more than 2^64 bytes "
                                    "together", device->ops->name);
        }
        bytes += order->pieces[i].bytes;
    }
    *bytes_out = bytes;
    int32_t status = words_check(device, order, error);
    return status != CONVOY_OK ? status : ready_check(device, &order->ready, error);
}

/* One end of a piece that may be host memory. UNSUPPORTED: it is, and a copy of it would block. */
static int32_t end_check(struct convoy_device *device, struct convoy_device_copy *copy, const void *address,
                         uint64_t bytes, struct convoy_error *error)
{
    struct convoy_memory_info info = {.kind = CONVOY_MEMORY_HOST};
    if (convoy_device_note_range(device, copy, address, bytes) || !device->ops->needs_pinned || copy->order.may_block) {
        return CONVOY_OK;
    }
    int32_t status = device->ops->query(device->self, address, &info, error);
    if (status == CONVOY_OK && info.kind != CONVOY_MEMORY_HOST) { /* two allocations may lie side by side */
        status = device->ops->query(device->self, (const uint8_t *)address + (bytes - 1), &info, error);
    }
    if (status == CONVOY_OK && info.kind == CONVOY_MEMORY_HOST) {
        status = convoy_error_set(error, CONVOY_UNSUPPORTED, "device %s: the %llu bytes at %p are host memory that is not "
                                  "pinned, so that a copy would wait for the stream; register them or go through a "
                                  "pinned pool", device->ops->name, (unsigned long long)bytes, address);
    }
    return status;
}

static int32_t ends_check(struct convoy_device *device, struct convoy_device_copy *copy, struct convoy_error *error)
{
    const struct convoy_copy_order *order = &copy->order;
    bool asks_from = order->direction == CONVOY_COPY_ANY || order->direction == CONVOY_COPY_TO_DEVICE;
    bool asks_to = order->direction == CONVOY_COPY_ANY || order->direction == CONVOY_COPY_FROM_DEVICE;
    int32_t status = CONVOY_OK;
    for (size_t i = 0; i < order->count && status == CONVOY_OK; i++) {
        const struct convoy_copy_piece *piece = &order->pieces[i];
        if (piece->bytes != 0 && asks_from) {
            status = end_check(device, copy, piece->from, piece->bytes, error);
        }
        if (piece->bytes != 0 && asks_to && status == CONVOY_OK) {
            status = end_check(device, copy, piece->to, piece->bytes, error);
        }
    }
    return status;
}

/* -- slots --------------------------------------------------------------------------------------------------------- */

/* NULL: stale, or never was. */
static struct convoy_device_copy *copy_of(struct convoy_device *device, convoy_ticket ticket)
{
    uint32_t slot = (uint32_t)ticket;
    if (slot == 0 || slot > device->ticket_count) {
        return NULL;
    }
    struct convoy_device_copy *copy = &device->copies[slot - 1];
    bool is_it = __atomic_load_n(&copy->generation, __ATOMIC_ACQUIRE) == (uint32_t)(ticket >> 32);
    return is_it && copy->state != CONVOY_DEVICE_COPY_FREE ? copy : NULL;
}

static int32_t copy_stale(const struct convoy_device *device, convoy_ticket ticket, struct convoy_error *error)
{
    return convoy_error_set(error, CONVOY_CLOSED, "device %s: ticket 0x%llx has ended, or never was", device->ops->name,
                            (unsigned long long)ticket);
}

static int32_t copy_take(struct convoy_device *device, struct convoy_device_copy **copy_out, struct convoy_error *error)
{
    int32_t status = CONVOY_OK;
    (void)pthread_mutex_lock(&device->lock);
    if (device->is_closing) {
        status = convoy_error_set(error, CONVOY_CLOSED, "device %s is closing", device->ops->name);
    } else if (device->free_count == 0) {
        status = convoy_error_set(error, CONVOY_LIMIT, "device %s: %u copies are open, more were not provided for",
                                  device->ops->name, device->ticket_count);
    } else {
        *copy_out = &device->copies[device->free[--device->free_count]];
        device->figures.started++;
    }
    (void)pthread_mutex_unlock(&device->lock);
    return status;
}

static void figures_count(struct convoy_device *device, const struct convoy_device_copy *copy, int32_t status,
                          bool is_quiet)
{
    if (status == CONVOY_OK) {
        device->figures.finished++;
        device->figures.bytes += copy->bytes;
    } else if (status == CONVOY_CANCELED) {
        device->figures.canceled++;
    } else {
        device->figures.failed++;
    }
    if (!is_quiet) {
        device->figures.lost++;
        device->lost_ranges |= copy->ranges;
    }
}

void convoy_device_copy_end(struct convoy_device *device, struct convoy_device_copy *copy, int32_t status,
                            bool is_quiet)
{
    if (status == CONVOY_OK && device->ops->has_streams && copy->order.mark != NULL) {
        __atomic_store_n(copy->order.mark, copy->bytes, __ATOMIC_RELEASE);
    }
    (void)pthread_mutex_lock(&device->lock);
    figures_count(device, copy, status, is_quiet);
    copy->ranges = 0;
    copy->state = CONVOY_DEVICE_COPY_FREE;
    __atomic_store_n(&copy->generation, copy->generation + 1, __ATOMIC_RELEASE);
    device->free[device->free_count++] = (uint32_t)(copy - device->copies);
    (void)pthread_mutex_unlock(&device->lock);
}

/* -- driving one --------------------------------------------------------------------------------------------------- */

static int32_t callback_ask(const struct convoy_device *device, const struct convoy_readiness *ready,
                            struct convoy_error *error)
{
    int32_t answer = ready->is_ready(ready->user);
    if (answer == 0 || answer == 1) {
        return answer == 1 ? CONVOY_OK : CONVOY_IN_PROGRESS;
    }
    return convoy_error_set(error, CONVOY_SYSTEM, "device %s: the producer's readiness callback answered %d; 1 is ready, 0 "
                            "not yet", device->ops->name, answer);
}

/* OK: the copy may begin; where there are streams, the device itself makes it wait for events and streams. */
static int32_t ready_ask(struct convoy_device *device, const struct convoy_readiness *ready, struct convoy_error *error)
{
    if (ready->kind == CONVOY_READY_CALLBACK) {
        return callback_ask(device, ready, error);
    }
    if (ready->kind == CONVOY_READY_EVENT && !device->ops->has_streams) {
        return device->ops->event_query(device->self, ready->handle, error);
    }
    return CONVOY_OK;
}

static int32_t copy_advance(struct convoy_device *device, struct convoy_device_copy *copy, struct convoy_error *error)
{
    int32_t status = ready_ask(device, &copy->order.ready, error);
    if (status == CONVOY_OK) {
        status = device->ops->begin(device->self, copy, error);
        copy->state = status == CONVOY_OK ? CONVOY_DEVICE_COPY_RUNNING : copy->state;
    }
    return status;
}

int32_t convoy_device_copy_test(struct convoy_device *device, struct convoy_device_copy *copy, bool *quiet_out,
                                struct convoy_error *error)
{
    int32_t status = CONVOY_OK;
    *quiet_out = true;
    if (copy->state == CONVOY_DEVICE_COPY_WAITING) {
        status = copy_advance(device, copy, error);
    }
    if (status == CONVOY_OK) {
        status = device->ops->test(device->self, copy, quiet_out, error);
    }
    if (status == CONVOY_IN_PROGRESS) {
        *quiet_out = false;
    } else {
        convoy_device_copy_end(device, copy, status, *quiet_out);
    }
    return status;
}

/* -- calls --------------------------------------------------------------------------------------------------------- */

int32_t convoy_device_start(struct convoy_device *device, const struct convoy_copy_order *order,
                            convoy_ticket *ticket_out, struct convoy_error *error)
{
    uint64_t bytes = 0;
    struct convoy_device_copy *copy = NULL;
    int32_t status = order_check(device, order, &bytes, error);
    if (status == CONVOY_OK) {
        status = copy_take(device, &copy, error);
    }
    if (status != CONVOY_OK) {
        return status;
    }
    copy->order = *order;
    copy->bytes = bytes;
    copy->state = CONVOY_DEVICE_COPY_WAITING;
    status = ends_check(device, copy, error);
    if (status == CONVOY_OK) {
        status = copy_advance(device, copy, error);
    }
    if (status < 0) {
        convoy_device_copy_end(device, copy, status, true);
        return status;
    }
    *ticket_out = (convoy_ticket)copy->generation << 32 | ((uint64_t)(copy - device->copies) + 1);
    return CONVOY_OK;
}

int32_t convoy_device_test(struct convoy_device *device, convoy_ticket ticket, bool *quiet_out,
                           struct convoy_error *error)
{
    bool is_quiet = false;
    struct convoy_device_copy *copy = copy_of(device, ticket);
    int32_t status = copy == NULL ? copy_stale(device, ticket, error)
                                  : convoy_device_copy_test(device, copy, &is_quiet, error);
    if (quiet_out != NULL) {
        *quiet_out = is_quiet;
    }
    return status;
}

static int32_t wait_passed(struct convoy_device *device, const struct convoy_device_copy *copy,
                           struct convoy_error *error)
{
    bool waits = copy->state == CONVOY_DEVICE_COPY_WAITING;
    return convoy_error_set(error, CONVOY_TIMED_OUT, "device %s: copy of %llu bytes %s", device->ops->name,
                            (unsigned long long)copy->bytes,
                            waits ? "has not begun, since its producer is not ready" : "is still running");
}

int32_t convoy_device_wait(struct convoy_device *device, convoy_ticket ticket, uint64_t deadline_ns, bool *quiet_out,
                           struct convoy_error *error)
{
    uint64_t begun_ns = convoy_now_ns();
    for (;;) {
        int32_t status = convoy_device_test(device, ticket, quiet_out, error);
        if (status != CONVOY_IN_PROGRESS) {
            return status;
        }
        struct convoy_device_copy *copy = copy_of(device, ticket);
        if (convoy_now_ns() >= deadline_ns) {
            return wait_passed(device, copy, error);
        }
        if (copy->state == CONVOY_DEVICE_COPY_RUNNING && device->ops->sleep != NULL) {
            device->ops->sleep(device->self, copy, deadline_ns);
        } else {
            convoy_device_pause(begun_ns, deadline_ns);
        }
    }
}

int32_t convoy_device_cancel(struct convoy_device *device, convoy_ticket ticket, struct convoy_error *error)
{
    struct convoy_device_copy *copy = copy_of(device, ticket);
    if (copy == NULL) {
        return copy_stale(device, ticket, error);
    }
    bool is_withdrawn = copy->state == CONVOY_DEVICE_COPY_WAITING ||
                        (device->ops->withdraw != NULL && device->ops->withdraw(device->self, copy));
    if (!is_withdrawn) {
        return CONVOY_IN_PROGRESS;
    }
    convoy_device_copy_end(device, copy, CONVOY_CANCELED, true);
    return CONVOY_OK;
}
