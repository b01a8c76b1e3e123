/* SPDX-License-Identifier: Apache-2.0 */
/* Public reports about bytes in device memory, through the plugin's table on the pretended driver (tests/lib/sim_cuda.h), whose
 * copies run late, in halves and in any order among streams. */
#include "tests/integration/reports_transfer.h"
#include "tests/lib/scale.h"
#include "tests/lib/sim_host.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define LANES 6u
#define SLOTS 4u /* fewer than lanes: one is taken the moment it is free */
#define SLOT_BYTES 4096u
#define STREAMS 3u

/* -- vllm-project/vllm PR 56104, sgl-project/sglang PRs 35049 and 32564, on a device: slots that are used again while it still
 *    reads or writes them. Each request has bytes of its own, so that another one's are noticed; some are given up at any
 *    moment -- */

enum lane_state { LANE_FREE, LANE_STAGING, LANE_SENDING, LANE_DRAINING };

struct lane {
    enum lane_state state;
    uint32_t value;
    uint8_t *source;
    uint8_t *target;
    cuda_stream stream;
    convoy_transfer staged;
    convoy_transfer sent;
    convoy_transfer loaded;
    bool is_sent;
};

struct traffic {
    struct sim_host *host;
    struct engine *sender;
    struct engine *receiver;
    convoy_peer peer;
    cuda_stream streams[STREAMS];
    struct lane lanes[LANES];
    uint64_t random;
    uint32_t begun;
    uint32_t done;
    uint32_t given_up;
};

static uint32_t roll(struct traffic *traffic, uint32_t sides)
{
    traffic->random = traffic->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(traffic->random >> 33) % sides;
}

static struct convoy_transfer_result look(struct engine *engine, convoy_transfer transfer)
{
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    (void)CALL(engine, transfer_test, transfer, &result);
    return result;
}

/* Unless no slot is free. */
static void lane_stage(struct traffic *traffic, struct lane *lane)
{
    const uint64_t bytes = SLOT_BYTES;
    const struct convoy_tensor_source tensor = engine_tensor(lane->source, &bytes);
    char request[16];
    if (CALL(traffic->sender, pool_fits, &bytes, 1) != CONVOY_OK) {
        return;
    }
    (void)snprintf(request, sizeof request, "r%u", traffic->begun + 1);
    struct convoy_stage stage = engine_stage(request, &tensor, 1);
    stage.stream = lane->stream;
    stage.timeout_ns = ENGINE_TIMEOUT_NS;
    lane->value = traffic->begun + 1;
    EXPECT_EQUAL(traffic->host->cuda.cuMemsetD32Async((cuda_address)(uintptr_t)lane->source, lane->value, SLOT_BYTES / 4,
                                                      lane->stream),
                 0);
    CALL_OK(traffic->sender, stage_start, &stage, &lane->staged);
    traffic->begun++;
    lane->state = LANE_STAGING;
}

static void lane_send(struct traffic *traffic, struct lane *lane)
{
    char request[16];
    (void)snprintf(request, sizeof request, "r%u", lane->value);
    const struct convoy_load load = {.struct_size = sizeof load,
                                     .mode = CONVOY_LOAD_COPY,
                                     .request = request,
                                     .request_length = strlen(request),
                                     .destination = lane->target,
                                     .destination_bytes = SLOT_BYTES,
                                     .stream = traffic->streams[roll(traffic, STREAMS)],
                                     .timeout_ns = ENGINE_TIMEOUT_NS};
    lane->sent = send_staged(traffic->sender, traffic->peer, lane->staged);
    CALL_OK(traffic->receiver, accept_start, &load, &lane->loaded);
    release(traffic->sender, lane->staged);
    lane->state = LANE_SENDING;
}

static void expect_own(const struct traffic *traffic, const struct lane *lane)
{
    uint32_t words[SLOT_BYTES / 4];
    traffic->host->sim->peek(lane->target, words, SLOT_BYTES);
    for (uint32_t i = 0; i < SLOT_BYTES / 4; i++) {
        EXPECT_EQUAL(words[i], lane->value);
    }
}

static void lane_move(struct traffic *traffic, struct lane *lane, uint32_t wanted)
{
    struct convoy_transfer_result result;
    bool gives_up = roll(traffic, 40) == 0;
    switch (lane->state) {
    case LANE_FREE:
        if (traffic->begun < wanted) {
            lane_stage(traffic, lane);
        }
        break;
    case LANE_STAGING:
        result = look(traffic->sender, lane->staged);
        if (result.state == CONVOY_TRANSFER_STAGED) {
            lane_send(traffic, lane);
        } else if (gives_up) { /* the slot is held until the copy has run; the source is another matter, and told */
            CALL_OK(traffic->sender, abort, lane->staged, "given up", 8);
            traffic->given_up++;
            lane->is_sent = false;
            lane->state = LANE_DRAINING;
        }
        break;
    case LANE_SENDING:
        result = look(traffic->receiver, lane->loaded);
        if (result.state == CONVOY_TRANSFER_LOADED) {
            expect_own(traffic, lane);
            release(traffic->receiver, lane->loaded);
            engine_wait(traffic->sender, lane->sent, CONVOY_OK, NULL);
            release(traffic->sender, lane->sent);
            lane->state = LANE_FREE;
            traffic->done++;
        } else if (gives_up) {
            CALL_OK(traffic->receiver, abort, lane->loaded, "given up", 8);
            traffic->given_up++;
            lane->is_sent = true;
            lane->state = LANE_DRAINING;
        }
        break;
    case LANE_DRAINING: /* what a copy of it may still touch is not used for the next one */
        result = look(lane->is_sent ? traffic->receiver : traffic->sender, lane->is_sent ? lane->loaded : lane->staged);
        if (result.is_source_free != 0) {
            release(lane->is_sent ? traffic->receiver : traffic->sender, lane->is_sent ? lane->loaded : lane->staged);
            if (lane->is_sent) {
                CALL_OK(traffic->sender, abort, lane->sent, "given up", 8);
                release(traffic->sender, lane->sent);
            }
            lane->state = LANE_FREE;
            traffic->done++;
        }
        break;
    }
}

static void test_reports_slots_in_device_traffic_are_never_anothers(void **state)
{
    (void)state;
    struct convoy_transfer_options options = pool_of(SLOTS * SLOT_BYTES);
    struct traffic traffic = {.host = sim_host_open(), .random = 7};
    uint32_t wanted = test_scaled(2000, 50000);
    traffic.sender = sim_host_engine(&options);
    traffic.receiver = sim_host_engine(&options);
    traffic.peer = engine_connect(traffic.sender, traffic.receiver->info.session);
    for (uint32_t i = 0; i < STREAMS; i++) {
        EXPECT_EQUAL(traffic.host->cuda.cuStreamCreate(&traffic.streams[i], CUDA_STREAM_NON_BLOCKING), 0);
    }
    for (uint32_t i = 0; i < LANES; i++) {
        traffic.lanes[i] = (struct lane){.source = sim_host_alloc(SLOT_BYTES),
                                         .target = sim_host_alloc(SLOT_BYTES),
                                         .stream = traffic.streams[i % STREAMS]};
    }
    while (traffic.done < wanted) {
        for (uint32_t i = 0; i < LANES; i++) {
            lane_move(&traffic, &traffic.lanes[i], wanted);
        }
        (void)sched_yield();
    }
    EXPECT(traffic.given_up != 0);
    await_idle(traffic.sender, 0);
    await_idle(traffic.receiver, 0);
    EXPECT_EQUAL(traffic.host->sim->violations(), 0);
    engine_destroy(traffic.sender);
    engine_destroy(traffic.receiver);
    for (uint32_t i = 0; i < LANES; i++) {
        sim_host_free(traffic.lanes[i].source);
        sim_host_free(traffic.lanes[i].target);
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        EXPECT_EQUAL(traffic.host->cuda.cuStreamDestroy_v2(traffic.streams[i]), 0);
    }
}

static int end_of_all(void **state)
{
    (void)state;
    sim_host_close();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports_slots_in_device_traffic_are_never_anothers),
    };
    engine_filter_tests();
    return cmocka_run_group_tests_name("reports transfer device", tests, NULL, end_of_all);
}
