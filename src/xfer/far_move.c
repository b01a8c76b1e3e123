/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine has for peers on other hosts does not move yet: such an engine refuses. */
#include "core/error.h"
#include "xfer/far.h"
#include "xfer/move.h"

#include <stdio.h>

bool convoy_far_is_still(struct convoy_xfer *engine, char *why_out)
{
    (void)snprintf(why_out, CONVOY_XFER_STILL_BYTES, "engine %s has peers on other hosts", engine->session);
    return false;
}

static int32_t refuse(const struct convoy_xfer *engine, struct convoy_error *error)
{
    return convoy_error_set(error, CONVOY_UNSUPPORTED, "engine %s has been open for peers on other hosts, which do not move",
                            engine->session);
}

int32_t convoy_far_freeze(struct convoy_xfer *engine, struct convoy_error *error)
{
    return refuse(engine, error);
}

int32_t convoy_far_thaw(struct convoy_xfer *engine, struct convoy_error *error)
{
    return refuse(engine, error);
}

int32_t convoy_far_save(struct convoy_xfer *engine, struct convoy_bundle_writer *writer, struct convoy_error *error)
{
    (void)writer;
    return refuse(engine, error);
}

int32_t convoy_far_restore(struct convoy_xfer *engine, const struct convoy_bundle_item *item, struct convoy_error *error)
{
    (void)item;
    return refuse(engine, error);
}

void convoy_far_retire(struct convoy_xfer *engine)
{
    (void)engine;
}

void convoy_far_discard(struct convoy_xfer *engine)
{
    (void)engine;
}
