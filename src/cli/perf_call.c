/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/perf_call.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"

#define PERF_COLUMNS 8u
#define PERF_BYTES_PER_ENTRY 32u /* more than a keyed entry takes */

static void perf_call_lists(struct convoy_perf_call *call)
{
    const struct convoy_perf_load *load = call->load;
    size_t entries = load->entries;
    for (size_t i = 0; i < load->lists; i++) {
        call->lists[i] = (struct convoy_poll_list){
            .count = entries,
            .states = call->states + i * entries,
            .state_bytes = 1,
            .flags = load->is_keyed ? CONVOY_POLL_KEYED : 0,
            .keys = load->is_keyed ? call->keys : NULL,
        };
        call->list_results[i] = (struct convoy_poll_list_result){.states = call->states + (load->lists + i) * entries,
                                                                 .states_capacity = entries};
    }
    call->poll = (struct convoy_poll_call){.struct_size = sizeof call->poll,
                                           .lists = call->lists,
                                           .list_stride = sizeof call->lists[0],
                                           .list_count = load->lists};
    call->poll_result = (struct convoy_poll_result){.struct_size = sizeof call->poll_result,
                                                    .lists = call->list_results,
                                                    .list_stride = sizeof call->list_results[0],
                                                    .list_capacity = CONVOY_POLL_LISTS_MAX};
}

static void perf_call_row(struct convoy_perf_call *call)
{
    static const int64_t row[PERF_COLUMNS] = {128, 128, 1, 0, 1, 2, 0, 4096};
    for (uint32_t i = 0; i < PERF_COLUMNS; i++) {
        call->row[i] = row[i];
    }
    call->sync = (struct convoy_sync_call){.struct_size = sizeof call->sync, .row = call->row};
    call->sync_result = (struct convoy_sync_result){.struct_size = sizeof call->sync_result,
                                                    .table = call->table,
                                                    .table_capacity = call->load->ranks * PERF_COLUMNS};
}

static int32_t perf_call_open(struct convoy_perf_call *call, const struct convoy_perf_place *place,
                              struct convoy_error *error)
{
    int32_t members[64];
    uint64_t blob_bytes = call->load->entries * call->load->lists * PERF_BYTES_PER_ENTRY;
    for (int32_t i = 0; i < 64; i++) {
        members[i] = i;
    }
    struct convoy_plain_group group = {
        .name = "perf",
        .member_ids = members,
        .member_count = (uint32_t)call->load->ranks,
        .own_index = call->rank,
        .address = place->address,
        .port = (uint16_t)place->port,
        .sync_inner = call->load->is_sync ? 1 : 0,
        .blob_bytes_max = blob_bytes > 16384 ? (uint32_t)blob_bytes : 0,
        .open_timeout_ns = 30 * CONVOY_NS_PER_S,
    };
    return convoy_plain_host_group_open(call->host, &group, &call->group, error);
}

int32_t convoy_perf_call_create(struct convoy_plain_host *host, const struct convoy_perf_load *load,
                                const struct convoy_perf_place *place, struct convoy_perf_call **call_out,
                                struct convoy_error *error)
{
    struct convoy_perf_call *call = convoy_memory_zalloc(sizeof *call);
    if (call == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the call");
    }
    call->host = host;
    call->load = load;
    call->rank = (uint32_t)place->rank;
    call->states = convoy_memory_array(2 * load->lists * load->entries, 1);
    call->keys = convoy_memory_array(load->entries, sizeof *call->keys);
    call->table = convoy_memory_array(load->ranks * PERF_COLUMNS, sizeof *call->table);
    int32_t status = call->states != NULL && call->keys != NULL && call->table != NULL
                         ? CONVOY_OK
                         : convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the call's lists");
    if (status == CONVOY_OK) {
        for (uint64_t i = 0; i < load->entries; i++) {
            call->keys[i] = i + 1;
        }
        perf_call_lists(call);
        perf_call_row(call);
        status = perf_call_open(call, place, error);
    }
    if (status != CONVOY_OK) {
        convoy_perf_call_destroy(call);
        return status;
    }
    *call_out = call;
    return CONVOY_OK;
}

void convoy_perf_call_destroy(struct convoy_perf_call *call)
{
    if (call == NULL) {
        return;
    }
    if (call->group != NULL) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        (void)call->host->core->group_close(call->group, 0, &error);
    }
    convoy_memory_free(call->table);
    convoy_memory_free(call->keys);
    convoy_memory_free(call->states);
    convoy_memory_free(call);
}

void convoy_perf_call_prepare(struct convoy_perf_call *call, uint64_t round)
{
    const struct convoy_perf_load *load = call->load;
    if (load->is_sync) {
        call->row[0] = (int64_t)(round % 512);
        return;
    }
    if (load->entries == 0) {
        return;
    }
    /* Nobody succeeds or fails: an identity that has ended would not count any more. */
    for (uint64_t list = 0; list < load->lists; list++) {
        call->states[list * load->entries + round % load->entries] = (uint8_t)(1 + (round + call->rank) % 3);
    }
    if (load->is_fresh) {
        uint64_t other = (round * 7 + 1) % load->entries;
        uint64_t key = call->keys[0];
        call->keys[0] = call->keys[other];
        call->keys[other] = key;
    }
}

int32_t convoy_perf_call_make(struct convoy_perf_call *call, struct convoy_error *error)
{
    if (call->load->is_sync) {
        return call->host->sync->gather(call->group, &call->sync, 0, &call->sync_result, error);
    }
    return call->host->poll->reduce(call->group, &call->poll, 0, &call->poll_result, error);
}
