/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/bootstrap_hand.h"

/* -- members that do not belong ---------------------------------------------------------------------------------- */

/* The listener is opening; `wrong` tries to be member 1 and is refused; then the right one comes, and all is well. */
static void play_wrong_then_right(struct cast *cast, struct cast_member *wrong)
{
    cast_start(&cast->members[0]);
    (void)cast_play(wrong);
    cast_start(&cast->members[1]);
    cast_join(&cast->members[0]);
    cast_join(&cast->members[1]);
    cast_assert_ok(cast);
}

static void test_bootstrap_wrong_secret_is_refused_and_the_group_forms(void **state)
{
    (void)state;
    struct cast cast;
    cast_init(&cast, 2, cast_free_port());
    struct cast_member wrong = cast.members[1];
    wrong.config.secret = "KEY";
    play_wrong_then_right(&cast, &wrong);
    cast_assert_failed(&wrong, CONVOY_UNAUTHENTICATED, "group tp", "secret");
}

/* pytorch/pytorch issues 55967, 114585, 119196: one that is a life behind is told both epochs at once. */
static void test_bootstrap_earlier_epoch_is_refused_with_both_and_the_group_forms(void **state)
{
    (void)state;
    struct cast cast;
    cast_init(&cast, 2, cast_free_port());
    struct cast_member wrong = cast.members[1];
    wrong.options.epoch = 6;
    play_wrong_then_right(&cast, &wrong);
    cast_assert_failed(&wrong, CONVOY_STALE_EPOCH, "member 13 is at epoch 6", "member 3 at 7");
}

/* A member of a later life keeps trying, since the listener of its life may take the port soon. */
static void test_bootstrap_later_epoch_waits_for_its_listener(void **state)
{
    (void)state;
    struct cast cast;
    struct cast later;
    cast_init(&cast, 2, cast_free_port());
    cast_init(&later, 2, cast.port);
    later.members[0].options.epoch = later.members[1].options.epoch = 8;
    cast_start(&cast.members[0]);
    (void)close(connect_plain(cast.port)); /* the earlier life has the port */
    cast_start(&later.members[1]);
    cast_start(&later.members[0]);
    cast_start(&cast.members[1]);
    for (uint32_t i = 0; i < 4; i++) {
        cast_join(i < 2 ? &cast.members[i] : &later.members[i - 2]);
    }
    cast_assert_ok(&cast);
    cast_assert_ok(&later);
}

static void test_bootstrap_later_epoch_without_a_listener_ends_with_both(void **state)
{
    (void)state;
    struct cast cast;
    cast_init(&cast, 2, cast_free_port());
    struct cast_member wrong = cast.members[1];
    wrong.options.epoch = 8;
    wrong.timeout_ns = 100 * CONVOY_NS_PER_MS;
    play_wrong_then_right(&cast, &wrong);
    cast_assert_failed(&wrong, CONVOY_STALE_EPOCH, "member 13 is at epoch 8", "member 3 at 7");
}

/* sgl-project/sglang issue 29725: own id that is not in the others' list is caught when connecting. */
static void test_bootstrap_member_outside_the_list_is_refused_and_the_group_forms(void **state)
{
    (void)state;
    struct cast cast;
    cast_init(&cast, 2, cast_free_port());
    struct cast_member wrong = cast.members[1];
    const int32_t ids[2] = {3, 99};
    wrong.options.member_ids = ids;
    wrong.options.own_id = 99;
    play_wrong_then_right(&cast, &wrong);
    cast_assert_failed(&wrong, CONVOY_DIVERGED, "member 99 is not in the list", "member 3");
}

/* The first twin is admitted, the second refused, and the group forms with the first. */
static void test_bootstrap_second_member_of_one_index_is_refused_and_the_group_forms(void **state)
{
    (void)state;
    struct cast cast;
    struct convoy_runtime *runtime;
    struct convoy_frame_stream first;
    cast_init(&cast, 3, cast_free_port());
    for (uint32_t i = 0; i < 3; i++) {
        cast.members[i].exchange_count = 0;
    }
    assert_int_equal(convoy_runtime_open(&cast.members[1].config, &runtime, NULL), CONVOY_OK);
    cast_start(&cast.members[0]);
    join_by_hand(&cast, runtime, &first);
    (void)cast_play(&cast.members[1]);
    cast_assert_failed(&cast.members[1], CONVOY_DIVERGED, "member 13 (index 1) is here already", "a second one");
    cast_start(&cast.members[2]);
    assert_int_equal(await_message(&first, CONVOY_MESSAGE_WELCOME, NULL), CONVOY_OK);
    convoy_frame_close(&first);
    cast_join(&cast.members[0]);
    cast_join(&cast.members[2]);
    assert_int_equal(cast.members[0].status, CONVOY_OK);
    assert_int_equal(cast.members[2].status, CONVOY_OK);
    convoy_runtime_destroy(runtime);
}

/* -- disagreements that keep the group from forming -------------------------------------------------------------- */

struct disagreement {
    const char *what;
    int32_t status;
    const char *parts[2];
};

/* Makes member 2 of 3 differ in row `which`. */
static void disagree(struct cast_member *member, uint32_t which)
{
    static const int32_t other_order[3] = {13, 3, 23};
    static const int32_t other_ids[4] = {3, 13, 23, 33};
    switch (which) {
    case 0: member->options.blob_bytes_max = 4096; break;
    case 1: member->options.critical_flags = CONVOY_GROUP_DEGRADE; break;
    case 2: member->options.listener_index = 1; break;
    case 3: member->options.member_ids = other_order; break;
    case 4: member->options.member_ids = other_ids; member->options.member_count = 4; break;
    default: member->wire_min = 2; member->wire_max = 3; break;
    }
}

/* sgl-project/sglang issue 29725 and others: every member learns who disagrees and in what, with both values. */
static void test_bootstrap_disagreement_is_named_on_every_member(void **state)
{
    (void)state;
    static const struct disagreement rows[] = {
        {"blob bound", CONVOY_DIVERGED, {"member 23 has blob bound 4096", "member 3 has 16384"}},
        {"policy", CONVOY_DIVERGED, {"member 23 has policy flags 1", "member 3 has 0"}},
        {"listener", CONVOY_DIVERGED, {"member 23 has listener index 1", "member 3 has 0"}},
        {"order", CONVOY_DIVERGED, {"member 23 lists member 13 at index 0", "member 3 lists member 3"}},
        {"count", CONVOY_DIVERGED, {"member 23 lists 4 members", "member 3 lists 3"}},
        {"wire", CONVOY_VERSION_MISMATCH, {"members 3 and 23", "1 to 1 meet 2 to 3"}},
    };
    for (uint32_t which = 0; which < sizeof rows / sizeof rows[0]; which++) {
        struct cast cast;
        cast_init(&cast, 3, cast_free_port());
        disagree(&cast.members[2], which);
        cast_run(&cast);
        for (uint32_t i = 0; i < 3; i++) {
            cast_assert_failed(&cast.members[i], rows[which].status, rows[which].parts[0], rows[which].parts[1]);
            assert_int_equal(cast.members[i].error.rank, 23);
        }
    }
}

/* Members whose windows each meet the listener's, but not one another's. */
static void test_bootstrap_wire_windows_must_meet_in_one_version(void **state)
{
    (void)state;
    struct cast cast;
    cast_init(&cast, 3, cast_free_port());
    cast.members[0].wire_max = 2;
    cast.members[1].wire_min = cast.members[1].wire_max = 1;
    cast.members[2].wire_min = cast.members[2].wire_max = 2;
    cast_run(&cast);
    for (uint32_t i = 0; i < 3; i++) {
        cast_assert_failed(&cast.members[i], CONVOY_VERSION_MISMATCH, "wire versions", "none is common");
    }
}

/* -- strangers --------------------------------------------------------------------------------------------------- */

/* Garbage, a web request, silence, half a hello, a hello with a huge length: each is dropped and counted while the
 * group is opening, and then the group forms. */
static void test_bootstrap_strangers_are_dropped_and_counted_and_the_group_forms(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t count;
    } strangers[] = {
        {"\x16\x03\x01", 3},
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27},
        {"", 0},
        {"\x89" "convoy\n\x40\0\0\0\1\0\1\0", 16},
        {"\x89" "convoy\n\xff\xff\xff\xff\1\0\1\0"
         "0123456789abcdef0123456789abcdef0123456789abcdef",
         64},
    };
    enum { COUNT = sizeof strangers / sizeof strangers[0] };
    struct cast cast;
    cast_init(&cast, 2, cast_free_port());
    cast_configure(&cast, "{\"hello_timeout_ms\": 100}");
    struct convoy_runtime *runtime;
    assert_int_equal(convoy_runtime_open(&cast.members[0].config, &runtime, NULL), CONVOY_OK);
    cast.members[0].runtime = runtime;
    cast_start(&cast.members[0]);
    for (uint32_t i = 0; i < COUNT; i++) {
        int fd = connect_plain(cast.port);
        assert_int_equal(send(fd, strangers[i].bytes, strangers[i].count, MSG_NOSIGNAL), strangers[i].count);
        assert_true(is_dropped(fd));
        (void)close(fd);
    }
    cast_start(&cast.members[1]);
    cast_join(&cast.members[0]);
    cast_join(&cast.members[1]);
    cast_assert_ok(&cast);
    assert_int_equal(runtime->stranger_count, COUNT);
    convoy_runtime_destroy(runtime);
}

/* Hundreds of silent connections, more than the listener serves at once, hold a member up only for so long. */
static void test_bootstrap_crowd_of_silent_connections_does_not_keep_the_group_from_forming(void **state)
{
    (void)state;
    enum { CROWD = 300 };
    static int fds[CROWD];
    struct cast cast;
    cast_init(&cast, 2, cast_free_port());
    cast_configure(&cast, "{\"hello_timeout_ms\": 100}");
    cast_start(&cast.members[0]);
    for (uint32_t i = 0; i < CROWD; i++) {
        fds[i] = connect_plain(cast.port);
    }
    cast_start(&cast.members[1]);
    cast_join(&cast.members[0]);
    cast_join(&cast.members[1]);
    cast_assert_ok(&cast);
    for (uint32_t i = 0; i < CROWD; i++) {
        (void)close(fds[i]);
    }
}

/* -- nobody, or somebody else, at the port ----------------------------------------------------------------------- */

static void test_bootstrap_deadline_names_the_missing_on_every_member(void **state)
{
    (void)state;
    struct cast cast;
    cast_init(&cast, 4, cast_free_port());
    for (uint32_t i = 0; i < 4; i += 2) {
        cast.members[i].timeout_ns = 300 * CONVOY_NS_PER_MS;
        cast_start(&cast.members[i]);
    }
    for (uint32_t i = 0; i < 4; i += 2) {
        cast_join(&cast.members[i]);
        cast_assert_failed(&cast.members[i], CONVOY_TIMED_OUT, "group tp: members 13, 33 were not heard", "");
        assert_int_equal(cast.members[i].error.rank, 13);
    }
}

static void test_bootstrap_deadline_also_tells_of_refusals(void **state)
{
    (void)state;
    struct cast cast;
    cast_init(&cast, 2, cast_free_port());
    cast.members[0].timeout_ns = 500 * CONVOY_NS_PER_MS;
    cast.members[1].options.epoch = 6;
    cast_run(&cast);
    cast_assert_failed(&cast.members[0], CONVOY_TIMED_OUT, "member 13 was not heard", "member 13 is at epoch 6");
}

/* Three members, of which the last waits and the middle one has something wrong. `first` times out first. */
static void play_wrong_among_three(struct cast *cast, uint32_t first)
{
    cast->members[0].timeout_ns = cast->members[2].timeout_ns = CAST_TIMEOUT_NS;
    cast->members[first].timeout_ns = 4 * CONVOY_NS_PER_S; /* long enough for the middle one to come, on a busy machine */
    cast->members[1].timeout_ns = 6 * CONVOY_NS_PER_S;
    cast_run(cast);
}

/* Whoever ends the opening, the listener or a member that waits, all learn why member 13 was not heard. */
static void test_bootstrap_wrong_secret_is_told_to_all_that_wait(void **state)
{
    (void)state;
    for (uint32_t first = 0; first <= 2; first += 2) {
        struct cast cast;
        cast_init(&cast, 3, cast_free_port());
        cast.members[1].config.secret = "KEY";
        play_wrong_among_three(&cast, first);
        cast_assert_failed(&cast.members[1], CONVOY_UNAUTHENTICATED, "group tp", "secret");
        for (uint32_t i = 0; i <= 2; i += 2) {
            cast_assert_failed(&cast.members[i], CONVOY_TIMED_OUT, "group tp: member 13 was not heard in time; ",
                               "other connections refused: 1, the last: wrong secret from 127.0.0.1:");
        }
    }
}

static void test_bootstrap_name_of_another_group_is_told_to_all_that_wait(void **state)
{
    (void)state;
    for (uint32_t first = 0; first <= 2; first += 2) {
        struct cast cast;
        cast_init(&cast, 3, cast_free_port());
        cast.members[1].options.name = "tq\x1b[2J";
        cast.members[1].options.name_length = 6;
        play_wrong_among_three(&cast, first);
        cast_assert_failed(&cast.members[1], CONVOY_TIMED_OUT, "the listener, member 3", "");
        for (uint32_t i = 0; i <= 2; i += 2) {
            cast_assert_failed(&cast.members[i], CONVOY_TIMED_OUT,
                               "group tp: member 13 was not heard in time; member 13 of 127.0.0.1:",
                               " asks for group tq?[2J");
            assert_null(strstr(cast.members[i].error.text, "refused"));
        }
    }
}

/* The one with the wrong name hears which name is wanted. */
static void test_bootstrap_name_of_another_group_is_told_with_the_right_one(void **state)
{
    (void)state;
    struct cast cast;
    cast_init(&cast, 2, cast_free_port());
    struct cast_member wrong = cast.members[1];
    wrong.options.name = "tq";
    wrong.timeout_ns = CONVOY_NS_PER_S;
    cast.members[0].timeout_ns = CAST_TIMEOUT_NS;
    play_wrong_then_right(&cast, &wrong);
    cast_assert_failed(&wrong, CONVOY_TIMED_OUT, "the listener does not open group tq (yet), it opens group tp", "");
}

/* A waiting member is told soon, not only at the end: with the bits of the heard comes what the listener has seen. */
static void test_bootstrap_waiting_member_is_told_what_the_listener_sees(void **state)
{
    (void)state;
    struct cast cast;
    struct convoy_runtime *runtime;
    struct convoy_frame_stream stream;
    struct convoy_frame frame = {.type = 0};
    char text[512] = "";
    cast_init(&cast, 3, cast_free_port());
    const struct convoy_wait wait = {.cancel_fd = -1, .deadline_ns = convoy_now_ns() + CAST_TIMEOUT_NS};
    assert_int_equal(convoy_runtime_open(&cast.members[1].config, &runtime, NULL), CONVOY_OK);
    cast_start(&cast.members[0]);
    join_by_hand(&cast, runtime, &stream);
    (void)close(connect_plain(cast.port));
    while (strstr(text, "other connections refused: 1, the last: a hello broken off from 127.0.0.1:") == NULL) {
        assert_int_equal(convoy_frame_wait_recv(&stream, &wait, &frame), CONVOY_OK);
        assert_int_equal(frame.type, CONVOY_MESSAGE_HEARD);
        assert_true(frame.bytes >= 1 && frame.bytes < sizeof text);
        convoy_message_text(frame.body + 1, frame.bytes - 1, text, sizeof text);
        convoy_memory_free(frame.body);
    }
    convoy_frame_close(&stream);
    cast_join(&cast.members[0]);
    cast_assert_failed(&cast.members[0], CONVOY_PEER_LOST, "member 13", "");
    convoy_runtime_destroy(runtime);
}

/* Asks at the port for another group than the one that opens there, and is told "not yet". */
static void ask_by_hand(const struct cast *other, struct convoy_runtime *runtime)
{
    const struct convoy_wait wait = {.cancel_fd = -1, .deadline_ns = convoy_now_ns() + CAST_TIMEOUT_NS};
    struct convoy_hello hello;
    struct convoy_hello theirs;
    struct convoy_notice notice;
    struct convoy_frame_stream stream = {.fd = connect_plain(other->port), .limit = 4096};
    assert_int_equal(convoy_handshake_hello(runtime, &hello, NULL), CONVOY_OK);
    hello.has_group = true;
    hello.group = (struct convoy_hello_group){.name = other->name,
                                              .name_length = (uint32_t)strlen(other->name),
                                              .member_ids = other->ids,
                                              .member_count = other->count,
                                              .own_index = 1,
                                              .own_id = other->ids[1]};
    assert_int_equal(convoy_handshake_connect(runtime, stream.fd, &wait, &hello, &theirs, NULL), CONVOY_OK);
    assert_int_equal(await_message(&stream, CONVOY_MESSAGE_REFUSED, &notice), CONVOY_OK);
    assert_int_equal(notice.status, CONVOY_NOT_FOUND);
    assert_int_equal(notice.flags, CONVOY_NOTICE_RETRY);
    convoy_frame_close(&stream);
}

/* Groups share the port and open in any order: a member that asks for one that opens later did nothing wrong, and the
 * group that times out does not blame it. */
static void test_bootstrap_group_that_opens_later_at_the_port_is_no_mistake(void **state)
{
    (void)state;
    struct cast cast;
    struct cast later;
    struct convoy_runtime *runtime;
    uint16_t port = cast_free_port();
    cast_init(&cast, 2, port);
    cast_init(&later, 2, port);
    (void)snprintf(later.name, sizeof later.name, "dp");
    assert_int_equal(convoy_runtime_open(&cast.members[0].config, &runtime, NULL), CONVOY_OK);
    cast.members[0].runtime = later.members[0].runtime = runtime;
    cast.members[0].timeout_ns = CONVOY_NS_PER_S;
    cast_start(&cast.members[0]);
    ask_by_hand(&later, runtime);
    cast_run(&later);
    cast_assert_ok(&later);
    cast_join(&cast.members[0]);
    cast_assert_failed(&cast.members[0], CONVOY_TIMED_OUT, "group tp: member 13 was not heard in time", "");
    assert_null(strstr(cast.members[0].error.text, "asks for"));
    assert_null(strstr(cast.members[0].error.text, "refused"));
    convoy_runtime_destroy(runtime);
}

static void test_bootstrap_without_a_listener_times_out_with_the_reason(void **state)
{
    (void)state;
    struct cast cast;
    cast_init(&cast, 2, cast_free_port());
    cast.members[1].timeout_ns = 100 * CONVOY_NS_PER_MS;
    (void)cast_play(&cast.members[1]);
    cast_assert_failed(&cast.members[1], CONVOY_TIMED_OUT, "the listener, member 3", "Connection refused");
}

static int listen_plain(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

static void test_bootstrap_port_of_another_program_is_a_system_error(void **state)
{
    (void)state;
    struct cast cast;
    cast_init(&cast, 2, cast_free_port());
    int fd = listen_plain(cast.port);
    cast.members[0].timeout_ns = 100 * CONVOY_NS_PER_MS;
    (void)cast_play(&cast.members[0]);
    (void)close(fd);
    cast_assert_failed(&cast.members[0], CONVOY_SYSTEM, "cannot listen at 127.0.0.1", "Address already in use");
    assert_int_equal(cast.members[0].error.sys_errno, EADDRINUSE);
}

/* What answers is another program: a member does not take it for its listener, and goes on trying. */
static void test_bootstrap_other_program_at_the_port_is_not_the_listener(void **state)
{
    (void)state;
    struct cast cast;
    cast_init(&cast, 2, cast_free_port());
    int fd = listen_plain(cast.port);
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nServer: other\r\n\r\n......";
    cast_start(&cast.members[1]);
    int client = accept(fd, NULL, NULL);
    assert_int_equal(send(client, answer, sizeof answer, MSG_NOSIGNAL), sizeof answer);
    assert_true(is_dropped(client));
    (void)close(client);
    (void)close(fd);
    cast_start(&cast.members[0]);
    cast_join(&cast.members[0]);
    cast_join(&cast.members[1]);
    cast_assert_ok(&cast);
}

static void test_bootstrap_bad_rendezvous_is_refused_before_any_socket(void **state)
{
    (void)state;
    struct cast cast;
    cast_init(&cast, 2, cast_free_port());
    for (uint32_t i = 0; i < 2; i++) {
        cast.members[i].options.rendezvous = "tcp://127.0.0.1";
        cast.members[i].options.rendezvous_length = 15;
        (void)cast_play(&cast.members[i]);
        cast_assert_failed(&cast.members[i], CONVOY_INVALID_ARGUMENT, "tcp://127.0.0.1", "port");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_bootstrap_wrong_secret_is_refused_and_the_group_forms),
        CASE(test_bootstrap_earlier_epoch_is_refused_with_both_and_the_group_forms),
        CASE(test_bootstrap_later_epoch_waits_for_its_listener),
        CASE(test_bootstrap_later_epoch_without_a_listener_ends_with_both),
        CASE(test_bootstrap_member_outside_the_list_is_refused_and_the_group_forms),
        CASE(test_bootstrap_second_member_of_one_index_is_refused_and_the_group_forms),
        CASE(test_bootstrap_disagreement_is_named_on_every_member),
        CASE(test_bootstrap_wire_windows_must_meet_in_one_version),
        CASE(test_bootstrap_strangers_are_dropped_and_counted_and_the_group_forms),
        CASE(test_bootstrap_crowd_of_silent_connections_does_not_keep_the_group_from_forming),
        CASE(test_bootstrap_deadline_names_the_missing_on_every_member),
        CASE(test_bootstrap_deadline_also_tells_of_refusals),
        CASE(test_bootstrap_wrong_secret_is_told_to_all_that_wait),
        CASE(test_bootstrap_name_of_another_group_is_told_to_all_that_wait),
        CASE(test_bootstrap_name_of_another_group_is_told_with_the_right_one),
        CASE(test_bootstrap_waiting_member_is_told_what_the_listener_sees),
        CASE(test_bootstrap_group_that_opens_later_at_the_port_is_no_mistake),
        CASE(test_bootstrap_without_a_listener_times_out_with_the_reason),
        CASE(test_bootstrap_port_of_another_program_is_a_system_error),
        CASE(test_bootstrap_other_program_at_the_port_is_not_the_listener),
        CASE(test_bootstrap_bad_rendezvous_is_refused_before_any_socket),
    };
    return cmocka_run_group_tests_name("bootstrap_refusal", tests, cast_warm_up, NULL);
}
