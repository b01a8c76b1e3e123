/* SPDX-License-Identifier: Apache-2.0 */
/* A record as a group has it, with the parts of an engine and of a poll family that it looks at, and no rounds but those
 * that the test says. */
#ifndef TESTS_UNIT_RECORD_SCENE_H
#define TESTS_UNIT_RECORD_SCENE_H

#include "plugin/record.h"

#include "core/error.h"
#include "core/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SCENE_ENTRIES 64u /* of the call log */

struct scene {
    struct convoy_record record;
    struct convoy_stats_wait waited;
    struct convoy_round_summary summary;
    struct convoy_poll poll;
    uint8_t input[4096];
    uint8_t output[4096];
};

static inline int scene_setup(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);
    *state = scene;
    if (scene == NULL || convoy_record_open(&scene->record, SCENE_ENTRIES, NULL) != CONVOY_OK) {
        return -1;
    }
    scene->record.waited = &scene->waited;
    scene->record.summary = &scene->summary;
    return 0;
}

static inline int scene_teardown(void **state)
{
    struct scene *scene = *state;
    convoy_record_close(&scene->record);
    free(scene);
    return 0;
}

/* One call of the log, by its number from 1. */
struct scene_entry {
    struct convoy_call_header header;
    uint8_t bytes[CONVOY_RECORD_ENTRY_BYTES];
    const uint8_t *output;
};

static inline void scene_read(const struct scene *scene, uint64_t number, struct scene_entry *entry_out)
{
    const struct convoy_call_log *log = scene->record.log;
    assert_true(convoy_call_log_read(log, number, &entry_out->header, entry_out->bytes));
    entry_out->output = entry_out->bytes + convoy_call_log_output_at(log, &entry_out->header);
}

static inline const struct convoy_operation_stats *scene_stats(const struct scene *scene, uint32_t operation)
{
    return &scene->record.stats->operations[operation - CONVOY_OPERATION_POLL];
}

/* Rounds of an operation that ended with OK. */
static inline uint64_t scene_ok(const struct scene *scene, uint32_t operation)
{
    return scene_stats(scene, operation)->outcomes[CONVOY_STATS_OUTCOME_OK];
}

/* Rounds, and waits given up, of all statuses. */
static inline uint64_t scene_all(const struct scene *scene, uint32_t operation)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < CONVOY_STATS_OUTCOMES; i++) {
        sum += scene_stats(scene, operation)->outcomes[i];
    }
    return sum;
}

/* The wait and the summary that the engine would have left of round `number`. */
static inline void scene_round(struct scene *scene, uint64_t number)
{
    scene->summary = (struct convoy_round_summary){.round = number, .epoch = 7, .votes_and = 1, .votes_or = 3};
    scene->waited = (struct convoy_stats_wait){.kind = CONVOY_WAIT_SPIN, .bytes_received = number};
}

#endif
