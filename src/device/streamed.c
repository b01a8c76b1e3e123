/* SPDX-License-Identifier: Apache-2.0 */
#include "device/streamed.h"

#include "core/error.h"
#include "core/memory.h"

#include <string.h>

struct streamed {
    const struct convoy_driver *driver;
    void *self;
    const char *name;
    struct convoy_device_ops ops;
};

/* Fills error with the driver's name for what went wrong. */
static int32_t driver_failed(const struct streamed *streamed, const char *what, int32_t number,
                             struct convoy_error *error)
{
    char text[CONVOY_DRIVER_TEXT_BYTES] = "";
    int32_t status = CONVOY_SYSTEM;
    if (streamed->driver->is_out_of_memory(number)) {
        status = CONVOY_NO_MEMORY;
    } else if (streamed->driver->is_unsupported(number)) {
        status = CONVOY_UNSUPPORTED;
    }
    streamed->driver->explain(streamed->self, number, text);
    return convoy_error_set(error, status, "device %s: %s: %s", streamed->name, what, text);
}

static int32_t driver_enter(const struct streamed *streamed, struct convoy_error *error)
{
    int32_t number = streamed->driver->enter(streamed->self);
    return number == 0 ? CONVOY_OK : driver_failed(streamed, "making its context current", number, error);
}

/* Leaves, and turns the driver's number into a status. */
static int32_t driver_done(const struct streamed *streamed, const char *what, int32_t number, struct convoy_error *error)
{
    streamed->driver->leave(streamed->self);
    if (number == CONVOY_DRIVER_NOT_YET) {
        return CONVOY_IN_PROGRESS;
    }
    return number == 0 ? CONVOY_OK : driver_failed(streamed, what, number, error);
}

/* -- beginning ----------------------------------------------------------------------------------------------------- */

/* Puts the wait for the producer on the stream. The own event serves for that too: a wait is for the event as it was
 * recorded when the wait was put there, so that recording it again behind the copies changes nothing. */
static int32_t ready_order(const struct streamed *streamed, const struct convoy_device_copy *copy, const char **what_out)
{
    const struct convoy_readiness *ready = &copy->order.ready;
    void *event = ready->handle;
    if (ready->kind == CONVOY_READY_STREAM && ready->handle != copy->order.stream) {
        int32_t number = streamed->driver->event_record(streamed->self, copy->event, ready->handle);
        if (number != 0) {
            *what_out = "recording an event on the producer's stream";
            return number;
        }
        event = copy->event;
    } else if (ready->kind != CONVOY_READY_EVENT) {
        return 0; /* ready, or the same stream, which runs in order */
    }
    *what_out = "making the stream wait for the producer";
    return streamed->driver->stream_wait(streamed->self, copy->order.stream, event);
}

static int32_t copy_prepare(const struct streamed *streamed, struct convoy_device_copy *copy, const char **what_out)
{
    if (copy->event == NULL) {
        *what_out = "making an event";
        int32_t number = streamed->driver->event_create(streamed->self, &copy->event);
        if (number != 0) {
            copy->event = NULL;
            return number;
        }
    }
    return ready_order(streamed, copy, what_out);
}

/* Keeps the first failure; the copy ends with it, but not before what was put on the stream has run. */
static void copy_fail(const struct streamed *streamed, struct convoy_device_copy *copy, const char *what, int32_t number)
{
    if (copy->failure.status == CONVOY_OK) {
        (void)driver_failed(streamed, what, number, &copy->failure);
    }
}

static void copy_issue(const struct streamed *streamed, struct convoy_device_copy *copy)
{
    const struct convoy_copy_order *order = &copy->order;
    int32_t number = 0;
    for (size_t i = 0; i < order->count && number == 0; i++) {
        if (order->pieces[i].bytes != 0) {
            number = streamed->driver->copy(streamed->self, &order->pieces[i], order->direction, order->stream);
        }
    }
    if (number != 0) {
        copy_fail(streamed, copy, "copying", number);
    }
    /* After a failure the host's event stays as it is: it must not say that the bytes are there. Before the own event, so
     * that it has fired when the ticket ends. */
    if (order->event != NULL && copy->failure.status == CONVOY_OK) {
        number = streamed->driver->event_record(streamed->self, order->event, order->stream);
        if (number != 0) {
            copy_fail(streamed, copy, "recording the host's event behind the copy", number);
        }
    }
    number = streamed->driver->event_record(streamed->self, copy->event, order->stream);
    if (number != 0) {
        copy->is_asked_by_stream = true;
        copy_fail(streamed, copy, "recording an event behind the copy", number);
    }
}

static int32_t streamed_begin(void *self, struct convoy_device_copy *copy, struct convoy_error *error)
{
    const struct streamed *streamed = self;
    const char *what = "";
    int32_t status = driver_enter(streamed, error);
    if (status != CONVOY_OK) {
        return status;
    }
    copy->failure = (struct convoy_error)CONVOY_ERROR_INIT;
    copy->is_asked_by_stream = false;
    int32_t number = copy_prepare(streamed, copy, &what);
    if (number == 0) {
        copy_issue(streamed, copy);
    }
    return driver_done(streamed, what, number, error);
}

/* -- ending -------------------------------------------------------------------------------------------------------- */

static int32_t copy_lost(const struct convoy_device_copy *copy, bool *quiet_out, struct convoy_error *error)
{
    *quiet_out = false;
    return convoy_error_copy(error, &copy->failure);
}

/* Whether it has ended: NOT_YET, 0, or that nobody can say. */
static int32_t copy_ask(const struct streamed *streamed, struct convoy_device_copy *copy)
{
    if (!copy->is_asked_by_stream) {
        int32_t number = streamed->driver->event_query(streamed->self, copy->event);
        if (number == 0 || number == CONVOY_DRIVER_NOT_YET) {
            return number;
        }
        copy->is_asked_by_stream = true;
        copy_fail(streamed, copy, "asking for the event behind the copy", number);
    }
    int32_t number = streamed->driver->stream_query(streamed->self, copy->order.stream);
    if (number != 0 && number != CONVOY_DRIVER_NOT_YET) {
        copy_fail(streamed, copy, "asking for the stream of the copy", number);
    }
    return number;
}

static int32_t streamed_test(void *self, struct convoy_device_copy *copy, bool *quiet_out, struct convoy_error *error)
{
    const struct streamed *streamed = self;
    int32_t number = streamed->driver->enter(streamed->self);
    if (number != 0) { /* once is tried again, since nothing is known of the copy */
        bool was_asked = copy->is_asked_by_stream;
        copy->is_asked_by_stream = true;
        copy_fail(streamed, copy, "making its context current", number);
        return was_asked ? copy_lost(copy, quiet_out, error) : CONVOY_IN_PROGRESS;
    }
    number = copy_ask(streamed, copy);
    streamed->driver->leave(streamed->self);
    if (number == CONVOY_DRIVER_NOT_YET) {
        return CONVOY_IN_PROGRESS;
    }
    if (number != 0) {
        return copy_lost(copy, quiet_out, error);
    }
    return copy->failure.status == CONVOY_OK ? CONVOY_OK : convoy_error_copy(error, &copy->failure);
}

/* -- the rest ------------------------------------------------------------------------------------------------------ */

static int32_t streamed_query(void *self, const void *address, struct convoy_memory_info *info_out,
                              struct convoy_error *error)
{
    const struct streamed *streamed = self;
    struct convoy_memory_info info = {.struct_size = sizeof info};
    int32_t status = driver_enter(streamed, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = driver_done(streamed, "asking what an address is", streamed->driver->query(streamed->self, address, &info),
                         error);
    if (status == CONVOY_OK && info.kind > CONVOY_MEMORY_MANAGED) {
        return convoy_error_set(error, CONVOY_SYSTEM, "device %s: memory of kind %u, allowed are 0 to %u", streamed->name,
                                info.kind, CONVOY_MEMORY_MANAGED);
    }
    if (status == CONVOY_OK) {
        info.kind = info.kind == CONVOY_MEMORY_SHARED ? CONVOY_MEMORY_HOST : info.kind;
        *info_out = info;
    }
    return status;
}

static int32_t streamed_event_record(void *self, void *event, void *stream, struct convoy_error *error)
{
    const struct streamed *streamed = self;
    int32_t status = driver_enter(streamed, error);
    return status != CONVOY_OK ? status
                               : driver_done(streamed, "recording an event",
                                             streamed->driver->event_record(streamed->self, event, stream), error);
}

static int32_t streamed_event_wait(void *self, void *stream, void *event, struct convoy_error *error)
{
    const struct streamed *streamed = self;
    int32_t status = driver_enter(streamed, error);
    return status != CONVOY_OK ? status
                               : driver_done(streamed, "making a stream wait for an event",
                                             streamed->driver->stream_wait(streamed->self, stream, event), error);
}

static int32_t streamed_event_query(void *self, void *event, struct convoy_error *error)
{
    const struct streamed *streamed = self;
    int32_t status = driver_enter(streamed, error);
    return status != CONVOY_OK ? status
                               : driver_done(streamed, "asking for an event",
                                             streamed->driver->event_query(streamed->self, event), error);
}

static int32_t streamed_stream_query(void *self, void *stream, struct convoy_error *error)
{
    const struct streamed *streamed = self;
    int32_t status = driver_enter(streamed, error);
    return status != CONVOY_OK ? status
                               : driver_done(streamed, "asking for a stream",
                                             streamed->driver->stream_query(streamed->self, stream), error);
}

static int32_t streamed_pin(void *self, void *address, uint64_t bytes, uint32_t flags, bool *foreign_out,
                            struct convoy_error *error)
{
    const struct streamed *streamed = self;
    int32_t status = driver_enter(streamed, error);
    return status != CONVOY_OK
               ? status
               : driver_done(streamed, "registering host memory",
                             streamed->driver->pin(streamed->self, address, bytes, flags, foreign_out), error);
}

static int32_t streamed_unpin(void *self, void *address, struct convoy_error *error)
{
    const struct streamed *streamed = self;
    int32_t status = driver_enter(streamed, error);
    return status != CONVOY_OK ? status
                               : driver_done(streamed, "unregistering host memory",
                                             streamed->driver->unpin(streamed->self, address), error);
}

static void streamed_forget(void *self, struct convoy_device_copy *copy)
{
    const struct streamed *streamed = self;
    if (copy->event == NULL) {
        return;
    }
    bool has_entered = streamed->driver->enter(streamed->self) == 0; /* an event can be destroyed without */
    streamed->driver->event_destroy(streamed->self, copy->event);
    copy->event = NULL;
    if (has_entered) {
        streamed->driver->leave(streamed->self);
    }
}

static void streamed_destroy(void *self)
{
    struct streamed *streamed = self;
    streamed->driver->destroy(streamed->self);
    convoy_memory_free(streamed);
}

static void ops_fill(struct convoy_device_ops *ops, const struct convoy_streamed_options *options)
{
    *ops = (struct convoy_device_ops){
        .name = options->name,
        .has_streams = true,
        .calls_host = options->calls_host,
        .needs_pinned = options->needs_pinned,
        .query = streamed_query,
        .begin = streamed_begin,
        .test = streamed_test,
        .event_record = streamed_event_record,
        .event_wait = streamed_event_wait,
        .event_query = streamed_event_query,
        .stream_query = streamed_stream_query,
        .pin = options->can_pin ? streamed_pin : NULL,
        .unpin = options->can_pin ? streamed_unpin : NULL,
        .forget = streamed_forget,
        .destroy = streamed_destroy,
    };
}

int32_t convoy_streamed_make(const struct convoy_streamed_options *options, struct convoy_device **device_out,
                             struct convoy_error *error)
{
    struct streamed *streamed = convoy_memory_zalloc(sizeof *streamed);
    if (streamed == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "device %s: no memory for %zu bytes", options->name,
                                sizeof *streamed);
    }
    streamed->driver = options->driver;
    streamed->self = options->self;
    streamed->name = options->name;
    ops_fill(&streamed->ops, options);
    int32_t status = convoy_device_make(&streamed->ops, streamed, options->tickets, device_out, error);
    if (status != CONVOY_OK) {
        convoy_memory_free(streamed);
    }
    return status;
}
