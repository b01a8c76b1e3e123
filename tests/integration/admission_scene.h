/* SPDX-License-Identifier: Apache-2.0 */
/* One engine that sends within limits, and receivers that accept when they are told to. */
#ifndef CONVOY_TESTS_INTEGRATION_ADMISSION_SCENE_H
#define CONVOY_TESTS_INTEGRATION_ADMISSION_SCENE_H

#include "tests/integration/reports_transfer.h"

#define RECEIVERS 2u
#define LARGE (4u << 20) /* offered before it is staged, where there is room */

struct scene {
    struct engine *sender;
    struct engine *receivers[RECEIVERS];
    convoy_peer peers[RECEIVERS]; /* as the sender knows them */
    uint8_t *memory;              /* LARGE bytes */
    char request[64];            /* that came last */
};

static inline struct scene *scene_make(void)
{
    struct scene *scene = calloc(1, sizeof *scene);
    EXPECT(scene != NULL);
    scene->memory = malloc(LARGE);
    EXPECT(scene->memory != NULL);
    engine_fill(scene->memory, LARGE, 7);
    scene->sender = engine_create(NULL);
    for (uint32_t i = 0; i < RECEIVERS; i++) {
        scene->receivers[i] = engine_create(NULL);
        scene->peers[i] = engine_connect(scene->sender, scene->receivers[i]->info.session);
    }
    return scene;
}

static inline struct convoy_engine_info scene_info(struct scene *scene)
{
    struct convoy_engine_info info = {.struct_size = sizeof info};
    CALL_OK(scene->sender, engine_info, &info);
    return info;
}

/* Nothing is under way, waits or is kept. */
static inline void scene_check_empty(struct scene *scene)
{
    engine_await_empty(scene->sender);
    const struct convoy_engine_info info = scene_info(scene);
    EXPECT_EQUAL(info.admitted_count, 0);
    EXPECT_EQUAL(info.admitted_bytes, 0);
    EXPECT_EQUAL(info.waiting_count, 0);
    EXPECT_EQUAL(info.waiting_bytes, 0);
    EXPECT_EQUAL(engine_number(scene->sender, "admission", "queued"), 0);
    AWAIT(scene_info(scene).transfer_count == 0);
}

static inline void scene_end(struct scene *scene)
{
    scene_check_empty(scene);
    for (uint32_t i = 0; i < RECEIVERS; i++) {
        if (scene->receivers[i] != NULL) {
            engine_await_empty(scene->receivers[i]);
            engine_destroy(scene->receivers[i]);
        }
    }
    engine_destroy(scene->sender);
    free(scene->memory);
    free(scene);
}

static inline void scene_limit(struct scene *scene, struct convoy_admission admission)
{
    admission.struct_size = sizeof admission;
    CALL_OK(scene->sender, admission_set, &admission);
}

struct scene_send {
    uint32_t to;
    const char *request;
    uint64_t bytes; /* 0 = 1000 */
    int32_t priority;
    uint64_t timeout_ns; /* 0 = long */
};

static inline int32_t scene_try(struct scene *scene, struct scene_send wanted, convoy_transfer *sent_out)
{
    const uint64_t bytes = wanted.bytes != 0 ? wanted.bytes : 1000;
    const struct convoy_tensor_source tensor = engine_tensor(scene->memory, &bytes);
    struct convoy_stage stage = engine_stage(wanted.request, &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send,
                                     .peer = scene->peers[wanted.to],
                                     .timeout_ns = wanted.timeout_ns != 0 ? wanted.timeout_ns : ENGINE_TIMEOUT_NS};
    stage.priority = wanted.priority;
    return CALL(scene->sender, send_start, &stage, &send, sent_out);
}

static inline convoy_transfer scene_send(struct scene *scene, struct scene_send wanted)
{
    convoy_transfer sent = 0;
    EXPECT_OK(scene_try(scene, wanted, &sent), &scene->sender->error);
    return sent;
}

static inline uint32_t scene_state(struct scene *scene, convoy_transfer transfer)
{
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    (void)CALL(scene->sender, transfer_test, transfer, &result);
    return result.state;
}

/* Takes what comes next there, checks it and gives it back. Its request. */
static inline const char *scene_take(struct scene *scene, uint32_t from)
{
    struct engine *receiver = scene->receivers[from];
    convoy_transfer loaded = accept_by(receiver, NULL, 0, CONVOY_LOAD_VIEW, ENGINE_TIMEOUT_NS);
    engine_wait(receiver, loaded, CONVOY_OK, NULL);
    engine_look(receiver, loaded);
    EXPECT(engine_is_filled(receiver->views[0].data, receiver->payload.payload_bytes, 7));
    EXPECT(receiver->payload.request_length < sizeof scene->request);
    memcpy(scene->request, receiver->payload.request, receiver->payload.request_length);
    scene->request[receiver->payload.request_length] = '\0';
    engine_release(receiver, loaded);
    return scene->request;
}

#define SCENE_TAKE(scene, from, wanted) EXPECT(strcmp(scene_take(scene, from), wanted) == 0)

static inline void scene_finish(struct scene *scene, convoy_transfer sent)
{
    engine_wait(scene->sender, sent, CONVOY_OK, NULL);
    engine_release(scene->sender, sent);
}

#endif
