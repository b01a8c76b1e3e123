/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What users reported about the gather of one row per data-parallel rank, replayed with real processes.
 * CONVOY_SCALE multiplies the number of steps.
 */
#include "tests/lib/crowd.h"
#include "tests/lib/describe.h"
#include "tests/lib/exchange.h"
#include "tests/lib/expect.h"
#include "tests/lib/rows.h"
#include "tests/lib/scale.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static uint32_t draw(uint64_t *random, uint32_t below)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*random >> 33) % below;
}

/* -- idle ranks and a rank that cannot build its row --------------------------------------------------------------- */

#define IDLE_MEMBERS 16u

/* Tokens of a rank in a step: any rank can compute any other's. -1 = no batch at all. */
static int64_t idle_tokens(uint64_t step, uint32_t rank)
{
    uint64_t random = step * 1000003u + rank;
    uint32_t kind = draw(&random, 4);
    return kind == 0 ? -1 : kind == 1 ? 0 : kind == 2 ? 1 : 1 + (int64_t)draw(&random, 8192);
}

static void idle_step(struct rows *rows, struct plugin_member *member, uint64_t step, uint32_t rank)
{
    int64_t most = 0;
    rows_reset(rows);
    rows->row[ROWS_TOKENS] = idle_tokens(step, rank);
    rows->call.row = idle_tokens(step, rank) < 0 ? NULL : rows->row;
    rows->call.tag = step;
    EXPECT_OK(rows_gather(rows, member, CROWD_WAIT_NS), &member->error);
    for (uint32_t i = 0; i < IDLE_MEMBERS; i++) {
        int64_t tokens = idle_tokens(step, i);
        EXPECT_EQUAL(rows->table[i][ROWS_TOKENS], tokens < 0 ? 0 : tokens);
        EXPECT_EQUAL(rows->table[i][ROWS_MODE], tokens < 0 ? ROWS_MODE_IDLE : ROWS_MODE_EXTEND);
        EXPECT_EQUAL(rows->presence[i], CONVOY_PRESENT);
        most = tokens > most ? tokens : most;
    }
    EXPECT_EQUAL(rows->reduced[ROWS_TOKENS].value, most);
}

static void idle_run(const struct rank *rank, void *crowd)
{
    struct rows rows;
    struct plugin_member *member = rows_open(rank, crowd, "idle", 1);
    const uint64_t steps = test_scaled(300, 5000);
    for (uint64_t step = 1; step <= steps; step++) {
        if (step != steps * 3 / 5) {
            idle_step(&rows, member, step, rank->index);
            continue;
        }
        rows_reset(&rows);
        rows.call.critical_flags = rank->index == 5 ? CONVOY_CALL_ERROR_ROW : 0;
        rows.call.error_reason = 31;
        rows.call.tag = step;
        EXPECT_STATUS(rows_gather(&rows, member, CROWD_WAIT_NS), CONVOY_PEER_ERROR, &member->error);
        EXPECT_EQUAL(rows_report(&rows, 5)->condition, CONVOY_MEMBER_ERROR);
        EXPECT_EQUAL(rows_report(&rows, 5)->reason, 31);
        EXPECT_EQUAL(rows.report.round, step);
    }
    crowd_close(rank, member);
}

/* sgl-project/sglang PR 25404: 16 ranks with no batch, an idle one, or tokens; rank 5 posts
 * "no row, reason 31": all others see it in that step, nobody waits for ever, and the steps go on. */
static void test_reports_sync_rank_that_cannot_build_its_row_is_seen_in_that_step(void **state)
{
    (void)state;
    crowd_run(IDLE_MEMBERS, idle_run, 0);
}

/* -- ranks without tokens ------------------------------------------------------------------------------------------ */

#define SIGNAL_MEMBERS 4u

/* Messages that this member has sent to each of the others, each of which is a host of its own. */
static void signal_messages(struct plugin_member *member, long long sent_out[SIGNAL_MEMBERS - 1])
{
    json_t *dump = describe_group(member, CONVOY_TOPIC_DUMP);
    while (json_is_true(json_object_get(json_object_get(dump, "hosts"), "worker_busy"))) {
        json_decref(dump); /* the progress thread had a look just then */
        dump = describe_group(member, CONVOY_TOPIC_DUMP);
    }
    const json_t *peers = json_object_get(json_object_get(json_object_get(dump, "hosts"), "link"), "endpoints");
    EXPECT_EQUAL(json_array_size(peers), SIGNAL_MEMBERS - 1);
    for (size_t i = 0; i < json_array_size(peers); i++) {
        sent_out[i] = describe_number(json_array_get(peers, i), "messages_sent");
    }
    json_decref(dump);
}

static void signal_step(struct rows *rows, struct plugin_member *member, uint64_t step, uint32_t rank)
{
    uint64_t random = step;
    const uint32_t idle = draw(&random, SIGNAL_MEMBERS);
    rows_reset(rows);
    rows->row[ROWS_TOKENS] = 1 + (int64_t)step;
    rows->call.row = rank == idle ? NULL : rows->row;
    EXPECT_OK(rows_gather(rows, member, CROWD_WAIT_NS), &member->error);
    for (uint32_t i = 0; i < SIGNAL_MEMBERS; i++) {
        EXPECT_EQUAL(rows->table[i][ROWS_TOKENS], i == idle ? 0 : 1 + (int64_t)step);
    }
}

static void signal_run(const struct rank *rank, void *crowd)
{
    struct rows rows;
    long long last[SIGNAL_MEMBERS - 1];
    long long sent[SIGNAL_MEMBERS - 1];
    struct plugin_member *member = rows_create(rank, crowd, "signal", 1);
    member->config.settings = "{\"net\":\"ucx\"}";
    member->config.settings_length = strlen(member->config.settings);
    plugin_member_open(member);
    const uint64_t steps = test_scaled(300, 1000);
    signal_step(&rows, member, 0, rank->index); /* links are made by the first messages */
    rank_barrier(rank);
    signal_messages(member, last);
    for (uint64_t step = 1; step <= steps; step++) {
        signal_step(&rows, member, step, rank->index);
        signal_messages(member, sent);
        for (uint32_t i = 0; i < SIGNAL_MEMBERS - 1; i++) {
            EXPECT_EQUAL(sent[i] - last[i], 1);
            last[i] = sent[i];
        }
    }
    json_t *stats = describe_group(member, CONVOY_TOPIC_STATS);
    EXPECT_EQUAL(describe_number(stats, "operations.sync.rounds.OK"), steps + 1);
    json_decref(stats);
    crowd_close(rank, member);
}

/* uccl-project/uccl PR 940: a rank with zero tokens returned early and never signalled. Here a random one in every step
 * brings no tokens and no row at all, and still sends one message to each peer, as in every other step. (Another one
 * would be sent only to ask a peer that has been silent for a quarter of the deadline.) */
static void test_reports_sync_rank_without_tokens_sends_as_many_messages(void **state)
{
    (void)state;
    crowd_run(SIGNAL_MEMBERS, signal_run, 0);
}

/* -- a rank that is gone ------------------------------------------------------------------------------------------- */

#define KILL_STEP 100u

static void killed_expect_loss(struct rows *rows, struct plugin_member *member, const struct rank *rank)
{
    rows_reset(rows);
    if (rank->index == 3) {
        rank_mark(rank, 1);
        rank_await_mark(rank, 0, 9); /* never: it is killed here */
    }
    EXPECT_STATUS(rows_gather(rows, member, 2000000000ull), CONVOY_PEER_LOST, &member->error);
    EXPECT_EQUAL(rows->report.member_count, 1);
    EXPECT_EQUAL(rows->rows[0].rank, 3);
    EXPECT_EQUAL(rows->rows[0].condition, CONVOY_MEMBER_LOST);
    EXPECT_EQUAL(rows->rows[0].round, KILL_STEP - 1);
    EXPECT(rows->report.elapsed_ns < 20000000000ull);
    EXPECT_TEXT(member->error.text, "rank 3");
}

static void killed_run(const struct rank *rank, void *crowd)
{
    struct rows rows;
    struct plugin_member *member = rows_open(rank, crowd, "killed", 1);
    for (uint32_t step = 1; step < KILL_STEP; step++) {
        rows_reset(&rows);
        EXPECT_OK(rows_gather(&rows, member, CROWD_WAIT_NS), &member->error);
    }
    killed_expect_loss(&rows, member, rank);
    rank_barrier_of(rank, 1, 3);
    plugin_member_destroy(member);
}

/* sgl-project/sglang issue 29123: rank 3 is killed at step 100; the rest return with exactly {3} and the last step
 * that it took part in, in place of two hours of waiting. */
static void test_reports_sync_killed_rank_is_named_by_all_others(void **state)
{
    (void)state;
    struct ranks *ranks = crowd_start(4, killed_run, 0);
    ranks_await_mark(ranks, 3, 1);
    ranks_signal(ranks, 3, SIGKILL);
    ranks_finish(ranks);
}

static void shrink_run(const struct rank *rank, void *crowd)
{
    struct rows rows;
    struct convoy_reopen_result reopened = {.struct_size = sizeof reopened};
    struct plugin_member *member = rows_open(rank, crowd, "shrink", 1);
    rows_reset(&rows);
    EXPECT_OK(rows_gather(&rows, member, CROWD_WAIT_NS), &member->error);
    rows_reset(&rows);
    if (rank->index == 0) {
        rank_await_mark(rank, 1, 1); /* the others are in their gather */
        rank_await_mark(rank, 2, 1);
        rank_await_mark(rank, 3, 1);
        rank_mark(rank, 1);
        rank_await_mark(rank, 0, 9); /* never: it is killed here */
    }
    convoy_operation operation = 0;
    const struct convoy_sync_table *sync = member->plugin.sync;
    EXPECT_OK(sync->gather_start(member->group, &rows.call, &operation, &member->error), &member->error);
    rank_mark(rank, 1);
    EXPECT_STATUS(sync->gather_wait(member->group, operation, CROWD_WAIT_NS, &rows.result, &member->error),
                  CONVOY_PEER_LOST, &member->error);
    EXPECT_OK(member->plugin.core->group_reopen(member->group, 3000000000ull, &reopened, &member->error),
              &member->error);
    EXPECT_EQUAL(reopened.lost_count, 1);
    rows_reset(&rows);
    rows.row[ROWS_TOKENS] = 10 * rank->index;
    EXPECT_OK(rows_gather(&rows, member, CROWD_WAIT_NS), &member->error);
    for (uint32_t i = 0; i < 4; i++) {
        EXPECT_EQUAL(rows.presence[i], i == 0 ? CONVOY_PRESENT_LOST : CONVOY_PRESENT);
        EXPECT_EQUAL(rows.table[i][ROWS_TOKENS], 10 * i);
        EXPECT_EQUAL(rows.table[i][ROWS_MODE], i == 0 ? ROWS_MODE_IDLE : ROWS_MODE_EXTEND);
    }
    rank_barrier_of(rank, 1, 3);
    plugin_member_destroy(member);
}

/* vllm-project/vllm issues 39942 and 40567, PR 38862: rank 0, who was the listener, is killed in mid-gather. The others
 * agree without it, and the next gather has the fallback in row 0. */
static void test_reports_sync_survivors_agree_without_rank_zero(void **state)
{
    (void)state;
    struct ranks *ranks = crowd_start(4, shrink_run, 0);
    ranks_await_mark(ranks, 0, 1);
    ranks_signal(ranks, 0, SIGKILL);
    ranks_finish(ranks);
}

/* -- facts that all share ---------------------------------------------------------------------------------------- */

static void facts_run(const struct rank *rank, void *crowd)
{
    struct rows rows;
    struct plugin_member *member = rows_open(rank, crowd, "facts", 1);
    for (uint32_t extending = 0; extending < 4; extending++) {
        rows_reset(&rows);
        rows.row[ROWS_TOKENS] = rank->index == extending ? 512 : 1;
        rows.row[ROWS_EXTEND] = rank->index == extending;
        rows.row[ROWS_GRAPH] = rank->index != extending;
        rows.row[ROWS_MODE] = rank->index == extending ? ROWS_MODE_EXTEND : ROWS_MODE_DECODE;
        EXPECT_OK(rows_gather(&rows, member, CROWD_WAIT_NS), &member->error);
        EXPECT_EQUAL(rows.reduced[ROWS_TOKENS].value, 512);
        EXPECT_EQUAL(rows.reduced[ROWS_EXTEND].value, 1);
        EXPECT_EQUAL(rows.reduced[ROWS_GRAPH].value, 0);
        EXPECT_EQUAL(rows.reduced[ROWS_MODE].agreed, 0);
    }
    crowd_close(rank, member);
}

/* sgl-project/sglang PR 20853, issue 26454: one rank extends; every rank gets the same facts, so that none branches
 * on its own batch. */
static void test_reports_sync_only_one_rank_extends_and_all_know_it(void **state)
{
    (void)state;
    crowd_run(4, facts_run, 0);
}

/* Gathers tokens and computes the padded size on every rank from the table. */
static void padded_of(struct rows *rows, struct plugin_member *member, const struct rank *rank, const int64_t *tokens,
                      const struct convoy_sync_padding *rule, struct convoy_sync_padded *padded_out)
{
    int64_t gathered[4];
    rows_reset(rows);
    rows->row[ROWS_TOKENS] = tokens[rank->index];
    rows->row[ROWS_MODE] = tokens[rank->index] == 0 ? ROWS_MODE_IDLE : ROWS_MODE_EXTEND;
    EXPECT_OK(rows_gather(rows, member, CROWD_WAIT_NS), &member->error);
    for (uint32_t i = 0; i < rank->count; i++) {
        gathered[i] = rows->table[i][ROWS_TOKENS];
    }
    struct convoy_sync_padding input = *rule;
    input.struct_size = sizeof input;
    input.tokens = gathered;
    input.token_count = rank->count;
    padded_out->struct_size = sizeof *padded_out;
    EXPECT_OK(member->plugin.sync->padded_size(&input, padded_out, &member->error), &member->error);
}

static void padded_run(const struct rank *rank, void *crowd)
{
    static const int64_t captures[3] = {8, 16, 32};
    static const int64_t fit[4] = {7, 8, 16, 0};
    static const int64_t too_many[4] = {33, 8, 16, 0};
    static const int64_t busy_and_idle[4] = {64, 0, 0, 0};
    static const int64_t all_idle[4] = {0, 0, 0, 0};
    static const int64_t capture64[1] = {64};
    const struct convoy_sync_padding rule = {.layout = CONVOY_LAYOUT_MAX, .captures = captures, .capture_count = 3};
    const struct convoy_sync_padding rule64 = {.layout = CONVOY_LAYOUT_MAX, .captures = capture64, .capture_count = 1};
    int64_t lengths[4];
    struct convoy_sync_padded padded = {.lengths = lengths, .capacity = 4};
    struct rows rows;
    struct plugin_member *member = rows_open(rank, crowd, "padded", 1);
    padded_of(&rows, member, rank, fit, &rule, &padded);
    EXPECT_EQUAL(padded.extent, 16);
    padded_of(&rows, member, rank, too_many, &rule, &padded);
    EXPECT_EQUAL(padded.eligible, 0);
    EXPECT_EQUAL(padded.reason, CONVOY_PADDED_NO_CAPTURE);
    padded_of(&rows, member, rank, busy_and_idle, &rule64, &padded);
    EXPECT_EQUAL(padded.extent, 64);
    EXPECT_EQUAL(lengths[1], 0);
    EXPECT_EQUAL(rows.table[1][ROWS_MODE], ROWS_MODE_IDLE);
    padded_of(&rows, member, rank, all_idle, &rule64, &padded);
    EXPECT_EQUAL(padded.reason, CONVOY_PADDED_ALL_IDLE);
    EXPECT_EQUAL(padded.extent, 0);
    crowd_close(rank, member);
}

/* vllm-project/vllm PR 25906, sgl-project/sglang PR 39899: all ranks compute one padded size from the gathered
 * tokens, or all "no graph"; an idle rank's own mode and length stay idle beside the padded size, also when all are
 * idle. */
static void test_reports_sync_padded_size_is_the_same_on_all_and_idle_stays_idle(void **state)
{
    (void)state;
    crowd_run(4, padded_run, 0);
}

/* -- steps that ranks disagree about ------------------------------------------------------------------------------ */

static void ahead_run(const struct rank *rank, void *crowd)
{
    struct rows rows;
    struct plugin_member *member = rows_open(rank, crowd, "ahead", 1);
    for (uint64_t step = 1; step <= 57; step++) {
        rows_reset(&rows);
        rows.call.tag = step;
        EXPECT_OK(rows_gather(&rows, member, CROWD_WAIT_NS), &member->error);
    }
    rows_reset(&rows);
    rows.call.tag = rank->index == 0 ? 59 : 58; /* rank 0 has counted one call more */
    EXPECT_STATUS(rows_gather(&rows, member, CROWD_WAIT_NS), CONVOY_DIVERGED, &member->error);
    EXPECT_EQUAL(rows.report.field, CONVOY_FIELD_TAG);
    EXPECT_EQUAL(rows_report(&rows, 0)->tag, 59);
    EXPECT_EQUAL(rows_report(&rows, 1)->tag, 58);
    EXPECT_TEXT(member->error.text, "59");
    EXPECT_TEXT(member->error.text, "58");
    rows_reset(&rows);
    rows.call.tag = 60;
    EXPECT_OK(rows_gather(&rows, member, CROWD_WAIT_NS), &member->error);
    crowd_close(rank, member);
}

/* vllm-project/vllm issue 28224: a rank that is a step ahead is found in that very round, on both, with both
 * numbers. */
static void test_reports_sync_rank_a_step_ahead_is_found_at_once(void **state)
{
    (void)state;
    crowd_run(2, ahead_run, 0);
}

static void warmup_run(const struct rank *rank, void *crowd)
{
    static const uint32_t sizes[3] = {32, 16, 8};
    uint32_t ran = 0;
    struct exchange exchange;
    struct plugin_member *member = crowd_open(rank, crowd, "warmup");
    for (uint32_t i = 0; i < 3; i++) {
        const bool can = rank->index != 1 || sizes[i] <= 16;
        exchange_init(&exchange, 0, 0);
        exchange.call.list_count = 0;
        exchange.call.votes = can;
        EXPECT_OK(exchange_reduce(&exchange, member, CROWD_WAIT_NS), &member->error);
        EXPECT_EQUAL(exchange.result.votes_or, 1);
        if (exchange.result.votes_and == 1) {
            exchange_init(&exchange, sizes[i], CONVOY_STATE_SUCCESS); /* the collective of the warm-up */
            EXPECT_OK(exchange_reduce(&exchange, member, CROWD_WAIT_NS), &member->error);
            ran += sizes[i];
        }
    }
    EXPECT_EQUAL(ran, 24);
    crowd_close(rank, member);
}

/* NVIDIA/TensorRT-LLM PR 14986: rank 1 cannot build a warm-up batch of 32. After a vote all skip it, and run 16 and
 * 8. */
static void test_reports_sync_vote_before_an_optional_step(void **state)
{
    (void)state;
    crowd_run(4, warmup_run, 0);
}

/* -- masks ------------------------------------------------------------------------------------------------------- */

static void mask_run(const struct rank *rank, void *crowd)
{
    struct rows rows;
    const uint8_t old_mask[4] = {1, 1, 1, 1};
    const uint8_t new_mask[4] = {1, 0, 1, 1};
    struct plugin_member *member = rows_open(rank, crowd, "mask", 1);
    for (uint64_t step = 1; step <= 3; step++) {
        const bool has_news = step == 3 || (step == 2 && rank->index != 2); /* the update to rank 2 comes late */
        rows_reset(&rows);
        rows.row[ROWS_TOKENS] = 7;
        rows.call.active = has_news ? new_mask : old_mask;
        rows.call.active_count = 4;
        rows.call.mask_version = has_news ? 41 : 40;
        EXPECT_OK(rows_gather(&rows, member, CROWD_WAIT_NS), &member->error);
        EXPECT_EQUAL(rows.result.mask_version, step == 1 ? 40 : 41);
        EXPECT_EQUAL(rows.result.mask_skew, step == 2 ? 1 : 0);
        EXPECT_EQUAL(rows.presence[1], step == 1 ? CONVOY_PRESENT : CONVOY_PRESENT_INACTIVE);
        EXPECT_EQUAL(rows.table[1][ROWS_TOKENS], step == 1 ? 7 : 0);
    }
    crowd_close(rank, member);
}

/* sgl-project/sglang PR 22872: news of a dead rank that one rank has not got yet: the result says which version it
 * used and that one was behind, and no result of the old version carries the new number. */
static void test_reports_sync_late_mask_update_is_reported_as_skew(void **state)
{
    (void)state;
    crowd_run(4, mask_run, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports_sync_rank_that_cannot_build_its_row_is_seen_in_that_step),
        cmocka_unit_test(test_reports_sync_rank_without_tokens_sends_as_many_messages),
        cmocka_unit_test(test_reports_sync_killed_rank_is_named_by_all_others),
        cmocka_unit_test(test_reports_sync_survivors_agree_without_rank_zero),
        cmocka_unit_test(test_reports_sync_only_one_rank_extends_and_all_know_it),
        cmocka_unit_test(test_reports_sync_padded_size_is_the_same_on_all_and_idle_stays_idle),
        cmocka_unit_test(test_reports_sync_rank_a_step_ahead_is_found_at_once),
        cmocka_unit_test(test_reports_sync_vote_before_an_optional_step),
        cmocka_unit_test(test_reports_sync_late_mask_update_is_reported_as_skew),
    };
    return cmocka_run_group_tests_name("reports_sync", tests, NULL, NULL);
}
