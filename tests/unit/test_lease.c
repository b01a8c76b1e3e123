/* SPDX-License-Identifier: Apache-2.0 */
/* Leases: every call in every state, references of every kind, handles of earlier leases, deadlines, dead peers. */
#include "pool/lease.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define PEER 3u
#define DEADLINE 1000u

static const struct convoy_lease_take plain = {
    .owner = {"request-1", 9, 1}, .block = {4096, 8192}, .asked = 5000, .now_ns = 10, .deadline_ns = DEADLINE};

static convoy_lease taken(struct convoy_leases *leases)
{
    convoy_lease lease = CONVOY_LEASE_NONE;
    assert_int_equal(convoy_lease_take(leases, &plain, &lease), CONVOY_LEASE_OK);
    return lease;
}

static struct convoy_lease_view look(const struct convoy_leases *leases, convoy_lease lease)
{
    struct convoy_lease_view view;
    assert_true(convoy_lease_look(leases, lease, &view));
    return view;
}

/* -- every call in every state ----------------------------------------------------------------------------------------- */

/* A lease in a state; RETIRED ones are kept by a DEVICE reference, FREE ones were freed just now. */
static convoy_lease lease_in(struct convoy_leases *leases, enum convoy_lease_state state)
{
    struct convoy_buddy_block block;
    convoy_lease lease = taken(leases);
    if (state == CONVOY_LEASE_READY) {
        assert_int_equal(convoy_lease_filled(leases, lease, 5000), CONVOY_LEASE_OK);
    } else if (state == CONVOY_LEASE_RETIRED) {
        assert_int_equal(convoy_lease_refer(leases, lease, CONVOY_LEASE_NOBODY, CONVOY_REFERENCE_DEVICE), CONVOY_LEASE_OK);
        assert_int_equal(convoy_lease_retire(leases, lease, CONVOY_LEASE_END_ABORTED, &block), CONVOY_LEASE_OK);
    } else if (state == CONVOY_LEASE_FREE) {
        assert_int_equal(convoy_lease_retire(leases, lease, CONVOY_LEASE_END_RELEASED, &block), CONVOY_LEASE_FREED);
    }
    return lease;
}

enum event { FILLED, ADOPT, RETIRE, READ, WRITE, DEVICE, UNREAD, EVENTS };

static enum convoy_lease_status event_do(struct convoy_leases *leases, convoy_lease lease, enum event event)
{
    struct convoy_buddy_block block;
    switch (event) {
    case FILLED:
        return convoy_lease_filled(leases, lease, 5000);
    case ADOPT:
        return convoy_lease_adopt(leases, lease, &plain.owner, DEADLINE);
    case RETIRE:
        return convoy_lease_retire(leases, lease, CONVOY_LEASE_END_RELEASED, &block);
    case READ:
        return convoy_lease_refer(leases, lease, PEER, CONVOY_REFERENCE_READ);
    case WRITE:
        return convoy_lease_refer(leases, lease, PEER, CONVOY_REFERENCE_WRITE);
    case DEVICE:
        return convoy_lease_refer(leases, lease, CONVOY_LEASE_NOBODY, CONVOY_REFERENCE_DEVICE);
    case UNREAD:
        return convoy_lease_unrefer(leases, lease, PEER, CONVOY_REFERENCE_READ, &block);
    case EVENTS:
        break;
    }
    return CONVOY_LEASE_STALE;
}

static void test_lease_every_call_in_every_state(void **state)
{
    (void)state;
    static const enum convoy_lease_status wanted[EVENTS][CONVOY_LEASE_STATES] = {
        /*           free               taken               ready                   retired */
        [FILLED] = {CONVOY_LEASE_STALE, CONVOY_LEASE_OK, CONVOY_LEASE_BAD_STATE, CONVOY_LEASE_BAD_STATE},
        [ADOPT] = {CONVOY_LEASE_STALE, CONVOY_LEASE_OK, CONVOY_LEASE_BAD_STATE, CONVOY_LEASE_BAD_STATE},
        [RETIRE] = {CONVOY_LEASE_STALE, CONVOY_LEASE_FREED, CONVOY_LEASE_FREED, CONVOY_LEASE_BAD_STATE},
        [READ] = {CONVOY_LEASE_STALE, CONVOY_LEASE_BAD_STATE, CONVOY_LEASE_OK, CONVOY_LEASE_BAD_STATE},
        [WRITE] = {CONVOY_LEASE_STALE, CONVOY_LEASE_OK, CONVOY_LEASE_BAD_STATE, CONVOY_LEASE_BAD_STATE},
        [DEVICE] = {CONVOY_LEASE_STALE, CONVOY_LEASE_OK, CONVOY_LEASE_OK, CONVOY_LEASE_OK},
        [UNREAD] = {CONVOY_LEASE_STALE, CONVOY_LEASE_UNKNOWN, CONVOY_LEASE_UNKNOWN, CONVOY_LEASE_UNKNOWN},
    };
    for (uint32_t event = 0; event < EVENTS; event++) {
        for (uint32_t in = 0; in < CONVOY_LEASE_STATES; in++) {
            struct convoy_leases *leases = convoy_leases_create(2, 4);
            convoy_lease lease = lease_in(leases, (enum convoy_lease_state)in);
            struct convoy_lease_figures before;
            convoy_lease_figures(leases, &before);
            assert_int_equal(before.counts[in], in == CONVOY_LEASE_FREE ? 2 : 1);
            assert_int_equal(event_do(leases, lease, (enum event)event), wanted[event][in]);
            if (wanted[event][in] > CONVOY_LEASE_FREED) { /* refused: nothing has changed */
                struct convoy_lease_figures after;
                convoy_lease_figures(leases, &after);
                before.stale += wanted[event][in] == CONVOY_LEASE_STALE;
                assert_memory_equal(&before, &after, sizeof before);
            }
            convoy_leases_destroy(leases);
        }
    }
}

/* -- one by one -------------------------------------------------------------------------------------------------------- */

static void test_lease_tells_what_it_was_taken_with(void **state)
{
    (void)state;
    struct convoy_leases *leases = convoy_leases_create(1, 1);
    convoy_lease lease = taken(leases);
    struct convoy_lease_view view = look(leases, lease);
    assert_int_equal(view.state, CONVOY_LEASE_TAKEN);
    assert_int_equal(view.block.offset, 4096);
    assert_int_equal(view.block.bytes, 8192);
    assert_int_equal(view.asked, 5000);
    assert_int_equal(view.taken_ns, 10);
    assert_int_equal(view.deadline_ns, DEADLINE);
    assert_string_equal(view.owner.request, "request-1");
    assert_int_equal(view.owner.request_length, 9);
    assert_int_equal(view.owner.attempt, 1);
    assert_int_equal(convoy_lease_adopt(leases, lease, &(struct convoy_lease_owner){"r2", 2, 7}, 99), CONVOY_LEASE_OK);
    view = look(leases, lease);
    assert_string_equal(view.owner.request, "r2");
    assert_int_equal(view.owner.attempt, 7);
    assert_int_equal(view.deadline_ns, 99);
    assert_int_equal(convoy_lease_filled(leases, lease, 8193), CONVOY_LEASE_TOO_LARGE);
    assert_int_equal(convoy_lease_filled(leases, lease, 8192), CONVOY_LEASE_OK);
    assert_int_equal(look(leases, lease).filled, 8192);
    convoy_leases_destroy(leases);
}

static void test_lease_sizes_beyond_the_limits_are_refused(void **state)
{
    (void)state;
    struct convoy_leases *leases = convoy_leases_create(2, 1);
    char request[CONVOY_REQUEST_BYTES + 1];
    memset(request, 'r', sizeof request);
    struct convoy_lease_take take = plain;
    convoy_lease lease = 77;
    take.owner = (struct convoy_lease_owner){request, sizeof request, 1};
    assert_int_equal(convoy_lease_take(leases, &take, &lease), CONVOY_LEASE_TOO_LARGE);
    take.owner.request_length = CONVOY_REQUEST_BYTES;
    take.asked = 8193;
    assert_int_equal(convoy_lease_take(leases, &take, &lease), CONVOY_LEASE_TOO_LARGE);
    assert_int_equal(lease, 77);
    take.asked = 8192;
    assert_int_equal(convoy_lease_take(leases, &take, &lease), CONVOY_LEASE_OK);
    assert_int_equal(look(leases, lease).owner.request_length, CONVOY_REQUEST_BYTES);
    (void)taken(leases);
    assert_int_equal(convoy_lease_take(leases, &plain, &lease), CONVOY_LEASE_FULL);
    assert_null(convoy_leases_create(0, 1));
    assert_null(convoy_leases_create(UINT32_MAX, 1));
    convoy_leases_destroy(leases);
}

/* The same entry again: an old handle does nothing to its new owner. */
static void test_lease_old_handles_are_refused(void **state)
{
    (void)state;
    struct convoy_leases *leases = convoy_leases_create(1, 2);
    struct convoy_buddy_block block = {0, 0};
    convoy_lease old = taken(leases);
    assert_int_equal(convoy_lease_retire(leases, old, CONVOY_LEASE_END_RELEASED, &block), CONVOY_LEASE_FREED);
    assert_int_equal(block.offset, 4096);
    convoy_lease young = taken(leases);
    assert_true(old != young);
    for (uint32_t event = 0; event < EVENTS; event++) {
        assert_int_equal(event_do(leases, old, (enum event)event), CONVOY_LEASE_STALE);
    }
    struct convoy_lease_view view;
    assert_false(convoy_lease_look(leases, old, &view));
    assert_false(convoy_lease_look(leases, CONVOY_LEASE_NONE, &view));
    assert_false(convoy_lease_look(leases, UINT64_MAX, &view));
    assert_int_equal(look(leases, young).state, CONVOY_LEASE_TAKEN);
    struct convoy_lease_figures figures;
    convoy_lease_figures(leases, &figures);
    assert_int_equal(figures.stale, EVENTS);
    convoy_leases_destroy(leases);
}

/* Retired, it is kept until the last of all that refer to it lets go, in whatever order they do. */
static void test_lease_is_freed_by_the_last_that_refers_to_it(void **state)
{
    (void)state;
    static const uint8_t orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}, {1, 3, 0, 2}};
    for (size_t turn = 0; turn < COUNT(orders); turn++) {
        struct convoy_leases *leases = convoy_leases_create(1, 4);
        struct convoy_buddy_block block = {0, 0};
        const struct {
            uint32_t peer;
            enum convoy_reference kind;
        } ends[] = {{PEER, CONVOY_REFERENCE_READ},
                    {PEER, CONVOY_REFERENCE_READ},
                    {PEER + 1, CONVOY_REFERENCE_READ},
                    {CONVOY_LEASE_NOBODY, CONVOY_REFERENCE_DEVICE}};
        convoy_lease lease = taken(leases);
        assert_int_equal(convoy_lease_filled(leases, lease, 1), CONVOY_LEASE_OK);
        for (size_t i = 0; i < COUNT(ends); i++) {
            assert_int_equal(convoy_lease_refer(leases, lease, ends[i].peer, ends[i].kind), CONVOY_LEASE_OK);
        }
        assert_int_equal(convoy_lease_retire(leases, lease, CONVOY_LEASE_END_RELEASED, &block), CONVOY_LEASE_OK);
        struct convoy_lease_figures figures;
        convoy_lease_figures(leases, &figures);
        assert_int_equal(figures.bytes[CONVOY_LEASE_RETIRED], 8192);
        assert_int_equal(figures.references[CONVOY_REFERENCE_READ], 3);
        for (size_t i = 0; i < 4; i++) {
            size_t at = orders[turn][i];
            assert_int_equal(block.bytes, 0);
            assert_int_equal(convoy_lease_unrefer(leases, lease, ends[at].peer, ends[at].kind, &block),
                             i == 3 ? CONVOY_LEASE_FREED : CONVOY_LEASE_OK);
        }
        assert_int_equal(block.bytes, 8192);
        convoy_leases_destroy(leases);
    }
}

/* Letting go of what is still owned frees nothing; letting go once more than one has is refused. */
static void test_lease_references_are_counted_by_peer_and_kind(void **state)
{
    (void)state;
    struct convoy_leases *leases = convoy_leases_create(1, 2);
    struct convoy_buddy_block block;
    convoy_lease lease = taken(leases);
    assert_int_equal(convoy_lease_refer(leases, lease, PEER, CONVOY_REFERENCE_WRITE), CONVOY_LEASE_OK);
    assert_int_equal(convoy_lease_filled(leases, lease, 1), CONVOY_LEASE_OK);
    assert_int_equal(convoy_lease_refer(leases, lease, PEER, CONVOY_REFERENCE_READ), CONVOY_LEASE_OK);
    assert_int_equal(convoy_lease_refer(leases, lease, PEER, CONVOY_REFERENCE_READ), CONVOY_LEASE_OK);
    assert_int_equal(convoy_lease_refer(leases, lease, PEER + 1, CONVOY_REFERENCE_READ), CONVOY_LEASE_FULL);
    assert_int_equal(convoy_lease_unrefer(leases, lease, PEER + 1, CONVOY_REFERENCE_READ, &block), CONVOY_LEASE_UNKNOWN);
    assert_int_equal(convoy_lease_unrefer(leases, lease, PEER, CONVOY_REFERENCE_DEVICE, &block), CONVOY_LEASE_UNKNOWN);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(convoy_lease_unrefer(leases, lease, PEER, CONVOY_REFERENCE_READ, &block), CONVOY_LEASE_OK);
    }
    assert_int_equal(convoy_lease_unrefer(leases, lease, PEER, CONVOY_REFERENCE_READ, &block), CONVOY_LEASE_UNKNOWN);
    assert_int_equal(convoy_lease_unrefer(leases, lease, PEER, CONVOY_REFERENCE_WRITE, &block), CONVOY_LEASE_OK);
    assert_int_equal(look(leases, lease).state, CONVOY_LEASE_READY);
    assert_int_equal(convoy_lease_retire(leases, lease, CONVOY_LEASE_END_RELEASED, &block), CONVOY_LEASE_FREED);
    convoy_leases_destroy(leases);
}

/* A deadline retires, at the nanosecond that it names, what is not retired; and gives nothing away that is referred to. */
static void test_lease_deadlines_end_the_lease_and_no_reference(void **state)
{
    (void)state;
    struct convoy_leases *leases = convoy_leases_create(4, 4);
    struct convoy_buddy_block block;
    struct convoy_lease_take never = plain;
    uint32_t cursor = 0;
    never.deadline_ns = CONVOY_LEASE_NEVER;
    convoy_lease lease;
    assert_int_equal(convoy_lease_take(leases, &never, &lease), CONVOY_LEASE_OK);
    lease = taken(leases);
    assert_int_equal(convoy_lease_refer(leases, lease, PEER, CONVOY_REFERENCE_WRITE), CONVOY_LEASE_OK);
    convoy_lease second = lease_in(leases, CONVOY_LEASE_READY);
    assert_int_equal(convoy_lease_expired(leases, DEADLINE - 1, &cursor), CONVOY_LEASE_NONE);
    cursor = 0;
    assert_int_equal(convoy_lease_expired(leases, DEADLINE, &cursor), lease);
    assert_int_equal(convoy_lease_retire(leases, lease, CONVOY_LEASE_END_EXPIRED, &block), CONVOY_LEASE_OK);
    assert_int_equal(convoy_lease_expired(leases, UINT64_MAX, &cursor), second);
    assert_int_equal(convoy_lease_expired(leases, UINT64_MAX, &cursor), CONVOY_LEASE_NONE);
    cursor = 0;
    assert_int_equal(convoy_lease_retire(leases, second, CONVOY_LEASE_END_EXPIRED, &block), CONVOY_LEASE_FREED);
    assert_int_equal(convoy_lease_expired(leases, UINT64_MAX, &cursor), CONVOY_LEASE_NONE); /* retired already */
    assert_int_equal(look(leases, lease).end, CONVOY_LEASE_END_EXPIRED);
    assert_int_equal(convoy_lease_retire(leases, lease, CONVOY_LEASE_END_RELEASED, &block), CONVOY_LEASE_BAD_STATE);
    assert_int_equal(look(leases, lease).end, CONVOY_LEASE_END_EXPIRED); /* the first reason stays */
    assert_int_equal(convoy_lease_unrefer(leases, lease, PEER, CONVOY_REFERENCE_WRITE, &block), CONVOY_LEASE_FREED);
    convoy_leases_destroy(leases);
}

/* All references of a peer that is proven dead end, and those of no other. */
static void test_lease_a_dead_peer_lets_go_of_everything(void **state)
{
    (void)state;
    struct convoy_leases *leases = convoy_leases_create(8, 16);
    struct convoy_buddy_block block;
    convoy_lease all[6];
    for (uint32_t i = 0; i < COUNT(all); i++) {
        all[i] = taken(leases);
        assert_int_equal(convoy_lease_refer(leases, all[i], PEER + i % 2, CONVOY_REFERENCE_WRITE), CONVOY_LEASE_OK);
        assert_int_equal(convoy_lease_refer(leases, all[i], PEER, CONVOY_REFERENCE_WRITE), CONVOY_LEASE_OK);
        assert_int_equal(convoy_lease_retire(leases, all[i], CONVOY_LEASE_END_ABORTED, &block), CONVOY_LEASE_OK);
    }
    uint32_t cursor = 0;
    uint32_t freed = 0;
    uint32_t kept = 0;
    convoy_lease lease;
    enum convoy_lease_status status;
    while ((status = convoy_lease_drop_peer(leases, PEER, &cursor, &lease, &block)) != CONVOY_LEASE_UNKNOWN) {
        freed += status == CONVOY_LEASE_FREED;
        kept += status == CONVOY_LEASE_OK;
    }
    assert_int_equal(freed, 3);
    assert_int_equal(kept, 3);
    struct convoy_lease_figures figures;
    convoy_lease_figures(leases, &figures);
    assert_int_equal(figures.references[CONVOY_REFERENCE_WRITE], 3);
    assert_int_equal(figures.counts[CONVOY_LEASE_RETIRED], 3);
    for (uint32_t i = 0; i < COUNT(all); i++) {
        struct convoy_lease_view view;
        assert_int_equal(convoy_lease_look(leases, all[i], &view), i % 2 != 0);
    }
    uint32_t next = 0;
    assert_int_equal(convoy_lease_next(leases, &next), all[1]);
    assert_int_equal(convoy_lease_next(leases, &next), all[3]);
    assert_int_equal(convoy_lease_next(leases, &next), all[5]);
    assert_int_equal(convoy_lease_next(leases, &next), CONVOY_LEASE_NONE);
    convoy_leases_destroy(leases);
}

/* Used up and given back many times: nothing of the room is lost, and no handle comes twice. */
static void test_lease_room_is_used_again(void **state)
{
    (void)state;
    struct convoy_leases *leases = convoy_leases_create(3, 3);
    struct convoy_buddy_block block;
    convoy_lease last[3] = {0};
    for (uint32_t turn = 0; turn < 1000; turn++) {
        for (uint32_t i = 0; i < 3; i++) {
            convoy_lease lease = taken(leases);
            assert_true(lease != last[0] && lease != last[1] && lease != last[2]);
            last[i] = lease;
            assert_int_equal(convoy_lease_refer(leases, lease, turn, CONVOY_REFERENCE_WRITE), CONVOY_LEASE_OK);
        }
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(convoy_lease_retire(leases, last[i], CONVOY_LEASE_END_RELEASED, &block), CONVOY_LEASE_OK);
            assert_int_equal(convoy_lease_unrefer(leases, last[i], turn, CONVOY_REFERENCE_WRITE, &block),
                             CONVOY_LEASE_FREED);
        }
    }
    convoy_leases_destroy(leases);
}

static void test_lease_names(void **state)
{
    (void)state;
    assert_string_equal(convoy_lease_state_name(CONVOY_LEASE_FREE), "free");
    assert_string_equal(convoy_lease_state_name(CONVOY_LEASE_RETIRED), "retired");
    assert_string_equal(convoy_lease_state_name(CONVOY_LEASE_STATES), "unknown");
    assert_string_equal(convoy_lease_end_name(CONVOY_LEASE_END_NONE), "none");
    assert_string_equal(convoy_lease_end_name(CONVOY_LEASE_END_CLOSED), "closed");
    assert_string_equal(convoy_lease_end_name((enum convoy_lease_end)99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lease_every_call_in_every_state),
        cmocka_unit_test(test_lease_tells_what_it_was_taken_with),
        cmocka_unit_test(test_lease_sizes_beyond_the_limits_are_refused),
        cmocka_unit_test(test_lease_old_handles_are_refused),
        cmocka_unit_test(test_lease_is_freed_by_the_last_that_refers_to_it),
        cmocka_unit_test(test_lease_references_are_counted_by_peer_and_kind),
        cmocka_unit_test(test_lease_deadlines_end_the_lease_and_no_reference),
        cmocka_unit_test(test_lease_a_dead_peer_lets_go_of_everything),
        cmocka_unit_test(test_lease_room_is_used_again),
        cmocka_unit_test(test_lease_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
