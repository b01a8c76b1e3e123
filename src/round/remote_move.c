/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of several hosts do not move yet. */
#include "round/remote.h"

#include "core/bundle.h"

int32_t convoy_remote_freeze(struct convoy_engine *engine, struct convoy_error *error)
{
    return convoy_error_set(error, CONVOY_UNSUPPORTED, "group %.*s spans hosts", (int)engine->group->name_length,
                            engine->group->name);
}

int32_t convoy_remote_thaw(struct convoy_engine *engine, struct convoy_error *error)
{
    (void)engine;
    (void)error;
    return CONVOY_OK;
}

int32_t convoy_remote_save(struct convoy_engine *engine, struct convoy_bundle_writer *writer, struct convoy_error *error)
{
    (void)writer;
    return convoy_remote_freeze(engine, error);
}

int32_t convoy_remote_restore(struct convoy_engine *engine, const struct convoy_bundle_item *item,
                              struct convoy_error *error)
{
    (void)item;
    return convoy_remote_freeze(engine, error);
}

void convoy_remote_retire(struct convoy_engine *engine)
{
    (void)engine;
}

void convoy_remote_discard(struct convoy_engine *engine)
{
    (void)engine;
}
