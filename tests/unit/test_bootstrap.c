/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/bootstrap_cast.h"

/* Groups of every size form, blobs of different sizes arrive in member order, nothing is left behind. */
static void test_bootstrap_groups_of_one_to_eight_form_and_exchange(void **state)
{
    (void)state;
    uint32_t before = cast_count_resources();
    for (uint32_t count = 1; count <= CAST_MAX; count++) {
        struct cast cast;
        cast_init(&cast, count, cast_free_port());
        cast_run(&cast);
        cast_assert_ok(&cast);
        assert_int_equal(cast.members[0].agreement.epoch, 7);
        assert_int_equal(cast.members[0].agreement.wire, 1);
    }
    assert_true(cast_resources_are(before));
}

static void test_bootstrap_largest_blobs_arrive_and_a_larger_one_is_refused(void **state)
{
    (void)state;
    struct cast cast;
    cast_init(&cast, 3, cast_free_port());
    for (uint32_t i = 0; i < 3; i++) {
        cast.members[i].blob_bytes = CONVOY_BOOTSTRAP_BLOB_MAX - 2 + i;
    }
    cast_run(&cast);
    cast_assert_ok(&cast);
    cast.members[0].options.member_count = 1;
    cast.members[0].blob_bytes = CONVOY_BOOTSTRAP_BLOB_MAX + 1;
    static uint8_t bytes[CONVOY_BOOTSTRAP_BLOB_MAX + 1];
    struct convoy_runtime *runtime;
    struct convoy_bootstrap *bootstrap;
    struct convoy_blob blob;
    assert_int_equal(convoy_runtime_open(&cast.members[0].config, &runtime, NULL), CONVOY_OK);
    assert_int_equal(convoy_bootstrap_open(runtime, &cast.members[0].options, CONVOY_DEADLINE_NEVER, &bootstrap,
                                           &cast.members[0].agreement, NULL),
                     CONVOY_OK);
    assert_int_equal(convoy_bootstrap_exchange(bootstrap, bytes, sizeof bytes, &blob, NULL), CONVOY_LIMIT);
    assert_int_equal(convoy_bootstrap_exchange(bootstrap, bytes, sizeof bytes - 1, &blob, NULL), CONVOY_OK);
    convoy_bootstrap_close(bootstrap);
    convoy_runtime_destroy(runtime);
}

static void test_bootstrap_empty_blobs_are_blobs(void **state)
{
    (void)state;
    struct cast cast;
    cast_init(&cast, 2, cast_free_port());
    cast.members[0].blob_bytes = 0;
    cast.members[1].blob_bytes = 1;
    cast_run(&cast);
    cast_assert_ok(&cast);
}

/* The member that listens need not be the first, and the empty secret is a secret too. */
static void test_bootstrap_last_member_listens_with_the_empty_secret(void **state)
{
    (void)state;
    struct cast cast;
    cast_init(&cast, 3, cast_free_port());
    for (uint32_t i = 0; i < 3; i++) {
        cast.members[i].options.listener_index = 2;
        cast.members[i].config.secret = NULL;
    }
    cast_run(&cast);
    cast_assert_ok(&cast);
}

static void test_bootstrap_epoch_zero_is_picked_by_the_listener_and_grows(void **state)
{
    (void)state;
    struct cast cast;
    uint64_t last = 1000; /* later than any epoch counted by hand */
    uint16_t port = cast_free_port();
    for (uint32_t life = 0; life < 3; life++) {
        cast_init(&cast, 2, port);
        cast.members[0].options.epoch = 0;
        cast.members[1].options.epoch = 0;
        cast_run(&cast);
        cast_assert_ok(&cast);
        assert_true(cast.members[0].agreement.epoch > last);
        last = cast.members[0].agreement.epoch;
    }
}

/* Tokens of two lives differ although name, epoch and secret are the same. */
static void test_bootstrap_session_is_another_in_every_life(void **state)
{
    (void)state;
    struct cast first;
    struct cast second;
    cast_init(&first, 2, cast_free_port());
    cast_run(&first);
    cast_init(&second, 2, first.port);
    cast_run(&second);
    cast_assert_ok(&first);
    cast_assert_ok(&second);
    assert_memory_not_equal(first.members[0].agreement.session, second.members[0].agreement.session, 32);
}

/* pytorch/pytorch issues 55967, 114585, 119196: opening again after close needs neither a pause nor another port. */
static void test_bootstrap_opens_again_fifty_times_on_one_port(void **state)
{
    (void)state;
    struct cast cast;
    uint16_t port = cast_free_port();
    uint32_t before = cast_count_resources();
    for (uint32_t life = 1; life <= 50; life++) {
        cast_init(&cast, 3, port);
        for (uint32_t i = 0; i < 3; i++) {
            cast.members[i].options.epoch = life;
        }
        cast_run(&cast);
        cast_assert_ok(&cast);
    }
    assert_true(cast_resources_are(before));
}

/* Two groups at one port of one context; each member starts them in another order, each on a thread of its own. */
static void test_bootstrap_groups_open_in_any_order_on_one_port(void **state)
{
    (void)state;
    enum { MEMBERS = 4 };
    struct cast casts[2];
    struct convoy_runtime *runtimes[MEMBERS];
    uint16_t port = cast_free_port();
    cast_init(&casts[0], MEMBERS, port);
    cast_init(&casts[1], MEMBERS, port);
    (void)snprintf(casts[1].name, sizeof casts[1].name, "cp");
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(convoy_runtime_open(&casts[0].members[i].config, &runtimes[i], NULL), CONVOY_OK);
        casts[0].members[i].runtime = casts[1].members[i].runtime = runtimes[i];
        casts[1].members[i].options.name = casts[1].name;
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        cast_start(&casts[i % 2].members[i]);
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        cast_start(&casts[1 - i % 2].members[i]);
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        cast_join(&casts[0].members[i]);
        cast_join(&casts[1].members[i]);
        convoy_runtime_destroy(runtimes[i]);
    }
    cast_assert_ok(&casts[0]);
    cast_assert_ok(&casts[1]);
}

/* Two processes (here: contexts) that both want the port: whoever comes second gets it when the first is done. */
static void test_bootstrap_two_listeners_share_a_port_one_after_the_other(void **state)
{
    (void)state;
    struct cast casts[2];
    uint16_t port = cast_free_port();
    for (uint32_t i = 0; i < 2; i++) {
        cast_init(&casts[i], 3, port);
        (void)snprintf(casts[i].name, sizeof casts[i].name, i == 0 ? "tp" : "cp");
        for (uint32_t k = 0; k < 3; k++) {
            casts[i].members[k].options.name = casts[i].name;
            cast_start(&casts[i].members[k]);
        }
    }
    for (uint32_t i = 0; i < 6; i++) {
        cast_join(&casts[i / 3].members[i % 3]);
    }
    cast_assert_ok(&casts[0]);
    cast_assert_ok(&casts[1]);
}

/* pytorch/pytorch issues 8664, 8672: members that dial a name meet a listener whose own address was given. */
static void test_bootstrap_name_and_address_of_one_host_meet(void **state)
{
    (void)state;
    struct cast cast;
    char name[64];
    cast_init(&cast, 2, cast_free_port());
    (void)snprintf(name, sizeof name, "tcp://localhost:%u/tp", cast.port);
    cast.members[1].options.rendezvous = name;
    cast.members[1].options.rendezvous_length = strlen(name);
    cast_run(&cast);
    cast_assert_ok(&cast);
}

/* The given address is not one of this host (TEST-NET-1): the listener takes the wildcard, and members that know
 * another way reach it. */
static void test_bootstrap_foreign_address_falls_back_to_the_wildcard(void **state)
{
    (void)state;
    struct cast cast;
    char foreign[64];
    cast_init(&cast, 2, cast_free_port());
    (void)snprintf(foreign, sizeof foreign, "tcp://192.0.2.1:%u", cast.port);
    cast.members[0].options.rendezvous = foreign;
    cast.members[0].options.rendezvous_length = strlen(foreign);
    cast_run(&cast);
    cast_assert_ok(&cast);
}

/* The lowest of the highest wire versions is used by all. */
static void test_bootstrap_wire_is_the_lowest_of_the_highest(void **state)
{
    (void)state;
    struct cast cast;
    cast_init(&cast, 3, cast_free_port());
    cast.members[0].wire_max = 4;
    cast.members[1].wire_max = 2;
    cast.members[2].wire_max = 3;
    cast_run(&cast);
    cast_assert_ok(&cast);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(cast.members[i].agreement.wire, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bootstrap_groups_of_one_to_eight_form_and_exchange),
        cmocka_unit_test(test_bootstrap_largest_blobs_arrive_and_a_larger_one_is_refused),
        cmocka_unit_test(test_bootstrap_empty_blobs_are_blobs),
        cmocka_unit_test(test_bootstrap_last_member_listens_with_the_empty_secret),
        cmocka_unit_test(test_bootstrap_epoch_zero_is_picked_by_the_listener_and_grows),
        cmocka_unit_test(test_bootstrap_session_is_another_in_every_life),
        cmocka_unit_test(test_bootstrap_opens_again_fifty_times_on_one_port),
        cmocka_unit_test(test_bootstrap_groups_open_in_any_order_on_one_port),
        cmocka_unit_test(test_bootstrap_two_listeners_share_a_port_one_after_the_other),
        cmocka_unit_test(test_bootstrap_name_and_address_of_one_host_meet),
        cmocka_unit_test(test_bootstrap_foreign_address_falls_back_to_the_wildcard),
        cmocka_unit_test(test_bootstrap_wire_is_the_lowest_of_the_highest),
    };
    return cmocka_run_group_tests_name("bootstrap", tests, cast_warm_up, NULL);
}
