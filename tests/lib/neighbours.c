/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/neighbours.h"

#include "tests/lib/expect.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void sum_begin(void *state)
{
    struct neighbour *member = state;
    member->sum = 0;
    member->absent = 0;
}

static int32_t sum_member(void *state, uint32_t index, const uint8_t *payload, size_t bytes)
{
    struct neighbour *member = state;
    (void)index;
    member->sum += bytes != 0 ? payload[0] : 0;
    return member->refuse;
}

static void sum_absent(void *state, uint32_t index, enum convoy_absence absence, int32_t reason)
{
    struct neighbour *member = state;
    (void)index;
    (void)absence;
    (void)reason;
    member->absent++;
}

static size_t sum_encode(const void *state, uint8_t *out, size_t capacity)
{
    const struct neighbour *member = state;
    if (capacity < sizeof member->sum) {
        return 0;
    }
    memcpy(out, &member->sum, sizeof member->sum);
    return sizeof member->sum;
}

static int32_t sum_partial(void *state, const uint8_t *bytes, size_t length)
{
    struct neighbour *member = state;
    uint32_t sum = 0;
    if (length != sizeof sum) {
        return CONVOY_MALFORMED;
    }
    memcpy(&sum, bytes, sizeof sum);
    member->sum += sum;
    return CONVOY_OK;
}

static const struct convoy_merge_ops sum_ops = {sum_begin, sum_member, sum_absent, sum_encode, sum_partial};

/* -- opening ----------------------------------------------------------------------------------------------------- */

static int32_t open_engine(struct neighbour *member)
{
    struct convoy_bootstrap *bootstrap = NULL;
    uint64_t deadline = convoy_now_ns() + NEIGHBOURS_LONG_NS;
    const char *settings = member->all->settings;
    const struct convoy_context_config config = {.struct_size = sizeof config,
                                                 .settings = settings,
                                                 .settings_length = settings != NULL ? strlen(settings) : 0};
    struct convoy_engine_options options = {.group = &member->options, .partial_bytes_max = NEIGHBOURS_BLOB_BYTES};
    int32_t status = convoy_runtime_open(&config, &member->runtime, &member->error);
    if (status == CONVOY_OK) {
        status = convoy_bootstrap_open(member->runtime, &member->options, deadline, &bootstrap, &options.agreement,
                                       &member->error);
    }
    if (status == CONVOY_OK) {
        options.runtime = member->runtime;
        status = convoy_engine_open(&options, bootstrap, deadline, &member->engine, &member->error);
        convoy_bootstrap_close(bootstrap);
    }
    return status;
}

static void *open_main(void *argument)
{
    struct neighbour *member = argument;
    return open_engine(member) == CONVOY_OK ? NULL : member;
}

static void prepare(struct neighbours *all, uint32_t index, uint32_t critical_flags)
{
    struct neighbour *member = &all->members[index];
    all->ids[index] = (int32_t)(10 + index);
    member->all = all;
    member->gather = (struct test_allgather_member){.shared = all->meeting, .index = index};
    member->life = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    EXPECT(member->life >= 0);
    member->error = (struct convoy_error)CONVOY_ERROR_INIT;
    member->contribution = (struct convoy_contribution){
        .header = {.operation = CONVOY_OPERATION_POLL}, .payload_bytes = 1, .merge = &sum_ops, .merge_state = member};
    member->options = (struct convoy_group_options){.struct_size = sizeof member->options,
                                                    .critical_flags = critical_flags,
                                                    .name = "near",
                                                    .name_length = 4,
                                                    .member_ids = all->ids,
                                                    .member_count = all->count,
                                                    .own_index = index,
                                                    .own_id = all->ids[index],
                                                    .epoch = NEIGHBOURS_EPOCH,
                                                    .timeout_ns = NEIGHBOURS_LONG_NS,
                                                    .blob_bytes_max = NEIGHBOURS_BLOB_BYTES,
                                                    .allgather = test_allgather_call,
                                                    .allgather_user = &member->gather};
}

/* All live in this process: what stands for theirs is a descriptor of the test. */
static void watch_lives(struct neighbours *all, struct neighbour *member)
{
    for (uint32_t i = 0; i < all->count; i++) {
        int *watched = &member->engine->local.pidfds[i];
        if (*watched >= 0) {
            (void)close(*watched);
            *watched = dup(all->members[i].life);
            EXPECT(*watched >= 0);
        }
    }
}

struct neighbours *neighbours_create(uint32_t count, const char *settings, uint32_t critical_flags)
{
    struct neighbours *all = calloc(1, sizeof *all);
    pthread_t threads[NEIGHBOURS_MAX];
    EXPECT(all != NULL && count <= NEIGHBOURS_MAX);
    all->count = count;
    all->settings = settings;
    all->meeting = test_allgather_create(count);
    EXPECT(all->meeting != NULL);
    for (uint32_t i = 0; i < count; i++) {
        prepare(all, i, critical_flags);
    }
    for (uint32_t i = 0; i < count; i++) {
        EXPECT_EQUAL(pthread_create(&threads[i], NULL, open_main, &all->members[i]), 0);
    }
    void *failed = NULL;
    for (uint32_t i = 0; i < count; i++) {
        void *result = NULL;
        EXPECT_EQUAL(pthread_join(threads[i], &result), 0);
        failed = failed == NULL ? result : failed;
    }
    EXPECT_TEXT(failed != NULL ? ((struct neighbour *)failed)->error.text : "", "");
    EXPECT(failed == NULL);
    for (uint32_t i = 0; i < count; i++) {
        watch_lives(all, &all->members[i]);
    }
    return all;
}

void neighbours_close(struct neighbours *all, uint32_t index)
{
    convoy_engine_close(all->members[index].engine, convoy_now_ns() + CONVOY_NS_PER_S);
    all->members[index].engine = NULL;
}

void neighbours_destroy(struct neighbours *all)
{
    for (uint32_t i = 0; i < all->count; i++) {
        neighbours_close(all, i);
        (void)close(all->members[i].life);
        convoy_runtime_destroy(all->members[i].runtime);
    }
    test_allgather_destroy(all->meeting);
    free(all);
}

void neighbours_kill(struct neighbours *all, uint32_t index)
{
    EXPECT_EQUAL(eventfd_write(all->members[index].life, 1), 0);
}

/* -- rounds ------------------------------------------------------------------------------------------------------ */

int32_t neighbours_start(struct neighbours *all, uint32_t index, uint8_t number)
{
    struct neighbour *member = &all->members[index];
    uint8_t *payload = NULL;
    member->error = (struct convoy_error)CONVOY_ERROR_INIT;
    int32_t status = convoy_engine_begin(member->engine, &payload, &member->error);
    if (status != CONVOY_OK) {
        return status;
    }
    payload[0] = number;
    return convoy_engine_publish(member->engine, &member->contribution, &member->operation, &member->error);
}

int32_t neighbours_test(struct neighbours *all, uint32_t index)
{
    struct neighbour *member = &all->members[index];
    member->error = (struct convoy_error)CONVOY_ERROR_INIT;
    return convoy_engine_test(member->engine, member->operation, &member->summary, &member->error);
}

int32_t neighbours_wait(struct neighbours *all, uint32_t index, uint64_t timeout_ns)
{
    struct neighbour *member = &all->members[index];
    member->error = (struct convoy_error)CONVOY_ERROR_INIT;
    return convoy_engine_wait(member->engine, member->operation, timeout_ns, &member->summary, &member->error);
}

void neighbours_expect_round(struct neighbours *all, uint32_t first, uint32_t count)
{
    uint32_t sum = 0;
    for (uint32_t i = first; i < first + count; i++) {
        EXPECT_OK(neighbours_start(all, i, (uint8_t)(i + 1)), &all->members[i].error);
        sum += i + 1;
    }
    for (uint32_t i = first; i < first + count; i++) {
        EXPECT_OK(neighbours_test(all, i), &all->members[i].error);
        EXPECT_EQUAL(all->members[i].sum, sum);
        EXPECT_EQUAL(all->members[i].absent, all->members[i].engine->lost_count);
    }
}

void neighbours_report(struct neighbours *all, uint32_t index)
{
    struct neighbour *member = &all->members[index];
    memset(member->rows, 0xa5, sizeof member->rows);
    member->report = (struct convoy_report){.struct_size = sizeof member->report,
                                            .members = member->rows,
                                            .member_stride = sizeof member->rows[0],
                                            .member_capacity = NEIGHBOURS_MAX};
    convoy_engine_report(member->engine, &member->report);
}

const struct convoy_member_report *neighbours_row(struct neighbours *all, uint32_t index, uint32_t member)
{
    const struct neighbour *from = &all->members[index];
    for (uint32_t i = 0; i < from->report.member_count; i++) {
        if (from->rows[i].index == member) {
            return &from->rows[i];
        }
    }
    expect_fail(EXPECT_SITE("report"), "has no row of member %u", member);
}
