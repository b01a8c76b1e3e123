/* SPDX-License-Identifier: Apache-2.0 */
/* Reports and words about rounds that have no result: who is missing, lost, gone, gave up, or brought no row. */
#include "tests/lib/expect.h"
#include "tests/lib/neighbours.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static uint32_t state_of(const struct neighbours *all, uint32_t index)
{
    struct convoy_group_info info = {.struct_size = sizeof info};
    convoy_engine_info(all->members[index].engine, &info);
    return info.state;
}

static void expect_condition(struct neighbours *all, uint32_t index, uint32_t member, uint32_t condition)
{
    EXPECT_EQUAL(neighbours_row(all, index, member)->condition, condition);
}

static void test_report_timeout_names_who_was_not_heard(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(3, NULL, 0);
    struct neighbour *member = &all->members[0];
    neighbours_expect_round(all, 0, 3);
    EXPECT_OK(neighbours_start(all, 0, 1), &member->error);
    EXPECT_EQUAL(state_of(all, 0), CONVOY_GROUP_ACTIVE);
    EXPECT_STATUS(neighbours_wait(all, 0, CONVOY_NS_PER_MS), CONVOY_TIMED_OUT, &member->error);
    EXPECT_EQUAL(state_of(all, 0), CONVOY_GROUP_STUCK);
    EXPECT_TEXT(member->error.text, "group near: rank 10 waited ");
    EXPECT_TEXT(member->error.text, "in round 2 (poll) and did not hear from ranks 11, 12");
    EXPECT_EQUAL(member->error.rank, 11);
    neighbours_report(all, 0);
    EXPECT_EQUAL(member->report.member_count, 2);
    EXPECT_EQUAL(member->report.round, 2);
    EXPECT(member->report.elapsed_ns < NEIGHBOURS_LONG_NS);
    expect_condition(all, 0, 2, CONVOY_MEMBER_MISSING);
    EXPECT_EQUAL(neighbours_row(all, 0, 2)->round, 1); /* the last one that it was seen in */
    EXPECT(neighbours_row(all, 0, 2)->age_ns < NEIGHBOURS_LONG_NS);
    EXPECT_OK(neighbours_start(all, 1, 1), NULL);
    EXPECT_STATUS(neighbours_wait(all, 0, CONVOY_NS_PER_MS), CONVOY_TIMED_OUT, &member->error);
    EXPECT_TEXT(member->error.text, "did not hear from rank 12");
    EXPECT_OK(neighbours_start(all, 2, 1), NULL);
    EXPECT_OK(neighbours_test(all, 0), &member->error);
    EXPECT_EQUAL(member->sum, 3);
    EXPECT_EQUAL(state_of(all, 0), CONVOY_GROUP_READY);
    neighbours_destroy(all);
}

/* Nobody was ever heard: no round, no age. */
static void test_report_member_that_was_never_heard_has_no_age(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(2, NULL, 0);
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    EXPECT_STATUS(neighbours_wait(all, 0, CONVOY_NS_PER_MS), CONVOY_TIMED_OUT, NULL);
    neighbours_report(all, 0);
    const struct convoy_member_report *row = neighbours_row(all, 0, 1);
    EXPECT_EQUAL(row->round, 0);
    EXPECT(row->age_ns == UINT64_MAX);
    EXPECT_EQUAL(row->rank, 11);
    EXPECT_EQUAL(row->epoch, NEIGHBOURS_EPOCH);
    EXPECT_EQUAL(row->behind, -1);
    neighbours_destroy(all);
}

/* Eight names fit a text. */
static void test_report_many_names_are_cut(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(12, NULL, 0);
    struct neighbour *member = &all->members[0];
    EXPECT_OK(neighbours_start(all, 0, 1), &member->error);
    EXPECT_STATUS(neighbours_wait(all, 0, CONVOY_NS_PER_MS), CONVOY_TIMED_OUT, &member->error);
    EXPECT_TEXT(member->error.text, "ranks 11, 12, 13, 14, 15, 16, 17, 18 and 3 more");
    neighbours_destroy(all);
}

static void test_report_names_are_by_condition(void **state)
{
    (void)state;
    char names[8];
    struct neighbours *all = neighbours_create(3, NULL, 0);
    struct convoy_engine *engine = all->members[0].engine;
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    convoy_engine_report_fill(engine, CONVOY_TIMED_OUT, CONVOY_FIELD_NONE);
    convoy_engine_report_names(engine, 1u << CONVOY_MEMBER_LOST, names, sizeof names);
    EXPECT_EQUAL(names[0], '\0');
    convoy_engine_report_names(engine, 1u << CONVOY_MEMBER_MISSING, names, sizeof names);
    EXPECT_TEXT(names, "11, 12");
    convoy_engine_report_names(engine, 1u << CONVOY_MEMBER_MISSING, names, 4); /* no room for the second */
    EXPECT_TEXT(names, "11");
    neighbours_destroy(all);
}

static void test_report_cancel_gives_its_reason_and_leaves_the_round_open(void **state)
{
    (void)state;
    char reason[2 * CONVOY_CANCEL_TEXT_BYTES];
    struct neighbours *all = neighbours_create(2, NULL, 0);
    struct neighbour *member = &all->members[0];
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    convoy_engine_cancel(member->engine, "shutting down", 13);
    EXPECT_STATUS(neighbours_wait(all, 0, NEIGHBOURS_LONG_NS), CONVOY_CANCELED, &member->error);
    EXPECT_TEXT(member->error.text, "group near: round 1 was canceled: shutting down");
    EXPECT_EQUAL(state_of(all, 0), CONVOY_GROUP_STUCK);
    neighbours_report(all, 0);
    expect_condition(all, 0, 1, CONVOY_MEMBER_MISSING);
    memset(reason, 'x', sizeof reason);
    convoy_engine_cancel(member->engine, reason, sizeof reason);
    EXPECT_STATUS(neighbours_wait(all, 0, NEIGHBOURS_LONG_NS), CONVOY_CANCELED, &member->error);
    EXPECT_EQUAL(strlen(strstr(member->error.text, "xx")), CONVOY_CANCEL_TEXT_BYTES - 1);
    convoy_engine_cancel(member->engine, NULL, 0);
    EXPECT_STATUS(neighbours_wait(all, 0, NEIGHBOURS_LONG_NS), CONVOY_CANCELED, NULL);
    EXPECT_OK(neighbours_start(all, 1, 1), NULL); /* one cancel is for one wait */
    EXPECT_OK(neighbours_wait(all, 0, NEIGHBOURS_LONG_NS), &member->error);
    neighbours_destroy(all);
}

static void test_report_error_row_has_its_reason(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(3, NULL, 0);
    struct neighbour *member = &all->members[0];
    all->members[1].contribution.is_error = true;
    all->members[1].contribution.error_reason = -77;
    for (uint32_t i = 0; i < 3; i++) {
        EXPECT_OK(neighbours_start(all, i, 1), NULL);
    }
    EXPECT_STATUS(neighbours_test(all, 0), CONVOY_PEER_ERROR, &member->error);
    EXPECT_TEXT(member->error.text, "rank 11 contributed no row in round 1, reason -77");
    neighbours_report(all, 0);
    EXPECT_EQUAL(member->report.member_count, 1);
    expect_condition(all, 0, 1, CONVOY_MEMBER_ERROR);
    EXPECT_EQUAL(neighbours_row(all, 0, 1)->reason, -77);
    EXPECT_EQUAL(state_of(all, 0), CONVOY_GROUP_READY);
    neighbours_destroy(all);
}

/* While the round is open an error row is heard, and says so. */
static void test_report_error_row_is_seen_before_the_round_ends(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(3, NULL, 0);
    struct neighbour *member = &all->members[0];
    all->members[1].contribution.is_error = true;
    all->members[1].contribution.error_reason = 5;
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    EXPECT_OK(neighbours_start(all, 1, 1), NULL);
    EXPECT_STATUS(neighbours_wait(all, 0, CONVOY_NS_PER_MS), CONVOY_TIMED_OUT, &member->error);
    EXPECT_TEXT(member->error.text, "did not hear from rank 12"); /* who brought an error row was heard */
    EXPECT_EQUAL(member->error.rank, 12);
    neighbours_report(all, 0);
    expect_condition(all, 0, 1, CONVOY_MEMBER_ERROR);
    EXPECT_EQUAL(neighbours_row(all, 0, 1)->reason, 5);
    neighbours_destroy(all);
}

/* Who brought something else was heard, too. */
static void test_report_other_call_is_not_unheard(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(3, NULL, 0);
    struct neighbour *member = &all->members[0];
    all->members[1].contribution.header.digest = 5;
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    EXPECT_OK(neighbours_start(all, 1, 1), NULL);
    EXPECT_STATUS(neighbours_wait(all, 0, CONVOY_NS_PER_MS), CONVOY_TIMED_OUT, &member->error);
    EXPECT_TEXT(member->error.text, "did not hear from rank 12; rank 11 calls otherwise than this one");
    EXPECT_EQUAL(member->error.rank, 12);
    neighbours_destroy(all);
}

static void test_report_refused_payload_names_its_member(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(2, NULL, 0);
    struct neighbour *member = &all->members[1];
    member->refuse = CONVOY_LIMIT;
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    EXPECT_OK(neighbours_start(all, 1, 1), NULL);
    EXPECT_STATUS(neighbours_test(all, 1), CONVOY_LIMIT, &member->error);
    EXPECT_TEXT(member->error.text, "what rank 10 contributed to round 1 was refused as ");
    EXPECT_OK(neighbours_test(all, 0), NULL);
    neighbours_destroy(all);
}

/* As many rows and as much of each as the caller has room for; the count is of all. */
static void test_report_fits_what_the_caller_has(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(4, NULL, 0);
    struct neighbour *member = &all->members[0];
    struct convoy_member_report small[2];
    EXPECT_OK(neighbours_start(all, 0, 1), NULL);
    EXPECT_STATUS(neighbours_wait(all, 0, CONVOY_NS_PER_MS), CONVOY_TIMED_OUT, NULL);
    memset(small, 0x5a, sizeof small);
    struct convoy_report report = {.members = small, .member_stride = 8, .member_capacity = 2};
    convoy_engine_report(member->engine, &report);
    EXPECT_EQUAL(report.member_count, 3);
    neighbours_report(all, 0);
    EXPECT_BYTES(small, &member->rows[0], 8);
    EXPECT_BYTES((uint8_t *)small + 8, &member->rows[1], 8);
    for (size_t i = 16; i < sizeof small; i++) {
        EXPECT_EQUAL(((uint8_t *)small)[i], 0x5a);
    }
    report = (struct convoy_report){.members = NULL, .member_stride = 8, .member_capacity = 2};
    convoy_engine_report(member->engine, &report);
    EXPECT_EQUAL(report.member_count, 3);
    neighbours_destroy(all);
}

/* A divergence is seen in the rows of a round that is still open. */
static void test_report_open_round_shows_who_does_something_else(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(4, NULL, 0);
    all->members[0].contribution.tag = 5;
    all->members[1].contribution.tag = 6;
    all->members[2].contribution.header.digest = 1;
    for (uint32_t i = 0; i < 3; i++) {
        EXPECT_OK(neighbours_start(all, i, 1), NULL);
    }
    EXPECT_STATUS(neighbours_wait(all, 0, CONVOY_NS_PER_MS), CONVOY_TIMED_OUT, NULL);
    neighbours_report(all, 0);
    EXPECT_EQUAL(all->members[0].report.member_count, 3);
    expect_condition(all, 0, 1, CONVOY_MEMBER_DIVERGED);
    EXPECT_EQUAL(neighbours_row(all, 0, 1)->tag, 6);
    expect_condition(all, 0, 2, CONVOY_MEMBER_DIVERGED);
    EXPECT_EQUAL(neighbours_row(all, 0, 2)->digest, 1);
    expect_condition(all, 0, 3, CONVOY_MEMBER_MISSING);
    neighbours_destroy(all);
}

/* The dump tells the same without a report having been made. */
static void test_report_dump_has_all_members(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(2, NULL, 0);
    neighbours_expect_round(all, 0, 2);
    json_t *dump = convoy_engine_dump(all->members[0].engine);
    char *text = json_dumps(dump, JSON_COMPACT);
    EXPECT(text != NULL);
    EXPECT_TEXT(text, "\"rank\":10");
    EXPECT_TEXT(text, "\"rank\":11");
    free(text);
    json_decref(dump);
    neighbours_destroy(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_report_timeout_names_who_was_not_heard),
        cmocka_unit_test(test_report_member_that_was_never_heard_has_no_age),
        cmocka_unit_test(test_report_many_names_are_cut),
        cmocka_unit_test(test_report_names_are_by_condition),
        cmocka_unit_test(test_report_cancel_gives_its_reason_and_leaves_the_round_open),
        cmocka_unit_test(test_report_error_row_has_its_reason),
        cmocka_unit_test(test_report_error_row_is_seen_before_the_round_ends),
        cmocka_unit_test(test_report_other_call_is_not_unheard),
        cmocka_unit_test(test_report_refused_payload_names_its_member),
        cmocka_unit_test(test_report_fits_what_the_caller_has),
        cmocka_unit_test(test_report_open_round_shows_who_does_something_else),
        cmocka_unit_test(test_report_dump_has_all_members),
    };
    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
