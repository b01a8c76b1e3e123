/* SPDX-License-Identifier: Apache-2.0 */
#include "core/latency.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define RACE_ROUNDS 20000u

static struct convoy_latency histogram;
static struct convoy_latency_view view;

static int setup(void **state)
{
    (void)state;
    memset(&histogram, 0, sizeof histogram);
    return 0;
}

static void test_latency_buckets_cover_all_values_without_gap_or_overlap(void **state)
{
    (void)state;
    uint64_t low = 0;
    for (uint32_t i = 0; i + 1 < CONVOY_LATENCY_BUCKETS; i++) {
        uint64_t high = convoy_latency_high(i);
        assert_true(high > low);
        assert_int_equal(convoy_latency_bucket(low + 1), i);
        assert_int_equal(convoy_latency_bucket(high), i);
        assert_true(low < 8 || (double)high / (double)low < 1.26);
        low = high;
    }
    assert_int_equal(low, (uint64_t)1 << CONVOY_LATENCY_OCTAVES);
    assert_int_equal(convoy_latency_bucket(0), 0);
    assert_int_equal(convoy_latency_bucket(low + 1), CONVOY_LATENCY_BUCKETS - 1);
    assert_int_equal(convoy_latency_bucket(UINT64_MAX), CONVOY_LATENCY_BUCKETS - 1);
    assert_int_equal(convoy_latency_high(CONVOY_LATENCY_BUCKETS - 1), UINT64_MAX);
}

static void test_latency_percentiles_are_ends_of_buckets_and_never_above_the_maximum(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= 1000; i++) {
        convoy_latency_record(&histogram, i);
    }
    convoy_latency_read(&histogram, &view);
    assert_int_equal(view.count, 1000);
    assert_int_equal(view.sum_ns, 500500);
    assert_int_equal(view.max_ns, 1000);
    assert_int_equal(convoy_latency_percentile(&view, 1), 1);
    assert_int_equal(convoy_latency_percentile(&view, 500000), 512);
    assert_int_equal(convoy_latency_percentile(&view, 990000), 1000);
    assert_int_equal(convoy_latency_percentile(&view, 1000000), 1000);
}

static void test_latency_empty_and_single_value(void **state)
{
    (void)state;
    convoy_latency_read(&histogram, &view);
    assert_int_equal(convoy_latency_percentile(&view, 500000), 0);
    convoy_latency_record(&histogram, 700);
    convoy_latency_read(&histogram, &view);
    assert_int_equal(convoy_latency_percentile(&view, 1), 700);
    assert_int_equal(convoy_latency_percentile(&view, 1000000), 700);
}

static void test_latency_rank_does_not_overflow(void **state)
{
    (void)state;
    histogram.buckets[10] = UINT64_MAX / 2;
    histogram.buckets[20] = UINT64_MAX / 2;
    convoy_latency_read(&histogram, &view);
    assert_int_equal(convoy_latency_percentile(&view, 499999), convoy_latency_high(10));
    assert_int_equal(convoy_latency_percentile(&view, 500001), convoy_latency_high(20));
}

static void test_latency_count_within_an_octave_is_exact(void **state)
{
    (void)state;
    convoy_latency_record(&histogram, 256);
    convoy_latency_record(&histogram, 257);
    convoy_latency_record(&histogram, UINT64_MAX);
    convoy_latency_read(&histogram, &view);
    assert_int_equal(convoy_latency_count_within(&view, 8), 1);
    assert_int_equal(convoy_latency_count_within(&view, 9), 2);
    assert_int_equal(convoy_latency_count_within(&view, CONVOY_LATENCY_OCTAVES - 1), 2);
}

static void *record_main(void *argument)
{
    for (uint64_t i = 0; i < RACE_ROUNDS; i++) {
        convoy_latency_record(argument, i);
    }
    return NULL;
}

/* For ThreadSanitizer; and counts never fall while a reader looks. */
static void test_latency_reader_beside_the_writer_sees_counts_grow(void **state)
{
    (void)state;
    pthread_t writer;
    uint64_t seen = 0;
    assert_int_equal(pthread_create(&writer, NULL, record_main, &histogram), 0);
    for (int i = 0; i < 200; i++) {
        convoy_latency_read(&histogram, &view);
        assert_true(view.count >= seen);
        seen = view.count;
    }
    assert_int_equal(pthread_join(writer, NULL), 0);
    convoy_latency_read(&histogram, &view);
    assert_int_equal(view.count, RACE_ROUNDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_latency_buckets_cover_all_values_without_gap_or_overlap),
        cmocka_unit_test_setup(test_latency_percentiles_are_ends_of_buckets_and_never_above_the_maximum, setup),
        cmocka_unit_test_setup(test_latency_empty_and_single_value, setup),
        cmocka_unit_test_setup(test_latency_rank_does_not_overflow, setup),
        cmocka_unit_test_setup(test_latency_count_within_an_octave_is_exact, setup),
        cmocka_unit_test_setup(test_latency_reader_beside_the_writer_sees_counts_grow, setup),
    };
    return cmocka_run_group_tests_name("latency", tests, NULL, NULL);
}
