/* SPDX-License-Identifier: Apache-2.0 */
/* Every call of the transfer table on an engine that closes, is closed, was inherited through fork, or is none. */
#include "tests/lib/engines.h"
#include "tests/lib/expect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SHORT_NS 20000000ull

/* What all calls share. */
struct scene {
    const struct convoy_transfer_table *table;
    convoy_transfer_engine *engine;
    struct convoy_error error;
    convoy_transfer transfer;
    convoy_peer peer;
    uint64_t bytes;
    size_t count;
    char memory[64];
    struct convoy_engine_info info;
    struct convoy_text_buffer text;
    struct convoy_engine_figures figures;
    struct convoy_peer_info peer_info;
    struct convoy_stage stage;
    struct convoy_send send;
    struct convoy_load load;
    struct convoy_transfer_result result;
    struct convoy_payload payload;
    struct convoy_reserve reserve;
    struct convoy_reservation reservation;
    struct convoy_transfer_query query;
    struct convoy_transfer_answer answer;
    struct convoy_completion completion;
    struct convoy_raw raw;
    struct convoy_admission admission;
};

enum call_kind { KIND_NEW = 0, KIND_LOOK, KIND_INFO, KIND_DESCRIBE, KIND_CLOSE };

/* X(slot, kind, arguments behind the engine) */
#define CALLS(X)                                                                                                       \
    X(engine_close, KIND_CLOSE, SHORT_NS)                                                                              \
    X(engine_info, KIND_INFO, &s->info)                                                                                \
    X(engine_describe, KIND_DESCRIBE, CONVOY_TOPIC_DUMP, &s->text)                                                     \
    X(pool_figures, KIND_NEW, &s->figures)                                                                             \
    X(pool_fits, KIND_NEW, &s->bytes, 1)                                                                               \
    X(pool_resize, KIND_NEW, s->bytes)                                                                                 \
    X(peer_connect, KIND_NEW, s->memory, 4, SHORT_NS, &s->peer)                                                        \
    X(peer_disconnect, KIND_NEW, s->peer)                                                                              \
    X(peer_info, KIND_NEW, s->peer, &s->peer_info)                                                                     \
    X(stage_start, KIND_NEW, &s->stage, &s->transfer)                                                                  \
    X(descriptor, KIND_NEW, s->transfer, CONVOY_DESCRIPTOR_BINARY, &s->text)                                           \
    X(send_start, KIND_NEW, NULL, &s->send, &s->transfer)                                                              \
    X(accept_start, KIND_NEW, &s->load, &s->transfer)                                                                  \
    X(load_start, KIND_NEW, &s->load, &s->transfer)                                                                    \
    X(transfer_test, KIND_LOOK, s->transfer, &s->result)                                                               \
    X(transfer_wait, KIND_LOOK, s->transfer, SHORT_NS, &s->result)                                                     \
    X(send, KIND_NEW, NULL, &s->send, &s->transfer)                                                                    \
    X(accept, KIND_NEW, &s->load, &s->transfer)                                                                        \
    X(payload, KIND_LOOK, s->transfer, &s->payload)                                                                    \
    X(release, KIND_LOOK, 0)                                                                                           \
    X(abort, KIND_LOOK, 0, NULL, 0)                                                                                    \
    X(reserve, KIND_NEW, &s->reserve, &s->reservation)                                                                 \
    X(query, KIND_NEW, &s->query, SHORT_NS, &s->answer)                                                                \
    X(completions, KIND_LOOK, &s->completion, sizeof s->completion, 1, &s->count)                                      \
    X(memory_register, KIND_NEW, s->memory, sizeof s->memory)                                                          \
    X(memory_deregister, KIND_NEW, s->memory, sizeof s->memory)                                                        \
    X(transfer_sync, KIND_NEW, &s->raw, SHORT_NS)                                                                      \
    X(admission_set, KIND_NEW, &s->admission)

#define DEFINE_CALL(slot, kind, ...)                                                                                   \
    static int32_t call_##slot(struct scene *s)                                                                        \
    {                                                                                                                  \
        return s->table->slot(s->engine, __VA_ARGS__, &s->error);                                                      \
    }
CALLS(DEFINE_CALL)

static const struct {
    const char *name;
    enum call_kind kind;
    int32_t (*run)(struct scene *scene);
} calls[] = {
#define CALL_ROW(slot, kind, ...) {#slot, kind, call_##slot},
    CALLS(CALL_ROW)};
#define CALL_COUNT (sizeof calls / sizeof calls[0])

static void scene_init(struct scene *scene, struct engine *engine, char *text, size_t room)
{
    *scene = (struct scene){.table = engine->table,
                            .engine = engine->handle,
                            .error = {.struct_size = sizeof scene->error},
                            .bytes = 1,
                            .memory = "host",
                            .info = {.struct_size = sizeof scene->info},
                            .text = {.struct_size = sizeof scene->text, .data = text, .capacity = room},
                            .figures = {.struct_size = sizeof scene->figures},
                            .peer_info = {.struct_size = sizeof scene->peer_info},
                            .stage = engine_stage("r", NULL, 0),
                            .send = {.struct_size = sizeof scene->send},
                            .load = {.struct_size = sizeof scene->load, .timeout_ns = SHORT_NS},
                            .result = {.struct_size = sizeof scene->result},
                            .payload = {.struct_size = sizeof scene->payload},
                            .reserve = {.struct_size = sizeof scene->reserve, .request = "r", .request_length = 1},
                            .reservation = {.struct_size = sizeof scene->reservation},
                            .query = {.struct_size = sizeof scene->query, .request = "r", .request_length = 1},
                            .answer = {.struct_size = sizeof scene->answer},
                            .raw = {.struct_size = sizeof scene->raw},
                            .admission = {.struct_size = sizeof scene->admission}};
}

static void expect_call(struct scene *scene, size_t i, int32_t wanted)
{
    int32_t status = calls[i].run(scene);
    if (status != wanted) {
        expect_fail(EXPECT_SITE(calls[i].name), "gave %d, expected %d: %s", status, wanted, scene->error.text);
    }
}

static void test_engine_states_list_of_calls_is_complete(void **state)
{
    (void)state;
    size_t slots = (sizeof(struct convoy_transfer_table) - sizeof(struct convoy_table_header)) / sizeof(void *);
    assert_int_equal(CALL_COUNT, slots - 1); /* engine_open has no engine */
}

static void test_engine_states_null_is_refused_by_name(void **state)
{
    (void)state;
    static char text[65536];
    struct engine *engine = engine_create(NULL);
    struct scene scene;
    scene_init(&scene, engine, text, sizeof text);
    scene.engine = NULL;
    for (size_t i = 0; i < CALL_COUNT; i++) {
        expect_call(&scene, i, calls[i].kind == KIND_CLOSE ? CONVOY_OK : CONVOY_INVALID_ARGUMENT);
    }
    engine_destroy(engine);
}

/* A view that the host does not release keeps the engine closing; then it closes. */
static void test_engine_states_closing_and_closed_answer_as_written(void **state)
{
    (void)state;
    static char text[65536];
    struct engine *engine = engine_create(NULL);
    struct engine *other = engine_create(NULL);
    struct scene scene;
    const struct convoy_stage stage = engine_stage("held", NULL, 0);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = engine_connect(other, engine->info.session)};
    convoy_transfer sent = 0;
    scene_init(&scene, engine, text, sizeof text);
    EXPECT_OK(other->table->send_start(other->handle, &stage, &send, &sent, &other->error), &other->error);
    scene.load.timeout_ns = ENGINE_TIMEOUT_NS;
    EXPECT_OK(engine->table->accept(engine->handle, &scene.load, &scene.transfer, &engine->error), &engine->error);
    for (size_t i = 0; i < CALL_COUNT; i++) { /* the first of them begins to close */
        bool is_none = strcmp(calls[i].name, "release") == 0 || strcmp(calls[i].name, "abort") == 0; /* of transfer 0 */
        expect_call(&scene, i,
                    calls[i].kind == KIND_CLOSE                ? CONVOY_DRAIN_TIMEOUT
                    : calls[i].kind == KIND_NEW || is_none ? CONVOY_CLOSED
                                                             : CONVOY_OK);
    }
    EXPECT_EQUAL(scene.info.state, CONVOY_ENGINE_CLOSING);
    EXPECT_TEXT(scene.error.text, "closing");
    EXPECT_OK(engine->table->release(engine->handle, scene.transfer, &engine->error), &engine->error);
    for (size_t i = 0; i < CALL_COUNT; i++) {
        expect_call(&scene, i, calls[i].kind == KIND_CLOSE || calls[i].kind == KIND_INFO ? CONVOY_OK : CONVOY_CLOSED);
    }
    EXPECT_EQUAL(scene.info.state, CONVOY_ENGINE_CLOSED);
    engine_destroy(engine);
    engine_destroy(other);
}

static void test_engine_states_inherited_through_fork_answers_forked_and_harms_nobody(void **state)
{
    (void)state;
    static char text[65536];
    struct engine *engine = engine_create(NULL);
    struct scene scene;
    int how = 0;
    scene_init(&scene, engine, text, sizeof text);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        for (size_t i = 0; i < CALL_COUNT; i++) {
            if (calls[i].run(&scene) != (calls[i].kind == KIND_CLOSE ? CONVOY_OK : CONVOY_FORKED)) {
                _exit((int)i + 1);
            }
        }
        struct engine *own = engine_create(NULL);
        engine_destroy(own);
        _exit(0);
    }
    EXPECT(waitpid(child, &how, 0) == child);
    EXPECT_EQUAL(how, 0);
    EXPECT_EQUAL(engine_figures(engine).taken, 0);
    engine_destroy(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_states_list_of_calls_is_complete),
        cmocka_unit_test(test_engine_states_null_is_refused_by_name),
        cmocka_unit_test(test_engine_states_closing_and_closed_answer_as_written),
        cmocka_unit_test(test_engine_states_inherited_through_fork_answers_forked_and_harms_nobody),
    };
    return cmocka_run_group_tests_name("engine_states", tests, NULL, NULL);
}
