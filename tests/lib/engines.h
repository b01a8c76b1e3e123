/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transfer engine as a host has it: context, engine, and the few things that every test of transfers does. Failures are
 * expectations, so these work in the parent and in ranks.
 *
 *     struct engine *engine = engine_create(NULL);          or with options
 *     engine_connect(engine, session of another)
 *     engine->table->send(engine->handle, ..., &engine->error)
 *     engine_destroy(engine);                               engine_close, context_close, both OK
 */
#ifndef TESTS_LIB_ENGINES_H
#define TESTS_LIB_ENGINES_H

#include "tests/lib/plugin.h"

#include <stdbool.h>

#define ENGINE_TENSORS_MAX 64
#define ENGINE_TIMEOUT_NS 10000000000ull

struct engine {
    struct plugin plugin;
    const struct convoy_transfer_table *table;
    convoy_context *context;
    convoy_transfer_engine *handle;
    struct convoy_engine_info info;
    struct convoy_error error;
    struct convoy_tensor_view views[ENGINE_TENSORS_MAX];
    struct convoy_tensor_list_entry lists[ENGINE_TENSORS_MAX];
    struct convoy_payload payload;
};

/* Leaves only the tests whose name has CONVOY_TEST_ONLY in it, if that is set. Once, before they are run. */
void engine_filter_tests(void);

/* Settings of the contexts that are opened from now on: JSON, or NULL. */
extern const char *engine_settings;
/* Takes the warnings of engines created from now on; NULL = nobody. */
extern convoy_log_fn engine_log;

/* options: NULL = a small pool. gives */
struct engine *engine_create(const struct convoy_transfer_options *options);
void engine_destroy(struct engine *engine);

convoy_peer engine_connect(struct engine *engine, const char *session);

/* One dense uint8 tensor "data" with a pattern that follows from seed, in memory of `bytes`. */
void engine_fill(uint8_t *memory, size_t bytes, uint32_t seed);
bool engine_is_filled(const uint8_t *memory, size_t bytes, uint32_t seed);
struct convoy_tensor_source engine_tensor(const void *data, const uint64_t *bytes);
struct convoy_stage engine_stage(const char *request, const struct convoy_tensor_source *tensors, size_t count);

/* Looks at what a transfer holds: engine->payload, engine->views, engine->lists. */
void engine_look(struct engine *engine, convoy_transfer transfer);

/* Waits for its end, which must be this status. */
void engine_wait(struct engine *engine, convoy_transfer transfer, int32_t wanted, struct convoy_transfer_result *result_out);

/* Which must be OK. */
void engine_release(struct engine *engine, convoy_transfer transfer);

struct convoy_engine_figures engine_figures(struct engine *engine);
/* Waits until nothing of the pool is taken. */
void engine_await_empty(struct engine *engine);

/* A number of STATS, by the name of its counter. */
uint64_t engine_counter(struct engine *engine, const char *name);

/* The same in another object of STATS; 0 where there is none. */
uint64_t engine_number(struct engine *engine, const char *object, const char *name);

#endif
