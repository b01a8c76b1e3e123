/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pipeline_setup.h"

#include "cli/parcel.h"
#include "cli/tensors_default.h"
#include "core/clock.h"
#include "core/error.h"

#include <stdio.h>
#include <string.h>

#define PIPELINE_DEADLINE_S 120u
#define PIPELINE_WINDOW 4u
#define PIPELINE_POOL_BYTES_MIN (UINT64_C(32) << 20)
#define PIPELINE_PARCEL_BYTES_LARGE (UINT64_C(256) << 20) /* from here on one at a time */
#define PIPELINE_INPUT "in.safetensors"

static int32_t copy_path(char target[CONVOY_PLACE_PATH_BYTES], const char *path, struct convoy_error *error)
{
    size_t length = strlen(path);
    if (length >= CONVOY_PLACE_PATH_BYTES) {
        return convoy_error_set(error, CONVOY_LIMIT, "a path has %zu bytes: must be below %u", length,
                                CONVOY_PLACE_PATH_BYTES);
    }
    memcpy(target, path, length + 1);
    return CONVOY_OK;
}

/* The default file lies where the output will, for whoever wants to compare the two with another program. */
static int32_t make_input(const struct convoy_pipeline_options *options, struct convoy_pipeline_board *board,
                          struct convoy_error *error)
{
    char path[CONVOY_PLACE_PATH_BYTES + 32];
    struct convoy_safetensors tensors = {0};
    if (options->tensors != NULL) {
        return copy_path(board->setup.tensors, options->tensors, error);
    }
    (void)snprintf(path, sizeof path, "%s/" PIPELINE_INPUT, options->out);
    int32_t status = copy_path(board->setup.tensors, path, error);
    if (status == CONVOY_OK) {
        status = convoy_tensors_default_make(&tensors, error);
    }
    if (status == CONVOY_OK) {
        status = convoy_safetensors_write(path, &tensors, error);
    }
    convoy_tensors_default_fini(&tensors);
    return status;
}

static uint64_t power_of_two(uint64_t bytes)
{
    uint64_t power = 1u << 20;
    while (power < bytes) {
        power *= 2;
    }
    return power;
}

/* Room for the largest requests: those under way, and as many that came and are not handed on yet. */
static int32_t size_pools(struct convoy_pipeline_board *board, struct convoy_error *error)
{
    struct convoy_pipeline_setup *setup = &board->setup;
    struct convoy_safetensors file = {0};
    struct convoy_parcel parcel = {0};
    uint64_t largest = 0;
    int32_t status = convoy_safetensors_read(&file, setup->tensors, error);
    if (status == CONVOY_OK) {
        status = convoy_parcel_init(&parcel, &file, error);
    }
    for (uint32_t i = 0; i < setup->request_count && status == CONVOY_OK; i++) {
        convoy_parcel_set(&parcel, i, convoy_pipeline_board_request(board, i));
        uint64_t bytes = convoy_parcel_bytes(&parcel);
        largest = bytes > largest ? bytes : largest;
    }
    setup->window = largest < PIPELINE_PARCEL_BYTES_LARGE ? PIPELINE_WINDOW : 1;
    uint64_t pool_bytes = 2 * setup->window * power_of_two(largest);
    setup->pool_bytes = pool_bytes > PIPELINE_POOL_BYTES_MIN ? pool_bytes : PIPELINE_POOL_BYTES_MIN;
    convoy_parcel_fini(&parcel);
    convoy_safetensors_fini(&file);
    return status;
}

static uint64_t run_seconds(const struct convoy_pipeline_options *options, uint32_t request_count)
{
    const struct convoy_trace_request *requests = options->trace->requests;
    uint64_t trace_ms = requests[request_count - 1].timestamp_ms - requests[0].timestamp_ms;
    if (options->deadline_s != 0) {
        return options->deadline_s;
    }
    return PIPELINE_DEADLINE_S + (options->speed > 0 ? (uint64_t)((double)trace_ms / 1000 / options->speed) : 0);
}

static int32_t setup_fill(const struct convoy_pipeline_options *options, struct convoy_pipeline_board *board,
                          struct convoy_error *error)
{
    struct convoy_pipeline_setup *setup = &board->setup;
    memcpy(convoy_pipeline_board_request(board, 0), options->trace->requests,
           setup->request_count * sizeof *options->trace->requests);
    setup->hosts = (uint32_t)options->hosts;
    setup->timeout_ns = options->timeout_ns;
    setup->speed = options->speed;
    setup->is_traced = options->trace_out != NULL;
    setup->deadline_ns = convoy_now_ns() + run_seconds(options, setup->request_count) * CONVOY_NS_PER_S;
    int32_t status = copy_path(setup->plugin, options->plugin, error);
    if (status == CONVOY_OK) {
        status = copy_path(setup->folder, options->out, error);
    }
    if (status == CONVOY_OK && options->swap != NULL) {
        setup->swap_count = options->must_swap_back ? 2 : 1;
        status = copy_path(setup->swap, options->swap, error);
    }
    if (status == CONVOY_OK) {
        status = make_input(options, board, error);
    }
    return status == CONVOY_OK ? size_pools(board, error) : status;
}

int32_t convoy_pipeline_setup_make(const struct convoy_pipeline_options *options,
                                   struct convoy_pipeline_board **board_out, struct convoy_error *error)
{
    struct convoy_pipeline_board *board = NULL;
    uint32_t count = options->requests < options->trace->count ? (uint32_t)options->requests : options->trace->count;
    int32_t status = convoy_pipeline_board_create(&options->shape, count, &board, error);
    if (status == CONVOY_OK) {
        status = setup_fill(options, board, error);
    }
    if (status != CONVOY_OK) {
        convoy_pipeline_board_destroy(board);
        return status;
    }
    *board_out = board;
    return CONVOY_OK;
}
