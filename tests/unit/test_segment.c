/* SPDX-License-Identifier: Apache-2.0 */
#include "round/segment.h"

#include "core/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* Parts follow each other without overlap, on whole lines, and nothing reaches past the end. */
static void test_segment_plan_parts_do_not_overlap(void **state)
{
    (void)state;
    const uint32_t counts[] = {1, 2, 3, 8, 1024};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct convoy_segment_geometry plan;
        uint32_t count = counts[i];
        convoy_segment_plan(&plan, count, count, 1000, 5000);
        assert_true(plan.slots_offset >= sizeof(struct convoy_segment_head));
        assert_true(plan.status_offset >= plan.slots_offset + count * sizeof(struct convoy_member_slot));
        assert_true(plan.results_offset >=
                    plan.status_offset + (count > 1 ? count * sizeof(struct convoy_member_status) : 0));
        assert_true(plan.partials_offset >= plan.results_offset + (count > 1 ? 2 * 5000 : 0));
        assert_true(plan.cells_offset >= plan.partials_offset + (count > 1 ? 2 * 5000 : 0));
        assert_true(plan.total_bytes >= plan.cells_offset + count * 2 * convoy_cell_bytes(1000));
        assert_int_equal((plan.slots_offset | plan.status_offset | plan.results_offset | plan.partials_offset |
                          plan.cells_offset | plan.total_bytes) %
                             CONVOY_LINE_BYTES,
                         0);
    }
}

/* Who makes the segment plans for all candidates; who uses it for those that joined. */
static void test_segment_plan_grows_with_the_members_of_the_host(void **state)
{
    (void)state;
    size_t last = 0;
    for (uint32_t count = 1; count <= 64; count++) {
        struct convoy_segment_geometry plan;
        convoy_segment_plan(&plan, count, 64, 16384, 40000);
        assert_true(plan.total_bytes > last);
        last = plan.total_bytes;
    }
}

static void test_segment_of_eight_members_is_at_most_a_mebibyte(void **state)
{
    (void)state;
    struct convoy_segment_geometry plan;
    convoy_segment_plan(&plan, 8, 8, 16384, 2 * 16384 + 1024 + 256 + 64);
    assert_true(plan.total_bytes <= 1024 * 1024);
}

/* Two mappings of one descriptor see each other's words; private memory has the same layout. */
static void test_segment_open_maps_or_allocates(void **state)
{
    (void)state;
    struct convoy_segment one = {.base = NULL};
    struct convoy_segment two = {.base = NULL};
    struct convoy_segment alone = {.base = NULL};
    convoy_segment_plan(&one.geometry, 2, 2, 64, 64);
    two.geometry = one.geometry;
    convoy_segment_plan(&alone.geometry, 1, 1, 64, 64);
    int fd = memfd_create("segment", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)one.geometry.total_bytes), 0);
    assert_int_equal(convoy_segment_open(&one, fd, NULL), CONVOY_OK);
    assert_int_equal(convoy_segment_open(&two, fd, NULL), CONVOY_OK);
    assert_int_equal(convoy_segment_open(&alone, -1, NULL), CONVOY_OK);
    atomic_store(&convoy_segment_cell(&one, 1, 7)->word, 42);
    assert_int_equal(atomic_load(&convoy_segment_cell(&two, 1, 9)->word), 42); /* same parity */
    assert_int_equal(atomic_load(&convoy_segment_cell(&two, 1, 8)->word), 0);
    assert_int_equal(atomic_load(&convoy_segment_cell(&two, 0, 7)->word), 0);
    assert_int_equal(atomic_load(&convoy_segment_cell(&alone, 0, 1)->word), 0);
    convoy_segment_close(&one);
    convoy_segment_close(&one); /* a second time is harmless */
    convoy_segment_close(&two);
    convoy_segment_close(&alone);
    assert_int_equal(close(fd), 0);
}

static void test_segment_open_of_no_descriptor_says_why(void **state)
{
    (void)state;
    struct convoy_segment segment = {.base = NULL};
    struct convoy_error error = CONVOY_ERROR_INIT;
    int pipes[2];
    convoy_segment_plan(&segment.geometry, 2, 2, 64, 64);
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(convoy_segment_open(&segment, pipes[0], &error), CONVOY_SYSTEM);
    assert_true(error.sys_errno != 0);
    assert_null(segment.base);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segment_plan_parts_do_not_overlap),
        cmocka_unit_test(test_segment_plan_grows_with_the_members_of_the_host),
        cmocka_unit_test(test_segment_of_eight_members_is_at_most_a_mebibyte),
        cmocka_unit_test(test_segment_open_maps_or_allocates),
        cmocka_unit_test(test_segment_open_of_no_descriptor_says_why),
    };
    return cmocka_run_group_tests_name("segment", tests, NULL, NULL);
}
