/* SPDX-License-Identifier: Apache-2.0 */
#include "sync/alone.h"

#include "core/error.h"
#include "core/memory.h"

int32_t convoy_alone_init(struct convoy_alone *alone, size_t payload_bytes, uint32_t salt, struct convoy_error *error)
{
    alone->salt = salt;
    alone->payload = convoy_memory_zalloc(payload_bytes);
    return alone->payload != NULL
               ? CONVOY_OK
               : convoy_error_set(error, CONVOY_NO_MEMORY, "sync gather: no memory for a row of %zu bytes", payload_bytes);
}

void convoy_alone_fini(struct convoy_alone *alone)
{
    convoy_memory_free(alone->payload);
    alone->payload = NULL;
}

bool convoy_alone_applies(const struct convoy_grid *grid, const struct convoy_sync_call *call)
{
    return convoy_alone_is_usual(grid) && (call->policy & (CONVOY_SYNC_WORLD | CONVOY_SYNC_EXCHANGE)) == 0;
}

convoy_operation convoy_alone_start(struct convoy_alone *alone, struct convoy_gather *gather,
                                    const struct convoy_sync_call *call, size_t payload_bytes, bool is_error)
{
    const struct convoy_merge_ops *ops = &convoy_gather_ops;
    ops->begin(gather);
    alone->status = CONVOY_OK;
    for (uint32_t member = 0; member < gather->form.member_count && alone->status == CONVOY_OK; member++) {
        if (!is_error) {
            alone->status = ops->member(gather, member, alone->payload, payload_bytes);
        } else if ((call->policy & CONVOY_SYNC_ERRORS_AS_PRESENCE) != 0) {
            ops->absent(gather, member, CONVOY_ABSENT_ERROR, call->error_reason);
        } else {
            alone->status = CONVOY_PEER_ERROR;
        }
    }
    alone->error_reason = call->error_reason;
    alone->summary = (struct convoy_round_summary){.votes_and = call->votes, .votes_or = call->votes};
    alone->count++;
    alone->operation = (uint64_t)alone->salt << 40 | (uint64_t)alone->count << 8 | CONVOY_ALONE_SLOT;
    return alone->operation;
}
