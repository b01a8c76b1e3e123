/* SPDX-License-Identifier: Apache-2.0 */
#include "net/roster.h"

#include "core/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const int32_t ids[4] = {3, 13, 23, 33};

static struct convoy_hello make_hello(uint32_t index)
{
    return (struct convoy_hello){.wire_min = 1,
                                 .wire_max = 1,
                                 .epoch = 7,
                                 .has_group = true,
                                 .group = {.name = "tp",
                                           .name_length = 2,
                                           .member_ids = ids,
                                           .member_count = 4,
                                           .own_index = index,
                                           .own_id = ids[index],
                                           .blob_bytes_max = 16384}};
}

static void test_roster_members_that_agree_pass(void **state)
{
    (void)state;
    const struct convoy_hello own = make_hello(0);
    for (uint32_t i = 1; i < 4; i++) {
        const struct convoy_hello theirs = make_hello(i);
        struct convoy_error error = CONVOY_ERROR_INIT;
        bool dooms = true;
        assert_int_equal(convoy_roster_check(&own, &theirs, &dooms, &error), CONVOY_OK);
        assert_false(dooms);
    }
}

/* One field changed at a time: status, whether the group is doomed, a part of the text with the two values. */
static void test_roster_each_difference_is_named_with_both_values(void **state)
{
    (void)state;
    static const int32_t foreign[4] = {3, 13, 99, 33};
    static const int32_t swapped[4] = {13, 3, 23, 33};
    struct convoy_hello own = make_hello(0);
    struct {
        struct convoy_hello theirs;
        int32_t status;
        bool dooms;
        const char *part;
    } rows[10];
    for (size_t i = 0; i < 10; i++) {
        rows[i].theirs = make_hello(2);
        rows[i].status = CONVOY_DIVERGED;
        rows[i].dooms = true;
    }
    rows[0].theirs.epoch = 6, rows[0].status = CONVOY_STALE_EPOCH, rows[0].dooms = false;
    rows[0].part = "member 23 is at epoch 6, member 3 at 7";
    rows[1].theirs.epoch = 0, rows[1].status = CONVOY_STALE_EPOCH, rows[1].dooms = false;
    rows[1].part = "epoch 0, member 3 at 7 (0 = the listener picks)";
    rows[2].theirs.group.own_id = 99, rows[2].theirs.group.member_ids = foreign, rows[2].dooms = false;
    rows[2].part = "member 99 is not in the list of member 3";
    rows[3].theirs.group.member_ids = swapped;
    rows[3].part = "member 23 lists member 13 at index 0, member 3 lists member 3 there";
    rows[4].theirs.group.member_count = 3;
    rows[4].part = "member 23 lists 3 members, member 3 lists 4";
    rows[5].theirs.group.own_index = 1;
    rows[5].part = "member 23 gives index 1";
    rows[6].theirs.group.own_index = 4;
    rows[6].part = "member 23 gives index 4 of 4";
    rows[7].theirs.group.name = "dp";
    rows[7].part = "member 23 opens group \"dp\", member 3 group \"tp\"";
    rows[8].theirs.group.blob_bytes_max = 1;
    rows[8].part = "member 23 has blob bound 1, member 3 has 16384";
    rows[9].theirs.wire_min = rows[9].theirs.wire_max = 2, rows[9].status = CONVOY_VERSION_MISMATCH;
    rows[9].part = "members 3 and 23: wire versions 1 to 1 meet 2 to 2";
    for (size_t i = 0; i < 10; i++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        bool dooms = !rows[i].dooms;
        int32_t status = convoy_roster_check(&own, &rows[i].theirs, &dooms, &error);
        if (status != rows[i].status || dooms != rows[i].dooms || strstr(error.text, rows[i].part) == NULL) {
            fail_msg("row %zu: status %d, dooms %d: %s", i, status, dooms, error.text);
        }
        assert_int_equal(error.rank, rows[i].theirs.group.own_id);
    }
}

static void test_roster_missing_members_are_listed(void **state)
{
    (void)state;
    const struct convoy_hello own = make_hello(0);
    uint8_t heard[CONVOY_ROSTER_SET_BYTES] = {0};
    struct convoy_error error = CONVOY_ERROR_INIT;
    convoy_roster_add(heard, 0);
    convoy_roster_add(heard, 2);
    assert_int_equal(convoy_roster_missing(&own.group, heard, "", &error), CONVOY_TIMED_OUT);
    assert_string_equal(error.text, "members 13, 33 were not heard in time");
    assert_int_equal(error.rank, 13);
    convoy_roster_add(heard, 1);
    assert_int_equal(convoy_roster_missing(&own.group, heard, "", &error), CONVOY_TIMED_OUT);
    assert_string_equal(error.text, "member 33 was not heard in time");
    assert_int_equal(convoy_roster_missing(&own.group, heard, "a stranger came", &error), CONVOY_TIMED_OUT);
    assert_string_equal(error.text, "member 33 was not heard in time; a stranger came");
}

static void test_roster_many_missing_members_are_cut_with_a_count(void **state)
{
    (void)state;
    static int32_t many[CONVOY_HELLO_MEMBERS_MAX];
    struct convoy_hello own = make_hello(0);
    uint8_t heard[CONVOY_ROSTER_SET_BYTES] = {0};
    struct convoy_error error = CONVOY_ERROR_INIT;
    for (uint32_t i = 0; i < CONVOY_HELLO_MEMBERS_MAX; i++) {
        many[i] = INT32_MAX - (int32_t)i;
    }
    own.group.member_ids = many;
    own.group.member_count = CONVOY_HELLO_MEMBERS_MAX;
    assert_int_equal(convoy_roster_missing(&own.group, heard, "", &error), CONVOY_TIMED_OUT);
    assert_non_null(strstr(error.text, "members 2147483647, 2147483646, "));
    assert_non_null(strstr(error.text, " and 1016 more were not heard in time"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roster_members_that_agree_pass),
        cmocka_unit_test(test_roster_each_difference_is_named_with_both_values),
        cmocka_unit_test(test_roster_missing_members_are_listed),
        cmocka_unit_test(test_roster_many_missing_members_are_cut_with_a_count),
    };
    return cmocka_run_group_tests_name("roster", tests, NULL, NULL);
}
