/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/rank.h"

#include "core/clock.h"
#include "core/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define RANK_CLOSE_TIMEOUT_NS (5 * CONVOY_NS_PER_S)

uint32_t convoy_rank_port_count(const struct convoy_shape *shape)
{
    return 1 + shape->dp * shape->cp + shape->dp * shape->tp;
}

/* -- opening ----------------------------------------------------------------------------------------------------- */

/* Ranks first, first + stride, ... as one group; `slot` is the position of its port. */
struct rank_group {
    const char *name;
    uint32_t first;
    uint32_t stride;
    uint32_t count;
    uint32_t slot;
    uint32_t sync_inner;
};

static int32_t rank_open_group(struct convoy_rank *rank, const struct rank_group *group, convoy_host_group **group_out)
{
    int32_t members[CONVOY_SHAPE_RANKS_MAX];
    for (uint32_t i = 0; i < group->count; i++) {
        members[i] = (int32_t)(group->first + i * group->stride);
    }
    struct convoy_plain_group options = {
        .name = group->name,
        .member_ids = members,
        .member_count = group->count,
        .own_index = (rank->rank - group->first) / group->stride,
        .address = "127.0.0.1",
        .port = rank->setup->ports[group->slot],
        .sync_inner = group->sync_inner,
        .timeout_ns = rank->setup->timeout_ns,
        .open_timeout_ns = 30 * CONVOY_NS_PER_S,
    };
    return convoy_serving_host_group_open(&rank->host, &options, group_out, &rank->error);
}

static int32_t rank_open_groups(struct convoy_rank *rank)
{
    const struct convoy_shape *shape = &rank->setup->shape;
    uint32_t shard = convoy_shape_shard(shape);
    uint32_t dp = convoy_shape_dp_of(shape, rank->rank);
    uint32_t tp = convoy_shape_tp_of(shape, rank->rank);
    uint32_t cp = convoy_shape_cp_of(shape, rank->rank);
    char tp_name[48];
    char cp_name[48];
    (void)snprintf(tp_name, sizeof tp_name, "tp-d%" PRIu32 "-c%" PRIu32, dp, cp);
    (void)snprintf(cp_name, sizeof cp_name, "cp-d%" PRIu32 "-t%" PRIu32, dp, tp);
    struct rank_group world = {
        .name = "world", .first = 0, .stride = 1, .count = convoy_shape_ranks(shape), .slot = 0, .sync_inner = shard};
    struct rank_group level1 = {.name = tp_name,
                                .first = dp * shard + cp * shape->tp,
                                .stride = 1,
                                .count = shape->tp,
                                .slot = 1 + dp * shape->cp + cp};
    struct rank_group level2 = {.name = cp_name,
                                .first = dp * shard + tp,
                                .stride = shape->tp,
                                .count = shape->cp,
                                .slot = 1 + shape->dp * shape->cp + dp * shape->tp + tp};
    int32_t status = rank_open_group(rank, &world, &rank->world);
    if (status == CONVOY_OK) {
        status = rank_open_group(rank, &level1, &rank->tp);
    }
    return status == CONVOY_OK ? rank_open_group(rank, &level2, &rank->cp) : status;
}

int32_t convoy_rank_init(struct convoy_rank *rank, const struct convoy_rank_setup *setup, uint32_t index)
{
    *rank = (struct convoy_rank){
        .setup = setup, .rank = index, .board = &setup->board->ranks[index], .error = CONVOY_ERROR_INIT};
    struct convoy_run_log_header header = {
        .shape = setup->shape, .rank = index, .request_count = setup->trace->count, .seed = setup->seed};
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/rank-%" PRIu32 ".log", setup->log_directory, index);
    if (length < 0 || (size_t)length >= sizeof path) {
        return convoy_error_set(&rank->error, CONVOY_INVALID_ARGUMENT, "the log directory's name is too long");
    }
    int32_t status = convoy_run_log_open(&rank->log, path, setup->log_limit_bytes, &header, &rank->error);
    if (status == CONVOY_OK) {
        status = convoy_serving_host_open(&rank->host, setup->plugin, &rank->error);
    }
    if (status == CONVOY_OK) {
        const struct convoy_file_info *file = &convoy_loader_info(rank->host.loader)->file;
        (void)snprintf(rank->board->release, sizeof rank->board->release, "%.31s", file->release);
        (void)snprintf(rank->board->build_id, sizeof rank->board->build_id, "%.63s", file->build_id);
        convoy_swapper_init(&rank->swapper, rank->host.loader, setup->timeout_ns, &rank->board->swaps);
    }
    return status == CONVOY_OK ? rank_open_groups(rank) : status;
}

static void rank_close_group(convoy_host_group **group)
{
    if (*group != NULL) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        (void)convoy_host_group_close(*group, RANK_CLOSE_TIMEOUT_NS, &error);
        *group = NULL;
    }
}

void convoy_rank_fini(struct convoy_rank *rank)
{
    (void)convoy_swapper_finish(&rank->swapper, true);
    rank_close_group(&rank->cp);
    rank_close_group(&rank->tp);
    rank_close_group(&rank->world);
    convoy_serving_host_close(&rank->host, RANK_CLOSE_TIMEOUT_NS);
    convoy_run_log_close(&rank->log);
}

/* -- the two calls of a step ------------------------------------------------------------------------------------- */

static struct convoy_report *rank_report(struct convoy_rank *rank)
{
    rank->report = (struct convoy_report){
        .struct_size = sizeof rank->report,
        .members = rank->members,
        .member_stride = sizeof rank->members[0],
        .member_capacity = CONVOY_SHAPE_RANKS_MAX,
    };
    return &rank->report;
}

/* Outputs of one gather; large, so they live in the frame of the call. */
struct rank_tables {
    int64_t table[CONVOY_SHAPE_RANKS_MAX * CONVOY_SCHEDULER_COLUMNS];
    int64_t first[CONVOY_SHAPE_RANKS_MAX * CONVOY_SCHEDULER_COLUMNS];
    struct convoy_sync_reduced reduced[CONVOY_SCHEDULER_COLUMNS];
    uint8_t presence[CONVOY_SHAPE_RANKS_MAX];
};

static void rank_log_row(struct convoy_rank *rank, const struct convoy_rank_gather *gather)
{
    convoy_run_log_begin(&rank->log, 'G');
    convoy_run_log_number(&rank->log, gather->step);
    convoy_run_log_number(&rank->log, gather->trace_step);
    convoy_run_log_number(&rank->log, gather->votes);
    for (uint32_t i = 0; i < CONVOY_SCHEDULER_COLUMNS; i++) {
        convoy_run_log_signed(&rank->log, gather->row[i]);
    }
    convoy_run_log_end(&rank->log);
}

static void rank_log_tables(struct convoy_rank *rank, int32_t status, const struct convoy_sync_result *result)
{
    const struct convoy_shape *shape = &rank->setup->shape;
    convoy_run_log_begin(&rank->log, 'g');
    convoy_run_log_signed(&rank->log, status);
    if (status == CONVOY_OK) {
        convoy_run_log_number(&rank->log, result->round);
        convoy_run_log_number(&rank->log, result->votes_and);
        convoy_run_log_number(&rank->log, result->votes_or);
        for (uint32_t i = 0; i < convoy_shape_ranks(shape) * CONVOY_SCHEDULER_COLUMNS; i++) {
            convoy_run_log_signed(&rank->log, result->table[i]);
        }
        for (uint32_t i = 0; i < shape->dp * CONVOY_SCHEDULER_COLUMNS; i++) {
            convoy_run_log_signed(&rank->log, result->first[i]);
        }
        convoy_run_log_bytes(&rank->log, result->presence, convoy_shape_ranks(shape));
        for (uint32_t i = 0; i < CONVOY_SCHEDULER_COLUMNS; i++) {
            convoy_run_log_signed(&rank->log, result->reduced[i].value);
            convoy_run_log_number(&rank->log, result->reduced[i].agreed);
        }
    }
    convoy_run_log_end(&rank->log);
}

int32_t convoy_rank_gather(struct convoy_rank *rank, struct convoy_rank_gather *gather)
{
    struct rank_tables tables;
    memset(&tables, 0xa5, sizeof tables); /* what the call leaves out must not look right by chance */
    struct convoy_sync_call call = {
        .struct_size = sizeof call, .votes = gather->votes, .row = gather->row, .tag = gather->tag,
        .policy = CONVOY_SYNC_EXCHANGE}; /* the votes are of all ranks, with one data-parallel rank too */
    struct convoy_sync_result result = {
        .struct_size = sizeof result,
        .table = tables.table,
        .table_capacity = sizeof tables.table / sizeof tables.table[0],
        .first = tables.first,
        .first_capacity = sizeof tables.first / sizeof tables.first[0],
        .reduced = tables.reduced,
        .reduced_capacity = CONVOY_SCHEDULER_COLUMNS,
        .presence = tables.presence,
        .presence_capacity = CONVOY_SHAPE_RANKS_MAX,
        .report = rank_report(rank),
    };
    rank_log_row(rank, gather);
    uint64_t started_ns = convoy_now_ns();
    int32_t status = convoy_host_gather(rank->world, &call, 0, &result, &rank->error);
    if (status == CONVOY_OK) {
        convoy_histogram_add(&rank->board->gather, convoy_now_ns() - started_ns);
        atomic_fetch_add_explicit(&rank->board->rounds, 1, memory_order_relaxed);
        gather->votes_and = result.votes_and;
        gather->votes_or = result.votes_or;
    }
    rank_log_tables(rank, status, &result);
    return status;
}

static void rank_log_states(struct convoy_rank *rank, uint64_t step, uint32_t count)
{
    convoy_run_log_begin(&rank->log, 'P');
    convoy_run_log_number(&rank->log, step);
    convoy_run_log_number(&rank->log, count);
    for (uint32_t i = 0; i < count; i++) {
        convoy_run_log_number(&rank->log, rank->ids[i]);
    }
    convoy_run_log_bytes(&rank->log, rank->states, count);
    convoy_run_log_end(&rank->log);
}

static void rank_log_agreed(struct convoy_rank *rank, int32_t status, uint32_t count)
{
    convoy_run_log_begin(&rank->log, 'p');
    convoy_run_log_signed(&rank->log, status);
    if (status == CONVOY_OK) {
        convoy_run_log_number(&rank->log, count);
        convoy_run_log_bytes(&rank->log, rank->agreed, count);
    }
    convoy_run_log_end(&rank->log);
}

/* Digest of the request ids; equal on equal lists, never 0, which would mean "none given". */
static uint64_t rank_digest(const uint64_t *ids, uint32_t count)
{
    uint64_t digest = convoy_plan_mix(count);
    for (uint32_t i = 0; i < count; i++) {
        digest = convoy_plan_mix(digest ^ ids[i]);
    }
    return digest != 0 ? digest : 1;
}

int32_t convoy_rank_reduce(struct convoy_rank *rank, uint64_t step, uint32_t count)
{
    struct convoy_poll_list list = {.name = "decode",
                                    .name_length = 6,
                                    .count = count,
                                    .states = rank->states,
                                    .state_bytes = 1,
                                    .digest = rank_digest(rank->ids, count)};
    struct convoy_poll_call call = {
        .struct_size = sizeof call, .lists = &list, .list_stride = sizeof list, .list_count = 1, .tag = step + 1};
    struct convoy_poll_list_result agreed = {.states = rank->agreed, .states_capacity = CONVOY_SCHEDULER_QUEUE_MAX};
    struct convoy_poll_result result = {.struct_size = sizeof result,
                                        .lists = &agreed,
                                        .list_stride = sizeof agreed,
                                        .list_capacity = 1,
                                        .report = rank_report(rank)};
    convoy_operation operation = 0;
    memset(rank->agreed, 0xa5, sizeof rank->agreed);
    rank_log_states(rank, step, count);
    uint64_t started_ns = convoy_now_ns();
    int32_t status = convoy_host_reduce2_start(rank->tp, rank->cp, &call, &operation, &rank->error);
    if (status == CONVOY_OK) {
        status = convoy_host_reduce2_wait(rank->tp, operation, 0, &result, &rank->error);
    }
    if (status == CONVOY_OK) {
        convoy_histogram_add(&rank->board->reduce, convoy_now_ns() - started_ns);
        atomic_fetch_add_explicit(&rank->board->rounds, 2, memory_order_relaxed);
    }
    rank_log_agreed(rank, status, count);
    return status;
}

/* -- another build ------------------------------------------------------------------------------------------------ */

int32_t convoy_rank_swap(struct convoy_rank *rank, uint64_t step)
{
    const struct convoy_run_swap *swap = &rank->setup->swap;
    const char *path = NULL;
    if (!convoy_swapper_finish(&rank->swapper, false)) {
        return CONVOY_OK; /* one at a time; the next is late then */
    }
    if (rank->swaps_begun == 0 && step >= convoy_run_swap_there(swap, rank->rank)) {
        path = swap->path;
    } else if (rank->swaps_begun == 1 && step >= convoy_run_swap_back(swap, rank->rank)) {
        path = rank->setup->plugin;
    }
    if (path == NULL) {
        return CONVOY_OK;
    }
    rank->swaps_begun++;
    return convoy_swapper_start(&rank->swapper, path, &rank->error);
}

/* -- failing ----------------------------------------------------------------------------------------------------- */

/* Waits until every living rank has its own outcome: whoever leaves first would change what the others see. */
static void rank_wait_for_others(const struct convoy_rank *rank)
{
    uint64_t deadline_ns = convoy_deadline_after(convoy_now_ns(), rank->setup->timeout_ns);
    uint32_t absent =
        rank->setup->fault.kind == CONVOY_RUN_FAULT_KILL || rank->setup->fault.kind == CONVOY_RUN_FAULT_STALL ? 1 : 0;
    const struct convoy_board *board = rank->setup->board;
    while (convoy_board_count(board, CONVOY_BOARD_DECIDED) + absent < board->rank_count &&
           convoy_now_ns() < deadline_ns) {
        struct timespec pause = {.tv_nsec = 1000000};
        (void)nanosleep(&pause, NULL);
    }
}

static void rank_abandon(struct convoy_rank *rank, const char *call, struct convoy_board_failure *failure)
{
    bool is_reduce = strcmp(call, "reduce") == 0;
    convoy_host_group *group = is_reduce ? rank->tp : rank->world;
    struct convoy_group_info info = {.struct_size = sizeof info};
    struct convoy_error error = CONVOY_ERROR_INIT;
    if (group == NULL || convoy_host_group_info(group, &info, &error) != CONVOY_OK || info.operation == 0) {
        return;
    }
    failure->was_abandoned = true;
    failure->abandon_status = is_reduce ? convoy_host_reduce2_abandon(group, info.operation, &error)
                                        : convoy_host_operation_abandon(group, info.operation, &error);
}

void convoy_rank_fail(struct convoy_rank *rank, const char *call, int32_t status)
{
    struct convoy_board_failure *failure = &rank->board->failure;
    (void)snprintf(failure->call, sizeof failure->call, "%s", call);
    failure->error = rank->error;
    failure->error.status = status;
    size_t members = rank->report.member_count;
    failure->member_count = (uint32_t)(members < CONVOY_SHAPE_RANKS_MAX ? members : CONVOY_SHAPE_RANKS_MAX);
    failure->field = rank->report.field;
    failure->elapsed_ns = rank->report.elapsed_ns;
    memcpy(failure->members, rank->members, sizeof failure->members);
    rank->board->outcome = CONVOY_BOARD_FAILED;
    atomic_store_explicit(&rank->board->phase, CONVOY_BOARD_DECIDED, memory_order_release);
    if (strcmp(call, "open") != 0) {
        rank_wait_for_others(rank);
        rank_abandon(rank, call, failure);
    }
}
