/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine (tests/lib/engines.h) that moves to another context, as it would to another build: by the family move alone.
 *
 *     engine_move(engine);                 all steps; its handle and context are the new ones afterwards
 *     or step by step: engine_quiesce, engine_export, engine_import (into a fresh context), engine_resume, engine_retire
 */
#ifndef TESTS_LIB_ENGINE_MOVES_H
#define TESTS_LIB_ENGINE_MOVES_H

#include "tests/lib/engines.h"
#include "tests/lib/moving_options.h"

struct engine_state {
    struct convoy_exported_state state;
    uint8_t *bytes;
};

const struct convoy_move_table *engine_moves(void);

void engine_quiesce(struct engine *engine);
/* gives (free bytes) */
struct engine_state engine_export(struct engine *engine);
/* A context without anything, with the settings that engines have. */
convoy_context *engine_context(struct engine *engine);
/* Status of the import; handle_out: of the only engine. */
int32_t engine_import(struct engine *engine, convoy_context *context, const struct engine_state *state,
                      convoy_transfer_engine **handle_out);
/* All of it; what is left of the old context is closed. */
void engine_move(struct engine *engine);
struct convoy_holdings engine_holdings(struct engine *engine);

#endif
