/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference checker must refuse every wrong result. Two ranks of one shard run two steps: request 0 commits,
 * request 1 fails on rank 1; then both are idle. Each case tells one lie in rank 1's log.
 */
#include "cli/run_log.h"
#include "core/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum lie {
    LIE_NONE,
    LIE_TABLE,
    LIE_FIRST,
    LIE_PRESENCE,
    LIE_REDUCED,
    LIE_MODE_AGREED,
    LIE_VOTES_AND,
    LIE_VOTES_OR,
    LIE_ROUND,
    LIE_TRACE_STEP,
    LIE_ROW,
    LIE_QUEUE,
    LIE_STATE_OUT_OF_RANGE,
    LIE_AHEAD,
    LIE_BEHIND,
    LIE_NO_COMMIT,
    LIE_OTHER_COMMIT,
    LIE_NO_DROP,
    LIE_EXTRA_DROP,
    LIE_REDUCE_FAILED,
    LIE_REDUCE_MISSING,
    LIE_GATHER_FAILED,
    LIE_END_MISSING,
    LIE_END_REASON,
    LIE_GOES_ON,
};

struct scene {
    char folder[32];
    struct convoy_run_log log;
    uint32_t rank;
    uint32_t request_count;
    enum lie lie; /* of the rank whose log is written */
};

static int setup(void **state)
{
    static struct scene scene;
    scene = (struct scene){.request_count = 2};
    (void)snprintf(scene.folder, sizeof scene.folder, "/tmp/convoy_reference_XXXXXX");
    *state = &scene;
    return mkdtemp(scene.folder) != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    struct scene *scene = *state;
    for (int rank = 0; rank < 2; rank++) {
        char path[64];
        (void)snprintf(path, sizeof path, "%s/rank-%d.log", scene->folder, rank);
        (void)unlink(path);
    }
    return rmdir(scene->folder);
}

static bool lies(const struct scene *scene, enum lie lie)
{
    return scene->lie == lie;
}

static void put_row(struct scene *scene, const int64_t row[8], bool is_wrong)
{
    for (int i = 0; i < 8; i++) {
        convoy_run_log_signed(&scene->log, row[i] + (is_wrong && i == 3));
    }
}

static void put_ids(struct scene *scene, char tag, uint64_t step, uint64_t count, uint64_t first)
{
    convoy_run_log_begin(&scene->log, tag);
    convoy_run_log_number(&scene->log, step);
    convoy_run_log_number(&scene->log, count);
    for (uint64_t i = 0; i < count; i++) {
        convoy_run_log_number(&scene->log, first + i);
    }
}

/* One gather: both ranks bring `row`, so every table row, the first row and all reduced columns equal it. */
static void write_gather(struct scene *scene, uint64_t step, const int64_t row[8], uint64_t votes)
{
    struct convoy_run_log *log = &scene->log;
    bool is_last = votes != 0;
    convoy_run_log_begin(log, 'G');
    convoy_run_log_number(log, step);
    convoy_run_log_number(log, 5 + step + lies(scene, LIE_TRACE_STEP));
    convoy_run_log_number(log, votes);
    put_row(scene, row, lies(scene, LIE_ROW));
    convoy_run_log_end(log);
    convoy_run_log_begin(log, 'g');
    convoy_run_log_signed(log, is_last && lies(scene, LIE_GATHER_FAILED) ? -301 : 0);
    if (!is_last || !lies(scene, LIE_GATHER_FAILED)) {
        convoy_run_log_number(log, 1 + step + (is_last && lies(scene, LIE_ROUND)));
        convoy_run_log_number(log, votes ^ lies(scene, LIE_VOTES_AND));
        convoy_run_log_number(log, votes ^ (lies(scene, LIE_VOTES_OR) ? 4u : 0u));
        put_row(scene, row, false);
        put_row(scene, row, lies(scene, LIE_TABLE));
        put_row(scene, row, lies(scene, LIE_FIRST));
        convoy_run_log_bytes(log, (const uint8_t[]){0, lies(scene, LIE_PRESENCE)}, 2);
        for (int i = 0; i < 8; i++) {
            convoy_run_log_signed(log, row[i] + (i == 7 && lies(scene, LIE_REDUCED)));
            convoy_run_log_number(log, i == 5 ? row[5] != 4 || lies(scene, LIE_MODE_AGREED) : 1);
        }
    }
    convoy_run_log_end(log);
}

static void write_decisions(struct scene *scene)
{
    if (!lies(scene, LIE_NO_COMMIT)) {
        put_ids(scene, 'C', 0, 1, lies(scene, LIE_OTHER_COMMIT) ? 1 : 0);
        convoy_run_log_end(&scene->log);
    }
    if (!lies(scene, LIE_NO_DROP)) {
        put_ids(scene, 'D', 0, lies(scene, LIE_EXTRA_DROP) ? 2 : 1, 1);
        convoy_run_log_end(&scene->log);
    }
}

static void write_reduce(struct scene *scene)
{
    struct convoy_run_log *log = &scene->log;
    uint8_t own[] = {4, scene->rank == 0 ? 3 : 0};
    uint8_t agreed[] = {4, 0};
    if (lies(scene, LIE_REDUCE_MISSING)) {
        return;
    }
    put_ids(scene, 'P', 0, 2, lies(scene, LIE_QUEUE) ? 7 : 0);
    own[0] = lies(scene, LIE_STATE_OUT_OF_RANGE) ? 5 : own[0];
    own[0] = lies(scene, LIE_AHEAD) ? 3 : own[0]; /* it did not have it, but took part in the commit */
    agreed[0] = lies(scene, LIE_BEHIND) ? 3 : agreed[0];
    convoy_run_log_bytes(log, own, 2);
    convoy_run_log_end(log);
    convoy_run_log_begin(log, 'p');
    convoy_run_log_signed(log, lies(scene, LIE_REDUCE_FAILED) ? -303 : 0);
    if (!lies(scene, LIE_REDUCE_FAILED)) {
        convoy_run_log_number(log, 2);
        convoy_run_log_bytes(log, agreed, 2);
    }
    convoy_run_log_end(log);
    write_decisions(scene);
}

static void write_end(struct scene *scene)
{
    for (int i = lies(scene, LIE_END_MISSING); i < 1 + lies(scene, LIE_GOES_ON); i++) {
        convoy_run_log_begin(&scene->log, 'E');
        convoy_run_log_number(&scene->log, lies(scene, LIE_END_REASON) ? 1 : 0);
        convoy_run_log_end(&scene->log);
    }
}

static void write_log(struct scene *scene, uint32_t rank, enum lie lie)
{
    static const int64_t busy[8] = {12, 3, 1, 1, 1, 1, 0, 900};
    static const int64_t idle[8] = {0, 0, 1, 0, 1, 4, 0, 0};
    struct convoy_error error = CONVOY_ERROR_INIT;
    char path[64];
    struct convoy_run_log_header header = {
        .shape = {.dp = 1, .tp = 2, .cp = 1}, .rank = rank, .request_count = scene->request_count, .seed = 1};
    scene->rank = rank;
    scene->lie = lie;
    (void)snprintf(path, sizeof path, "%s/rank-%u.log", scene->folder, rank);
    assert_int_equal(convoy_run_log_open(&scene->log, path, 1u << 20, &header, &error), CONVOY_OK);
    write_gather(scene, 0, busy, 0);
    write_reduce(scene);
    write_gather(scene, 1, idle, 1);
    write_end(scene);
    convoy_run_log_close(&scene->log);
}

/* Writes both logs and runs the checker; returns its exit code and what it printed. */
static int check(struct scene *scene, enum lie lie, const char *option, char *text, size_t capacity)
{
    char command[256];
    write_log(scene, 0, LIE_NONE);
    write_log(scene, 1, lie);
    (void)snprintf(command, sizeof command, "%s %s 2 %s 2>&1", REFERENCE_PROGRAM, scene->folder, option);
    FILE *program = popen(command, "r");
    assert_non_null(program);
    size_t length = fread(text, 1, capacity - 1, program);
    text[length] = '\0';
    int status = pclose(program);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_reference_honest_logs_are_accepted(void **state)
{
    char text[512];
    assert_int_equal(check(*state, LIE_NONE, "", text, sizeof text), 0);
    assert_string_equal(text,
                        "reference: 2 steps, 1 reductions, 1 commits and 1 drops on 2 ranks are equal to the local "
                        "computation\n");
}

static void test_reference_each_lie_is_named(void **state)
{
    static const struct {
        enum lie lie;
        const char *text;
    } cases[] = {
        {LIE_TABLE, "rank 1: table row 1 column 3 is 2, expected 1"},
        {LIE_FIRST, "rank 1: first row 0 column 3 is 2, expected 1"},
        {LIE_PRESENCE, "rank 1: presence of rank 1 is 1"},
        {LIE_REDUCED, "rank 1: reduced column 7 is 901, expected 900"},
        {LIE_MODE_AGREED, "step 1, rank 1: mode is 4 agreed 1, expected 4 agreed 0"},
        {LIE_VOTES_AND, "rank 1: votes are 1 and 0, expected 0 and 0"},
        {LIE_VOTES_OR, "rank 1: votes are 0 and 4, expected 0 and 0"},
        {LIE_ROUND, "step 1, rank 1: trace step 6 round 3 after trace step 5 round 1"},
        {LIE_TRACE_STEP, "rank 1: is at trace step 6, rank 0 at 5"},
        {LIE_ROW, "rank 0: table row 1 column 3 is 1, expected 2"},
        {LIE_QUEUE, "rank 1: its queue differs"},
        {LIE_STATE_OUT_OF_RANGE, "rank 1: brought state 5"},
        {LIE_AHEAD, "rank 0: request 0 is in state 4, expected 3: it commits ahead of its peers"},
        {LIE_BEHIND, "rank 1: request 0 is in state 3, expected 4"},
        {LIE_NO_COMMIT, "rank 1: does not commit request 0"},
        {LIE_OTHER_COMMIT, "rank 1: does not commit request 0"},
        {LIE_NO_DROP, "rank 1: does not drop request 1"},
        {LIE_EXTRA_DROP, "rank 1: drops request 2 that is not agreed"},
        {LIE_REDUCE_FAILED, "rank 1: the call is missing or ended with status -303"},
        {LIE_REDUCE_MISSING, "rank 0: has a result although 1 ranks did not make the call"},
        {LIE_GATHER_FAILED, "step 1, rank 1: the call is missing or ended with status -301"},
        {LIE_END_MISSING, "rank 1: the replay should have ended here"},
        {LIE_END_REASON, "rank 1: the replay should have ended here"},
        {LIE_GOES_ON, "rank 1: goes on after its end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        assert_int_equal(check(*state, cases[i].lie, "", text, sizeof text), 1);
        if (strstr(text, cases[i].text) == NULL) {
            fail_msg("lie %d: \"%s\" does not say \"%s\"", (int)cases[i].lie, text, cases[i].text);
        }
    }
}

static void test_reference_request_that_nobody_decided_is_missed(void **state)
{
    struct scene *scene = *state;
    char text[512];
    scene->request_count = 3;
    assert_int_equal(check(scene, LIE_NONE, "", text, sizeof text), 1);
    assert_non_null(strstr(text, "request 2 was neither committed nor dropped"));
}

/* After a fault the last step may lack results, but nobody may have one that the others' inputs do not give. */
static void test_reference_early_end_accepts_what_is_missing_only(void **state)
{
    char text[512];
    assert_int_equal(check(*state, LIE_GATHER_FAILED, "--ended-early", text, sizeof text), 0);
    assert_non_null(strstr(text, "the last step is incomplete"));
    assert_int_equal(check(*state, LIE_REDUCE_FAILED, "--ended-early", text, sizeof text), 0);
    assert_int_equal(check(*state, LIE_REDUCE_MISSING, "--ended-early", text, sizeof text), 1);
    assert_int_equal(check(*state, LIE_TABLE, "--ended-early", text, sizeof text), 1);
    assert_int_equal(check(*state, LIE_AHEAD, "--ended-early", text, sizeof text), 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_reference_honest_logs_are_accepted),
        CASE(test_reference_each_lie_is_named),
        CASE(test_reference_request_that_nobody_decided_is_missed),
        CASE(test_reference_early_end_accepts_what_is_missing_only),
    };
    return cmocka_run_group_tests_name("reference", tests, NULL, NULL);
}
