/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of the transfer table that are about engines as such, and the gate that all others pass. */
#ifndef CONVOY_PLUGIN_TRANSFER_ENGINE_H
#define CONVOY_PLUGIN_TRANSFER_ENGINE_H

#include "handle.h"

/* What a call needs of its engine. */
enum convoy_engine_need {
    CONVOY_NEED_OPEN = 0, /* new work */
    CONVOY_NEED_NOT_CLOSED,
    CONVOY_NEED_LOOK, /* as NOT_CLOSED; also while it moves, until it is retired */
    CONVOY_NEED_LOOK_OPEN, /* the same of one that is not closing */
};

/* OK: the engine stays until leave. CLOSED, FORKED, MOVED; INVALID_ARGUMENT: NULL. */
int32_t convoy_transfer_engine_enter(struct convoy_transfer_engine *engine, enum convoy_engine_need need,
                                     struct convoy_error *error);
/* Returns status; hands queued log lines to the host when something went wrong. */
int32_t convoy_transfer_engine_leave(struct convoy_transfer_engine *engine, int32_t status);

/* With the lists of the context: of one that was opened or restored. */
void convoy_transfer_engine_begin(struct convoy_transfer_engine *engine, struct convoy_context *context);

int32_t convoy_transfer_engine_open(convoy_context *context, const struct convoy_transfer_options *options,
                                    convoy_transfer_engine **engine_out, struct convoy_error *error);
int32_t convoy_transfer_engine_close(convoy_transfer_engine *engine, uint64_t timeout_ns, struct convoy_error *error);
int32_t convoy_transfer_engine_info(convoy_transfer_engine *engine, struct convoy_engine_info *info_out,
                                    struct convoy_error *error);
int32_t convoy_transfer_engine_describe(convoy_transfer_engine *engine, uint32_t topic,
                                        struct convoy_text_buffer *text_out, struct convoy_error *error);

#endif
