/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/outbox.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/status.h"

#include <string.h>
#include <time.h>

#define OUTBOX_WAIT_NS CONVOY_NS_PER_MS
#define OUTBOX_LOOK_NS 50000
#define OUTBOX_RETURN_NS CONVOY_NS_PER_S /* how long a reader may keep what was sent before it is not watched any more */

void convoy_outbox_init(struct convoy_outbox *outbox, const struct convoy_transfer_host *host,
                        struct convoy_pipeline_board *board, uint32_t member)
{
    uint32_t window = board->setup.window;
    *outbox = (struct convoy_outbox){.host = host, .board = board, .member = member};
    outbox->slot_count = window < CONVOY_OUTBOX_SLOTS_MAX ? window : CONVOY_OUTBOX_SLOTS_MAX;
}

static uint32_t outbox_hop(const struct convoy_outbox *outbox)
{
    return (uint32_t)convoy_pipeline_shape_role(&outbox->board->setup.shape, outbox->member);
}

static struct convoy_pipeline_side *outbox_side(const struct convoy_outbox *outbox, uint32_t request)
{
    return &convoy_pipeline_board_record(outbox->board, outbox_hop(outbox), request)->sender;
}

static uint32_t outbox_receiver(const struct convoy_outbox *outbox, uint32_t request)
{
    return convoy_pipeline_shape_member(&outbox->board->setup.shape,
                                        (enum convoy_pipeline_role)(outbox_hop(outbox) + 1), request);
}

static void outbox_release(const struct convoy_outbox *outbox, convoy_transfer *transfer)
{
    if (*transfer != 0) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        (void)convoy_host_transfer_release(outbox->host->engine, *transfer, &error);
        *transfer = 0;
    }
}

static void outbox_release_upstream(const struct convoy_outbox *outbox, struct convoy_outbox_slot *slot)
{
    if (slot->upstream != 0) {
        convoy_pipeline_board_record(outbox->board, outbox_hop(outbox) - 1, slot->request)->receiver.released_ns =
            convoy_now_ns();
        outbox_release(outbox, &slot->upstream);
    }
}

/* What is being copied from may go only when the copy has stopped, also when nobody wants it any more. */
static void outbox_stop_copy(const struct convoy_outbox *outbox, const struct convoy_outbox_slot *slot)
{
    static const char reason[] = "the sender stops";
    const struct timespec pause = {.tv_nsec = OUTBOX_LOOK_NS};
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    struct convoy_error error = CONVOY_ERROR_INIT;
    uint64_t deadline_ns = convoy_deadline_after(convoy_now_ns(), outbox->board->setup.timeout_ns);
    (void)convoy_host_transfer_abort(outbox->host->engine, slot->staged, reason, sizeof reason - 1, &error);
    while (convoy_host_transfer_test(outbox->host->engine, slot->staged, &result, &error) != CONVOY_CLOSED &&
           result.is_source_free == 0 && convoy_now_ns() < deadline_ns) {
        (void)nanosleep(&pause, NULL);
    }
}

static void outbox_clear(const struct convoy_outbox *outbox, struct convoy_outbox_slot *slot)
{
    if (slot->upstream != 0) {
        outbox_stop_copy(outbox, slot);
    }
    outbox_release_upstream(outbox, slot);
    outbox_release(outbox, &slot->send);
    outbox_release(outbox, &slot->staged);
    *slot = (struct convoy_outbox_slot){0};
}

void convoy_outbox_fini(struct convoy_outbox *outbox)
{
    for (uint32_t i = 0; i < outbox->slot_count; i++) {
        outbox_clear(outbox, &outbox->slots[i]);
    }
}

int32_t convoy_outbox_connect(struct convoy_outbox *outbox, struct convoy_error *error)
{
    struct convoy_pipeline_setup *setup = &outbox->board->setup;
    uint32_t next = outbox_hop(outbox) + 1;
    for (uint32_t i = 0; i < convoy_pipeline_shape_members(&setup->shape); i++) {
        const char *session = outbox->board->members[i].session;
        char name[CONVOY_PIPELINE_NAME_BYTES];
        if ((uint32_t)convoy_pipeline_shape_role(&setup->shape, i) != next) {
            continue;
        }
        int32_t status = convoy_host_peer_connect(outbox->host->engine, session, strlen(session),
                                                              setup->timeout_ns, &outbox->peers[i], error);
        if (status != CONVOY_OK) {
            return convoy_error_prefix(error, status, "connecting to %s",
                                       convoy_pipeline_shape_name(&setup->shape, i, name));
        }
    }
    return CONVOY_OK;
}

/* -- taking in ------------------------------------------------------------------------------------------------------ */

static struct convoy_outbox_slot *outbox_free_slot(struct convoy_outbox *outbox)
{
    for (uint32_t i = 0; i < outbox->slot_count; i++) {
        if (!outbox->slots[i].is_used) {
            return &outbox->slots[i];
        }
    }
    return NULL;
}

/* Sends what is staged, or being staged: it goes on by itself. */
static int32_t outbox_send(struct convoy_outbox *outbox, struct convoy_outbox_slot *slot, struct convoy_error *error)
{
    const struct convoy_send send = {
        .struct_size = sizeof send,
        .peer = outbox->peers[outbox_receiver(outbox, slot->request)],
        .staged = slot->staged,
        .timeout_ns = outbox->board->setup.timeout_ns,
    };
    slot->attempts++;
    return convoy_host_send_start(outbox->host->engine, NULL, &send, &slot->send, error);
}

static bool is_back_pressure(int32_t status)
{
    return status == CONVOY_POOL_EXHAUSTED || status == CONVOY_BUSY;
}

int32_t convoy_outbox_add(struct convoy_outbox *outbox, uint32_t request, const struct convoy_stage *stage,
                          convoy_transfer upstream, struct convoy_error *error)
{
    struct convoy_stage timed = *stage;
    struct convoy_outbox_slot *slot = outbox_free_slot(outbox);
    struct convoy_pipeline_side *side = outbox_side(outbox, request);
    convoy_transfer staged = 0;
    if (slot == NULL) {
        return convoy_error_set(error, CONVOY_BUSY, "%u requests are under way", outbox->slot_count);
    }
    timed.timeout_ns = outbox->board->setup.timeout_ns;
    int32_t status = convoy_host_stage_start(outbox->host->engine, &timed, &staged, error);
    if (is_back_pressure(status)) {
        side->refusals += outbox->refused != request + 1;
        outbox->refused = request + 1;
        (void)convoy_error_prefix(error, status, "staging request %u", request);
        return CONVOY_BUSY;
    }
    if (status != CONVOY_OK) {
        return convoy_error_prefix(error, status, "staging request %u", request);
    }
    *slot = (struct convoy_outbox_slot){
        .is_used = true, .request = request, .staged = staged, .upstream = upstream};
    status = outbox_send(outbox, slot, error);
    if (status == CONVOY_OK) {
        return status;
    }
    if (upstream != 0) {
        outbox_stop_copy(outbox, slot);
        slot->upstream = 0; /* the caller's still */
    }
    outbox_clear(outbox, slot);
    return convoy_error_prefix(error, status, "sending request %u", request);
}

/* -- under way ------------------------------------------------------------------------------------------------------ */

static int32_t outbox_fail(const struct convoy_outbox *outbox, const struct convoy_outbox_slot *slot, int32_t status,
                           struct convoy_error *error)
{
    char name[CONVOY_PIPELINE_NAME_BYTES];
    uint32_t receiver = outbox_receiver(outbox, slot->request);
    return convoy_error_prefix(error, status, "request %u to %s ended %s in attempt %u", slot->request,
                               convoy_pipeline_shape_name(&outbox->board->setup.shape, receiver, name),
                               convoy_status_name(status), slot->attempts);
}

/* The source is given back as soon as it was copied, long before the next reader is done. What could not be staged is sent
 * by no further attempt. */
static int32_t outbox_look_at_stage(struct convoy_outbox *outbox, struct convoy_outbox_slot *slot,
                                    struct convoy_error *error)
{
    if (slot->is_staged) {
        return CONVOY_OK;
    }
    int32_t status = convoy_host_transfer_test(outbox->host->engine, slot->staged, NULL, error);
    if (status == CONVOY_OK) {
        slot->is_staged = true;
        outbox_release_upstream(outbox, slot);
    }
    return status == CONVOY_IN_PROGRESS ? CONVOY_OK : status;
}

static void outbox_record(const struct convoy_outbox *outbox, const struct convoy_outbox_slot *slot,
                          const struct convoy_transfer_result *result)
{
    struct convoy_pipeline_side *side = outbox_side(outbox, slot->request);
    side->path = result->path;
    side->attempts = slot->attempts;
    side->payload_bytes = result->payload_bytes;
    side->moved_bytes = result->moved_bytes;
    memcpy(side->times_ns, result->times_ns, sizeof side->times_ns);
    side->is_done = 1;
}

/* Sent. It stays to learn when the reader gives it back; the memory waits for that in any case. */
static void outbox_look_after(struct convoy_outbox *outbox, struct convoy_outbox_slot *slot,
                              const struct convoy_transfer_result *result)
{
    uint64_t now_ns = convoy_now_ns();
    if (slot->sent_ns == 0) {
        slot->sent_ns = now_ns;
        outbox_side(outbox, slot->request)->retries += result->retries;
    }
    if (result->times_ns[CONVOY_TIME_RETURNED] != 0 || now_ns - slot->sent_ns > OUTBOX_RETURN_NS) {
        outbox_record(outbox, slot, result);
        outbox_clear(outbox, slot);
    }
}

static int32_t outbox_look_at_send(struct convoy_outbox *outbox, struct convoy_outbox_slot *slot,
                                   struct convoy_error *error)
{
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    int32_t status = convoy_host_transfer_test(outbox->host->engine, slot->send, &result, error);
    if (status == CONVOY_IN_PROGRESS) {
        return CONVOY_OK;
    }
    if (status == CONVOY_OK) {
        outbox_look_after(outbox, slot, &result);
        return CONVOY_OK;
    }
    struct convoy_pipeline_side *side = outbox_side(outbox, slot->request);
    side->refusals++;
    side->retries += result.retries;
    if (!convoy_status_is_retryable(status) || slot->attempts >= CONVOY_OUTBOX_ATTEMPTS) {
        return outbox_fail(outbox, slot, status, error);
    }
    outbox_release(outbox, &slot->send);
    slot->retry_ns = convoy_now_ns() + (result.retry_after_ms + 1) * CONVOY_NS_PER_MS;
    return CONVOY_OK;
}

static int32_t outbox_send_again(struct convoy_outbox *outbox, struct convoy_outbox_slot *slot,
                                 struct convoy_error *error)
{
    if (convoy_now_ns() < slot->retry_ns) {
        return CONVOY_OK;
    }
    int32_t status = outbox_send(outbox, slot, error);
    return status == CONVOY_OK ? status : outbox_fail(outbox, slot, status, error);
}

int32_t convoy_outbox_work(struct convoy_outbox *outbox, struct convoy_error *error)
{
    int32_t status = CONVOY_OK;
    for (uint32_t i = 0; i < outbox->slot_count && status == CONVOY_OK; i++) {
        struct convoy_outbox_slot *slot = &outbox->slots[i];
        if (!slot->is_used) {
            continue;
        }
        status = outbox_look_at_stage(outbox, slot, error);
        if (status != CONVOY_OK) {
            return outbox_fail(outbox, slot, status, error);
        }
        status = slot->send != 0 ? outbox_look_at_send(outbox, slot, error) : outbox_send_again(outbox, slot, error);
    }
    return status;
}

void convoy_outbox_wait(struct convoy_outbox *outbox)
{
    const struct timespec pause = {.tv_nsec = OUTBOX_LOOK_NS};
    for (uint32_t i = 0; i < outbox->slot_count; i++) {
        const struct convoy_outbox_slot *slot = &outbox->slots[i];
        if (slot->is_used && slot->send != 0 && slot->sent_ns == 0) {
            struct convoy_error error = CONVOY_ERROR_INIT;
            (void)convoy_host_transfer_wait(outbox->host->engine, slot->send, OUTBOX_WAIT_NS, NULL, &error);
            return;
        }
    }
    (void)nanosleep(&pause, NULL); /* what is given back wakes nobody */
}

uint32_t convoy_outbox_count(const struct convoy_outbox *outbox)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < outbox->slot_count; i++) {
        count += outbox->slots[i].is_used;
    }
    return count;
}
