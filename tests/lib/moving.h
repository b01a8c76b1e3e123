/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member moves: to another context of the build that it has, or of the second build, as a loader would do it. The steps
 * one by one too, for tests of what lies between them. Failures are expectations.
 *
 *     struct moving moving;
 *     moving_begin(&moving, member, moving_second_build());
 *     moving_finish(&moving, member);                            member has the new context, group and tables
 */
#ifndef TESTS_LIB_MOVING_H
#define TESTS_LIB_MOVING_H

#include "convoy/move.h"
#include "tests/lib/moving_options.h"
#include "tests/lib/plugin.h"

#define MOVING_OBJECTS 16u
#define MOVING_NS 10000000000ull /* not meant to pass */

/* What a loaded build has, with its table of moves. */
struct moving_build {
    struct plugin plugin;
    const struct convoy_move_table *move;
};

/* The file of the second build. Static storage. */
const char *moving_second_path(void);

/* The build under test, and the one with the same code and another build id. Loaded once; never unloaded. */
const struct moving_build *moving_first_build(void);
const struct moving_build *moving_second_build(void);

/* A move on its way: from a context to a new one. */
struct moving {
    const struct moving_build *from;
    const struct moving_build *to;
    convoy_context *old_context;
    convoy_context *new_context;
    void *state; /* exported; freed by finish or cancel */
    size_t bytes;
    struct convoy_moved_object objects[MOVING_OBJECTS];
    size_t object_count;
    struct convoy_error error;
};

/* Opens the new context and fills the rest; config: of both contexts. */
void moving_begin(struct moving *moving, convoy_context *context, const struct convoy_context_config *config,
                  const struct moving_build *from, const struct moving_build *to);
int32_t moving_quiesce(struct moving *moving, uint64_t timeout_ns);
void moving_export(struct moving *moving);
/* Imports `bytes` of moving->state; statuses are the caller's. */
int32_t moving_import(struct moving *moving);
/* resume of the new, retire and close of the old. */
void moving_complete(struct moving *moving);
/* Closes the new and resumes the old. */
void moving_cancel(struct moving *moving);
/* All of it. */
void moving_run(struct moving *moving);

/* The new handle of an object. */
void *moving_handle(const struct moving *moving, const void *from);

/* The whole move of a member that has one group: context, group and tables are the new ones afterwards. */
void moving_member(struct plugin_member *member, const struct moving_build *from, const struct moving_build *to);

struct convoy_holdings moving_holdings(const struct moving_build *build, convoy_context *context);

#endif
