/* SPDX-License-Identifier: Apache-2.0 */
/* What a round says in which the members do not agree: field, member, both values; and that the next one works. */
#include "tests/lib/expect.h"
#include "tests/lib/neighbours.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* What member 1 of three does otherwise. */
struct difference {
    uint32_t field;
    struct convoy_contribution mine;
    struct convoy_contribution other;
    const char *text;
};

#define HEADER(...) {.header = {.operation = CONVOY_OPERATION_POLL, __VA_ARGS__}}
#define OPERATION(name) {.header = {.operation = (name)}}
#define TAG(number) {.header = {.operation = CONVOY_OPERATION_POLL}, .tag = (number)}

static const struct difference differences[] = {
    {CONVOY_FIELD_OPERATION, OPERATION(CONVOY_OPERATION_POLL), OPERATION(CONVOY_OPERATION_SYNC),
     "rank 11 calls sync, this rank 10 calls poll"},
    {CONVOY_FIELD_OPERATION, OPERATION(CONVOY_OPERATION_POLL_KEYED), OPERATION(CONVOY_OPERATION_POLL),
     "rank 11 calls poll, this rank 10 calls keyed poll"},
    {CONVOY_FIELD_OPERATION, OPERATION(CONVOY_OPERATION_SYNC), OPERATION(77),
     "rank 11 calls unknown operation, this rank 10 calls sync"},
    {CONVOY_FIELD_COUNTS, HEADER(.counts = 3 << 8 | 1), HEADER(.counts = 5 << 8 | 1),
     "entries differs: 5 is at rank 11, 3 at this rank 10"},
    {CONVOY_FIELD_DIGEST, HEADER(.digest = 70), HEADER(.digest = 71),
     "digest differs: 71 is at rank 11, 70 at this rank 10"},
    {CONVOY_FIELD_SCHEMA, HEADER(.schema = 8), HEADER(.schema = 0),
     "schema differs: 0 is at rank 11, 8 at this rank 10"},
    {CONVOY_FIELD_POLICY, HEADER(.policy = 1), HEADER(.policy = 2),
     "policy differs: 2 is at rank 11, 1 at this rank 10"},
    {CONVOY_FIELD_TAG, TAG(900), TAG(901), "step tag differs: 901 is at rank 11, 900 at this rank 10"},
    /* the first field of several is named */
    {CONVOY_FIELD_COUNTS, HEADER(.counts = 256, .digest = 1), HEADER(.counts = 512, .digest = 2),
     "entries differs: 2 is at rank 11, 1 at this rank 10"},
};

static void bring(struct neighbours *all, uint32_t index, const struct convoy_contribution *what)
{
    struct convoy_contribution *own = &all->members[index].contribution;
    own->header = what->header;
    own->tag = what->tag;
    EXPECT_OK(neighbours_start(all, index, 1), &all->members[index].error);
}

static void diverged_expect(struct neighbours *all, const struct difference *difference, uint64_t round)
{
    struct neighbour *member = &all->members[0];
    EXPECT_STATUS(neighbours_test(all, 0), CONVOY_DIVERGED, &member->error);
    EXPECT_TEXT(member->error.text, difference->text);
    EXPECT_EQUAL(member->error.rank, 11);
    EXPECT_EQUAL(member->error.round, round);
    neighbours_report(all, 0);
    EXPECT_EQUAL(member->report.field, difference->field);
    EXPECT_EQUAL(member->report.round, round);
    EXPECT_EQUAL(member->report.own_rank, 10);
    EXPECT_EQUAL(member->report.operation, member->operation);
    EXPECT_EQUAL(member->report.member_count, 3);
    EXPECT_EQUAL(neighbours_row(all, 0, 0)->condition, CONVOY_MEMBER_HEARD);
    EXPECT_EQUAL(neighbours_row(all, 0, 1)->condition, CONVOY_MEMBER_DIVERGED);
    EXPECT_EQUAL(neighbours_row(all, 0, 1)->rank, 11);
    EXPECT_EQUAL(neighbours_row(all, 0, 2)->condition, CONVOY_MEMBER_HEARD);
    EXPECT_STATUS(neighbours_test(all, 1), CONVOY_DIVERGED, &all->members[1].error);
    EXPECT_EQUAL(all->members[1].error.rank, 10); /* the first who is not as itself */
    EXPECT_STATUS(neighbours_test(all, 2), CONVOY_DIVERGED, &all->members[2].error);
    EXPECT_EQUAL(all->members[2].error.rank, 11);
}

static void test_diverged_field_is_named_with_both_values(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(3, NULL, 0);
    for (uint32_t i = 0; i < sizeof differences / sizeof differences[0]; i++) {
        bring(all, 0, &differences[i].mine);
        bring(all, 1, &differences[i].other);
        bring(all, 2, &differences[i].mine);
        diverged_expect(all, &differences[i], 2 * i + 1);
        for (uint32_t member = 0; member < 3; member++) {
            all->members[member].contribution.header = differences[0].mine.header;
            all->members[member].contribution.tag = 0;
        }
        neighbours_expect_round(all, 0, 3);
        EXPECT_EQUAL(all->members[0].summary.round, 2 * i + 2);
    }
    neighbours_destroy(all);
}

/* A tag of 0 is none: it differs from nothing. */
static void test_diverged_tag_is_not_compared_with_none(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(2, NULL, 0);
    all->members[1].contribution.tag = 5;
    neighbours_expect_round(all, 0, 2);
    neighbours_destroy(all);
}

/* Another epoch, or another wire version, which rows do not carry: both come of a host that mixed up two groups. */
static void test_diverged_epoch_and_what_rows_do_not_carry(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(2, NULL, 0);
    struct neighbour *member = &all->members[0];
    all->members[1].engine->agreement.epoch += 3;
    EXPECT_OK(neighbours_start(all, 0, 1), &member->error);
    EXPECT_OK(neighbours_start(all, 1, 1), NULL);
    EXPECT_STATUS(neighbours_test(all, 0), CONVOY_DIVERGED, &member->error);
    EXPECT_TEXT(member->error.text, "epoch differs: 43 is at rank 11, 40 at this rank 10");
    EXPECT_STATUS(neighbours_test(all, 1), CONVOY_DIVERGED, NULL);
    all->members[1].engine->agreement.epoch -= 3;
    all->members[1].engine->agreement.wire++;
    EXPECT_OK(neighbours_start(all, 0, 1), &member->error);
    EXPECT_OK(neighbours_start(all, 1, 1), NULL);
    EXPECT_STATUS(neighbours_test(all, 0), CONVOY_DIVERGED, &member->error);
    neighbours_report(all, 0);
    EXPECT_EQUAL(member->report.field, CONVOY_FIELD_POLICY);
    neighbours_destroy(all);
}

/* Members of other hosts may have diverged, whose rows have not come. */
static void test_diverged_without_a_row_names_the_field_only(void **state)
{
    (void)state;
    struct neighbours *all = neighbours_create(2, NULL, 0);
    struct convoy_engine *engine = all->members[0].engine;
    struct convoy_error error = CONVOY_ERROR_INIT;
    neighbours_expect_round(all, 0, 2);
    convoy_engine_report_fill(engine, CONVOY_DIVERGED, CONVOY_FIELD_TAG);
    convoy_engine_report_diverged_text(engine, 9, &error);
    EXPECT_TEXT(error.text, "group near: members diverged in round 9 in step tag");
    EXPECT_EQUAL(error.status, CONVOY_DIVERGED);
    EXPECT_EQUAL(error.rank, -1);
    error = (struct convoy_error)CONVOY_ERROR_INIT;
    convoy_engine_report_fill(engine, CONVOY_DIVERGED, CONVOY_FIELD_NONE);
    convoy_engine_report_diverged_text(engine, 9, &error);
    EXPECT_TEXT(error.text, "in nothing");
    error = (struct convoy_error)CONVOY_ERROR_INIT;
    convoy_engine_report_fill(engine, CONVOY_DIVERGED, 99);
    convoy_engine_report_diverged_text(engine, 9, &error);
    EXPECT_TEXT(error.text, "in an unknown field");
    neighbours_destroy(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_diverged_field_is_named_with_both_values),
        cmocka_unit_test(test_diverged_tag_is_not_compared_with_none),
        cmocka_unit_test(test_diverged_epoch_and_what_rows_do_not_carry),
        cmocka_unit_test(test_diverged_without_a_row_names_the_field_only),
    };
    return cmocka_run_group_tests_name("diverged", tests, NULL, NULL);
}
