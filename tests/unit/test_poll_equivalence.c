/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thirty scenarios in which a host's own poll reduce and ours must not be told apart (SGLang,
 * disaggregation/utils.py): five poll vectors, each with the plain, the two-level and the staging form, the last in
 * four states of the staging handler. Compared is the log of reductions (group, input, MIN), not only the result:
 * reducing twice, or in the other order, is invisible in results.
 */
#include "tests/lib/poll_grid.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define ENTRIES 5u
#define RANKS 4u

enum form {
    FORM_PLAIN = 0,
    FORM_TWO_LEVEL,
    FORM_STAGING_UNUSED,   /* no request needs staging */
    FORM_STAGING_PENDING,  /* the handler advances and does not finish */
    FORM_STAGING_FINISHES, /* the handler finishes while it is advanced */
    FORM_STAGING_DONE,     /* was done before */
    FORM_COUNT,
};

static const uint8_t vectors[5][ENTRIES] = {
    {4, 4, 4, 4, 4}, {0, 1, 2, 3, 4}, {4, 3, 4, 2, 4}, {1, 1, 1, 1, 1}, {4, 0, 4, 4, 3},
};

/* What one rank's requests look like to its host; ranks differ by rotation. */
struct host {
    enum form form;
    uint8_t polls[ENTRIES];
    uint8_t entry_flags[ENTRIES];
    struct convoy_poll_stamp stamps[ENTRIES];
    uint32_t calls; /* to the handler and to the pollers, in order */
    char trail[4 * ENTRIES + 1];
};

static int32_t host_advance(void *user, size_t list, size_t entry)
{
    struct host *host = user;
    (void)list;
    host->trail[host->calls++] = (char)('A' + (int)entry);
    return host->form == FORM_STAGING_FINISHES;
}

static int32_t host_read(void *user, size_t list, size_t entry)
{
    struct host *host = user;
    (void)list;
    host->trail[host->calls++] = (char)('a' + (int)entry);
    return host->polls[entry];
}

static bool form_is_staging(enum form form)
{
    return form >= FORM_STAGING_UNUSED;
}

static void host_fill(struct host *host, enum form form, const uint8_t *vector, uint32_t rank)
{
    memset(host, 0, sizeof *host);
    host->form = form;
    for (uint32_t i = 0; i < ENTRIES; i++) {
        bool is_staged = form > FORM_STAGING_UNUSED && i % 2 == 0;
        host->polls[i] = vector[(i + rank) % ENTRIES];
        host->entry_flags[i] = is_staged ? CONVOY_ENTRY_STAGED : 0;
        if (is_staged && form == FORM_STAGING_DONE) {
            host->entry_flags[i] |= CONVOY_ENTRY_DONE;
        }
        host->stamps[i].key = (i + rank) % 4 == 0 ? 0 : 1000 + i; /* the room number, or not landed yet */
    }
}

static void host_call(struct host *host, struct poll_rank *rank)
{
    poll_rank_reset(rank);
    struct convoy_poll_list *list = poll_rank_add(rank, NULL, NULL, ENTRIES);
    list->read = host_read;
    list->user = host;
    if (form_is_staging(host->form)) {
        list->advance = host_advance;
        list->entry_flags = host->entry_flags;
        list->gate = CONVOY_GATE_HOST;
        list->stamps = host->stamps;
    }
}

/* The host's own code, step by step: advance, poll, demote, gate. Writes what goes into the first reduction. */
static void reference_input(const struct host *host, uint8_t *input, char *trail)
{
    bool is_done = host->form == FORM_STAGING_FINISHES || host->form == FORM_STAGING_DONE;
    for (uint32_t i = 0; i < ENTRIES; i++) {
        if (host->entry_flags[i] == CONVOY_ENTRY_STAGED) {
            *trail++ = (char)('A' + (int)i);
        }
    }
    for (uint32_t i = 0; i < ENTRIES; i++) {
        *trail++ = (char)('a' + (int)i);
        input[i] = host->polls[i];
        bool needs_staging = (host->entry_flags[i] & CONVOY_ENTRY_STAGED) != 0;
        if (form_is_staging(host->form) && input[i] == 4) {
            input[i] = (needs_staging && !is_done) || host->stamps[i].key == 0 ? 3 : 4;
        }
    }
}

static void vector_min(uint8_t *into, const uint8_t *from)
{
    for (uint32_t i = 0; i < ENTRIES; i++) {
        into[i] = from[i] < into[i] ? from[i] : into[i];
    }
}

/* Asserts one line of the log. */
static void assert_reduction(const struct poll_grid_log *log, uint32_t at, uint32_t group, const uint8_t *input,
                             const uint8_t *output)
{
    assert_true(at < log->count);
    const struct poll_grid_reduction *reduction = &log->reductions[at];
    assert_int_equal(reduction->group, group);
    assert_int_equal(reduction->status, CONVOY_OK);
    assert_int_equal(reduction->count, ENTRIES);
    assert_memory_equal(reduction->input, input, ENTRIES);
    assert_memory_equal(reduction->output, output, ENTRIES);
}

static void grid_reduce(struct poll_grid *grid, enum form form)
{
    if (form == FORM_TWO_LEVEL) {
        poll_grid_run(grid, CONVOY_OK);
        return;
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        struct poll_rank *rank = &grid->rank[i];
        assert_int_equal(convoy_poll_start(rank->poll, &rank->call, &rank->operation, NULL), CONVOY_OK);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        struct poll_rank *rank = &grid->rank[i];
        assert_int_equal(convoy_poll_test(rank->poll, rank->operation, &rank->result, NULL), CONVOY_OK);
    }
}

/* Ranks 2t + c: first groups are {0, 2} and {1, 3}, second groups {0, 1} and {2, 3}. */
static void scenario_assert(struct poll_grid *grid, const struct host *hosts, enum form form)
{
    uint8_t inputs[RANKS][ENTRIES];
    uint8_t firsts[2][ENTRIES];
    uint8_t all[ENTRIES];
    for (uint32_t i = 0; i < RANKS; i++) {
        char trail[4 * ENTRIES + 1] = "";
        reference_input(&hosts[i], inputs[i], trail);
        assert_string_equal(hosts[i].trail, trail);
    }
    for (uint32_t c = 0; c < 2; c++) {
        memcpy(firsts[c], inputs[c], ENTRIES);
        vector_min(firsts[c], inputs[2 + c]);
    }
    memcpy(all, firsts[0], ENTRIES);
    vector_min(all, firsts[1]);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_reduction(&grid->log[i], 0, 1, inputs[i], firsts[i % 2]);
        if (form == FORM_TWO_LEVEL) {
            assert_reduction(&grid->log[i], 1, 2, firsts[i % 2], all);
        }
        assert_int_equal(grid->log[i].count, form == FORM_TWO_LEVEL ? 2 : 1);
        assert_memory_equal(grid->rank[i].states[0], form == FORM_TWO_LEVEL ? all : firsts[i % 2], ENTRIES);
    }
}

static void test_poll_equivalence_of_the_thirty_scenarios(void **state)
{
    (void)state;
    uint32_t scenarios = 0;
    for (uint32_t v = 0; v < 5; v++) {
        for (enum form form = FORM_PLAIN; form < FORM_COUNT; form++, scenarios++) {
            struct poll_grid *grid = poll_grid_create(2, 2);
            struct host hosts[RANKS];
            for (uint32_t i = 0; i < RANKS; i++) {
                host_fill(&hosts[i], form, vectors[v], i);
                host_call(&hosts[i], &grid->rank[i]);
            }
            grid_reduce(grid, form);
            scenario_assert(grid, hosts, form);
            poll_grid_destroy(grid);
        }
    }
    assert_int_equal(scenarios, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_poll_equivalence_of_the_thirty_scenarios),
    };
    return cmocka_run_group_tests_name("poll_equivalence", tests, NULL, NULL);
}
