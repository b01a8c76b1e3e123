/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of opening a group fails once; needs a build with the allocation hook (VARIANT=debug or asan). */
#include "tests/unit/bootstrap_cast.h"

#include "core/memory.h"

#ifdef CONVOY_FAULTS

#define SWEEP_MAX 400
#define SHORT_NS (100 * CONVOY_NS_PER_MS) /* what a member that never came costs the others */

/* Plays the group with the allocation after `skip` more failing. Returns how many allocations there were. */
static uint64_t play_short_of_memory(struct cast *cast, uint16_t port, int64_t skip, uint64_t timeout_ns)
{
    cast_init(cast, 3, port);
    for (uint32_t i = 0; i < 3; i++) {
        cast->members[i].timeout_ns = timeout_ns;
        cast->members[i].options.epoch = (uint64_t)(skip + 2);
        cast->members[i].config.settings = "{\"hello_timeout_ms\": 50}";
        cast->members[i].config.settings_length = strlen(cast->members[i].config.settings);
    }
    (void)convoy_memory_fail_after(skip);
    cast_run(cast);
    return convoy_memory_fail_after(-1);
}

/* Which allocation fails is up to the order of the threads, so what is checked is what must always hold: every member
 * ends with OK or with a reason, one that says OK has exchanged rightly, nothing is left behind, and it works again. */
static void check_outcome(const struct cast *cast, int64_t skip)
{
    for (uint32_t i = 0; i < cast->count; i++) {
        const struct cast_member *member = &cast->members[i];
        bool is_explained = member->status == CONVOY_NO_MEMORY || member->status == CONVOY_PEER_LOST ||
                            member->status == CONVOY_TIMED_OUT;
        if (member->status == CONVOY_OK ? member->exchanged != 2 : !is_explained || member->error.text[0] == '\0') {
            fail_msg("allocation %lld, member %u: status %d: %s", (long long)skip, i, member->status,
                     member->error.text);
        }
    }
}

static void test_bootstrap_survives_every_allocation_failing_once(void **state)
{
    (void)state;
    struct cast cast;
    uint16_t port = cast_free_port();
    uint32_t before = cast_count_resources();
    uint64_t count = play_short_of_memory(&cast, port, -1, CAST_TIMEOUT_NS);
    uint32_t failed = 0;
    cast_assert_ok(&cast);
    assert_in_range(count, 20, SWEEP_MAX);
    for (int64_t skip = 0; skip < (int64_t)count; skip++) {
        (void)play_short_of_memory(&cast, port, skip, SHORT_NS);
        check_outcome(&cast, skip);
        failed += cast.members[0].status != CONVOY_OK || cast.members[1].status != CONVOY_OK;
        assert_true(cast_resources_are(before));
    }
    assert_true(failed > count / 4); /* the hook did bite */
    (void)play_short_of_memory(&cast, port, -1, CAST_TIMEOUT_NS);
    cast_assert_ok(&cast);
}

#else

static void test_bootstrap_survives_every_allocation_failing_once(void **state)
{
    (void)state;
    print_message("skipped: this build has no allocation hook; run with VARIANT=debug\n");
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bootstrap_survives_every_allocation_failing_once)};
    return cmocka_run_group_tests_name("bootstrap_memory", tests, cast_warm_up, NULL);
}
