/* SPDX-License-Identifier: Apache-2.0 */
/* How the steps of a move walk over a context. For move.c and move_state.c. */
#ifndef CONVOY_PLUGIN_MOVE_WALK_H
#define CONVOY_PLUGIN_MOVE_WALK_H

#include "move.h"

#define CONVOY_MOVE_MAY(state) (1u << CONVOY_CONTEXT_##state)

/* OK, or why a call must not begin: INVALID_ARGUMENT, FORKED, CLOSED, BAD_STATE. allowed: CONVOY_MOVE_MAY of each state. */
int32_t convoy_move_enter(struct convoy_context *context, const char *call, uint32_t allowed, struct convoy_error *error);

struct convoy_group *convoy_move_first_group(struct convoy_context *context);
struct convoy_transfer_engine *convoy_move_first_engine(struct convoy_context *context);

/* Every live object, groups before engines. */
#define CONVOY_EACH_GROUP(context, group)                                                                              \
    for (struct convoy_group *group = convoy_move_first_group(context); group != NULL; group = group->next)            \
        if (convoy_group_is_live(group))
#define CONVOY_EACH_ENGINE(context, engine)                                                                            \
    for (struct convoy_transfer_engine *engine = convoy_move_first_engine(context); engine != NULL;                    \
         engine = engine->next)                                                                                        \
        if (convoy_transfer_engine_is_live(engine))

#endif
