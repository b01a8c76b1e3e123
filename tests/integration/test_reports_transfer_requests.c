/* SPDX-License-Identifier: Apache-2.0 */
/* Public reports about requests: their ends, attempts, sources, and what a payload may be made of. */
#include "tests/integration/reports_transfer.h"
#include "tests/lib/scale.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* -- sgl-project/sglang PRs 21701, 24200 and 27262 (a protocol that could not say no), PR 30053 (an abort path that
 *    undid less than the others), PR 31800 (a state without a deadline): every state with every end leaves nothing -- */

enum { AT_STAGING = 0, AT_STAGED, AT_QUEUED, AT_OFFERED, AT_SENT, AT_WAITING, AT_LOADED, AT_RESERVED, AT_FILLING, STATES };
enum { BY_ABORT = 0, BY_DEADLINE, BY_LOSS, BY_RELEASE, ENDS };

static const uint32_t state_of[STATES] = {
    CONVOY_TRANSFER_STAGING, CONVOY_TRANSFER_STAGED, CONVOY_TRANSFER_QUEUED,   CONVOY_TRANSFER_OFFERED, CONVOY_TRANSFER_SENT,
    CONVOY_TRANSFER_WAITING, CONVOY_TRANSFER_LOADED, CONVOY_TRANSFER_RESERVED, CONVOY_TRANSFER_FILLING};

struct scene {
    struct two *two;
    struct engine *owner; /* of the one in question */
    convoy_transfer it;
    convoy_transfer beside; /* what it needs */
    struct engine *beside_owner;
};

static int32_t never(void *user)
{
    (void)user;
    return 0;
}

static void make_staged(struct scene *scene, uint32_t at, uint64_t timeout_ns)
{
    struct two *two = scene->two;
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &two->bytes);
    struct convoy_stage stage = engine_stage("scene", &tensor, 1);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer, .timeout_ns = timeout_ns};
    stage.ready = at == AT_STAGING || at == AT_QUEUED ? never : NULL;
    stage.timeout_ns = at == AT_STAGING ? timeout_ns : 2 * timeout_ns;
    stage.lease_ns = timeout_ns;
    scene->owner = two->sender;
    if (at == AT_STAGING || at == AT_STAGED) {
        CALL_OK(two->sender, stage_start, &stage, &scene->it);
    } else {
        stage.lease_ns = 0;
        CALL_OK(two->sender, send_start, &stage, &send, &scene->it);
    }
}

static void make_received(struct scene *scene, uint32_t at, uint64_t timeout_ns)
{
    struct two *two = scene->two;
    convoy_transfer loaded = accept_by(two->receiver, "scene", 0, CONVOY_LOAD_VIEW, timeout_ns);
    scene->owner = two->receiver;
    scene->it = loaded;
    if (at == AT_WAITING) {
        return;
    }
    convoy_transfer sent = send_bytes(two->sender, two->peer, "scene", 1, two->memory, BYTES);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    engine_wait(two->sender, sent, CONVOY_OK, NULL);
    scene->beside = at == AT_SENT ? loaded : sent;
    scene->beside_owner = at == AT_SENT ? two->receiver : two->sender;
    scene->it = at == AT_SENT ? sent : loaded;
    scene->owner = at == AT_SENT ? two->sender : two->receiver;
}

static void make_slot(struct scene *scene, uint32_t at, uint64_t timeout_ns)
{
    struct two *two = scene->two;
    struct convoy_reserved_slot slot = reserve_slot(two->receiver, "scene", BYTES, timeout_ns, NULL);
    scene->owner = two->receiver;
    scene->it = slot.transfer;
    if (at == AT_FILLING) {
        scene->beside = stage_bytes(two->sender, "source", two->memory, BYTES);
        scene->beside_owner = two->sender;
        int32_t status = push_piece(two->sender, two->peer, staged_address(two->sender, scene->beside), slot.address, 4096);
        EXPECT(status == CONVOY_OK || (status == CONVOY_NOT_FOUND && timeout_ns < ENGINE_TIMEOUT_NS));
    }
}

static void end_it(const struct scene *scene, uint32_t at, uint32_t by)
{
    struct engine *owner = scene->owner;
    bool is_over = at == AT_SENT || at == AT_LOADED;
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    int32_t wanted = CONVOY_CANCELED;
    if (by == BY_ABORT) {
        CALL_OK(owner, abort, scene->it, "no more", 7);
        wanted = is_over ? CONVOY_OK : CONVOY_CANCELED;
    } else if (by == BY_DEADLINE) {
        wanted = is_over ? CONVOY_OK : CONVOY_TIMED_OUT;
        do { /* of what is staged it is the lease that ends it */
            (void)CALL(owner, transfer_wait, scene->it, 1000000, &result);
        } while (result.state == state_of[at] && !is_over);
    } else if (by == BY_LOSS) {
        CALL_OK(scene->two->sender, peer_disconnect, scene->two->peer);
        wanted = is_over || at == AT_STAGED ? CONVOY_OK : at == AT_QUEUED || at == AT_OFFERED ? CONVOY_PEER_LOST
                                                                                              : CONVOY_IN_PROGRESS;
    } else {
        return;
    }
    CALL_STATUS(owner, wanted, transfer_test, scene->it, &result);
    EXPECT_EQUAL(result.status, wanted);
}

static void play(struct two *two, uint32_t at, uint32_t by)
{
    struct scene scene = {.two = two};
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    bool goes_on = by == BY_RELEASE && (at == AT_QUEUED || at == AT_OFFERED); /* without the host, to its deadline */
    uint64_t timeout_ns = by == BY_DEADLINE || goes_on ? 30000000 : ENGINE_TIMEOUT_NS;
    if (at <= AT_OFFERED) {
        make_staged(&scene, at, timeout_ns);
    } else if (at <= AT_LOADED) {
        make_received(&scene, at, timeout_ns);
    } else {
        make_slot(&scene, at, timeout_ns);
    }
    (void)CALL(scene.owner, transfer_test, scene.it, &result);
    EXPECT(result.state == state_of[at] || (timeout_ns < ENGINE_TIMEOUT_NS && result.status == CONVOY_TIMED_OUT));
    end_it(&scene, at, by);
    release(scene.owner, scene.it);
    if (scene.beside != 0) {
        release(scene.beside_owner, scene.beside);
    }
    await_idle(two->sender, 0);
    await_idle(two->receiver, 0);
    if (by == BY_LOSS) {
        two->peer = engine_connect(two->sender, two->receiver->info.session);
    }
}

static void test_reports_every_state_with_every_end_leaves_nothing(void **state)
{
    (void)state;
    struct two *two = two_open();
    for (uint32_t i = 0; i < test_scaled(2, 100); i++) {
        for (uint32_t at = 0; at < STATES; at++) {
            for (uint32_t by = 0; by < ENDS; by++) {
                play(two, at, by);
            }
        }
    }
    two_close(two);
}

/* vllm-project/vllm-omni issue 5578, PR 3010: waits for inputs that never come run side by side, not one after the other,
 * and what is not known there is answered at once. */
static void test_reports_inputs_that_never_come_time_out_together(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_transfer loaded[3];
    struct convoy_transfer_query query = {
        .struct_size = sizeof query, .request = "never heard of", .request_length = 14, .peer = two->peer};
    struct convoy_transfer_answer answer = {.struct_size = sizeof answer};
    for (int i = 0; i < 3; i++) {
        const char *names[3] = {"text", "image", "guidance"};
        loaded[i] = accept_by(two->receiver, names[i], 0, CONVOY_LOAD_VIEW, 200000000);
    }
    engine_wait(two->receiver, loaded[2], CONVOY_TIMED_OUT, NULL); /* began last, so the others are over now */
    CALL_STATUS(two->receiver, CONVOY_TIMED_OUT, transfer_test, loaded[0], NULL);
    CALL_STATUS(two->receiver, CONVOY_TIMED_OUT, transfer_test, loaded[1], NULL);
    CALL_STATUS(two->receiver, CONVOY_BAD_STATE, payload, loaded[0],
                &(struct convoy_payload){.struct_size = sizeof(struct convoy_payload)});
    CALL_OK(two->sender, query, &query, ENGINE_TIMEOUT_NS, &answer);
    EXPECT_EQUAL(answer.state, 0);
    EXPECT_EQUAL(answer.is_drained, 1);
    for (int i = 0; i < 3; i++) {
        release(two->receiver, loaded[i]);
    }
    two_close(two);
}

/* -- vllm-project/vllm-omni issue 5244 -- */

/* "Your memory is free again" and "the receiver has it" are two facts. */
static void test_reports_source_is_free_before_the_receiver_has_it(void **state)
{
    (void)state;
    struct two *two = two_open();
    struct convoy_transfer_result result = {.struct_size = sizeof result};
    convoy_transfer sent = send_bytes(two->sender, two->peer, "early", 1, two->memory, BYTES);
    while (result.is_source_free == 0) {
        (void)CALL(two->sender, transfer_test, sent, &result);
    }
    EXPECT_EQUAL(result.state, CONVOY_TRANSFER_OFFERED);
    EXPECT_EQUAL(result.status, CONVOY_IN_PROGRESS);
    memset(two->memory, 0, BYTES);
    convoy_transfer loaded = accept_by(two->receiver, "early", 0, CONVOY_LOAD_VIEW, 0);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    EXPECT(engine_is_filled(staged_address(two->receiver, loaded), BYTES, 7));
    engine_wait(two->sender, sent, CONVOY_OK, &result);
    EXPECT_EQUAL(result.state, CONVOY_TRANSFER_SENT);
    release(two->receiver, loaded);
    release(two->sender, sent);
    two_close(two);
}

/* One request in three attempts: only the last is loaded, the others are told why they are not. */
static void test_reports_attempts_before_the_last_are_refused(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_transfer sent[4];
    convoy_transfer staged = 0;
    EXPECT_OK(stage_status(two, "again", 1, &staged), &two->sender->error);
    engine_wait(two->sender, staged, CONVOY_OK, NULL);
    describe(two, staged, CONVOY_DESCRIPTOR_BINARY); /* of attempt 1 */
    release(two->sender, staged);
    static const uint32_t attempts[4] = {1, 2, 3, 2};
    for (uint32_t i = 0; i < 4; i++) {
        uint8_t bytes[100];
        memset(bytes, (int)attempts[i], sizeof bytes);
        sent[i] = send_bytes(two->sender, two->peer, "again", attempts[i], bytes, sizeof bytes);
    }
    engine_wait(two->sender, sent[0], CONVOY_STALE_EPOCH, NULL);
    engine_wait(two->sender, sent[1], CONVOY_STALE_EPOCH, NULL);
    engine_wait(two->sender, sent[3], CONVOY_STALE_EPOCH, NULL);
    convoy_transfer old = load_start(two, CONVOY_LOAD_VIEW, 0);
    engine_wait(two->receiver, old, CONVOY_CLOSED, NULL);
    convoy_transfer loaded = accept_by(two->receiver, "again", 0, CONVOY_LOAD_COPY, 0);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    const uint8_t *data = staged_address(two->receiver, loaded);
    EXPECT_EQUAL(two->receiver->payload.attempt, 3);
    EXPECT(data[0] == 3 && data[99] == 3);
    engine_wait(two->sender, sent[2], CONVOY_OK, NULL);
    EXPECT_EQUAL(engine_counter(two->sender, "refusals"), 3);
    for (int i = 0; i < 4; i++) {
        release(two->sender, sent[i]);
    }
    release(two->receiver, old);
    release(two->receiver, loaded);
    two_close(two);
}

/* -- vllm-project/vllm-omni PR 5096: the sweep takes what lies around, not what is under way -- */

static convoy_transfer stage_short(struct two *two, const char *request)
{
    const struct convoy_tensor_source tensor = engine_tensor(two->memory, &two->bytes);
    struct convoy_stage stage = engine_stage(request, &tensor, 1);
    convoy_transfer staged = 0;
    stage.lease_ns = 20000000;
    CALL_OK(two->sender, stage_start, &stage, &staged);
    return staged;
}

static void await_swept(struct two *two, convoy_transfer staged)
{
    AWAIT(CALL(two->sender, transfer_test, staged, NULL) != CONVOY_OK);
    CALL_STATUS(two->sender, CONVOY_TIMED_OUT, transfer_test, staged, NULL);
    release(two->sender, staged);
}

static void test_reports_sweep_leaves_what_is_under_way(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_transfer staged = stage_short(two, "under way");
    convoy_transfer sent = send_staged(two->sender, two->peer, staged);
    for (int i = 0; i < 3; i++) { /* three leases later */
        await_swept(two, stage_short(two, "forgotten"));
    }
    EXPECT_EQUAL(engine_figures(two->sender).expired_count, 3);
    convoy_transfer loaded = accept_by(two->receiver, "under way", 0, CONVOY_LOAD_VIEW, 0);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    EXPECT(engine_is_filled(staged_address(two->receiver, loaded), BYTES, 7));
    engine_wait(two->sender, sent, CONVOY_OK, NULL);
    release(two->receiver, loaded);
    release(two->sender, sent);
    await_swept(two, staged); /* and then it is */
    EXPECT_EQUAL(engine_figures(two->sender).expired_count, 4);
    two_close(two);
}

/* vllm-project/vllm-omni PR 2000: two encoders know a request of one name. The one that was asked for is heard, the other
 * one is not, and whoever is asked for what another one has says no. */
static void test_reports_sender_is_part_of_the_request(void **state)
{
    (void)state;
    struct two *two = two_open();
    struct engine *second = engine_create(NULL);
    convoy_peer to_receiver = engine_connect(second, two->receiver->info.session);
    convoy_peer from_second = engine_connect(two->receiver, second->info.session);
    uint8_t other[BYTES];
    engine_fill(other, BYTES, 2);
    convoy_transfer first_sent = send_bytes(two->sender, two->peer, "shared name", 1, two->memory, BYTES);
    convoy_transfer loaded = accept_by(two->receiver, "shared name", from_second, CONVOY_LOAD_VIEW, 0);
    convoy_transfer second_sent = send_bytes(second, to_receiver, "shared name", 1, other, BYTES);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    EXPECT(engine_is_filled(staged_address(two->receiver, loaded), BYTES, 2));
    EXPECT_BYTES(two->receiver->payload.session, second->info.session, strlen(second->info.session));
    engine_wait(second, second_sent, CONVOY_OK, NULL);
    CALL_STATUS(two->sender, CONVOY_IN_PROGRESS, transfer_test, first_sent, NULL);
    convoy_transfer staged = stage_bytes(second, "second's own", other, BYTES);
    struct convoy_text_buffer text = {.struct_size = sizeof text, .data = two->text, .capacity = TEXT_BYTES};
    CALL_OK(second, descriptor, staged, CONVOY_DESCRIPTOR_BINARY, &text);
    two->text_length = text.length;
    memcpy(two->text + 16, &two->sender->info.incarnation, 8); /* the first one is taken for it */
    convoy_transfer wrong = load_start(two, CONVOY_LOAD_VIEW, 0);
    int32_t status = CALL(two->receiver, transfer_wait, wrong, ENGINE_TIMEOUT_NS, NULL);
    EXPECT(status == CONVOY_NOT_FOUND || status == CONVOY_CLOSED);
    EXPECT_EQUAL(engine_counter(two->sender, "asks_refused"), 1);
    release(two->receiver, wrong);
    release(two->receiver, loaded);
    release(second, staged);
    release(second, second_sent);
    release(two->sender, first_sent);
    CALL_OK(two->sender, peer_disconnect, two->peer);
    engine_await_empty(second);
    engine_destroy(second);
    two_close(two);
}

/* NVIDIA/TensorRT-LLM issue 12542: what is under way cannot be taken away from beneath it; what was given up before is
 * refused at once, on whichever way somebody comes for it. */
static void test_reports_source_is_pinned_or_refused(void **state)
{
    (void)state;
    struct two *two = two_open();
    convoy_transfer staged = stage_one(two, "pinned");
    convoy_transfer sent = send_staged(two->sender, two->peer, staged);
    release(two->sender, staged);
    convoy_transfer next = stage_bytes(two->sender, "other", two->text, BYTES / 2); /* would be the same memory */
    convoy_transfer loaded = accept_by(two->receiver, "pinned", 0, CONVOY_LOAD_COPY, 0);
    engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
    EXPECT(engine_is_filled(staged_address(two->receiver, loaded), BYTES, 7));
    engine_wait(two->sender, sent, CONVOY_OK, NULL);
    release(two->sender, sent);
    release(two->receiver, loaded);
    describe(two, next, CONVOY_DESCRIPTOR_BINARY);
    release(two->sender, next);
    const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer, .staged = next};
    convoy_transfer refused = 0;
    CALL_STATUS(two->sender, CONVOY_CLOSED, send_start, NULL, &send, &refused);
    loaded = load_start(two, CONVOY_LOAD_COPY, 0);
    engine_wait(two->receiver, loaded, CONVOY_CLOSED, NULL);
    release(two->receiver, loaded);
    two_close(two);
}

/* sgl-project/sglang issue 15674, llm-d/llm-d issue 2433: four senders with 8 heads each, two receivers that take 16. The
 * shapes come with the tensors; a receiver that was made for others says no, and the sender hears it. */
static void test_reports_other_layouts_are_seen_and_a_no_reaches_both_sides(void **state)
{
    (void)state;
    struct two *two = two_open();
    static uint16_t heads[4][8 * 32];
    static const uint64_t shape[2] = {8, 32};
    convoy_transfer sent[4];
    for (uint32_t i = 0; i < 4; i++) {
        char request[8];
        engine_fill((uint8_t *)heads[i], sizeof heads[i], i);
        const struct convoy_tensor_source tensor = {.name = "heads",
                                                    .name_length = 5,
                                                    .dtype = "bfloat16",
                                                    .dtype_length = 8,
                                                    .data = heads[i],
                                                    .shape = shape,
                                                    .rank = 2};
        (void)snprintf(request, sizeof request, "rank%u", i);
        const struct convoy_stage stage = engine_stage(request, &tensor, 1);
        const struct convoy_send send = {.struct_size = sizeof send, .peer = two->peer};
        CALL_OK(two->sender, send_start, &stage, &send, &sent[i]);
    }
    static uint16_t both[2][8 * 32];
    for (uint32_t i = 0; i < 3; i++) {
        char request[8];
        (void)snprintf(request, sizeof request, "rank%u", i);
        const struct convoy_load load = {.struct_size = sizeof load,
                                         .mode = CONVOY_LOAD_COPY,
                                         .request = request,
                                         .request_length = 5,
                                         .destination = i < 2 ? both[i] : both[0],
                                         .destination_bytes = i < 2 ? sizeof both[i] : 4 * 32 * 2}; /* 4 heads at last */
        convoy_transfer loaded = 0;
        CALL_STATUS(two->receiver, i < 2 ? CONVOY_OK : CONVOY_BUFFER_TOO_SMALL, accept, &load, &loaded);
        if (i < 2) {
            engine_look(two->receiver, loaded);
            EXPECT(two->receiver->views[0].rank == 2 && two->receiver->views[0].shape[0] == 8);
            EXPECT_BYTES(both[i], heads[i], sizeof heads[i]);
        }
        engine_wait(two->sender, sent[i], i < 2 ? CONVOY_OK : CONVOY_BUFFER_TOO_SMALL, NULL);
        release(two->receiver, loaded);
    }
    EXPECT_BYTES(both[0], heads[0], sizeof heads[0]); /* not a byte of what was refused */
    for (uint32_t i = 0; i < 4; i++) {
        release(two->sender, sent[i]);
    }
    CALL_OK(two->sender, peer_disconnect, two->peer);
    two_close(two);
}

/* sgl-project/sglang PR 31217: one of eight that failed pins nothing; what comes before anybody waits for it is kept. */
static void test_reports_failed_one_pins_nothing_and_early_ones_are_parked(void **state)
{
    (void)state;
    struct convoy_transfer_options options = pool_of(8 * 131072);
    struct two *two = two_open_with(&options);
    convoy_transfer staged[8];
    for (uint32_t i = 0; i < 8; i++) {
        staged[i] = stage_one(two, "eight");
    }
    CALL_OK(two->sender, abort, staged[2], "failed", 6);
    for (uint32_t i = 0; i < 50; i++) { /* each in the memory of the third */
        convoy_transfer sent = send_bytes(two->sender, two->peer, "more", 1, two->memory, BYTES);
        (void)engine_figures(two->receiver); /* takes the offer, which nobody waits for yet */
        convoy_transfer loaded = accept_by(two->receiver, "more", 0, CONVOY_LOAD_VIEW, 0);
        engine_wait(two->receiver, loaded, CONVOY_OK, NULL);
        engine_wait(two->sender, sent, CONVOY_OK, NULL);
        release(two->receiver, loaded);
        release(two->sender, sent);
        AWAIT(engine_figures(two->sender).free != 0); /* until it is given back */
    }
    for (uint32_t i = 0; i < 8; i++) {
        release(two->sender, staged[i]);
    }
    two_close(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports_every_state_with_every_end_leaves_nothing),
        cmocka_unit_test(test_reports_inputs_that_never_come_time_out_together),
        cmocka_unit_test(test_reports_source_is_free_before_the_receiver_has_it),
        cmocka_unit_test(test_reports_attempts_before_the_last_are_refused),
        cmocka_unit_test(test_reports_sweep_leaves_what_is_under_way),
        cmocka_unit_test(test_reports_sender_is_part_of_the_request),
        cmocka_unit_test(test_reports_source_is_pinned_or_refused),
        cmocka_unit_test(test_reports_other_layouts_are_seen_and_a_no_reaches_both_sides),
        cmocka_unit_test(test_reports_failed_one_pins_nothing_and_early_ones_are_parked),
    };
    return cmocka_run_group_tests_name("reports_transfer_requests", tests, NULL, NULL);
}
