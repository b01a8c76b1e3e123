/* SPDX-License-Identifier: Apache-2.0 */
/* An engine moves to another build. */
#include "move.h"

bool convoy_transfer_engine_is_live(const struct convoy_transfer_engine *engine)
{
    uint32_t state = atomic_load(&engine->state);
    return state == CONVOY_ENGINE_OPEN;
}

void convoy_transfer_engine_halt(struct convoy_transfer_engine *engine)
{
    (void)engine;
}

bool convoy_transfer_engine_is_still(struct convoy_transfer_engine *engine, char *why_out)
{
    (void)snprintf(why_out, CONVOY_STILL_TEXT_BYTES, "engine %s cannot be moved", engine->session);
    return false;
}

int32_t convoy_transfer_engine_freeze(struct convoy_transfer_engine *engine, struct convoy_error *error)
{
    (void)engine;
    (void)error;
    return CONVOY_OK;
}

int32_t convoy_transfer_engine_thaw(struct convoy_transfer_engine *engine, struct convoy_error *error)
{
    (void)engine;
    (void)error;
    return CONVOY_OK;
}

int32_t convoy_transfer_engine_save(struct convoy_transfer_engine *engine, struct convoy_bundle_writer *writer, struct convoy_error *error)
{
    (void)engine;
    (void)writer;
    return convoy_error_set(error, CONVOY_UNSUPPORTED, "engines");
}

int32_t convoy_transfer_engine_restore(struct convoy_context *context, const struct convoy_bundle_item *item,
                             struct convoy_transfer_engine **engine_out, struct convoy_error *error)
{
    (void)context;
    (void)item;
    (void)engine_out;
    return convoy_error_set(error, CONVOY_UNSUPPORTED, "engines");
}

bool convoy_transfer_engine_retire(struct convoy_transfer_engine *engine)
{
    (void)engine;
    return true;
}

void convoy_transfer_engine_discard(struct convoy_transfer_engine *engine)
{
    (void)engine;
}

void convoy_transfer_engine_count(const struct convoy_transfer_engine *engine, struct convoy_holdings *holdings)
{
    holdings->engine_count += convoy_transfer_engine_is_live(engine);
}
