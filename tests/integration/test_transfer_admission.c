/* SPDX-License-Identifier: Apache-2.0 */
/* Which send goes when not all may: by priority and age, within the limits of the engine and of each peer. */
#include "tests/integration/admission_scene.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define HOUR_NS 3600000000000ull
#define STEP_NS 1000000ull

/* Clock time that waiting sends gain by. */
static void let_pass(uint64_t ns)
{
    const uint64_t end = convoy_now_ns() + ns;
    AWAIT(convoy_now_ns() >= end);
}

static void expect_counts(struct scene *scene, uint32_t admitted, uint32_t waiting)
{
    const struct convoy_engine_info info = scene_info(scene);
    EXPECT_EQUAL(info.admitted_count, admitted);
    EXPECT_EQUAL(info.waiting_count, waiting);
}

static void test_admission_none_set_lets_all_go_and_counts_them(void **state)
{
    (void)state;
    struct scene *scene = scene_make();
    convoy_transfer sent[5];
    for (uint32_t i = 0; i < 5; i++) {
        sent[i] = scene_send(scene, (struct scene_send){.request = "r", .priority = (int32_t)i});
        EXPECT_EQUAL(scene_state(scene, sent[i]), CONVOY_TRANSFER_OFFERED);
    }
    expect_counts(scene, 5, 0);
    EXPECT_EQUAL(scene_info(scene).admitted_bytes, 5000);
    for (uint32_t i = 0; i < 5; i++) {
        (void)scene_take(scene, 0);
    }
    for (uint32_t i = 0; i < 5; i++) {
        scene_finish(scene, sent[i]);
    }
    scene_end(scene);
}

static void test_admission_higher_priorities_overtake_and_equals_keep_their_order(void **state)
{
    (void)state;
    struct scene *scene = scene_make();
    convoy_transfer sent[6];
    scene_limit(scene, (struct convoy_admission){.under_way_max = 1});
    sent[0] = scene_send(scene, (struct scene_send){.request = "first"});
    sent[1] = scene_send(scene, (struct scene_send){.request = "low", .priority = -1});
    sent[2] = scene_send(scene, (struct scene_send){.request = "usual"});
    sent[3] = scene_send(scene, (struct scene_send){.request = "usual too"});
    sent[4] = scene_send(scene, (struct scene_send){.request = "high", .priority = 7});
    sent[5] = scene_send(scene, (struct scene_send){.request = "to the other", .priority = 6, .to = 1});
    expect_counts(scene, 1, 5);
    EXPECT_EQUAL(scene_info(scene).waiting_bytes, 5000);
    EXPECT_EQUAL(scene_state(scene, sent[4]), CONVOY_TRANSFER_QUEUED);
    SCENE_TAKE(scene, 0, "first");
    SCENE_TAKE(scene, 0, "high");
    SCENE_TAKE(scene, 1, "to the other");
    SCENE_TAKE(scene, 0, "usual");
    SCENE_TAKE(scene, 0, "usual too");
    SCENE_TAKE(scene, 0, "low");
    for (uint32_t i = 0; i < 6; i++) {
        scene_finish(scene, sent[i]);
    }
    scene_end(scene);
}

/* The stage's is for the request and whoever receives it, the send's for its turn. */
static void test_admission_priority_of_a_send_is_its_own_or_that_of_its_stage(void **state)
{
    (void)state;
    struct scene *scene = scene_make();
    struct engine *engine = scene->sender;
    const uint64_t bytes = 1000;
    const struct convoy_tensor_source tensor = engine_tensor(scene->memory, &bytes);
    struct convoy_stage stage = engine_stage("staged", &tensor, 1);
    convoy_transfer staged = 0;
    convoy_transfer sent[4];
    stage.priority = 5;
    CALL_OK(engine, stage_start, &stage, &staged);
    engine_wait(engine, staged, CONVOY_OK, NULL);
    engine_look(engine, staged);
    EXPECT_EQUAL(engine->payload.priority, 5);
    scene_limit(scene, (struct convoy_admission){.under_way_max = 1});
    sent[0] = scene_send(scene, (struct scene_send){.request = "first"});
    sent[1] = scene_send(scene, (struct scene_send){.request = "four", .priority = 4});
    sent[2] = send_staged(engine, scene->peers[0], staged);
    struct convoy_send own = {
        .struct_size = sizeof own, .peer = scene->peers[1], .staged = staged, .priority = -5, .timeout_ns = ENGINE_TIMEOUT_NS};
    CALL_OK(engine, send_start, NULL, &own, &sent[3]);
    SCENE_TAKE(scene, 0, "first");
    SCENE_TAKE(scene, 0, "staged");
    EXPECT_EQUAL(scene->receivers[0]->payload.priority, 5);
    SCENE_TAKE(scene, 0, "four");
    SCENE_TAKE(scene, 1, "staged");
    EXPECT_EQUAL(scene->receivers[1]->payload.priority, 5);
    for (uint32_t i = 0; i < 4; i++) {
        scene_finish(scene, sent[i]);
    }
    engine_release(engine, staged);
    scene_end(scene);
}

static void check_age(uint64_t age_ns, uint64_t then_ns, const char *second, const char *third)
{
    struct scene *scene = scene_make();
    convoy_transfer sent[3];
    scene_limit(scene, (struct convoy_admission){.under_way_max = 1, .age_ns = age_ns});
    sent[0] = scene_send(scene, (struct scene_send){.request = "first"});
    sent[1] = scene_send(scene, (struct scene_send){.request = "old", .priority = -2});
    let_pass(5 * STEP_NS);
    sent[2] = scene_send(scene, (struct scene_send){.request = "new"});
    scene_limit(scene, (struct convoy_admission){.under_way_max = 1, .age_ns = then_ns});
    SCENE_TAKE(scene, 0, "first");
    SCENE_TAKE(scene, 0, second);
    SCENE_TAKE(scene, 0, third);
    for (uint32_t i = 0; i < 3; i++) {
        scene_finish(scene, sent[i]);
    }
    EXPECT(engine_number(scene->sender, "admission", "longest_wait_ns") >= 5 * STEP_NS);
    scene_end(scene);
}

static void test_admission_who_waits_long_overtakes_by_age_alone(void **state)
{
    (void)state;
    check_age(STEP_NS, STEP_NS, "old", "new");
    check_age(HOUR_NS, HOUR_NS, "new", "old");
    check_age(0, 0, "new", "old");
    check_age(0, STEP_NS, "old", "new"); /* sorted anew */
    check_age(STEP_NS, 0, "new", "old");
}

static void test_admission_peer_that_stands_still_holds_up_nobody_elses(void **state)
{
    (void)state;
    struct scene *scene = scene_make();
    convoy_transfer sent[8];
    scene_limit(scene, (struct convoy_admission){.under_way_max = 4, .peer_under_way_max = 2});
    for (uint32_t i = 0; i < 4; i++) {
        sent[i] = scene_send(scene, (struct scene_send){.request = "still", .priority = 100});
    }
    expect_counts(scene, 2, 2);
    for (uint32_t i = 4; i < 8; i++) {
        sent[i] = scene_send(scene, (struct scene_send){.request = "goes", .to = 1});
    }
    expect_counts(scene, 4, 4);
    for (uint32_t i = 4; i < 8; i++) {
        SCENE_TAKE(scene, 1, "goes");
        scene_finish(scene, sent[i]);
    }
    expect_counts(scene, 2, 2);
    for (uint32_t i = 0; i < 4; i++) {
        SCENE_TAKE(scene, 0, "still");
        scene_finish(scene, sent[i]);
    }
    scene_end(scene);
}

static void test_admission_smaller_one_behind_does_not_overtake_what_waits_for_the_engine(void **state)
{
    (void)state;
    struct scene *scene = scene_make();
    convoy_transfer sent[4];
    scene_limit(scene, (struct convoy_admission){.under_way_bytes = 100000});
    sent[0] = scene_send(scene, (struct scene_send){.request = "first", .bytes = 70000});
    sent[1] = scene_send(scene, (struct scene_send){.request = "does not fit", .bytes = 40000});
    sent[2] = scene_send(scene, (struct scene_send){.request = "would fit", .bytes = 10000, .to = 1});
    expect_counts(scene, 1, 2);
    EXPECT_EQUAL(scene_info(scene).waiting_bytes, 50000);
    sent[3] = scene_send(scene, (struct scene_send){.request = "fits and is first", .bytes = 20000, .priority = 1, .to = 1});
    expect_counts(scene, 2, 2);
    SCENE_TAKE(scene, 1, "fits and is first");
    SCENE_TAKE(scene, 0, "first");
    SCENE_TAKE(scene, 0, "does not fit");
    SCENE_TAKE(scene, 1, "would fit");
    for (uint32_t i = 0; i < 4; i++) {
        scene_finish(scene, sent[i]);
    }
    scene_end(scene);
}

static void check_alone(struct convoy_admission admission)
{
    struct scene *scene = scene_make();
    convoy_transfer sent[3];
    scene_limit(scene, admission);
    sent[0] = scene_send(scene, (struct scene_send){.request = "small", .bytes = 100});
    sent[1] = scene_send(scene, (struct scene_send){.request = "too large", .bytes = LARGE});
    AWAIT(scene_info(scene).waiting_count == 1); /* it is staged by then */
    sent[2] = scene_send(scene, (struct scene_send){.request = "behind", .bytes = 100});
    expect_counts(scene, 1, 2);
    SCENE_TAKE(scene, 0, "small");
    AWAIT(scene_state(scene, sent[1]) == CONVOY_TRANSFER_OFFERED);
    expect_counts(scene, 1, 1);
    SCENE_TAKE(scene, 0, "too large");
    SCENE_TAKE(scene, 0, "behind");
    for (uint32_t i = 0; i < 3; i++) {
        scene_finish(scene, sent[i]);
    }
    scene_end(scene);
}

static void test_admission_one_larger_than_the_limit_goes_alone(void **state)
{
    (void)state;
    check_alone((struct convoy_admission){.under_way_bytes = 1000});
    check_alone((struct convoy_admission){.peer_under_way_bytes = 1000});
}

/* What may be offered before it is staged is so where there is room, and else waits once it is staged. */
static void test_admission_large_one_with_its_stage_goes_early_only_with_room(void **state)
{
    (void)state;
    struct scene *scene = scene_make();
    convoy_transfer sent[3];
    scene_limit(scene, (struct convoy_admission){.under_way_max = 2});
    for (uint32_t i = 0; i < 3; i++) {
        sent[i] = scene_send(scene, (struct scene_send){.request = "large", .bytes = LARGE});
        EXPECT_EQUAL(scene_state(scene, sent[i]), i < 2 ? CONVOY_TRANSFER_OFFERED : CONVOY_TRANSFER_QUEUED);
    }
    AWAIT(scene_info(scene).waiting_count == 1);
    expect_counts(scene, 2, 1);
    for (uint32_t i = 0; i < 3; i++) {
        SCENE_TAKE(scene, 0, "large");
    }
    for (uint32_t i = 0; i < 3; i++) {
        scene_finish(scene, sent[i]);
    }
    scene_end(scene);
}

static void test_admission_other_limits_hold_from_now_on(void **state)
{
    (void)state;
    struct scene *scene = scene_make();
    convoy_transfer sent[6];
    scene_limit(scene, (struct convoy_admission){.peer_under_way_max = 1});
    for (uint32_t i = 0; i < 5; i++) {
        sent[i] = scene_send(scene, (struct scene_send){.request = "r"});
    }
    expect_counts(scene, 1, 4);
    scene_limit(scene, (struct convoy_admission){.peer_under_way_max = 3});
    expect_counts(scene, 3, 2);
    scene_limit(scene, (struct convoy_admission){.peer_under_way_max = 1});
    expect_counts(scene, 3, 2); /* what is under way stays so */
    sent[5] = scene_send(scene, (struct scene_send){.request = "r"});
    SCENE_TAKE(scene, 0, "r");
    engine_wait(scene->sender, sent[0], CONVOY_OK, NULL);
    expect_counts(scene, 2, 3);
    scene_limit(scene, (struct convoy_admission){.waiting_max = 1}); /* more than that wait; they stay */
    expect_counts(scene, 5, 0);
    for (uint32_t i = 0; i < 5; i++) {
        SCENE_TAKE(scene, 0, "r");
    }
    for (uint32_t i = 0; i < 6; i++) {
        scene_finish(scene, sent[i]);
    }
    scene_end(scene);
}

static void test_admission_sends_to_an_address_count_as_well(void **state)
{
    (void)state;
    struct scene *scene = scene_make();
    struct engine *engine = scene->sender;
    static uint8_t target[2000];
    CALL_OK(scene->receivers[1], memory_register, target, sizeof target);
    convoy_transfer staged = stage_bytes(engine, "to an address", scene->memory, sizeof target);
    const struct convoy_send send = {.struct_size = sizeof send,
                                     .peer = scene->peers[1],
                                     .staged = staged,
                                     .address = (uint64_t)(uintptr_t)target,
                                     .timeout_ns = ENGINE_TIMEOUT_NS};
    convoy_transfer pushed = 0;
    scene_limit(scene, (struct convoy_admission){.under_way_max = 1});
    convoy_transfer first = scene_send(scene, (struct scene_send){.request = "first"});
    CALL_OK(engine, send_start, NULL, &send, &pushed);
    expect_counts(scene, 1, 1);
    EXPECT_EQUAL(scene_info(scene).waiting_bytes, sizeof target);
    SCENE_TAKE(scene, 0, "first");
    scene_finish(scene, first);
    scene_finish(scene, pushed);
    CALL_OK(scene->receivers[1], memory_deregister, target, sizeof target); /* whose thread has written there */
    EXPECT_BYTES(target, scene->memory, sizeof target);
    engine_release(engine, staged);
    scene_end(scene);
}

/* What peers fetch by a descriptor is theirs to limit. */
static void test_admission_loans_by_descriptor_do_not_count(void **state)
{
    (void)state;
    struct scene *scene = scene_make();
    char text[4096];
    struct convoy_text_buffer buffer = {.struct_size = sizeof buffer, .data = text, .capacity = sizeof text};
    convoy_transfer loaded = 0;
    scene_limit(scene, (struct convoy_admission){.under_way_max = 1, .waiting_max = 1});
    convoy_transfer first = scene_send(scene, (struct scene_send){.request = "first"});
    convoy_transfer staged = stage_bytes(scene->sender, "lent", scene->memory, 1000);
    CALL_OK(scene->sender, descriptor, staged, CONVOY_DESCRIPTOR_BINARY, &buffer);
    const struct convoy_load load = {.struct_size = sizeof load, .descriptor = text, .descriptor_length = buffer.length};
    CALL_OK(scene->receivers[1], load_start, &load, &loaded);
    engine_wait(scene->receivers[1], loaded, CONVOY_OK, NULL);
    expect_counts(scene, 1, 0);
    engine_release(scene->receivers[1], loaded);
    engine_release(scene->sender, staged);
    SCENE_TAKE(scene, 0, "first");
    scene_finish(scene, first);
    scene_end(scene);
}

static void test_admission_bad_calls_are_refused_and_change_nothing(void **state)
{
    (void)state;
    struct scene *scene = scene_make();
    struct convoy_admission admission = {.struct_size = sizeof admission, .under_way_max = 1, .critical_flags = 4};
    CALL_STATUS(scene->sender, CONVOY_UNSUPPORTED, admission_set, &admission);
    EXPECT_TEXT(scene->sender->error.text, "admission.critical_flags: 0x4");
    CALL_STATUS(scene->sender, CONVOY_INVALID_ARGUMENT, admission_set, NULL);
    admission = (struct convoy_admission){.struct_size = sizeof admission - 8, .under_way_max = 1};
    CALL_STATUS(scene->sender, CONVOY_TOO_OLD, admission_set, &admission);
    EXPECT_EQUAL(engine_number(scene->sender, "admission", "under_way_limit"), 0);
    scene_end(scene);
}

/* -- what it says of itself ---------------------------------------------------------------------------------------- */

static void read_text(struct engine *engine, uint32_t topic, char *text, size_t bytes)
{
    struct convoy_text_buffer buffer = {.struct_size = sizeof buffer, .data = text, .capacity = bytes};
    CALL_OK(engine, engine_describe, topic, &buffer);
}

static long long number(const json_t *object, const char *name)
{
    EXPECT(json_is_integer(json_object_get(object, name)));
    return json_integer_value(json_object_get(object, name));
}

static void check_object(struct scene *scene, const json_t *admission)
{
    const json_t *peers = json_object_get(admission, "peers");
    const json_t *first = json_array_get(peers, 0);
    EXPECT_EQUAL(number(admission, "under_way"), 2);
    EXPECT_EQUAL(number(admission, "under_way_bytes"), 3000);
    EXPECT_EQUAL(number(admission, "waiting"), 2);
    EXPECT_EQUAL(number(admission, "waiting_bytes"), 2000);
    EXPECT_EQUAL(number(admission, "queued"), 2);
    EXPECT_EQUAL(number(admission, "under_way_limit"), 3);
    EXPECT_EQUAL(number(admission, "under_way_limit_bytes"), 1 << 30);
    EXPECT_EQUAL(number(admission, "peer_under_way_limit"), 1);
    EXPECT_EQUAL(number(admission, "peer_under_way_limit_bytes"), 1 << 29);
    EXPECT_EQUAL(number(admission, "queued_limit"), 2);
    EXPECT_EQUAL(number(admission, "age_ns"), (long long)HOUR_NS);
    EXPECT_EQUAL(number(admission, "longest_wait_ns"), 0);
    EXPECT_EQUAL(number(admission, "overloaded"), 1);
    EXPECT_EQUAL(json_array_size(peers), 2);
    EXPECT(strcmp(json_string_value(json_object_get(first, "session")), scene->receivers[0]->info.session) == 0);
    EXPECT_EQUAL(number(first, "under_way"), 1);
    EXPECT_EQUAL(number(first, "under_way_bytes"), 1000);
    EXPECT_EQUAL(number(first, "waiting"), 2);
    EXPECT_EQUAL(number(first, "waiting_bytes"), 2000);
}

static void check_descriptions(struct scene *scene, char *text, size_t bytes)
{
    const uint32_t topics[2] = {CONVOY_TOPIC_STATS, CONVOY_TOPIC_DUMP};
    for (uint32_t i = 0; i < 2; i++) {
        read_text(scene->sender, topics[i], text, bytes);
        json_t *whole = json_loads(text, 0, NULL);
        check_object(scene, json_object_get(whole, "admission"));
        json_decref(whole);
    }
    read_text(scene->sender, CONVOY_TOPIC_DUMP, text, bytes);
    json_t *whole = json_loads(text, 0, NULL);
    const json_t *transfers = json_object_get(whole, "transfers");
    const json_t *last = json_array_get(transfers, json_array_size(transfers) - 1);
    EXPECT_EQUAL(number(last, "priority"), -3);
    EXPECT(number(last, "waiting_ns") > 0);
    json_decref(whole);
    read_text(scene->sender, CONVOY_TOPIC_PROMETHEUS, text, bytes);
    EXPECT_TEXT(text, "convoy_transfer_admission_waiting_bytes{");
    EXPECT_TEXT(text, "convoy_transfer_overloaded_total{");
}

static void test_admission_descriptions_have_limits_and_what_waits(void **state)
{
    (void)state;
    struct scene *scene = scene_make();
    const size_t bytes = 1u << 20;
    char *text = malloc(bytes);
    convoy_transfer sent[4];
    convoy_transfer refused = 0;
    EXPECT(text != NULL);
    scene_limit(scene, (struct convoy_admission){.under_way_max = 3,
                                                 .under_way_bytes = 1 << 30,
                                                 .peer_under_way_max = 1,
                                                 .peer_under_way_bytes = 1 << 29,
                                                 .waiting_max = 2,
                                                 .age_ns = HOUR_NS});
    sent[0] = scene_send(scene, (struct scene_send){.request = "a"});
    sent[1] = scene_send(scene, (struct scene_send){.request = "b", .to = 1, .bytes = 2000});
    sent[2] = scene_send(scene, (struct scene_send){.request = "c"});
    sent[3] = scene_send(scene, (struct scene_send){.request = "d", .priority = -3});
    EXPECT_STATUS(scene_try(scene, (struct scene_send){.request = "e"}, &refused), CONVOY_OVERLOADED, &scene->sender->error);
    check_descriptions(scene, text, bytes);
    SCENE_TAKE(scene, 0, "a");
    SCENE_TAKE(scene, 0, "c");
    SCENE_TAKE(scene, 0, "d");
    SCENE_TAKE(scene, 1, "b");
    for (uint32_t i = 0; i < 4; i++) {
        scene_finish(scene, sent[i]);
    }
    EXPECT(engine_number(scene->sender, "admission", "longest_wait_ns") > 0);
    free(text);
    scene_end(scene);
}

int main(void)
{
    engine_filter_tests();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_admission_none_set_lets_all_go_and_counts_them),
        cmocka_unit_test(test_admission_higher_priorities_overtake_and_equals_keep_their_order),
        cmocka_unit_test(test_admission_priority_of_a_send_is_its_own_or_that_of_its_stage),
        cmocka_unit_test(test_admission_who_waits_long_overtakes_by_age_alone),
        cmocka_unit_test(test_admission_peer_that_stands_still_holds_up_nobody_elses),
        cmocka_unit_test(test_admission_smaller_one_behind_does_not_overtake_what_waits_for_the_engine),
        cmocka_unit_test(test_admission_one_larger_than_the_limit_goes_alone),
        cmocka_unit_test(test_admission_large_one_with_its_stage_goes_early_only_with_room),
        cmocka_unit_test(test_admission_other_limits_hold_from_now_on),
        cmocka_unit_test(test_admission_sends_to_an_address_count_as_well),
        cmocka_unit_test(test_admission_loans_by_descriptor_do_not_count),
        cmocka_unit_test(test_admission_bad_calls_are_refused_and_change_nothing),
        cmocka_unit_test(test_admission_descriptions_have_limits_and_what_waits),
    };
    return cmocka_run_group_tests_name("transfer_admission", tests, NULL, NULL);
}
