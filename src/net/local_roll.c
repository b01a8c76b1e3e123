/* SPDX-License-Identifier: Apache-2.0 */
#include "net/local_roll.h"

#include "core/error.h"
#include "core/log.h"
#include "core/memory.h"

#include <stdio.h>
#include <string.h>

#define EXPLANATION_BYTES 160u

int32_t convoy_local_roll_init(struct convoy_local_roll *roll, const struct convoy_local_request *request)
{
    uint32_t count = (uint32_t)request->options->member_count;
    *roll = (struct convoy_local_roll){.request = request, .count = count, .own = request->options->own_index};
    roll->mine.joined = roll->own;
    roll->members = convoy_memory_array(count, sizeof *roll->members);
    roll->keys = convoy_memory_array(count, sizeof *roll->keys);
    roll->leader_of = convoy_memory_array(count, sizeof *roll->leader_of);
    roll->joined = convoy_memory_array(count, sizeof *roll->joined);
    roll->coming = convoy_memory_array(count, sizeof *roll->coming);
    roll->blobs = convoy_memory_array(count, sizeof *roll->blobs);
    if (roll->members == NULL || roll->keys == NULL || roll->leader_of == NULL || roll->joined == NULL ||
        roll->coming == NULL || roll->blobs == NULL) {
        convoy_local_roll_fini(roll);
        return CONVOY_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        roll->joined[i] = i;
    }
    return CONVOY_OK;
}

void convoy_local_roll_fini(struct convoy_local_roll *roll)
{
    convoy_memory_free(roll->blobs);
    convoy_memory_free(roll->coming);
    convoy_memory_free(roll->joined);
    convoy_memory_free(roll->leader_of);
    convoy_memory_free(roll->keys);
    convoy_memory_free(roll->members);
    *roll = (struct convoy_local_roll){0};
}

void convoy_local_roll_reason(struct convoy_local_roll *roll, const struct convoy_error *cause)
{
    if (roll->mine.reason[0] == '\0') {
        (void)snprintf(roll->mine.reason, sizeof roll->mine.reason, "%.*s", (int)sizeof roll->mine.reason - 1,
                       cause->text);
    }
}

/* -- exchanges ----------------------------------------------------------------------------------------------------- */

static int32_t member_id(const struct convoy_local_roll *roll, uint32_t index)
{
    return roll->request->options->member_ids[index];
}

/* Texts of other processes go into our log: terminated and printable. */
static void clean_reason(char reason[CONVOY_LOCAL_REASON_BYTES])
{
    reason[CONVOY_LOCAL_REASON_BYTES - 1] = '\0';
    for (char *at = reason; *at != '\0'; at++) {
        if (*at < ' ' || *at > '~') {
            *at = '?';
        }
    }
}

/* A longer statement, of a later release, is fine. */
static int32_t exchange(struct convoy_local_roll *roll, struct convoy_error *error)
{
    int32_t status =
        convoy_bootstrap_exchange(roll->request->bootstrap, &roll->mine, sizeof roll->mine, roll->blobs, error);
    for (uint32_t i = 0; i < roll->count && status == CONVOY_OK; i++) {
        const struct convoy_blob *blob = &roll->blobs[i];
        if (blob->bytes < sizeof roll->members[i]) {
            status = convoy_error_set_peer(error, CONVOY_MALFORMED, member_id(roll, i), 0,
                                           "rank %d describes its host in %zu bytes, %zu are needed",
                                           member_id(roll, i), blob->bytes, sizeof roll->members[i]);
        } else {
            memcpy(&roll->members[i], blob->data, sizeof roll->members[i]);
            clean_reason(roll->members[i].reason);
        }
    }
    return status;
}

int32_t convoy_local_roll_keys(struct convoy_local_roll *roll, bool *any_out, struct convoy_error *error)
{
    int32_t status = exchange(roll, error);
    if (status != CONVOY_OK) {
        return status;
    }
    for (uint32_t i = 0; i < roll->count; i++) {
        roll->keys[i] = roll->members[i].keys;
    }
    convoy_host_map_candidates(roll->keys, roll->count, roll->leader_of);
    bool any = false;
    for (uint32_t i = 0; i < roll->count; i++) {
        any = any || roll->leader_of[i] != i;
    }
    *any_out = any;
    return CONVOY_OK;
}

int32_t convoy_local_roll_coming(struct convoy_local_roll *roll, uint32_t coming, struct convoy_error *error)
{
    roll->mine.coming = coming;
    int32_t status = exchange(roll, error);
    for (uint32_t i = 0; i < roll->count && status == CONVOY_OK; i++) {
        bool is_mine = i != roll->own && roll->leader_of[i] == roll->own;
        bool is_known = roll->members[i].coming <= CONVOY_LOCAL_LATER;
        roll->coming[i] = (uint8_t)(is_mine && is_known ? roll->members[i].coming : CONVOY_LOCAL_NOT_JOINING);
    }
    return status;
}

int32_t convoy_local_roll_joined(struct convoy_local_roll *roll, uint32_t joined, struct convoy_error *error)
{
    roll->mine.joined = joined;
    int32_t status = exchange(roll, error);
    for (uint32_t i = 0; i < roll->count && status == CONVOY_OK; i++) {
        uint32_t said = roll->members[i].joined;
        if (said != i && said != roll->leader_of[i]) {
            return convoy_error_set_peer(error, CONVOY_MALFORMED, member_id(roll, i), 0,
                                         "rank %d says it joined member index %u, its candidate is %u",
                                         member_id(roll, i), said, roll->leader_of[i]);
        }
        roll->joined[i] = said;
    }
    return status;
}

/* -- what follows -------------------------------------------------------------------------------------------------- */

/* The first reason that any member of this kernel gave, with its rank. */
static bool explain_by_reason(const struct convoy_local_roll *roll, uint32_t a, uint32_t b,
                              char text[EXPLANATION_BYTES])
{
    const uint32_t closest[] = {a, b};
    for (uint32_t i = 0; i < roll->count + 2; i++) {
        uint32_t member = i < 2 ? closest[i] : i - 2;
        bool is_near = i < 2 || convoy_host_keys_same_boot(&roll->keys[a], &roll->keys[member]);
        if (is_near && roll->members[member].reason[0] != '\0') {
            (void)snprintf(text, EXPLANATION_BYTES, "rank %d: %s", member_id(roll, member),
                           roll->members[member].reason);
            return true;
        }
    }
    return false;
}

static void explain(const struct convoy_local_roll *roll, uint32_t a, uint32_t b, char text[EXPLANATION_BYTES])
{
    const char *words = "different network namespaces and no common shared_directory";
    if (((roll->keys[a].flags | roll->keys[b].flags) & CONVOY_HOST_ONLY_UCX) != 0) {
        words = "one of them is configured net=ucx";
    } else if (explain_by_reason(roll, a, b, text)) {
        return;
    } else if (!convoy_host_keys_same_boot(&roll->keys[a], &roll->keys[b])) {
        words = "they run on different machines";
    }
    (void)snprintf(text, EXPLANATION_BYTES, "%s", words);
}

/* The first member on another host than `index`, or count. */
static uint32_t first_apart(const struct convoy_host_map *map, uint32_t index)
{
    uint32_t i = 0;
    while (i < map->member_count && map->host_of[i] == map->host_of[index]) {
        i++;
    }
    return i;
}

static int32_t check_insistence(const struct convoy_local_roll *roll, const struct convoy_host_map *map,
                                struct convoy_error *error)
{
    for (uint32_t i = 0; i < roll->count && map->host_count > 1; i++) {
        if ((roll->keys[i].flags & CONVOY_HOST_ONLY_SHM) != 0) {
            char text[EXPLANATION_BYTES];
            uint32_t other = first_apart(map, i);
            explain(roll, i, other, text);
            return convoy_error_set_peer(error, CONVOY_UNREACHABLE, member_id(roll, other), 0,
                                         "rank %d is configured net=shm and shares no memory with rank %d: %s",
                                         member_id(roll, i), member_id(roll, other), text);
        }
    }
    return CONVOY_OK;
}

int32_t convoy_local_roll_map(const struct convoy_local_roll *roll, struct convoy_host_map *map_out,
                              struct convoy_error *error)
{
    struct convoy_host_map map;
    int32_t status = convoy_host_map_init(roll->joined, roll->leader_of, roll->count, &map);
    if (status != CONVOY_OK) {
        return convoy_error_set(error, status, status == CONVOY_NO_MEMORY ? "no memory for the map of hosts"
                                                                          : "the members' hosts contradict each other");
    }
    status = check_insistence(roll, &map, error);
    if (status != CONVOY_OK) {
        convoy_host_map_fini(&map);
        return status;
    }
    *map_out = map;
    return CONVOY_OK;
}

/* One of the same kernel that nobody asked to keep apart; or any other when this member knows what is wrong with it. */
static bool is_unexpected(const struct convoy_local_roll *roll, uint32_t other)
{
    const struct convoy_host_keys *own = &roll->keys[roll->own];
    return ((own->flags | roll->keys[other].flags) & CONVOY_HOST_ONLY_UCX) == 0 &&
           (convoy_host_keys_same_boot(own, &roll->keys[other]) || roll->mine.reason[0] != '\0');
}

void convoy_local_roll_warn(const struct convoy_local_roll *roll, const struct convoy_host_map *map)
{
    const struct convoy_group_options *options = roll->request->options;
    for (uint32_t i = 0; i < roll->count; i++) {
        if (map->host_of[i] == map->host_of[roll->own] || !is_unexpected(roll, i)) {
            continue;
        }
        char text[EXPLANATION_BYTES];
        explain(roll, roll->own, i, text);
        convoy_log_line(&roll->request->runtime->log, CONVOY_LOG_WARN,
                        "group %.*s epoch %llu rank %d: no shared memory with rank %d, using ucx: %s",
                        (int)options->name_length, options->name,
                        (unsigned long long)roll->request->agreement->epoch, options->own_id, member_id(roll, i), text);
        return;
    }
}
