/* SPDX-License-Identifier: Apache-2.0 */
#include "net/roster.h"

#include "core/error.h"
#include "core/fault.h"

#include <stdio.h>
#include <string.h>

#define MISSING_NAMED_MAX 8u

static int32_t check_epoch(const struct convoy_hello *own, const struct convoy_hello *theirs,
                           struct convoy_error *error)
{
    if (own->epoch == theirs->epoch || CONVOY_MUTATED(epoch_not_checked)) {
        return CONVOY_OK;
    }
    return convoy_error_set_peer(error, CONVOY_STALE_EPOCH, theirs->group.own_id, 0,
                                 "member %d is at epoch %llu, member %d at %llu%s", theirs->group.own_id,
                                 (unsigned long long)theirs->epoch, own->group.own_id, (unsigned long long)own->epoch,
                                 own->epoch == 0 || theirs->epoch == 0 ? " (0 = the listener picks)" : "");
}

static bool group_has_id(const struct convoy_hello_group *group, int32_t id)
{
    for (uint32_t i = 0; i < group->member_count; i++) {
        if (convoy_hello_member(group, i) == id) {
            return true;
        }
    }
    return false;
}

static int32_t check_list(const struct convoy_hello_group *own, const struct convoy_hello_group *theirs,
                          struct convoy_error *error)
{
    if (own->member_count != theirs->member_count) {
        return convoy_error_set_peer(error, CONVOY_DIVERGED, theirs->own_id, 0,
                                     "member %d lists %u members, member %d lists %u", theirs->own_id,
                                     theirs->member_count, own->own_id, own->member_count);
    }
    for (uint32_t i = 0; i < own->member_count; i++) {
        int32_t id = convoy_hello_member(own, i);
        int32_t other = convoy_hello_member(theirs, i);
        if (id != other) {
            return convoy_error_set_peer(error, CONVOY_DIVERGED, theirs->own_id, 0,
                                         "member %d lists member %d at index %u, member %d lists member %d there",
                                         theirs->own_id, other, i, own->own_id, id);
        }
    }
    return CONVOY_OK;
}

static int32_t check_value(const struct convoy_hello_group *own, const struct convoy_hello_group *theirs,
                           const char *what, const uint32_t values[2], struct convoy_error *error)
{
    if (values[0] == values[1]) {
        return CONVOY_OK;
    }
    return convoy_error_set_peer(error, CONVOY_DIVERGED, theirs->own_id, 0, "member %d has %s %u, member %d has %u",
                                 theirs->own_id, what, values[1], own->own_id, values[0]);
}

/* Fields that follow from nothing else and must be the same. */
static int32_t check_values(const struct convoy_hello_group *own, const struct convoy_hello_group *theirs,
                            struct convoy_error *error)
{
    const struct {
        const char *what;
        uint32_t values[2];
    } rows[] = {
        {"listener index", {own->listener_index, theirs->listener_index}},
        {"blob bound", {own->blob_bytes_max, theirs->blob_bytes_max}},
        {"policy flags", {own->policy, theirs->policy}},
    };
    int32_t status = CONVOY_OK;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && status == CONVOY_OK; i++) {
        status = check_value(own, theirs, rows[i].what, rows[i].values, error);
    }
    return status;
}

static int32_t check_name(const struct convoy_hello_group *own, const struct convoy_hello_group *theirs,
                          struct convoy_error *error)
{
    if (own->name_length == theirs->name_length && memcmp(own->name, theirs->name, own->name_length) == 0) {
        return CONVOY_OK;
    }
    return convoy_error_set_peer(error, CONVOY_DIVERGED, theirs->own_id, 0,
                                 "member %d opens group \"%.*s\", member %d group \"%.*s\"", theirs->own_id,
                                 (int)(theirs->name_length < 64 ? theirs->name_length : 64), theirs->name,
                                 own->own_id, (int)(own->name_length < 64 ? own->name_length : 64), own->name);
}

/* Own index and id of the other, against the list that both have. */
static int32_t check_place(const struct convoy_hello_group *own, const struct convoy_hello_group *theirs,
                           struct convoy_error *error)
{
    if (theirs->own_index < theirs->member_count &&
        convoy_hello_member(theirs, theirs->own_index) == theirs->own_id) {
        return CONVOY_OK;
    }
    return convoy_error_set_peer(error, CONVOY_DIVERGED, theirs->own_id, 0,
                                 "member %d gives index %u of %u, where the list of member %d has another member",
                                 theirs->own_id, theirs->own_index, theirs->member_count, own->own_id);
}

int32_t convoy_roster_check(const struct convoy_hello *own, const struct convoy_hello *theirs, bool *dooms_out,
                            struct convoy_error *error)
{
    *dooms_out = false;
    int32_t status = check_epoch(own, theirs, error);
    if (status != CONVOY_OK) {
        return status;
    }
    if (!group_has_id(&own->group, theirs->group.own_id)) {
        return convoy_error_set_peer(error, CONVOY_DIVERGED, theirs->group.own_id, 0,
                                     "member %d is not in the list of member %d", theirs->group.own_id,
                                     own->group.own_id);
    }
    *dooms_out = true;
    struct convoy_hello_choice choice;
    status = convoy_hello_choose(own, theirs, &choice, error);
    if (status != CONVOY_OK) {
        error->rank = theirs->group.own_id;
        return convoy_error_prefix(error, status, "members %d and %d", own->group.own_id, theirs->group.own_id);
    }
    status = check_name(&own->group, &theirs->group, error);
    if (status == CONVOY_OK) {
        status = check_list(&own->group, &theirs->group, error);
    }
    if (status == CONVOY_OK) {
        status = check_place(&own->group, &theirs->group, error);
    }
    if (status == CONVOY_OK) {
        status = check_values(&own->group, &theirs->group, error);
    }
    *dooms_out = status != CONVOY_OK;
    return status;
}

int32_t convoy_roster_missing(const struct convoy_hello_group *group, const uint8_t *heard, const char *remark,
                              struct convoy_error *error)
{
    char names[MISSING_NAMED_MAX * 12 + 20] = ""; /* ids of ten digits, and how many more */
    int used = 0;
    uint32_t count = 0;
    int32_t first = -1;
    for (uint32_t i = 0; i < group->member_count; i++) {
        if (convoy_roster_has(heard, i)) {
            continue;
        }
        int32_t id = convoy_hello_member(group, i);
        first = count == 0 ? id : first;
        if (count++ < MISSING_NAMED_MAX) {
            used += snprintf(names + used, sizeof names - (size_t)used, "%s%d", count == 1 ? "" : ", ", id);
        }
    }
    if (count > MISSING_NAMED_MAX) {
        (void)snprintf(names + used, sizeof names - (size_t)used, " and %u more", count - MISSING_NAMED_MAX);
    }
    return convoy_error_set_peer(error, CONVOY_TIMED_OUT, first, 0, "%s %s %s not heard in time%s%s",
                                 count == 1 ? "member" : "members", names, count == 1 ? "was" : "were",
                                 remark[0] != '\0' ? "; " : "", remark);
}
