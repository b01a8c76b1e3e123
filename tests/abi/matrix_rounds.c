/* SPDX-License-Identifier: Apache-2.0 */
/* Groups and rounds of the matrix's host. */
#include "tests/abi/matrix.h"

#include <pthread.h>

#define STATES 7u
#define COLUMNS 7u
#define ROUNDS 20u
#define MEMBERS_MAX 4u

int32_t matrix_group_open(convoy_host_context *context, const struct matrix_place *place, convoy_host_group **group_out)
{
    static const int32_t ids[MEMBERS_MAX] = {10, 11, 12, 13};
    char where[64];
    int length = snprintf(where, sizeof where, "tcp://127.0.0.1:%u", place->port);
    const struct convoy_sync_schema schema = {
        .struct_size = sizeof schema, .builtin = "sglang-7", .builtin_length = 8};
    const struct convoy_group_options options = {
        .struct_size = sizeof options,
        .own_index = place->own,
        .name = place->name,
        .name_length = strlen(place->name),
        .member_ids = ids,
        .member_count = place->count,
        .own_id = ids[place->own],
        .rendezvous = place->count > 1 ? where : NULL,
        .rendezvous_length = place->count > 1 ? (size_t)length : 0,
        .open_timeout_ns = MATRIX_WAIT_NS,
        .timeout_ns = MATRIX_WAIT_NS,
        .schema = &schema,
    };
    return convoy_host_group_open(context, &options, group_out, &matrix_error);
}

static uint8_t state_of(uint32_t rank, uint32_t round, uint32_t at)
{
    return (uint8_t)((rank * 3 + round * 2 + at + at / 3) % 5);
}

static void say(const char *prefix, const char *name, const char *text)
{
    char whole[64];
    (void)snprintf(whole, sizeof whole, "%s.%s", prefix, name);
    matrix_same(whole, "%s", text);
}

/* One reduce: a positional list and a keyed one, whose entries are listed in another order by each member. */
static void reduce(convoy_host_group *group, const struct matrix_place *place, uint32_t round, const char *prefix)
{
    uint8_t states[STATES];
    uint8_t merged[2][STATES];
    uint64_t keys[STATES];
    char text[64] = "";
    MATRIX_GUARDED(poll_result) result;
    for (uint32_t i = 0; i < STATES; i++) {
        states[i] = state_of(place->own, round, i);
        keys[i] = 100 + (i + place->own) % STATES;
    }
    const struct convoy_poll_list lists[2] = {
        {.count = STATES, .states = states, .digest = 77},
        {.count = STATES, .states = states, .keys = keys, .flags = CONVOY_POLL_KEYED},
    };
    struct convoy_poll_list_result back[2] = {{.states = merged[0], .states_capacity = STATES},
                                              {.states = merged[1], .states_capacity = STATES}};
    const struct convoy_poll_call call = {.struct_size = sizeof call,
                                          .votes = 1u << place->own | 8u,
                                          .lists = lists,
                                          .list_stride = sizeof lists[0],
                                          .list_count = 2,
                                          .tag = round + 1};
    MATRIX_OUT(result);
    result.value.lists = back;
    result.value.list_stride = sizeof back[0];
    result.value.list_capacity = 2;
    matrix_need(convoy_host_reduce(group, &call, MATRIX_WAIT_NS, &result.value, &matrix_error), "reduce");
    if (prefix == NULL) {
        return;
    }
    for (uint32_t i = 0; i < STATES; i++) {
        (void)snprintf(text + 2 * i, sizeof text - 2 * i, "%u%u", merged[0][i], merged[1][i]);
    }
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), " %x %x", result.value.votes_and,
                   result.value.votes_or);
    say(prefix, "reduce", text);
    MATRIX_WRITTEN("written.poll_result", result);
}

static void gather(convoy_host_group *group, const struct matrix_place *place, uint32_t round, const char *prefix)
{
    int64_t row[COLUMNS];
    int64_t table[MEMBERS_MAX][COLUMNS];
    struct convoy_sync_reduced reduced[COLUMNS];
    char text[64];
    MATRIX_GUARDED(sync_result) result;
    for (uint32_t i = 0; i < COLUMNS; i++) {
        row[i] = (int64_t)(place->own * 100 + round * 10 + i);
    }
    const struct convoy_sync_call call = {
        .struct_size = sizeof call, .row = row, .votes = 3, .tag = round + 1, .policy = CONVOY_SYNC_EXCHANGE};
    MATRIX_OUT(result);
    result.value.table = &table[0][0];
    result.value.table_capacity = MEMBERS_MAX * COLUMNS;
    result.value.reduced = reduced;
    result.value.reduced_capacity = COLUMNS;
    matrix_need(convoy_host_gather(group, &call, MATRIX_WAIT_NS, &result.value, &matrix_error), "gather");
    if (prefix == NULL) {
        return;
    }
    int64_t sum = 0;
    for (uint32_t member = 0; member < place->count; member++) {
        for (uint32_t i = 0; i < COLUMNS; i++) {
            sum += table[member][i] * (int64_t)(member * COLUMNS + i + 1);
        }
    }
    (void)snprintf(text, sizeof text, "%lld %lld %u %u", (long long)sum, (long long)reduced[0].value,
                   result.value.votes_and, result.value.width);
    say(prefix, "gather", text);
    MATRIX_WRITTEN("written.sync_result", result);
}

void matrix_rounds(convoy_host_group *group, const struct matrix_place *place, uint32_t first, const char *prefix)
{
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const char *last = i + 1 == ROUNDS ? prefix : NULL;
        reduce(group, place, first + i, last);
        gather(group, place, first + i, last);
    }
}

void matrix_group_look(convoy_host_group *group, const char *prefix)
{
    char text[96];
    MATRIX_GUARDED(group_info) info;
    MATRIX_OUT(info);
    matrix_need(convoy_host_group_info(group, &info.value, &matrix_error), "group_info");
    (void)snprintf(text, sizeof text, "state %u members %u lost %u epoch %s round %llu", info.value.state,
                   info.value.member_count, info.value.lost_count, info.value.epoch != 0 ? "set" : "zero",
                   (unsigned long long)info.value.round);
    say(prefix, "info", text);
    matrix_seen("wire", "%u", info.value.wire);
    MATRIX_WRITTEN("written.group_info", info);
#ifdef CONVOY_TRIAL_SEEN
    matrix_seen("field.group_info", "%llu", (unsigned long long)info.value.trial);
#endif
}

struct threaded {
    convoy_loader *loader;
    struct matrix_place place;
};

static void *thread(void *argument)
{
    const struct threaded *own = argument;
    const char *prefix = own->place.own == 0 ? "threads" : NULL;
    convoy_host_context *context = matrix_context(own->loader);
    convoy_host_group *group = NULL;
    matrix_need(matrix_group_open(context, &own->place, &group), "group_open");
    matrix_rounds(group, &own->place, 0, prefix);
    if (prefix != NULL) {
        matrix_group_look(group, prefix);
    }
    matrix_need(convoy_host_group_close(group, MATRIX_WAIT_NS, &matrix_error), "group_close");
    matrix_need(convoy_host_context_close(context, MATRIX_WAIT_NS, &matrix_error), "context_close");
    return NULL;
}

void matrix_threads(convoy_loader *loader, uint16_t port)
{
    pthread_t other;
    struct threaded both[2] = {{loader, {0, 2, port, "threads"}}, {loader, {1, 2, port, "threads"}}};
    if (pthread_create(&other, NULL, thread, &both[1]) != 0) {
        matrix_fail("threads", "pthread_create failed");
        return;
    }
    (void)thread(&both[0]);
    (void)pthread_join(other, NULL);
}
