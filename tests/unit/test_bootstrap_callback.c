/* SPDX-License-Identifier: Apache-2.0 */
/* The carrier over the host's own all-gather. */
#include "tests/unit/bootstrap_cast.h"

#include <stdlib.h>

/* An all-gather of threads. A member that leaves breaks it for all, as a host's would by its own time-out. */
struct hall {
    pthread_mutex_t lock;
    pthread_cond_t change;
    uint32_t count;
    uint32_t arrived;
    uint32_t left;
    uint64_t turn;
    size_t bytes; /* of the first to arrive; another size breaks it */
    bool is_broken;
    uint32_t flip_call; /* from 1: this call flips one bit of member 1's bytes on its way; 0 = never */
    uint8_t *table;
};

struct hall_seat {
    struct hall *hall;
    uint32_t index;
    uint32_t calls;
    uint32_t broken_call; /* from 1: this call fails for this member and the others; 0 = never */
};

static void hall_init(struct hall *hall, struct hall_seat *seats, uint32_t count)
{
    *hall = (struct hall){.count = count};
    (void)pthread_mutex_init(&hall->lock, NULL);
    (void)pthread_cond_init(&hall->change, NULL);
    for (uint32_t i = 0; i < count; i++) {
        seats[i] = (struct hall_seat){.hall = hall, .index = i};
    }
}

static void hall_fini(struct hall *hall)
{
    free(hall->table);
    (void)pthread_mutex_destroy(&hall->lock);
    (void)pthread_cond_destroy(&hall->change);
}

/* Caller holds the lock. Puts its bytes down; the last to come opens the table. */
static void hall_put(struct hall *hall, const struct hall_seat *seat, const void *mine, size_t bytes)
{
    if (hall->arrived == 0) {
        hall->bytes = bytes;
        hall->table = realloc(hall->table, hall->count * bytes + 1);
    }
    hall->is_broken = hall->is_broken || hall->bytes != bytes || seat->calls == seat->broken_call;
    if (!hall->is_broken) {
        memcpy(hall->table + seat->index * bytes, mine, bytes);
        if (seat->index == 1 && seat->calls == hall->flip_call) {
            hall->table[seat->index * bytes] ^= 1;
        }
    }
    if (++hall->arrived == hall->count) {
        hall->arrived = 0;
        hall->left = hall->count;
        hall->turn++;
    }
    (void)pthread_cond_broadcast(&hall->change);
}

static int32_t hall_call(void *user, const void *mine, size_t bytes, void *all_out)
{
    struct hall_seat *seat = user;
    struct hall *hall = seat->hall;
    (void)pthread_mutex_lock(&hall->lock);
    seat->calls++;
    while (hall->left != 0 && !hall->is_broken) { /* the call before is still being read */
        (void)pthread_cond_wait(&hall->change, &hall->lock);
    }
    uint64_t turn = hall->turn;
    hall_put(hall, seat, mine, bytes);
    while (hall->turn == turn && !hall->is_broken) {
        (void)pthread_cond_wait(&hall->change, &hall->lock);
    }
    if (!hall->is_broken) {
        memcpy(all_out, hall->table, hall->count * bytes);
        hall->left--;
    }
    (void)pthread_cond_broadcast(&hall->change);
    int32_t result = hall->is_broken ? 5 : 0;
    (void)pthread_mutex_unlock(&hall->lock);
    return result;
}

/* cast_init with the hall instead of a port. */
static void cast_init_hall(struct cast *cast, struct hall *hall, struct hall_seat *seats, uint32_t count)
{
    cast_init(cast, count, 1);
    hall_init(hall, seats, count);
    for (uint32_t i = 0; i < count; i++) {
        cast->members[i].options.rendezvous = NULL;
        cast->members[i].options.rendezvous_length = 0;
        cast->members[i].options.allgather = hall_call;
        cast->members[i].options.allgather_user = &seats[i];
    }
}

static void test_bootstrap_callback_groups_of_two_to_eight_form_and_exchange(void **state)
{
    (void)state;
    for (uint32_t count = 2; count <= CAST_MAX; count++) {
        struct cast cast;
        struct hall hall;
        struct hall_seat seats[CAST_MAX];
        cast_init_hall(&cast, &hall, seats, count);
        cast_run(&cast);
        cast_assert_ok(&cast);
        assert_int_equal(cast.members[0].agreement.epoch, 7);
        hall_fini(&hall);
    }
}

static void test_bootstrap_callback_epoch_zero_is_the_listeners(void **state)
{
    (void)state;
    struct cast cast;
    struct hall hall;
    struct hall_seat seats[CAST_MAX];
    cast_init_hall(&cast, &hall, seats, 3);
    for (uint32_t i = 0; i < 3; i++) {
        cast.members[i].options.epoch = 0;
        cast.members[i].options.listener_index = 1;
    }
    cast_run(&cast);
    cast_assert_ok(&cast);
    assert_true(cast.members[0].agreement.epoch > 1000);
    hall_fini(&hall);
}

/* Member 2 of 3 is wrong in some way: it and all others end with the same status, and nobody hangs. */
static void play_wrong(void (*spoil)(struct cast_member *), int32_t status, const char *first, const char *second)
{
    struct cast cast;
    struct hall hall;
    struct hall_seat seats[CAST_MAX];
    cast_init_hall(&cast, &hall, seats, 3);
    spoil(&cast.members[2]);
    cast_run(&cast);
    for (uint32_t i = 0; i < 3; i++) {
        cast_assert_failed(&cast.members[i], status, first, second);
    }
    hall_fini(&hall);
}

static void spoil_secret(struct cast_member *member)
{
    member->config.secret = "KEY";
}

static void spoil_epoch(struct cast_member *member)
{
    member->options.epoch = 6;
}

static void spoil_bound(struct cast_member *member)
{
    member->options.blob_bytes_max = 4096;
}

static void spoil_name(struct cast_member *member)
{
    member->options.name = "cp";
}

static void spoil_wire(struct cast_member *member)
{
    member->wire_min = member->wire_max = 2;
}

static void spoil_place(struct cast_member *member)
{
    member->options.own_index = 0; /* it stands at 2 in the host's all-gather */
    member->options.own_id = 3;
}

static void test_bootstrap_callback_wrong_member_fails_all_alike(void **state)
{
    (void)state;
    play_wrong(spoil_secret, CONVOY_UNAUTHENTICATED, "secret", "");
    play_wrong(spoil_epoch, CONVOY_STALE_EPOCH, "is at epoch", "member 23");
    play_wrong(spoil_bound, CONVOY_DIVERGED, "4096", "16384");
    play_wrong(spoil_name, CONVOY_DIVERGED, "\"cp\"", "\"tp\"");
    play_wrong(spoil_wire, CONVOY_VERSION_MISMATCH, "2 to 2", "1 to 1");
}

/* Its MAC is that of another place, so it cannot even be believed. */
static void test_bootstrap_callback_member_at_another_place_is_refused(void **state)
{
    (void)state;
    play_wrong(spoil_place, CONVOY_UNAUTHENTICATED, "member", "");
}

/* Bytes that change on their way, in each of the four calls of opening. */
static void test_bootstrap_callback_changed_bytes_fail_all(void **state)
{
    (void)state;
    for (uint32_t call = 1; call <= 4; call++) {
        struct cast cast;
        struct hall hall;
        struct hall_seat seats[CAST_MAX];
        cast_init_hall(&cast, &hall, seats, 3);
        hall.flip_call = call;
        cast_run(&cast);
        for (uint32_t i = 0; i < 3; i++) {
            assert_true(cast.members[i].status == CONVOY_UNAUTHENTICATED || cast.members[i].status == CONVOY_MALFORMED);
        }
        hall_fini(&hall);
    }
}

static void test_bootstrap_callback_that_fails_is_reported_at_every_call(void **state)
{
    (void)state;
    for (uint32_t call = 1; call <= 8; call++) {
        struct cast cast;
        struct hall hall;
        struct hall_seat seats[CAST_MAX];
        cast_init_hall(&cast, &hall, seats, 3);
        seats[1].broken_call = call;
        cast_run(&cast);
        for (uint32_t i = 0; i < 3; i++) {
            cast_assert_failed(&cast.members[i], CONVOY_SYSTEM, "the host's all-gather", "returned 5");
        }
        hall_fini(&hall);
    }
}

static void *play_failing(void *argument)
{
    struct cast_member *member = argument;
    struct convoy_runtime *runtime;
    struct convoy_bootstrap *bootstrap;
    struct convoy_error cause = CONVOY_ERROR_INIT;
    (void)convoy_error_set(&cause, CONVOY_INIT_FAILED, "the device is missing");
    member->status = convoy_runtime_open(&member->config, &runtime, &member->error);
    member->status = convoy_bootstrap_open(runtime, &member->options, convoy_now_ns() + CAST_TIMEOUT_NS, &bootstrap,
                                           &member->agreement, &member->error);
    if (member->status == CONVOY_OK) {
        convoy_bootstrap_fail(bootstrap, &cause);
        convoy_bootstrap_close(bootstrap);
    }
    convoy_runtime_destroy(runtime);
    return NULL;
}

static void test_bootstrap_callback_reported_failure_reaches_all_others(void **state)
{
    (void)state;
    struct cast cast;
    struct hall hall;
    struct hall_seat seats[CAST_MAX];
    cast_init_hall(&cast, &hall, seats, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(
            pthread_create(&cast.members[i].thread, NULL, i == 1 ? play_failing : cast_play, &cast.members[i]), 0);
    }
    for (uint32_t i = 0; i < 3; i++) {
        cast_join(&cast.members[i]);
        if (i != 1) {
            cast_assert_failed(&cast.members[i], CONVOY_INIT_FAILED, "member 13: ", "the device is missing");
            assert_int_equal(cast.members[i].error.rank, 13);
        }
    }
    hall_fini(&hall);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bootstrap_callback_groups_of_two_to_eight_form_and_exchange),
        cmocka_unit_test(test_bootstrap_callback_epoch_zero_is_the_listeners),
        cmocka_unit_test(test_bootstrap_callback_wrong_member_fails_all_alike),
        cmocka_unit_test(test_bootstrap_callback_member_at_another_place_is_refused),
        cmocka_unit_test(test_bootstrap_callback_changed_bytes_fail_all),
        cmocka_unit_test(test_bootstrap_callback_that_fails_is_reported_at_every_call),
        cmocka_unit_test(test_bootstrap_callback_reported_failure_reaches_all_others),
    };
    return cmocka_run_group_tests_name("bootstrap_callback", tests, NULL, NULL);
}
