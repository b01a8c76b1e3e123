/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of what waits for room against a list that is searched from end to end, and the rule of who may go. */
#include "tests/lib/expect.h"
#include "xfer/admission.h"
#include "xfer/parts.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define NODES 300u
#define STEPS 40000u

struct model {
    struct convoy_waiting_queue queue;
    struct convoy_waiting_node nodes[NODES];
    bool is_in[NODES];
    uint32_t count;
    uint64_t order;
    uint64_t now_ns;
    uint64_t age_ns;
    uint64_t seed;
};

static uint32_t draw(struct model *model, uint32_t below)
{
    model->seed = model->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(model->seed >> 33) % below;
}

/* priority - since / age, exactly, in 128 bits; among equals who came first. */
static bool naive_before(const struct convoy_waiting_node *a, const struct convoy_waiting_node *b, uint64_t age_ns)
{
    __extension__ typedef __int128 wide;
    wide key_a = age_ns == 0 ? a->priority : (wide)a->priority * age_ns - (wide)a->since_ns;
    wide key_b = age_ns == 0 ? b->priority : (wide)b->priority * age_ns - (wide)b->since_ns;
    return key_a != key_b ? key_a > key_b : a->order < b->order;
}

static const struct convoy_waiting_node *naive_head(const struct model *model)
{
    const struct convoy_waiting_node *best = NULL;
    for (uint32_t i = 0; i < NODES; i++) {
        if (model->is_in[i] && (best == NULL || naive_before(&model->nodes[i], best, model->age_ns))) {
            best = &model->nodes[i];
        }
    }
    return best;
}

static void insert(struct model *model, uint32_t i, int32_t priority)
{
    model->now_ns += draw(model, 3); /* some come at the same time */
    model->nodes[i] = (struct convoy_waiting_node){
        .priority = priority, .index = i, .since_ns = model->now_ns, .order = ++model->order};
    convoy_waiting_insert(&model->queue, &model->nodes[i], model->age_ns);
    model->is_in[i] = true;
    model->count++;
}

static void take_out(struct model *model, uint32_t i)
{
    convoy_waiting_remove(&model->queue, &model->nodes[i], model->age_ns);
    EXPECT(model->nodes[i].child == NULL && model->nodes[i].next == NULL && model->nodes[i].before == NULL);
    model->is_in[i] = false;
    model->count--;
}

static void play(struct model *model)
{
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t i = draw(model, NODES);
        bool is_head = draw(model, 3) == 0;
        if (!model->is_in[i]) {
            insert(model, i, (int32_t)draw(model, 9) - 4);
        } else if (is_head) {
            take_out(model, model->queue.head->index);
        } else {
            take_out(model, i);
        }
        EXPECT(model->queue.head == naive_head(model));
    }
    while (model->count != 0) {
        EXPECT(model->queue.head == naive_head(model));
        take_out(model, model->queue.head->index);
    }
    EXPECT(model->queue.head == NULL);
}

static void test_waiting_random_inserts_and_removes_equal_a_search(void **state)
{
    (void)state;
    const uint64_t ages[] = {0, 1, 2, 7, 1000, UINT64_MAX};
    for (size_t i = 0; i < sizeof ages / sizeof ages[0]; i++) {
        struct model *model = calloc(1, sizeof *model);
        EXPECT(model != NULL);
        model->age_ns = ages[i];
        model->seed = 77 + i;
        play(model);
        free(model);
    }
}

/* Nothing overflows at the ends of what hosts can ask for. */
static void test_waiting_order_at_the_ends_of_its_numbers_is_exact(void **state)
{
    (void)state;
    const int32_t priorities[] = {INT32_MIN, -1, 0, 1, INT32_MAX};
    const uint64_t times[] = {0, 1, 5, UINT64_MAX - 1, UINT64_MAX};
    const uint64_t ages[] = {0, 1, 4, 5, UINT64_MAX / 2, UINT64_MAX};
    for (uint32_t i = 0; i < 5 * 5 * 5 * 5 * 6; i++) {
        const struct convoy_waiting_node a = {
            .priority = priorities[i % 5], .since_ns = times[i / 5 % 5], .order = times[i / 5 % 5] / 2 + 1};
        const struct convoy_waiting_node b = {
            .priority = priorities[i / 25 % 5], .since_ns = times[i / 125 % 5], .order = times[i / 125 % 5] / 2 + 2};
        uint64_t age_ns = ages[i / 625];
        if (a.since_ns > b.since_ns && a.order < b.order) { /* order follows time */
            continue;
        }
        EXPECT_EQUAL(convoy_waiting_is_before(&a, &b, age_ns), naive_before(&a, &b, age_ns));
        EXPECT_EQUAL(convoy_waiting_is_before(&b, &a, age_ns), !convoy_waiting_is_before(&a, &b, age_ns));
    }
}

static void test_waiting_many_of_one_priority_come_out_as_they_came(void **state)
{
    (void)state;
    struct model *model = calloc(1, sizeof *model);
    EXPECT(model != NULL);
    model->seed = 1;
    for (uint32_t i = 0; i < NODES; i++) {
        insert(model, i, 5);
    }
    for (uint32_t i = 0; i < NODES; i++) {
        EXPECT_EQUAL(model->queue.head->index, i);
        take_out(model, i);
    }
    free(model);
}

static void test_admission_rule_counts_and_bytes_each_bound_what_is_under_way(void **state)
{
    (void)state;
    const struct {
        struct convoy_admission_load load;
        struct convoy_admission_limit limit;
        uint64_t bytes;
        bool may;
    } cases[] = {
        {{.under_way = 1000, .under_way_bytes = UINT64_MAX}, {0, 0}, UINT64_MAX, true},
        {{.under_way = 2}, {3, 0}, 1, true},
        {{.under_way = 3}, {3, 0}, 0, false},
        {{.under_way = 4}, {3, 0}, 0, false}, /* the limit was higher */
        {{.under_way = 1, .under_way_bytes = 60}, {0, 100}, 40, true},
        {{.under_way = 1, .under_way_bytes = 60}, {0, 100}, 41, false},
        {{.under_way = 1, .under_way_bytes = 100}, {0, 100}, 0, true},
        {{.under_way = 1, .under_way_bytes = 101}, {0, 100}, 0, false},
        {{.under_way = 0}, {0, 100}, 101, true}, /* alone */
        {{.under_way = 0}, {1, 100}, UINT64_MAX, true},
        {{.under_way = 1, .under_way_bytes = 0}, {0, 100}, 101, false},
        {{.under_way = 1, .under_way_bytes = 10}, {1, 100}, 1, false},
        {{.under_way = 1, .under_way_bytes = 10}, {0, UINT64_MAX}, UINT64_MAX, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        EXPECT_EQUAL(convoy_admission_fits(&cases[i].load, cases[i].limit, cases[i].bytes), cases[i].may);
    }
}

static void test_admission_text_has_limits_where_there_are_any(void **state)
{
    (void)state;
    char text[CONVOY_ADMISSION_TEXT_BYTES];
    const struct convoy_admission_load load = {.under_way = 3, .under_way_bytes = 64u << 20};
    convoy_admission_text(&load, (struct convoy_admission_limit){3, 64u << 20}, text);
    EXPECT(strcmp(text, "3 of 3 are under way with 64 MiB of 64 MiB") == 0);
    convoy_admission_text(&load, (struct convoy_admission_limit){0, 1000}, text);
    EXPECT(strcmp(text, "3 are under way with 64 MiB of 1000 bytes") == 0);
    convoy_admission_text(&load, (struct convoy_admission_limit){0, 0}, text);
    EXPECT(strcmp(text, "3 are under way with 64 MiB") == 0);
    const struct convoy_admission_load most = {.under_way = UINT32_MAX, .under_way_bytes = UINT64_MAX};
    convoy_admission_text(&most, (struct convoy_admission_limit){UINT32_MAX, UINT64_MAX}, text);
    EXPECT(strlen(text) < sizeof text - 1); /* nothing is cut off */
}

/* One that waits, and what there is of the engine and to its peer when its deadline passes. */
static void expect_why(const struct convoy_admission *limits, uint32_t engine_load, uint32_t peer_load, const char *wanted)
{
    char why[CONVOY_ADMISSION_WHY_BYTES];
    struct convoy_xfer *engine = calloc(1, sizeof *engine);
    struct convoy_xfer_entry *send = calloc(1, sizeof *send);
    struct convoy_xfer_peer *peer = calloc(1, sizeof *peer);
    EXPECT(engine != NULL && send != NULL && peer != NULL);
    *send = (struct convoy_xfer_entry){.place = CONVOY_XFER_PLACE_WAITING, .next = CONVOY_XFER_NOBODY};
    engine->entries = send;
    engine->peers = peer;
    engine->admission.limits = *limits;
    engine->admission.load.under_way = engine_load;
    peer->admission.load.under_way = peer_load;
    convoy_xfer_admission_why(engine, send, why);
    EXPECT(strstr(why, wanted) != NULL);
    free(peer);
    free(send);
    free(engine);
}

/* All may end in one look; the first then makes room for the others, which must not be told of a room that nobody lacks. */
static void test_admission_text_names_whose_room_was_lacking_or_nobodys(void **state)
{
    (void)state;
    const struct convoy_admission limits = {.under_way_max = 2, .peer_under_way_max = 1};
    expect_why(&limits, 2, 0, "behind 0 for room of its engine; 2 of 2 are under way");
    expect_why(&limits, 1, 1, "behind 0 for room of its peer; 1 of 1 are under way");
    expect_why(&limits, 2, 1, "behind 0 for room of its peer; 1 of 1 are under way");
    expect_why(&limits, 0, 0, "ms for room, which came no sooner than this");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waiting_random_inserts_and_removes_equal_a_search),
        cmocka_unit_test(test_waiting_order_at_the_ends_of_its_numbers_is_exact),
        cmocka_unit_test(test_waiting_many_of_one_priority_come_out_as_they_came),
        cmocka_unit_test(test_admission_rule_counts_and_bytes_each_bound_what_is_under_way),
        cmocka_unit_test(test_admission_text_has_limits_where_there_are_any),
        cmocka_unit_test(test_admission_text_names_whose_room_was_lacking_or_nobodys),
    };
    return cmocka_run_group_tests_name("waiting", tests, NULL, NULL);
}
