/* SPDX-License-Identifier: Apache-2.0 */
/* A group moves to another build. */
#include "move.h"

bool convoy_group_is_live(const struct convoy_group *group)
{
    uint32_t phase = atomic_load(&group->phase);
    return phase == CONVOY_PHASE_OPENING || phase == CONVOY_PHASE_OPEN;
}

void convoy_group_halt(struct convoy_group *group)
{
    (void)group;
}

bool convoy_group_is_still(struct convoy_group *group, char *why_out)
{
    (void)snprintf(why_out, CONVOY_STILL_TEXT_BYTES, "group %.*s cannot be moved", (int)group->options.name_length,
                   group->options.name);
    return false;
}

int32_t convoy_group_freeze(struct convoy_group *group, struct convoy_error *error)
{
    (void)group;
    (void)error;
    return CONVOY_OK;
}

int32_t convoy_group_thaw(struct convoy_group *group, struct convoy_error *error)
{
    (void)group;
    (void)error;
    return CONVOY_OK;
}

int32_t convoy_group_save(struct convoy_group *group, struct convoy_bundle_writer *writer, struct convoy_error *error)
{
    (void)group;
    (void)writer;
    return convoy_error_set(error, CONVOY_UNSUPPORTED, "groups");
}

int32_t convoy_group_restore(struct convoy_context *context, const struct convoy_bundle_item *item,
                             struct convoy_group **group_out, struct convoy_error *error)
{
    (void)context;
    (void)item;
    (void)group_out;
    return convoy_error_set(error, CONVOY_UNSUPPORTED, "groups");
}

bool convoy_group_retire(struct convoy_group *group)
{
    (void)group;
    return true;
}

void convoy_group_discard(struct convoy_group *group)
{
    (void)group;
}

void convoy_group_count(const struct convoy_group *group, struct convoy_holdings *holdings)
{
    holdings->group_count += convoy_group_is_live(group);
}
