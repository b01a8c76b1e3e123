/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process dies at each point of the list, as who sends and as who receives, with shared memory and without: the survivor
 * ends every transfer in time and with the right status, gets all its memory back, and works with the next life of the dead
 * one at once. At the same points it is stopped and goes on later: that one is only late, and holds up no call of the other.
 * Needs a build with fault hooks.
 */
#include "tests/fault/courier.h"
#include "tests/lib/expect.h"

#include "core/fault.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define POINT_MS 60000u
#define TESTS_MAX 400u

enum point_lane { LANE_NEAR = 1, LANE_FAR = 2, LANE_BOTH = 3 };

/* Where a victim of this role passes it, and at which passes it dies. */
struct point_case {
    const char *point;
    enum courier_role role;
    enum point_lane lanes;
    uint32_t hits;
};

static const struct point_case point_cases[] = {
    {"dial_hello", COURIER_DIALER, LANE_BOTH, 1},
    {"dial_introduced", COURIER_DIALER, LANE_BOTH, 1},
    {"dial_channel", COURIER_DIALER, LANE_NEAR, 1},
    {"dial_files", COURIER_DIALER, LANE_NEAR, 1},
    {"dial_joined", COURIER_DIALER, LANE_NEAR, 1},
    {"far_dial_address", COURIER_DIALER, LANE_FAR, 1},
    {"far_dial_joined", COURIER_DIALER, LANE_FAR, 1},
    {"door_introduced", COURIER_LISTENER, LANE_BOTH, 1},
    {"door_files", COURIER_LISTENER, LANE_NEAR, 1},
    {"door_joined", COURIER_LISTENER, LANE_NEAR, 1},
    {"far_door_joined", COURIER_LISTENER, LANE_FAR, 1},
    {"stage_copied", COURIER_DIALER, LANE_BOTH, 3},
    {"offer_before_put", COURIER_DIALER, LANE_BOTH, 4}, /* withdrawn, lent, copied, to an address */
    {"offer_after_put", COURIER_DIALER, LANE_BOTH, 4},
    {"withdraw_after_put", COURIER_DIALER, LANE_NEAR, 1},
    {"load_copied", COURIER_LISTENER, LANE_NEAR, 1},
    {"taken_before_put", COURIER_LISTENER, LANE_BOTH, 3},
    {"taken_after_put", COURIER_LISTENER, LANE_BOTH, 3},
    {"back_before_put", COURIER_LISTENER, LANE_NEAR, 1},
    {"back_after_put", COURIER_LISTENER, LANE_NEAR, 1},
    {"returned_before_free", COURIER_DIALER, LANE_BOTH, 3},
    {"ask_after_put", COURIER_LISTENER, LANE_BOTH, 1},
    {"grant_before_put", COURIER_DIALER, LANE_BOTH, 1},
    {"grant_after_put", COURIER_DIALER, LANE_BOTH, 1},
    {"raw_after_put", COURIER_DIALER, LANE_BOTH, 1},
    {"raw_copying", COURIER_LISTENER, LANE_NEAR, 2},
    {"raw_copied", COURIER_LISTENER, LANE_NEAR, 2},
    {"raw_done_before_put", COURIER_LISTENER, LANE_BOTH, 2},
    {"raw_done_after_put", COURIER_LISTENER, LANE_BOTH, 2},
    {"room_before_put", COURIER_LISTENER, LANE_FAR, 5},
    {"room_after_put", COURIER_LISTENER, LANE_FAR, 5},
    {"push_granted", COURIER_DIALER, LANE_FAR, 4},
    {"push_chunk", COURIER_DIALER, LANE_FAR, 3},
    {"push_landed", COURIER_LISTENER, LANE_FAR, 3},
    {"push_ended", COURIER_DIALER, LANE_FAR, 3},
    {"goodbye_before_put", COURIER_DIALER, LANE_BOTH, 1},
    {"goodbye_after_put", COURIER_DIALER, LANE_BOTH, 1},
    {"goodbye_before_put", COURIER_LISTENER, LANE_BOTH, 1},
    {"goodbye_after_put", COURIER_LISTENER, LANE_BOTH, 1},
};

struct point_run {
    const struct point_case *the_case;
    uint32_t hit;
    bool is_far;
    bool is_stop;
    char name[112];
};

struct point_shared {
    struct courier_life lives[COURIER_LIVES];
    uint32_t is_standing; /* futex: the parent has seen that the victim is stopped */
};

enum point_rank { RANK_SURVIVOR = 0, RANK_VICTIM, RANK_NEXT };
enum point_mark { MARK_BEGUN = 1, MARK_ANSWERED, MARK_EMPTY };

static char hits_path[] = "/tmp/convoy-transfer-points-XXXXXX";

static struct courier open_courier(const struct point_run *run, enum courier_role role)
{
    const struct convoy_transfer_options options = {.struct_size = sizeof options,
                                                    .pool_bytes = 8u << 20,
                                                    .pool_block_bytes = 4096,
                                                    .transfer_max = 32,
                                                    .peer_max = 2};
    engine_settings = run->is_far ? "{\"net\": \"ucx\"}" : NULL;
    return (struct courier){.role = role, .engine = engine_create(&options), .data = courier_make_data()};
}

static void close_courier(struct courier *courier)
{
    engine_destroy(courier->engine);
    free(courier->data);
}

/* -- who dies, and who comes after it ------------------------------------------------------------------------------ */

static void run_victim(struct point_shared *shared, const struct point_run *run)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%s:%u", run->the_case->point, run->hit);
    EXPECT_EQUAL(setenv(run->is_stop ? "CONVOY_STOP_POINT" : "CONVOY_KILL_POINT", text, 1), 0);
    EXPECT_EQUAL(setenv("CONVOY_POINT_HITS", hits_path, 1), 0);
    struct courier courier = open_courier(run, run->the_case->role);
    courier.life = &shared->lives[0];
    EXPECT(courier_run(&courier));
    close_courier(&courier);
    EXPECT(run->is_stop); /* else it has outlived its point */
}

static void run_next(const struct rank *rank, struct point_shared *shared, const struct point_run *run)
{
    struct courier courier = open_courier(run, run->the_case->role);
    courier.life = &shared->lives[1];
    rank_await_mark(rank, RANK_SURVIVOR, MARK_EMPTY);
    EXPECT(courier_run(&courier));
    close_courier(&courier);
}

/* -- who stays ----------------------------------------------------------------------------------------------------- */

/* Calls that need nothing of the peer answer while it stands still, whatever another thread is at. */
static void *look_on(void *argument)
{
    struct courier *courier = argument;
    struct point_shared *shared = (struct point_shared *)(void *)courier->life;
    struct convoy_engine_info info = {.struct_size = sizeof info};
    struct convoy_engine_figures figures = {.struct_size = sizeof figures};
    struct convoy_error error = {.struct_size = sizeof error};
    const struct convoy_transfer_table *table = courier->engine->table;
    EXPECT(ranks_futex_wait(&shared->is_standing, 0, POINT_MS));
    EXPECT_OK(table->engine_info(courier->engine->handle, &info, &error), &error);
    EXPECT_OK(table->pool_figures(courier->engine->handle, &figures, &error), &error);
    return NULL;
}

static void run_late(const struct rank *rank, struct courier *courier)
{
    pthread_t onlooker;
    EXPECT_EQUAL(pthread_create(&onlooker, NULL, look_on, courier), 0);
    bool is_done = courier_run(courier);
    EXPECT_EQUAL(pthread_join(onlooker, NULL), 0);
    rank_mark(rank, MARK_ANSWERED);
    EXPECT(is_done);
    close_courier(courier);
}

static void run_survivor(const struct rank *rank, struct point_shared *shared, const struct point_run *run)
{
    struct courier courier = open_courier(run, (enum courier_role)(COURIER_ROLES - 1 - run->the_case->role));
    courier.life = &shared->lives[0];
    if (run->is_stop) {
        run_late(rank, &courier);
        return;
    }
    (void)courier_run(&courier);
    courier_await_empty(&courier);
    rank_mark(rank, MARK_EMPTY);
    courier.life = &shared->lives[1];
    EXPECT(courier_run(&courier));
    courier_await_empty(&courier);
    close_courier(&courier);
}

static void run_rank(const struct rank *rank, void *argument)
{
    const struct point_run *run = argument;
    if (rank->index == RANK_VICTIM) {
        run_victim(rank->shared, run);
    } else if (rank->index == RANK_NEXT) {
        run_next(rank, rank->shared, run);
    } else {
        run_survivor(rank, rank->shared, run);
    }
}

/* -- the parent ---------------------------------------------------------------------------------------------------- */

static void kill_test(void **state)
{
    struct point_run *run = *state;
    struct ranks *ranks = ranks_create(3, sizeof(struct point_shared));
    struct point_shared *shared = ranks_shared(ranks);
    ranks_expect_signal(ranks, RANK_VICTIM, SIGKILL);
    ranks_start(ranks, run_rank, run, POINT_MS);
    ranks_await_exit(ranks, RANK_VICTIM);
    __atomic_store_n(&shared->lives[0].is_dead, 1, __ATOMIC_RELEASE);
    ranks_finish(ranks);
}

static void stop_test(void **state)
{
    struct point_run *run = *state;
    struct ranks *ranks = ranks_create(2, sizeof(struct point_shared));
    struct point_shared *shared = ranks_shared(ranks);
    ranks_start(ranks, run_rank, run, POINT_MS);
    ranks_await_stop(ranks, RANK_VICTIM);
    __atomic_store_n(&shared->is_standing, 1, __ATOMIC_RELEASE);
    ranks_futex_wake(&shared->is_standing);
    ranks_signal(ranks, RANK_VICTIM, SIGCONT);
    ranks_finish(ranks);
}

/* Each point of the list was passed by a victim of the tests before. */
static void test_transfer_points_all_were_hit(void **state)
{
    (void)state;
#define POINT_NAME(name) #name "\n",
    static const char *const names[] = {CONVOY_TRANSFER_POINT_LIST(POINT_NAME)};
    static char text[1u << 20] = "\n";
    int fd = open(hits_path, O_RDONLY | O_CLOEXEC);
    EXPECT(fd >= 0);
    ssize_t length = read(fd, text + 1, sizeof text - 2);
    EXPECT(length >= 0);
    (void)close(fd);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char line[72];
        (void)snprintf(line, sizeof line, "\n%s", names[i]);
        EXPECT_TEXT(text, line);
    }
}

static size_t add(struct CMUnitTest *tests, size_t at, const struct point_run *wanted)
{
    struct point_run *run = malloc(sizeof *run);
    if (run == NULL) {
        abort();
    }
    *run = *wanted;
    (void)snprintf(run->name, sizeof run->name, "test_%s_%s_at_%s_%u_%s", run->is_stop ? "stop" : "kill",
                   run->the_case->role == COURIER_DIALER ? "dialer" : "listener", run->the_case->point, run->hit,
                   run->is_far ? "far" : "near");
    tests[at] = (struct CMUnitTest){
        .name = run->name, .test_func = run->is_stop ? stop_test : kill_test, .initial_state = run};
    return at + 1;
}

static size_t add_case(struct CMUnitTest *tests, size_t at, const struct point_case *the_case)
{
    for (uint32_t i = 0; i < 4 * the_case->hits; i++) {
        const struct point_run run = {
            .the_case = the_case, .hit = i / 4 + 1, .is_far = i % 2 != 0, .is_stop = i / 2 % 2 != 0};
        if ((the_case->lanes & (run.is_far ? LANE_FAR : LANE_NEAR)) != 0) {
            at = add(tests, at, &run);
        }
    }
    return at;
}

int main(void)
{
    static struct CMUnitTest tests[TESTS_MAX];
    size_t count = 0;
    int fd = mkstemp(hits_path);
    for (size_t i = 0; i < sizeof point_cases / sizeof point_cases[0]; i++) {
        count = add_case(tests, count, &point_cases[i]);
    }
    size_t runs = count;
    if (getenv("CONVOY_TEST_ONLY") == NULL) {
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_transfer_points_all_were_hit);
    }
    engine_filter_tests();
    int failed = _cmocka_run_group_tests("transfer_points", tests, count, NULL, NULL);
    for (size_t i = 0; i < runs; i++) {
        free(tests[i].initial_state);
    }
    (void)close(fd);
    (void)unlink(hits_path);
    return failed;
}
