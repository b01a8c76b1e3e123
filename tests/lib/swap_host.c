/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/swap_host.h"

#include "tests/lib/engines.h"
#include "tests/lib/expect.h"
#include "tests/lib/moving.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define POOL_BYTES (UINT64_C(16) << 20)

static char paths[2][1024];
static pthread_once_t paths_once = PTHREAD_ONCE_INIT;

static void find_paths(void)
{
    (void)snprintf(paths[0], sizeof paths[0], "%s", plugin_path());
    (void)snprintf(paths[1], sizeof paths[1], "%s", moving_second_path());
}

const char *swap_host_build(uint32_t build)
{
    (void)pthread_once(&paths_once, find_paths);
    return paths[build != 0];
}

/* -- life ---------------------------------------------------------------------------------------------------------- */

void swap_host_open(struct swap_host *host, uint32_t build, const char *settings)
{
    *host = (struct swap_host){.error = {.struct_size = sizeof host->error}};
    const struct convoy_loader_options options = {.path = swap_host_build(build), .flags = CONVOY_LOADER_REQUIRE_ALL};
    const struct convoy_context_config config = {.struct_size = sizeof config,
                                                 .settings = settings,
                                                 .settings_length = settings != NULL ? strlen(settings) : 0};
    EXPECT_OK(convoy_loader_open(&options, &host->loader, &host->error), &host->error);
    EXPECT_OK(convoy_host_context_open(host->loader, &config, &host->context, &host->error), &host->error);
}

struct convoy_group_options swap_host_options(struct swap_host *host, const char *name, uint16_t port, uint32_t index,
                                              uint32_t count)
{
    EXPECT(count <= SWAP_HOST_MEMBERS);
    for (uint32_t i = 0; i < count; i++) {
        host->ids[i] = (int32_t)i;
    }
    (void)snprintf(host->name, sizeof host->name, "%s", name);
    int length = snprintf(host->rendezvous, sizeof host->rendezvous, "tcp://127.0.0.1:%u", port);
    host->index = index;
    host->count = count;
    return (struct convoy_group_options){.struct_size = sizeof(struct convoy_group_options),
                                         .own_index = index,
                                         .name = host->name,
                                         .name_length = strlen(host->name),
                                         .member_ids = host->ids,
                                         .member_count = count,
                                         .own_id = (int32_t)index,
                                         .rendezvous = count > 1 ? host->rendezvous : NULL,
                                         .rendezvous_length = count > 1 ? (size_t)length : 0,
                                         .open_timeout_ns = SWAP_HOST_NS,
                                         .timeout_ns = SWAP_HOST_NS};
}

void swap_host_join_start(struct swap_host *host, const char *name, uint16_t port, uint32_t index, uint32_t count)
{
    const struct convoy_group_options options = swap_host_options(host, name, port, index, count);
    EXPECT_OK(convoy_host_group_open_start(host->context, &options, &host->group, &host->error), &host->error);
}

void swap_host_join_wait(struct swap_host *host)
{
    EXPECT_OK(convoy_host_group_open_wait(host->group, SWAP_HOST_NS, &host->error), &host->error);
}

void swap_host_join(struct swap_host *host, const char *name, uint16_t port, uint32_t index, uint32_t count)
{
    swap_host_join_start(host, name, port, index, count);
    swap_host_join_wait(host);
}

void swap_host_engine(struct swap_host *host)
{
    const struct convoy_transfer_options options = {
        .struct_size = sizeof options, .pool_bytes = POOL_BYTES, .pool_block_bytes = 4096};
    struct convoy_engine_info info = {.struct_size = sizeof info};
    EXPECT_OK(convoy_host_engine_open(host->context, &options, &host->engine, &host->error), &host->error);
    EXPECT_OK(convoy_host_engine_info(host->engine, &info, &host->error), &host->error);
    (void)snprintf(host->session, sizeof host->session, "%s", info.session);
}

void swap_host_close(struct swap_host *host)
{
    if (host->engine != NULL) {
        EXPECT_OK(convoy_host_engine_close(host->engine, SWAP_HOST_NS, &host->error), &host->error);
    }
    if (host->group != NULL) {
        EXPECT_OK(convoy_host_group_close(host->group, SWAP_HOST_NS, &host->error), &host->error);
    }
    EXPECT_OK(convoy_host_context_close(host->context, SWAP_HOST_NS, &host->error), &host->error);
    EXPECT_OK(convoy_loader_close(host->loader, &host->error), &host->error);
    *host = (struct swap_host){0};
}

/* -- rounds -------------------------------------------------------------------------------------------------------- */

static const uint64_t keys[SWAP_HOST_STATES] = {11, 12, 13, 14, 15, 16, 17, 18};

/* No keyed entry ever ends: an ended identity is not counted again. */
static uint8_t state_of(const struct swap_host *host, uint32_t member, uint64_t round, uint32_t entry)
{
    uint64_t mixed = member * 7 + round * 3 + entry * 5 + round / 11;
    return (uint8_t)(host->is_keyed ? 1 + mixed % 3 : mixed % 5);
}

static struct convoy_poll_list list_of(struct swap_host *host)
{
    for (uint32_t i = 0; i < SWAP_HOST_STATES; i++) {
        host->states[i] = state_of(host, host->index, host->round + 1, i);
    }
    return (struct convoy_poll_list){.name = "queue",
                                     .name_length = 5,
                                     .count = SWAP_HOST_STATES,
                                     .states = host->states,
                                     .keys = host->is_keyed ? keys : NULL,
                                     .flags = host->is_keyed ? CONVOY_POLL_KEYED : 0};
}

static struct convoy_poll_call call_of(const struct swap_host *host, const struct convoy_poll_list *list)
{
    return (struct convoy_poll_call){.struct_size = sizeof(struct convoy_poll_call),
                                     .lists = list,
                                     .list_stride = sizeof *list,
                                     .list_count = 1,
                                     .tag = host->round + 1};
}

static struct convoy_poll_result result_of(struct convoy_poll_list_result *list)
{
    return (struct convoy_poll_result){
        .struct_size = sizeof(struct convoy_poll_result), .lists = list, .list_stride = sizeof *list, .list_capacity = 1};
}

static int32_t look(struct swap_host *host, int32_t status, const struct convoy_poll_result *result)
{
    if (status != CONVOY_OK) {
        return status;
    }
    host->round++;
    EXPECT_EQUAL(result->round, host->round);
    for (uint32_t i = 0; i < SWAP_HOST_STATES; i++) {
        uint8_t least = 255;
        for (uint32_t member = 0; member < host->count; member++) {
            uint8_t state = state_of(host, member, host->round, i);
            least = (host->lost >> member & 1u) == 0 && state < least ? state : least;
        }
        EXPECT_EQUAL(host->states_out[i], least);
    }
    return status;
}

int32_t swap_host_round(struct swap_host *host, uint64_t timeout_ns)
{
    const struct convoy_poll_list list = list_of(host);
    const struct convoy_poll_call call = call_of(host, &list);
    struct convoy_poll_list_result list_result = {.states = host->states_out, .states_capacity = SWAP_HOST_STATES};
    struct convoy_poll_result result = result_of(&list_result);
    return look(host, convoy_host_reduce(host->group, &call, timeout_ns, &result, &host->error), &result);
}

int32_t swap_host_start(struct swap_host *host, convoy_operation *operation_out)
{
    const struct convoy_poll_list list = list_of(host);
    const struct convoy_poll_call call = call_of(host, &list);
    return convoy_host_reduce_start(host->group, &call, operation_out, &host->error);
}

int32_t swap_host_wait(struct swap_host *host, convoy_operation operation, uint64_t timeout_ns)
{
    struct convoy_poll_list_result list_result = {.states = host->states_out, .states_capacity = SWAP_HOST_STATES};
    struct convoy_poll_result result = result_of(&list_result);
    return look(host, convoy_host_reduce_wait(host->group, operation, timeout_ns, &result, &host->error), &result);
}

void swap_host_reopen(struct swap_host *host, uint32_t lost)
{
    struct convoy_reopen_result reopened = {.struct_size = sizeof reopened};
    EXPECT_OK(convoy_host_group_reopen(host->group, SWAP_HOST_NS, &reopened, &host->error), &host->error);
    EXPECT_EQUAL(reopened.lost_count, (uint32_t)__builtin_popcount(lost));
    host->round = reopened.next_round - 1;
    host->lost = lost;
}

/* -- swaps --------------------------------------------------------------------------------------------------------- */

int32_t swap_host_swap(struct swap_host *host, uint32_t build, uint64_t timeout_ns)
{
    return convoy_loader_swap(host->loader, swap_host_build(build), timeout_ns, &host->result, &host->error);
}

void swap_host_must_swap(struct swap_host *host, uint32_t build)
{
    EXPECT_OK(swap_host_swap(host, build, SWAP_HOST_NS), &host->error);
    EXPECT_EQUAL(host->result.phase, CONVOY_SWAP_DONE);
    EXPECT_EQUAL(host->result.late_count, 0);
}

/* -- transfers ----------------------------------------------------------------------------------------------------- */

convoy_peer swap_host_connect(struct swap_host *host, const char *session)
{
    convoy_peer peer = 0;
    EXPECT_OK(convoy_host_peer_connect(host->engine, session, strlen(session), SWAP_HOST_NS, &peer, &host->error),
              &host->error);
    return peer;
}

convoy_transfer swap_host_send(struct swap_host *host, convoy_peer peer, const char *request, const uint8_t *data,
                               uint64_t bytes)
{
    const struct convoy_tensor_source tensor = engine_tensor(data, &bytes);
    const struct convoy_stage stage = engine_stage(request, &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = peer, .timeout_ns = SWAP_HOST_NS};
    convoy_transfer transfer = 0;
    EXPECT_OK(convoy_host_send_start(host->engine, &stage, &send, &transfer, &host->error), &host->error);
    return transfer;
}

void swap_host_take(struct swap_host *host, const uint8_t *data, uint64_t bytes)
{
    const struct convoy_load load = {.struct_size = sizeof load, .mode = CONVOY_LOAD_VIEW, .timeout_ns = SWAP_HOST_NS};
    struct convoy_tensor_view view;
    struct convoy_payload payload = {
        .struct_size = sizeof payload, .tensors = &view, .tensor_stride = sizeof view, .tensor_capacity = 1};
    convoy_transfer transfer = 0;
    EXPECT_OK(convoy_host_transfer_accept(host->engine, &load, &transfer, &host->error), &host->error);
    EXPECT_OK(convoy_host_transfer_payload(host->engine, transfer, &payload, &host->error), &host->error);
    EXPECT_EQUAL(view.bytes, bytes);
    EXPECT_BYTES(view.data, data, bytes);
    EXPECT_OK(convoy_host_transfer_release(host->engine, transfer, &host->error), &host->error);
}

int32_t swap_host_end(struct swap_host *host, convoy_transfer transfer, uint64_t timeout_ns)
{
    int32_t status = convoy_host_transfer_wait(host->engine, transfer, timeout_ns, NULL, &host->error);
    if (status != CONVOY_TIMED_OUT) {
        struct convoy_error error = {.struct_size = sizeof error};
        EXPECT_OK(convoy_host_transfer_release(host->engine, transfer, &error), &error);
    }
    return status;
}

/* -- two ----------------------------------------------------------------------------------------------------------- */

void swap_couple_open(struct swap_host hosts[2], const char *settings, const char *name, uint16_t port)
{
    for (uint32_t i = 0; i < 2; i++) {
        swap_host_open(&hosts[i], i, settings);
        swap_host_join_start(&hosts[i], name, port, i, 2);
    }
    for (uint32_t i = 0; i < 2; i++) {
        swap_host_join_wait(&hosts[i]);
    }
}

void swap_couple_round(struct swap_host hosts[2])
{
    convoy_operation operations[2] = {0, 0};
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT_OK(swap_host_start(&hosts[i], &operations[i]), &hosts[i].error);
    }
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT_OK(swap_host_wait(&hosts[i], operations[i], SWAP_HOST_NS), &hosts[i].error);
    }
}

void swap_couple_close(struct swap_host hosts[2])
{
    for (uint32_t i = 0; i < 2; i++) {
        swap_host_close(&hosts[i]);
    }
}
