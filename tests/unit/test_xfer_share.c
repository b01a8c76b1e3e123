/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer has of the own generations, every edge against a second list; and a peer's generations as they are mapped. */
#include "tests/lib/mappings.h"
#include "xfer/parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES 4096u

static void test_xfer_share_every_pair_of_states_is_as_listed(void **state)
{
    (void)state;
    static const uint32_t edges[][2] = {
        {CONVOY_SHARE_NONE, CONVOY_SHARE_WANTED}, {CONVOY_SHARE_NONE, CONVOY_SHARE_TAKEN},
        {CONVOY_SHARE_WANTED, CONVOY_SHARE_SENT}, {CONVOY_SHARE_WANTED, CONVOY_SHARE_NONE},
        {CONVOY_SHARE_SENT, CONVOY_SHARE_TAKEN},  {CONVOY_SHARE_SENT, CONVOY_SHARE_REFUSED},
        {CONVOY_SHARE_SENT, CONVOY_SHARE_WANTED}, {CONVOY_SHARE_SENT, CONVOY_SHARE_NONE},
        {CONVOY_SHARE_TAKEN, CONVOY_SHARE_NONE},  {CONVOY_SHARE_REFUSED, CONVOY_SHARE_NONE},
    };
    for (uint32_t from = 0; from < CONVOY_SHARE_STATES + 1; from++) {
        for (uint32_t to = 0; to < CONVOY_SHARE_STATES + 1; to++) {
            bool is_listed = false;
            for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
                is_listed = is_listed || (edges[i][0] == from && edges[i][1] == to);
            }
            assert_int_equal(convoy_share_may((enum convoy_share_state)from, (enum convoy_share_state)to), is_listed);
        }
        assert_int_equal(strcmp(convoy_share_name((enum convoy_share_state)from), "UNKNOWN") == 0,
                         from == CONVOY_SHARE_STATES);
    }
}

static void test_xfer_share_rows_are_found_and_counted_while_they_pend(void **state)
{
    (void)state;
    struct convoy_shares shares = {.pending_count = 0};
    const struct convoy_pool_share first = {.generation = 1, .base = 0, .bytes = 100};
    const struct convoy_pool_share third = {.generation = 3, .base = 300, .bytes = 50};
    assert_int_equal(convoy_shares_oldest(&shares), 0);
    struct convoy_share *old = convoy_shares_add(&shares, &first, CONVOY_SHARE_TAKEN);
    struct convoy_share *next = convoy_shares_add(&shares, &third, CONVOY_SHARE_WANTED);
    assert_int_equal(shares.pending_count, 1);
    assert_ptr_equal(convoy_shares_at(&shares, 99), old);
    assert_null(convoy_shares_at(&shares, 100));
    assert_ptr_equal(convoy_shares_at(&shares, 349), next);
    assert_ptr_equal(convoy_shares_newest(&shares, CONVOY_SHARE_WANTED), next);
    assert_ptr_equal(convoy_shares_of(&shares, 3), next);
    assert_true(convoy_share_move(&shares, next, CONVOY_SHARE_SENT));
    assert_int_equal(shares.pending_count, 1);
    assert_false(convoy_share_move(&shares, old, CONVOY_SHARE_SENT));
    assert_true(convoy_share_move(&shares, next, CONVOY_SHARE_TAKEN));
    assert_int_equal(shares.pending_count, 0);
    assert_int_equal(convoy_shares_oldest(&shares), 1);
    assert_true(convoy_share_move(&shares, old, CONVOY_SHARE_NONE));
    assert_int_equal(convoy_shares_oldest(&shares), 3);
    assert_null(convoy_shares_of(&shares, 1));
    for (uint32_t i = 1; i < CONVOY_SHARES; i++) {
        assert_non_null(convoy_shares_add(&shares, &first, CONVOY_SHARE_WANTED));
    }
    assert_null(convoy_shares_add(&shares, &first, CONVOY_SHARE_WANTED));
}

/* -- views -- */

static struct convoy_pool *pool_of(uint64_t bytes)
{
    const struct convoy_pool_options options = {
        .kind = CONVOY_POOL_SHARED, .bytes = bytes, .block_bytes = BYTES, .lease_max = 1, .reference_max = 1};
    struct convoy_pool *pool = NULL;
    assert_int_equal(convoy_pool_open(&options, &pool, NULL), CONVOY_OK);
    return pool;
}

static struct convoy_view *view_of(const struct convoy_pool *pool, uint64_t generation, uint64_t base, bool has_notes)
{
    struct convoy_view *view = NULL;
    int file = convoy_pool_file(pool);
    assert_int_equal(convoy_view_open(file, has_notes ? file : -1, &view, NULL), CONVOY_OK);
    assert_true(convoy_view_place(view, generation, base));
    return view;
}

static void expect_attach(struct convoy_view **newest, const struct convoy_pool *pool, uint64_t generation, uint64_t base,
                          int32_t status)
{
    struct convoy_view *view = view_of(pool, generation, base, false);
    assert_int_equal(convoy_view_attach(newest, view), status);
    if (status != CONVOY_OK) {
        convoy_view_put(view);
    }
}

static void test_xfer_share_views_are_found_by_offset_and_go_when_nobody_reads_them(void **state)
{
    (void)state;
    struct convoy_pool *pool = pool_of(BYTES);
    uint32_t mapped = mappings_count();
    struct convoy_view *newest = view_of(pool, 2, BYTES, true);
    struct convoy_view *second = newest;
    expect_attach(&newest, pool, 2, BYTES, CONVOY_BUSY);
    expect_attach(&newest, pool, 3, BYTES, CONVOY_MALFORMED);           /* overlaps */
    expect_attach(&newest, pool, 3, 0, CONVOY_MALFORMED);               /* newer, but lies before it */
    expect_attach(&newest, pool, 5, 6 * BYTES, CONVOY_OK);              /* newest now */
    expect_attach(&newest, pool, 1, 0, CONVOY_OK);                      /* behind both */
    assert_int_equal(newest->generation, 5);
    assert_ptr_equal(convoy_view_at(newest, BYTES, 1), second);
    assert_int_equal(convoy_view_at(newest, BYTES - 1, 1)->generation, 1);
    assert_null(convoy_view_at(newest, 2 * BYTES, 1));                  /* has ended, or never was */
    assert_ptr_equal(convoy_view_at(newest, 100 * BYTES, 1), newest);   /* which refuses it */
    assert_false(convoy_view_has(newest, 100 * BYTES, 1));
    assert_false(convoy_view_has(second, BYTES, BYTES + 1));
    second->references++; /* a lent view */
    assert_int_equal(convoy_view_forget(newest, 2, 0), 1);
    assert_int_equal(convoy_view_forget(newest, 5, 2), 2); /* the newest stays, */
    assert_int_equal(mappings_count(), mapped + 3);
    assert_int_equal(newest->generation, 5);
    expect_attach(&newest, pool, 6, 7 * BYTES, CONVOY_OK); /* and goes when there is another */
    assert_int_equal(newest->generation, 6);
    assert_null(newest->older);
    assert_int_equal(mappings_count(), mapped + 3);
    convoy_view_put_all(newest);
    assert_int_equal(mappings_count(), mapped + 2); /* the lent one, and the notes with it */
    assert_int_equal(second->pool[0], second->notes[0]);
    convoy_view_put(second);
    assert_int_equal(mappings_count(), mapped);
    convoy_pool_close(pool);
}

static void test_xfer_share_views_of_one_peer_are_bounded(void **state)
{
    (void)state;
    struct convoy_pool *pool = pool_of(BYTES);
    struct convoy_view *newest = view_of(pool, 1, 0, true);
    for (uint32_t i = 1; i < CONVOY_VIEW_GENERATIONS; i++) {
        expect_attach(&newest, pool, 1 + i, (uint64_t)i * BYTES, CONVOY_OK);
    }
    expect_attach(&newest, pool, 100, 100 * BYTES, CONVOY_LIMIT);
    assert_false(convoy_view_place(newest, 0, 0));
    assert_false(convoy_view_place(newest, 1, UINT64_MAX));
    assert_false(convoy_view_place(newest, 1, INT64_MAX));
    convoy_view_put_all(newest);
    convoy_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_xfer_share_every_pair_of_states_is_as_listed),
        cmocka_unit_test(test_xfer_share_rows_are_found_and_counted_while_they_pend),
        cmocka_unit_test(test_xfer_share_views_are_found_by_offset_and_go_when_nobody_reads_them),
        cmocka_unit_test(test_xfer_share_views_of_one_peer_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
