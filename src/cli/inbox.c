/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/inbox.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/status.h"

#include <string.h>

int32_t convoy_inbox_init(struct convoy_inbox *inbox, const struct convoy_transfer_host *host,
                          struct convoy_pipeline_board *board, uint32_t member, struct convoy_error *error)
{
    *inbox = (struct convoy_inbox){.host = host, .board = board, .member = member};
    inbox->is_seen = convoy_memory_zalloc(board->setup.request_count);
    return inbox->is_seen != NULL ? CONVOY_OK
                                  : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory to keep %u requests apart",
                                                     board->setup.request_count);
}

static void inbox_release(struct convoy_inbox *inbox, convoy_transfer transfer)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    (void)convoy_host_transfer_release(inbox->host->engine, transfer, &error);
}

void convoy_inbox_fini(struct convoy_inbox *inbox)
{
    if (inbox->accept != 0) {
        inbox_release(inbox, inbox->accept);
        inbox->accept = 0;
    }
    convoy_arrival_fini(&inbox->arrival);
    convoy_memory_free(inbox->is_seen);
    inbox->is_seen = NULL;
}

static int32_t inbox_accept(struct convoy_inbox *inbox, struct convoy_error *error)
{
    const struct convoy_pipeline_setup *setup = &inbox->board->setup;
    /* Between hosts there is nothing to look into: the bytes come into a slot of the own pool. */
    const struct convoy_load load = {
        .struct_size = sizeof load,
        .mode = setup->hosts == 1 ? CONVOY_LOAD_VIEW : CONVOY_LOAD_COPY,
        .timeout_ns = convoy_deadline_left(convoy_now_ns(), setup->deadline_ns) + setup->timeout_ns,
    };
    return convoy_host_accept_start(inbox->host->engine, &load, &inbox->accept, error);
}

static void inbox_record(struct convoy_inbox *inbox, uint32_t request, const struct convoy_transfer_result *result)
{
    uint32_t hop = (uint32_t)convoy_pipeline_shape_role(&inbox->board->setup.shape, inbox->member) - 1;
    struct convoy_pipeline_side *side = &convoy_pipeline_board_record(inbox->board, hop, request)->receiver;
    side->path = result->path;
    side->retries = result->retries;
    side->payload_bytes = result->payload_bytes;
    side->moved_bytes = result->moved_bytes;
    memcpy(side->times_ns, result->times_ns, sizeof side->times_ns);
    side->is_done = 1;
}

/* Which request it is, and whether it is for this member and new. */
static int32_t inbox_judge(struct convoy_inbox *inbox, uint32_t *request_out, struct convoy_error *error)
{
    const struct convoy_payload *payload = &inbox->arrival.payload;
    const struct convoy_pipeline_setup *setup = &inbox->board->setup;
    enum convoy_pipeline_role role = convoy_pipeline_shape_role(&setup->shape, inbox->member);
    uint32_t request = 0;
    if (!convoy_parcel_request_of(payload->request, payload->request_length, &request) ||
        request >= setup->request_count ||
        convoy_pipeline_shape_member(&setup->shape, role, request) != inbox->member) {
        return convoy_error_set(error, CONVOY_MALFORMED, "\"%.*s\" came, which is no request for this member",
                                (int)(payload->request_length < 60 ? payload->request_length : 60), payload->request);
    }
    if (inbox->is_seen[request] != 0) {
        inbox->board->members[inbox->member].repeats++;
        return CONVOY_IN_PROGRESS;
    }
    inbox->is_seen[request] = 1;
    *request_out = request;
    return CONVOY_OK;
}

static int32_t inbox_open(struct convoy_inbox *inbox, const struct convoy_transfer_result *result,
                          uint32_t *request_out, convoy_transfer *load_out, struct convoy_error *error)
{
    convoy_transfer load = inbox->accept;
    inbox->accept = 0;
    int32_t status = convoy_arrival_look(&inbox->arrival, inbox->host, load, error);
    if (status == CONVOY_OK) {
        status = inbox_judge(inbox, request_out, error);
    }
    if (status != CONVOY_OK) {
        inbox_release(inbox, load);
        return status;
    }
    inbox_record(inbox, *request_out, result);
    *load_out = load;
    return CONVOY_OK;
}

int32_t convoy_inbox_take(struct convoy_inbox *inbox, uint64_t wait_ns, uint32_t *request_out,
                          convoy_transfer *load_out, struct convoy_error *error)
{
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    int32_t status = inbox->accept != 0 ? CONVOY_OK : inbox_accept(inbox, error);
    if (status != CONVOY_OK) {
        return status;
    }
    status = wait_ns != 0 ? convoy_host_transfer_wait(inbox->host->engine, inbox->accept, wait_ns, &result, error)
                          : convoy_host_transfer_test(inbox->host->engine, inbox->accept, &result, error);
    if (status == CONVOY_OK) {
        return inbox_open(inbox, &result, request_out, load_out, error);
    }
    if (status != CONVOY_IN_PROGRESS) {
        inbox_release(inbox, inbox->accept);
        inbox->accept = 0;
        inbox->board->members[inbox->member].refusals++;
    }
    /* The sender comes again with what there was no room or no time for. */
    return convoy_status_is_retryable(status) ? CONVOY_IN_PROGRESS : status;
}

void convoy_inbox_release(struct convoy_inbox *inbox, uint32_t request, convoy_transfer load)
{
    uint32_t hop = (uint32_t)convoy_pipeline_shape_role(&inbox->board->setup.shape, inbox->member) - 1;
    convoy_pipeline_board_record(inbox->board, hop, request)->receiver.released_ns = convoy_now_ns();
    inbox_release(inbox, load);
}
