/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/scenarios.h"

#include <string.h>

static const uint8_t vectors[SCENARIO_VECTORS][SCENARIO_ENTRIES] = {
    {4, 4, 4, 4, 4}, {0, 1, 2, 3, 4}, {4, 3, 4, 2, 4}, {1, 1, 1, 1, 1}, {4, 0, 4, 4, 3},
};

static int32_t host_advance(void *user, size_t list, size_t entry)
{
    struct scenario_host *host = user;
    (void)list;
    host->trail[host->calls++] = (char)('A' + (int)entry);
    return host->form == SCENARIO_STAGING_FINISHES;
}

static int32_t host_read(void *user, size_t list, size_t entry)
{
    struct scenario_host *host = user;
    (void)list;
    host->trail[host->calls++] = (char)('a' + (int)entry);
    return host->polls[entry];
}

static bool form_is_staging(enum scenario_form form)
{
    return form >= SCENARIO_STAGING_UNUSED;
}

void scenario_host_fill(struct scenario_host *host, enum scenario_form form, uint32_t vector, uint32_t rank)
{
    memset(host, 0, sizeof *host);
    host->form = form;
    for (uint32_t i = 0; i < SCENARIO_ENTRIES; i++) {
        bool is_staged = form > SCENARIO_STAGING_UNUSED && i % 2 == 0;
        host->polls[i] = vectors[vector][(i + rank) % SCENARIO_ENTRIES];
        host->entry_flags[i] = is_staged ? CONVOY_ENTRY_STAGED : 0;
        if (is_staged && form == SCENARIO_STAGING_DONE) {
            host->entry_flags[i] |= CONVOY_ENTRY_DONE;
        }
        host->stamps[i].key = (i + rank) % 4 == 0 ? 0 : 1000 + i; /* the room number, or not landed yet */
    }
}

struct convoy_poll_list scenario_host_list(struct scenario_host *host)
{
    struct convoy_poll_list list = {.count = SCENARIO_ENTRIES, .read = host_read, .user = host};
    if (form_is_staging(host->form)) {
        list.advance = host_advance;
        list.entry_flags = host->entry_flags;
        list.gate = CONVOY_GATE_HOST;
        list.stamps = host->stamps;
    }
    return list;
}

/* Advance, poll, demote, gate. */
static void expect_input(const struct scenario_host *host, uint8_t *input, char *trail)
{
    bool is_done = host->form == SCENARIO_STAGING_FINISHES || host->form == SCENARIO_STAGING_DONE;
    for (uint32_t i = 0; i < SCENARIO_ENTRIES; i++) {
        if (host->entry_flags[i] == CONVOY_ENTRY_STAGED) {
            *trail++ = (char)('A' + (int)i);
        }
    }
    for (uint32_t i = 0; i < SCENARIO_ENTRIES; i++) {
        *trail++ = (char)('a' + (int)i);
        input[i] = host->polls[i];
        bool needs_staging = (host->entry_flags[i] & CONVOY_ENTRY_STAGED) != 0;
        if (form_is_staging(host->form) && input[i] == 4) {
            input[i] = (needs_staging && !is_done) || host->stamps[i].key == 0 ? 3 : 4;
        }
    }
    *trail = '\0';
}

static void vector_min(uint8_t *out, const uint8_t *one, const uint8_t *other)
{
    for (uint32_t i = 0; i < SCENARIO_ENTRIES; i++) {
        out[i] = one[i] < other[i] ? one[i] : other[i];
    }
}

void scenario_expect(const struct scenario_host *hosts, struct scenario_expected *expected_out)
{
    for (uint32_t i = 0; i < SCENARIO_RANKS; i++) {
        expect_input(&hosts[i], expected_out->inputs[i], expected_out->trails[i]);
    }
    for (uint32_t i = 0; i < SCENARIO_RANKS; i++) {
        vector_min(expected_out->firsts[i], expected_out->inputs[i], expected_out->inputs[(i + 2) % SCENARIO_RANKS]);
    }
    vector_min(expected_out->all, expected_out->firsts[0], expected_out->firsts[1]);
}
