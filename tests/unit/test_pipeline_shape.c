/* SPDX-License-Identifier: Apache-2.0 */
/* Roles of a pipeline: what is understood, who is who, and that requests are spread so that all pairs meet. */
#include "cli/pipeline_shape.h"
#include "core/error.h"

#include <stdbool.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct convoy_error error;

static int32_t parse(struct convoy_pipeline_shape *shape, const char *text)
{
    error = (struct convoy_error)CONVOY_ERROR_INIT;
    return convoy_pipeline_shape_parse(shape, text, &error);
}

static void test_pipeline_shape_three_numbers_are_read(void **state)
{
    (void)state;
    struct convoy_pipeline_shape shape;
    assert_int_equal(parse(&shape, "1:2:3"), CONVOY_OK);
    assert_int_equal(shape.counts[CONVOY_PIPELINE_ENCODER], 1);
    assert_int_equal(shape.counts[CONVOY_PIPELINE_DENOISER], 2);
    assert_int_equal(shape.counts[CONVOY_PIPELINE_DECODER], 3);
    assert_int_equal(convoy_pipeline_shape_members(&shape), 6);
    assert_int_equal(parse(&shape, "20:24:20"), CONVOY_OK);
}

static void test_pipeline_shape_anything_else_is_refused_untouched(void **state)
{
    (void)state;
    static const char *const texts[] = {"",      "1",     "1:2",    "1:2:",    "1:2:3:", "1:2:3:4", "0:1:1", "1:0:1",
                                        "1:1:0", "-1:1:1", " 1:1:1", "1: 1:1", "1:1:1 ", "a:b:c",  "65:1:1", "22:22:21",
                                        "99999999999999999999:1:1"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct convoy_pipeline_shape shape = {{7, 7, 7}};
        assert_int_equal(parse(&shape, texts[i]), CONVOY_INVALID_ARGUMENT);
        assert_int_equal(shape.counts[0], 7);
    }
    struct convoy_pipeline_shape shape;
    (void)parse(&shape, "1:2");
    assert_string_equal(error.text, "--roles is \"1:2\": must be ENCODERS:DENOISERS:DECODERS, each at least 1, together "
                                    "at most 64");
}

static void test_pipeline_shape_members_are_numbered_through(void **state)
{
    (void)state;
    const struct convoy_pipeline_shape shape = {{2, 3, 1}};
    static const char *const names[] = {"encoder 0", "encoder 1", "denoiser 0", "denoiser 1", "denoiser 2", "decoder 0"};
    static const uint32_t hosts[] = {0, 0, 0, 1, 0, 1};
    for (uint32_t i = 0; i < 6; i++) {
        char name[CONVOY_PIPELINE_NAME_BYTES];
        assert_string_equal(convoy_pipeline_shape_name(&shape, i, name), names[i]);
        assert_int_equal(strncmp(name, convoy_pipeline_role_name(convoy_pipeline_shape_role(&shape, i)), 6), 0);
        assert_int_equal(convoy_pipeline_shape_host(&shape, i), hosts[i]);
    }
}

/* Every member gets its share, no member more than its turn, and members of neighbouring roles all meet. */
static void test_pipeline_shape_requests_are_spread(void **state)
{
    (void)state;
    static const struct convoy_pipeline_shape shapes[] = {{{1, 1, 1}}, {{1, 2, 1}}, {{1, 2, 2}}, {{2, 2, 2}},
                                                          {{2, 3, 4}}, {{4, 2, 3}}, {{3, 3, 3}}};
    enum { REQUESTS = 1200 };
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const struct convoy_pipeline_shape *shape = &shapes[s];
        uint8_t has_met[CONVOY_PIPELINE_MEMBERS_MAX][CONVOY_PIPELINE_MEMBERS_MAX] = {{0}};
        uint32_t total = 0;
        for (uint32_t i = 0; i < REQUESTS; i++) {
            uint32_t encoder = convoy_pipeline_shape_member(shape, CONVOY_PIPELINE_ENCODER, i);
            uint32_t denoiser = convoy_pipeline_shape_member(shape, CONVOY_PIPELINE_DENOISER, i);
            uint32_t decoder = convoy_pipeline_shape_member(shape, CONVOY_PIPELINE_DECODER, i);
            has_met[encoder][denoiser] = has_met[denoiser][decoder] = 1;
        }
        for (uint32_t i = 0; i < convoy_pipeline_shape_members(shape); i++) {
            uint32_t role = convoy_pipeline_shape_role(shape, i);
            uint32_t share = convoy_pipeline_shape_share(shape, i, REQUESTS);
            assert_in_range(share, REQUESTS / shape->counts[role] - 4, REQUESTS / shape->counts[role] + 4);
            total += share;
            for (uint32_t j = 0; j < convoy_pipeline_shape_members(shape); j++) {
                bool are_neighbours = (uint32_t)convoy_pipeline_shape_role(shape, j) == role + 1;
                assert_int_equal(has_met[i][j], are_neighbours);
            }
        }
        assert_int_equal(total, 3 * REQUESTS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipeline_shape_three_numbers_are_read),
        cmocka_unit_test(test_pipeline_shape_anything_else_is_refused_untouched),
        cmocka_unit_test(test_pipeline_shape_members_are_numbered_through),
        cmocka_unit_test(test_pipeline_shape_requests_are_spread),
    };
    return cmocka_run_group_tests_name("pipeline_shape", tests, NULL, NULL);
}
