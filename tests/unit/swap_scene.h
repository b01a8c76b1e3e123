/* SPDX-License-Identifier: Apache-2.0 */
/* A loader that runs tiny build a, with a context that has a group and an engine, and the knobs of every build. */
#ifndef TESTS_UNIT_SWAP_SCENE_H
#define TESTS_UNIT_SWAP_SCENE_H

#include "load/swap.h"

#include "core/clock.h"
#include "tests/abi/tiny_mover.h"
#include "tests/lib/await.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>

#include "plugin_files.h"

#include <cmocka.h>

struct scene {
    convoy_loader *loader;
    convoy_host_context *context;
    convoy_host_group *group;
    convoy_host_engine *engine;
    struct tiny_knobs *a;
    struct tiny_knobs *b;
    uint64_t reduces; /* that the group must have counted */
    uint64_t stages;  /* the same of the engine */
    unsigned line_count;
    uint32_t line_level;
    char line[1024];
    struct convoy_swap_result result;
    struct convoy_error error;
};

static inline struct tiny_knobs *scene_knobs(const char *kind)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    plugin_file(kind, path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    struct tiny_knobs *knobs = dlsym(library, "tiny_knobs");
    assert_non_null(knobs);
    (void)dlclose(library); /* it stays mapped */
    *knobs = (struct tiny_knobs){0};
    return knobs;
}

static inline void scene_keep_line(void *user, uint32_t level, const char *text, size_t length)
{
    struct scene *scene = user;
    scene->line_count++;
    scene->line_level = level;
    (void)snprintf(scene->line, sizeof scene->line, "%.*s", (int)length, text);
}

static inline void scene_load(struct scene *scene, const char *kind)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    plugin_file(kind, path);
    const struct convoy_loader_options options = {
        .path = path, .host_name = "scene", .log = scene_keep_line, .log_user = scene};
    *scene = (struct scene){.error = CONVOY_ERROR_INIT};
    scene->a = scene_knobs("mover_a");
    scene->b = scene_knobs("mover_b");
    assert_int_equal(convoy_loader_open(&options, &scene->loader, &scene->error), CONVOY_OK);
}

static inline void scene_open(struct scene *scene)
{
    scene_load(scene, "mover_a");
    assert_int_equal(convoy_host_context_open(scene->loader, NULL, &scene->context, &scene->error), CONVOY_OK);
    assert_int_equal(convoy_host_group_open(scene->context, NULL, &scene->group, &scene->error), CONVOY_OK);
    assert_int_equal(convoy_host_engine_open(scene->context, NULL, &scene->engine, &scene->error), CONVOY_OK);
}

static inline void scene_close(struct scene *scene)
{
    assert_int_equal(convoy_host_context_close(scene->context, 0, &scene->error), CONVOY_OK);
    assert_int_equal(convoy_loader_close(scene->loader, &scene->error), CONVOY_OK);
    assert_int_equal(atomic_load(&scene->a->contexts_opened), atomic_load(&scene->a->contexts_closed));
    assert_int_equal(atomic_load(&scene->b->contexts_opened), atomic_load(&scene->b->contexts_closed));
}

static inline int32_t scene_swap(struct scene *scene, const char *kind)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    plugin_file(kind, path);
    return convoy_loader_swap(scene->loader, path, 0, &scene->result, &scene->error);
}

/* Every handle works, and no call of before is forgotten. */
static inline void scene_expect_calls(struct scene *scene)
{
    struct convoy_group_info info = {.struct_size = sizeof info};
    convoy_transfer staged = 0;
    assert_int_equal(convoy_host_reduce(scene->group, NULL, 0, NULL, &scene->error), CONVOY_OK);
    assert_int_equal(convoy_host_group_info(scene->group, &info, &scene->error), CONVOY_OK);
    assert_int_equal(info.round, ++scene->reduces);
    assert_int_equal(convoy_host_stage_start(scene->engine, NULL, &staged, &scene->error), CONVOY_OK);
    assert_int_equal(staged, ++scene->stages);
    assert_int_equal(convoy_host_context_describe(scene->context, 0, NULL, &scene->error), CONVOY_OK);
}

static inline void scene_expect_release(struct scene *scene, const char *release)
{
    assert_string_equal(convoy_loader_info(scene->loader)->file.release, release);
}

/* -- calls from other threads -------------------------------------------------------------------------------------- */

/* A swap, or a call, of another thread. */
struct scene_call {
    struct scene *scene;
    int32_t (*run)(struct scene_call *call);
    convoy_host_group *group;
    convoy_transfer transfer;
    uint64_t timeout_ns;
    _Atomic int32_t status; /* CONVOY_IN_PROGRESS until it has returned */
    pthread_t thread;
    struct convoy_error error;
};

static inline void *scene_run_call(void *user)
{
    struct scene_call *call = user;
    atomic_store(&call->status, call->run(call));
    return NULL;
}

static inline void scene_start(struct scene_call *call)
{
    call->error = (struct convoy_error)CONVOY_ERROR_INIT;
    atomic_store(&call->status, CONVOY_IN_PROGRESS);
    assert_int_equal(pthread_create(&call->thread, NULL, scene_run_call, call), 0);
}

static inline int32_t scene_end(struct scene_call *call)
{
    assert_int_equal(pthread_join(call->thread, NULL), 0);
    return atomic_load(&call->status);
}

static inline int32_t scene_swap_to_b(struct scene_call *call)
{
    char path[PLUGIN_FILE_PATH_BYTES];
    plugin_file("mover_b", path);
    return convoy_loader_swap(call->scene->loader, path, call->timeout_ns, &call->scene->result, &call->error);
}

static inline int32_t scene_look(struct scene_call *call)
{
    struct convoy_group_info info = {.struct_size = sizeof info};
    return convoy_host_group_info(call->scene->group, &info, &call->error);
}

static inline bool scene_is_paused(struct scene *scene)
{
    (void)pthread_mutex_lock(&scene->loader->gate.lock);
    bool is_paused = scene->loader->gate.is_paused;
    (void)pthread_mutex_unlock(&scene->loader->gate.lock);
    return is_paused;
}

#endif
