/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads that send at once within limits that others look at and change. */
#include "tests/integration/admission_scene.h"
#include "tests/lib/scale.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>

#include <cmocka.h>

#define THREADS 6u
#define SENDS 40u
#define BYTES_MAX 50000u
#define UNDER_WAY 3u
#define UNDER_WAY_BYTES 100000u

struct crowd {
    struct scene *scene;
    _Atomic uint32_t started;
    _Atomic uint32_t taken;
    _Atomic uint32_t refused;
    _Atomic uint32_t aborted;
    _Atomic bool must_stop;
    _Atomic bool is_broken; /* expectations are for the test's own thread */
    bool may_abort;
};

static void note(struct crowd *crowd, bool is_well)
{
    if (!is_well) {
        atomic_store(&crowd->is_broken, true);
    }
}

/* Starts one; a refused one is tried again, since others make room. */
static convoy_transfer start(struct crowd *crowd, uint32_t number, struct convoy_error *error)
{
    struct scene *scene = crowd->scene;
    const uint64_t bytes = 1 + number * 7919u % BYTES_MAX;
    const struct convoy_tensor_source tensor = engine_tensor(scene->memory, &bytes);
    struct convoy_stage stage = engine_stage("crowd", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send,
                                     .peer = scene->peers[number % RECEIVERS],
                                     .priority = (int32_t)(number % 5) - 2,
                                     .timeout_ns = 6 * ENGINE_TIMEOUT_NS};
    convoy_transfer sent = 0;
    int32_t status = CONVOY_OVERLOADED;
    while (status == CONVOY_OVERLOADED) {
        status = scene->sender->table->send_start(scene->sender->handle, &stage, &send, &sent, error);
        atomic_fetch_add(&crowd->refused, status == CONVOY_OVERLOADED);
    }
    note(crowd, status == CONVOY_OK);
    return sent;
}

static void *send_many(void *argument)
{
    struct crowd *crowd = argument;
    const struct convoy_transfer_table *table = crowd->scene->sender->table;
    convoy_transfer_engine *handle = crowd->scene->sender->handle;
    for (uint32_t i = 0; i < test_scaled(SENDS, 50 * SENDS); i++) {
        struct convoy_error error = {.struct_size = sizeof error};
        uint32_t number = atomic_fetch_add(&crowd->started, 1);
        convoy_transfer sent = start(crowd, number, &error);
        bool is_aborted = crowd->may_abort && number % 7 == 3;
        if (is_aborted) {
            note(crowd, table->abort(handle, sent, NULL, 0, &error) == CONVOY_OK);
        }
        int32_t status = table->transfer_wait(handle, sent, 12 * ENGINE_TIMEOUT_NS, NULL, &error);
        note(crowd, status == CONVOY_OK || (is_aborted && status == CONVOY_CANCELED));
        note(crowd, table->release(handle, sent, &error) == CONVOY_OK);
        atomic_fetch_add(&crowd->aborted, status == CONVOY_CANCELED);
    }
    return NULL;
}

static void take_from(struct crowd *crowd, struct engine *receiver)
{
    const struct convoy_load load = {.struct_size = sizeof load, .timeout_ns = 20000000};
    struct convoy_error error = {.struct_size = sizeof error};
    convoy_transfer loaded = 0;
    int32_t status = receiver->table->accept(receiver->handle, &load, &loaded, &error);
    atomic_fetch_add(&crowd->taken, status == CONVOY_OK);
    if (loaded != 0) {
        note(crowd, receiver->table->release(receiver->handle, loaded, &error) == CONVOY_OK);
    }
}

static void *take_first(void *argument)
{
    struct crowd *crowd = argument;
    while (!atomic_load(&crowd->must_stop)) {
        take_from(crowd, crowd->scene->receivers[0]);
    }
    return NULL;
}

static void *take_second(void *argument)
{
    struct crowd *crowd = argument;
    while (!atomic_load(&crowd->must_stop)) {
        take_from(crowd, crowd->scene->receivers[1]);
    }
    return NULL;
}

/* The limits hold at every moment. */
static void *look(void *argument)
{
    struct crowd *crowd = argument;
    struct engine *engine = crowd->scene->sender;
    while (!atomic_load(&crowd->must_stop)) {
        struct convoy_error error = {.struct_size = sizeof error};
        struct convoy_engine_info info = {.struct_size = sizeof info};
        note(crowd, engine->table->engine_info(engine->handle, &info, &error) == CONVOY_OK);
        note(crowd, info.admitted_count <= UNDER_WAY && info.admitted_bytes <= UNDER_WAY_BYTES);
        note(crowd, info.waiting_count <= THREADS && (info.waiting_count != 0) == (info.waiting_bytes != 0));
    }
    return NULL;
}

static void *change(void *argument)
{
    struct crowd *crowd = argument;
    struct engine *engine = crowd->scene->sender;
    for (uint32_t i = 0; !atomic_load(&crowd->must_stop); i++) {
        struct convoy_error error = {.struct_size = sizeof error};
        const struct convoy_admission admission = {.struct_size = sizeof admission,
                                                   .under_way_max = i % 4,
                                                   .peer_under_way_max = i % 3,
                                                   .under_way_bytes = i % 5 * 20000,
                                                   .waiting_max = i % 7,
                                                   .age_ns = i % 2 * 1000000};
        note(crowd, engine->table->admission_set(engine->handle, &admission, &error) == CONVOY_OK);
    }
    return NULL;
}

static void run_crowd(void *(*watch)(void *), bool may_abort)
{
    struct crowd crowd = {.scene = scene_make(), .may_abort = may_abort};
    void *(*const others[])(void *) = {take_first, take_second, watch};
    pthread_t senders[THREADS];
    pthread_t rest[3];
    scene_limit(crowd.scene, (struct convoy_admission){.under_way_max = UNDER_WAY,
                                                       .under_way_bytes = UNDER_WAY_BYTES,
                                                       .peer_under_way_max = 2,
                                                       .waiting_max = 4});
    for (uint32_t i = 0; i < 3; i++) {
        EXPECT_EQUAL(pthread_create(&rest[i], NULL, others[i], &crowd), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        EXPECT_EQUAL(pthread_create(&senders[i], NULL, send_many, &crowd), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        EXPECT_EQUAL(pthread_join(senders[i], NULL), 0);
    }
    atomic_store(&crowd.must_stop, true);
    for (uint32_t i = 0; i < 3; i++) {
        EXPECT_EQUAL(pthread_join(rest[i], NULL), 0);
    }
    EXPECT(!crowd.is_broken);
    EXPECT(crowd.taken + crowd.aborted >= crowd.started); /* one may be taken and aborted */
    EXPECT_EQUAL(scene_info(crowd.scene).overloaded_count, crowd.refused);
    scene_end(crowd.scene);
}

static void test_admission_threads_that_send_at_once_keep_to_the_limits(void **state)
{
    (void)state;
    run_crowd(look, false);
}

static void test_admission_threads_that_abort_and_change_limits_lose_nothing(void **state)
{
    (void)state;
    run_crowd(change, true);
}

int main(void)
{
    engine_filter_tests();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_admission_threads_that_send_at_once_keep_to_the_limits),
        cmocka_unit_test(test_admission_threads_that_abort_and_change_limits_lose_nothing),
    };
    return cmocka_run_group_tests_name("transfer_admission_threads", tests, NULL, NULL);
}
