/* SPDX-License-Identifier: Apache-2.0 */
/* A device as a whole: making and closing it, queries, events, registered ranges, figures. Copies: device/ticket.c. */
#include "device/device.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "device/parts.h"

/* -- life ---------------------------------------------------------------------------------------------------------- */

int32_t convoy_device_make(const struct convoy_device_ops *ops, void *self, uint32_t tickets,
                           struct convoy_device **device_out, struct convoy_error *error)
{
    uint32_t count = tickets != 0 ? tickets : CONVOY_DEVICE_TICKETS;
    if (count > CONVOY_DEVICE_TICKETS_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device %s: %u tickets, allowed are 1 to %u", ops->name,
                                tickets, CONVOY_DEVICE_TICKETS_MAX);
    }
    struct convoy_device *device = convoy_memory_zalloc(sizeof *device);
    struct convoy_device_copy *copies = convoy_memory_array(count, sizeof *copies);
    uint32_t *free_slots = convoy_memory_array(count, sizeof *free_slots);
    if (device == NULL || copies == NULL || free_slots == NULL) {
        convoy_memory_free(device);
        convoy_memory_free(copies);
        convoy_memory_free(free_slots);
        return convoy_error_set(error, CONVOY_NO_MEMORY, "device %s: no memory for %u tickets", ops->name, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        copies[i].generation = 1;
        free_slots[i] = count - 1 - i;
    }
    device->ops = ops;
    device->self = self;
    device->copies = copies;
    device->free = free_slots;
    device->free_count = count;
    device->ticket_count = count;
    (void)pthread_mutex_init(&device->lock, NULL);
    (void)pthread_mutex_init(&device->register_lock, NULL);
    *device_out = device;
    return CONVOY_OK;
}

/* What a lost copy may still touch stays pinned: the device must not find another owner behind its addresses. */
static void device_unpin_all(struct convoy_device *device)
{
    for (uint32_t i = 0; i < CONVOY_RANGES_MAX; i++) {
        const struct convoy_range *row = &device->ranges.rows[i];
        bool is_lost = (device->lost_ranges >> i & 1) != 0;
        if (row->bytes != 0 && !row->is_foreign && !is_lost && device->ops->unpin != NULL) {
            (void)device->ops->unpin(device->self, (void *)row->address, NULL);
        }
    }
}

static void device_free(struct convoy_device *device)
{
    device_unpin_all(device);
    for (uint32_t i = 0; i < device->ticket_count && device->ops->forget != NULL; i++) {
        device->ops->forget(device->self, &device->copies[i]);
    }
    device->ops->destroy(device->self);
    (void)pthread_mutex_destroy(&device->lock);
    (void)pthread_mutex_destroy(&device->register_lock);
    convoy_memory_free(device->copies);
    convoy_memory_free(device->free);
    convoy_memory_free(device);
}

/* How many run on. */
static uint32_t device_drive_all(struct convoy_device *device)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < device->ticket_count; i++) {
        struct convoy_device_copy *copy = &device->copies[i];
        bool is_quiet;
        if (copy->state == CONVOY_DEVICE_COPY_WAITING) {
            convoy_device_copy_end(device, copy, CONVOY_CANCELED, true);
        } else if (copy->state == CONVOY_DEVICE_COPY_RUNNING &&
                   convoy_device_copy_test(device, copy, &is_quiet, NULL) == CONVOY_IN_PROGRESS) {
            open++;
        }
    }
    return open;
}

int32_t convoy_device_close(struct convoy_device *device, uint64_t deadline_ns, struct convoy_error *error)
{
    if (device == NULL) {
        return CONVOY_OK;
    }
    (void)pthread_mutex_lock(&device->lock);
    device->is_closing = true;
    (void)pthread_mutex_unlock(&device->lock);
    for (uint64_t begun_ns = convoy_now_ns();; convoy_device_pause(begun_ns, deadline_ns)) {
        uint32_t open = device_drive_all(device);
        if (open == 0) {
            device_free(device);
            return CONVOY_OK;
        }
        if (convoy_now_ns() >= deadline_ns) {
            return convoy_error_set(error, CONVOY_DRAIN_TIMEOUT, "device %s: %u copies are still running",
                                    device->ops->name, open);
        }
    }
}

/* -- queries and events -------------------------------------------------------------------------------------------- */

const char *convoy_device_name(const struct convoy_device *device)
{
    return device->ops->name;
}

bool convoy_device_calls_host(const struct convoy_device *device)
{
    return device->ops->calls_host;
}

bool convoy_device_has_streams(const struct convoy_device *device)
{
    return device->ops->has_streams;
}

int32_t convoy_device_query(struct convoy_device *device, const void *address, struct convoy_memory_info *info_out,
                            struct convoy_error *error)
{
    return device->ops->query(device->self, address, info_out, error);
}

static int32_t device_lacks_streams(const struct convoy_device *device, const char *what, struct convoy_error *error)
{
    return convoy_error_set(error, CONVOY_UNSUPPORTED, "%s: device %s has no streams", what, device->ops->name);
}

static int32_t event_check(const struct convoy_device *device, const void *event, struct convoy_error *error)
{
    if (event == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device %s: event is NULL", device->ops->name);
    }
    return CONVOY_OK;
}

int32_t convoy_device_event_record(struct convoy_device *device, void *event, void *stream, struct convoy_error *error)
{
    int32_t status = event_check(device, event, error);
    if (status != CONVOY_OK) {
        return status;
    }
    return device->ops->event_record != NULL ? device->ops->event_record(device->self, event, stream, error)
                                             : device_lacks_streams(device, "event_record", error);
}

int32_t convoy_device_event_wait(struct convoy_device *device, void *stream, void *event, struct convoy_error *error)
{
    int32_t status = event_check(device, event, error);
    if (status != CONVOY_OK) {
        return status;
    }
    return device->ops->event_wait != NULL ? device->ops->event_wait(device->self, stream, event, error)
                                           : device_lacks_streams(device, "event_wait", error);
}

int32_t convoy_device_event_query(struct convoy_device *device, void *event, struct convoy_error *error)
{
    int32_t status = event_check(device, event, error);
    return status != CONVOY_OK ? status : device->ops->event_query(device->self, event, error);
}

int32_t convoy_device_stream_query(struct convoy_device *device, void *stream, struct convoy_error *error)
{
    return device->ops->stream_query != NULL ? device->ops->stream_query(device->self, stream, error)
                                             : device_lacks_streams(device, "stream_query", error);
}

void convoy_device_figures(struct convoy_device *device, struct convoy_device_figures *figures_out)
{
    (void)pthread_mutex_lock(&device->lock);
    *figures_out = device->figures;
    figures_out->open = device->ticket_count - device->free_count;
    (void)pthread_mutex_unlock(&device->lock);
}

/* -- registered ranges --------------------------------------------------------------------------------------------- */

bool convoy_device_note_range(struct convoy_device *device, struct convoy_device_copy *copy, const void *address,
                              uint64_t bytes)
{
    (void)pthread_mutex_lock(&device->lock);
    bool is_held;
    copy->ranges |= convoy_ranges_touched(&device->ranges, (uintptr_t)address, bytes, &is_held);
    (void)pthread_mutex_unlock(&device->lock);
    return is_held;
}

static int32_t range_check(const struct convoy_device *device, const void *address, uint64_t bytes,
                           struct convoy_error *error)
{
    if (address == NULL || bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)address) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device %s: range of %llu bytes at %p, allowed are 1 byte "
                                "and more that end within the address space", device->ops->name,
                                (unsigned long long)bytes, address);
    }
    return CONVOY_OK;
}

static int32_t range_refused(const struct convoy_device *device, enum convoy_ranges_status why,
                             const struct convoy_range *other, uintptr_t address, uint64_t bytes,
                             struct convoy_error *error)
{
    if (why == CONVOY_RANGES_FULL) {
        return convoy_error_set(error, CONVOY_LIMIT, "device %s: %u ranges are registered, more are not possible",
                                device->ops->name, CONVOY_RANGES_MAX);
    }
    return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device %s: range of %llu bytes at 0x%llx overlaps the one of "
                            "%llu bytes at 0x%llx; the same range again is allowed", device->ops->name,
                            (unsigned long long)bytes, (unsigned long long)address, (unsigned long long)other->bytes,
                            (unsigned long long)other->address);
}

/* Enters it, so that nobody else takes its place, or counts it. row_out is written if it is new. */
static enum convoy_ranges_status range_enter(struct convoy_device *device, uintptr_t address, uint64_t bytes,
                                             struct convoy_range *other_out, uint32_t *row_out)
{
    (void)pthread_mutex_lock(&device->lock);
    uint32_t row = 0;
    enum convoy_ranges_status status = convoy_ranges_add(&device->ranges, address, bytes, &row);
    if (status != CONVOY_RANGES_FULL) {
        *other_out = device->ranges.rows[row];
    }
    if (status == CONVOY_RANGES_NEW) {
        device->ranges.rows[row].bytes = 0; /* no copy may lean on it before it is pinned */
        *row_out = row;
    }
    (void)pthread_mutex_unlock(&device->lock);
    return status;
}

static int32_t range_pin(struct convoy_device *device, void *address, uint64_t bytes, uint32_t flags,
                         struct convoy_error *error)
{
    struct convoy_range row = {0};
    uint32_t at = 0;
    enum convoy_ranges_status entered = range_enter(device, (uintptr_t)address, bytes, &row, &at);
    if (entered == CONVOY_RANGES_AGAIN) {
        return CONVOY_OK;
    }
    if (entered != CONVOY_RANGES_NEW) {
        return range_refused(device, entered, &row, (uintptr_t)address, bytes, error);
    }
    int32_t status = device->ops->pin != NULL
                         ? device->ops->pin(device->self, address, bytes, flags, &row.is_foreign, error)
                         : CONVOY_OK;
    if (status != CONVOY_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&device->lock);
    device->ranges.rows[at] = row;
    device->figures.registered_bytes += bytes;
    device->figures.ranges++;
    (void)pthread_mutex_unlock(&device->lock);
    return CONVOY_OK;
}

int32_t convoy_device_register(struct convoy_device *device, void *address, uint64_t bytes, uint32_t flags,
                               struct convoy_error *error)
{
    int32_t status = range_check(device, address, bytes, error);
    if (status == CONVOY_OK && (flags & ~CONVOY_REGISTER_READ_ONLY) != 0) {
        status = convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "device %s: register flags 0x%x, allowed are 0x%x",
                                  device->ops->name, flags, CONVOY_REGISTER_READ_ONLY);
    }
    if (status == CONVOY_OK) {
        (void)pthread_mutex_lock(&device->register_lock);
        status = range_pin(device, address, bytes, flags, error);
        (void)pthread_mutex_unlock(&device->register_lock);
    }
    return status;
}

/* Takes one count off. IN_PROGRESS: it was the last one; row_out is out of the table and is to be unpinned. */
static int32_t range_leave_locked(struct convoy_device *device, uintptr_t address, uint64_t bytes,
                                  struct convoy_range *row_out, uint32_t *at_out, struct convoy_error *error)
{
    uint32_t at = convoy_ranges_exact(&device->ranges, address, bytes);
    if (at == CONVOY_RANGES_MAX) {
        return convoy_error_set(error, CONVOY_NOT_FOUND, "device %s: no range of %llu bytes at 0x%llx is registered",
                                device->ops->name, (unsigned long long)bytes, (unsigned long long)address);
    }
    struct convoy_range *row = &device->ranges.rows[at];
    uint64_t used = device->lost_ranges;
    for (uint32_t i = 0; i < device->ticket_count; i++) {
        used |= device->copies[i].ranges;
    }
    if (row->count > 1) {
        row->count--;
        return CONVOY_OK;
    }
    if ((used >> at & 1) != 0) {
        return convoy_error_set(error, CONVOY_BUSY, "device %s: a copy of the range of %llu bytes at 0x%llx %s",
                                device->ops->name, (unsigned long long)bytes, (unsigned long long)address,
                                (device->lost_ranges >> at & 1) != 0 ? "was lost" : "is open");
    }
    *row_out = *row;
    *at_out = at;
    row->bytes = 0;
    device->figures.registered_bytes -= bytes;
    device->figures.ranges--;
    return CONVOY_IN_PROGRESS;
}

/* A range that the driver does not let go of is still there. */
static int32_t range_unpin(struct convoy_device *device, const struct convoy_range *row, uint32_t at,
                           struct convoy_error *error)
{
    if (row->is_foreign || device->ops->unpin == NULL) {
        return CONVOY_OK;
    }
    int32_t status = device->ops->unpin(device->self, (void *)row->address, error);
    if (status != CONVOY_OK) {
        (void)pthread_mutex_lock(&device->lock);
        device->ranges.rows[at] = *row;
        device->figures.registered_bytes += row->bytes;
        device->figures.ranges++;
        (void)pthread_mutex_unlock(&device->lock);
    }
    return status;
}

int32_t convoy_device_unregister(struct convoy_device *device, void *address, uint64_t bytes,
                                 struct convoy_error *error)
{
    struct convoy_range row = {0};
    uint32_t at = 0;
    int32_t status = range_check(device, address, bytes, error);
    if (status != CONVOY_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&device->register_lock);
    (void)pthread_mutex_lock(&device->lock);
    status = range_leave_locked(device, (uintptr_t)address, bytes, &row, &at, error);
    (void)pthread_mutex_unlock(&device->lock);
    if (status == CONVOY_IN_PROGRESS) {
        status = range_unpin(device, &row, at, error);
    }
    (void)pthread_mutex_unlock(&device->register_lock);
    return status;
}
