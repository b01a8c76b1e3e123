/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/transfer_side.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ALIGNMENT 512u
#define LOOKS 4096u /* between two looks at whether the other side has ended */

void side_leave_if_refused(const struct side *side)
{
    if (__atomic_load_n(&side->shared->has_refused, __ATOMIC_ACQUIRE) != 0) {
        _exit(0);
    }
}

void side_refuse(struct side *side, const char *what, int32_t status)
{
    uint32_t nobody = 0;
    struct side_shared *shared = side->shared;
    if (__atomic_compare_exchange_n(&shared->refuser, &nobody, side->rank + 1, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED)) {
        (void)snprintf(shared->refusal, sizeof shared->refusal, "%s: %d: %s", what, status, side->error.text);
        __atomic_store_n(&shared->has_refused, 1, __ATOMIC_RELEASE);
    }
    _exit(0);
}

void side_await(struct side *side, const struct handover_word *word, uint64_t at_least)
{
    for (uint32_t looks = 1; __atomic_load_n(&word->value, __ATOMIC_ACQUIRE) < at_least; looks++) {
        handover_relax();
        if (looks % LOOKS == 0) {
            side_leave_if_refused(side);
            (void)sched_yield();
        }
    }
}

/* The barrier of the ranks, which the refused never reach. */
static void meet(struct side *side)
{
    struct handover_word *barrier = &side->shared->handover.barrier;
    uint64_t ticket = __atomic_add_fetch(&barrier->value, 1, __ATOMIC_ACQ_REL);
    side_await(side, barrier, (ticket + 1) / 2 * 2);
}

void side_finish(struct side *side, convoy_transfer transfer, bool is_polled, struct convoy_transfer_result *result_out)
{
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    const struct convoy_transfer_table *table = side->table;
    int32_t status = CONVOY_IN_PROGRESS;
    for (uint32_t looks = 1; status == CONVOY_IN_PROGRESS; looks++) {
        if (is_polled) {
            status = table->transfer_test(side->engine, transfer, &result, &side->error);
        } else {
            status = table->transfer_wait(side->engine, transfer, SIDE_TIMEOUT_NS / 100, &result, &side->error);
        }
        if (!is_polled || looks % LOOKS == 0) {
            side_leave_if_refused(side);
        }
    }
    side_check(side, side->rank == 0 ? "sending" : "receiving", status);
    if (result_out != NULL) {
        *result_out = result;
    }
}

void side_keep_result(struct side *side, const struct convoy_transfer_result *result)
{
    side->shared->payload_bytes = result->payload_bytes;
    side->shared->moved_bytes = result->moved_bytes;
    side->shared->path = result->path;
}

uint64_t side_payload_bytes(const struct side *side)
{
    size_t piece = side->which->bytes / side->which->pieces;
    return side->stride * (side->which->pieces - 1) + piece;
}

/* -- opening ------------------------------------------------------------------------------------------------------- */

static void load(struct side *side)
{
    struct plugin plugin;
    const struct convoy_family_request family = {
        .name = "transfer", .name_length = 8, .major_min = 1, .minor_min = 0, .major_max = 1, .minor_max = 0};
    struct convoy_family_answer answer = {0};
    const struct convoy_host_info host = {
        .struct_size = sizeof host, .families = &family, .family_stride = sizeof family, .family_count = 1};
    struct convoy_plugin_info info = {
        .struct_size = sizeof info, .answers = &answer, .answer_stride = sizeof answer, .answer_capacity = 1};
    plugin_load(&plugin);
    side->core = plugin.core;
    side_check(side, "query", plugin.query(&host, &info, &side->error));
    if (answer.status != CONVOY_OK || answer.table == NULL) {
        (void)snprintf(side->error.text, sizeof side->error.text, "%.200s", answer.reason);
        side_refuse(side, "query", answer.status);
    }
    side->table = (const struct convoy_transfer_table *)(const void *)answer.table;
}

static void open_engine(struct side *side, const struct side_options *options)
{
    const struct convoy_context_config config = {.struct_size = sizeof config,
                                                 .settings = options->settings,
                                                 .settings_length =
                                                     options->settings == NULL ? 0 : strlen(options->settings)};
    const struct convoy_transfer_options engine = {.struct_size = sizeof engine,
                                                 .address = options->address,
                                                 .address_length =
                                                     options->address == NULL ? 0 : strlen(options->address),
                                                 .pool_bytes = options->pool_bytes};
    struct convoy_engine_info info = {.struct_size = sizeof info};
    side_check(side, "context_open", side->core->context_open(&config, &side->context, &side->error));
    side_check(side, "engine_open", side->table->engine_open(side->context, &engine, &side->engine, &side->error));
    side_check(side, "engine_info", side->table->engine_info(side->engine, &info, &side->error));
    (void)memcpy(side->shared->sessions[options->rank], info.session, sizeof info.session);
}

/* One after the other, since a host, too, has one side connect first. */
static void connect_peer(struct side *side)
{
    const char *session = side->shared->sessions[1 - side->rank];
    meet(side);
    for (uint32_t turn = 0; turn < 2; turn++) {
        if (turn == side->rank) {
            side_check(side, "peer_connect", side->table->peer_connect(side->engine, session, strlen(session),
                                                                       SIDE_TIMEOUT_NS, &side->peer, &side->error));
        }
        meet(side);
    }
}

void side_open(struct side *side, const struct side_options *options)
{
    size_t piece = side->which->bytes / side->which->pieces;
    handover_deadline();
    side->rank = options->rank;
    side->error.struct_size = sizeof side->error;
    side->stride = (piece + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t bytes = side->stride * side->which->pieces;
    if (bytes != 0) {
        side->memory = bench_share(bytes, NULL); /* whole pages */
        handover_fill(side->memory, bytes);
    }
    load(side);
    open_engine(side, options);
    connect_peer(side);
}
