/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/perf_transfer_phases.h"

#include "core/error.h"
#include "core/memory.h"

#include <jansson.h>

struct phase {
    const char *name;
    const char *about;
    uint32_t side; /* whose engine measures it: 0 sends, 1 receives */
};

static const struct phase phases_known[CONVOY_PERF_TRANSFER_PHASES] = {
    {"stage", "sender: tensors are written -> copied into its pool", 0},
    {"reserve", "sender, pushed: copied -> offered; none when it is offered before", 0},
    {"push", "sender, pushed: offered -> the receiver says that it has all", 0},
    {"offer", "sender, not pushed: offered -> the receiver says that it has all", 0},
    {"ready", "receiver: waits -> knows of a payload", 1},
    {"load", "receiver: knows of it -> has it", 1},
    {"release", "sender: the receiver says so -> the pool has its bytes back", 0},
};

const char *convoy_perf_transfer_phase_name(uint32_t phase)
{
    return phases_known[phase].name;
}

const char *convoy_perf_transfer_phase_about(uint32_t phase)
{
    return phases_known[phase].about;
}

static uint64_t number_of(const json_t *object, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

/* The engine keeps paths apart; of several that were taken the most frequent one counts. */
static struct convoy_perf_transfer_phase phase_of(json_t *paths)
{
    struct convoy_perf_transfer_phase most = {0};
    const char *path;
    json_t *one;
    json_object_foreach(paths, path, one)
    {
        if (number_of(one, "count") > most.count) {
            most = (struct convoy_perf_transfer_phase){.count = number_of(one, "count"),
                                                       .p50_ns = number_of(one, "p50_ns"),
                                                       .p99_ns = number_of(one, "p99_ns")};
        }
    }
    return most;
}

int32_t convoy_perf_transfer_phases_parse(const char *text, uint32_t side,
                                          struct convoy_perf_transfer_phase phases[CONVOY_PERF_TRANSFER_PHASES],
                                          struct convoy_error *error)
{
    json_t *stats = json_loads(text, 0, NULL);
    if (!json_is_object(stats)) {
        json_decref(stats);
        return convoy_error_set(error, CONVOY_MALFORMED, "the engine's statistics are no JSON object: %.60s", text);
    }
    for (uint32_t i = 0; i < CONVOY_PERF_TRANSFER_PHASES; i++) {
        if (phases_known[i].side == side) {
            phases[i] = phase_of(json_object_get(json_object_get(stats, "phases"), phases_known[i].name));
        }
    }
    json_decref(stats);
    return CONVOY_OK;
}

int32_t convoy_perf_transfer_phases_read(const struct convoy_transfer_host *host, uint32_t side,
                                         struct convoy_perf_transfer_phase phases[CONVOY_PERF_TRANSFER_PHASES],
                                         struct convoy_error *error)
{
    char *text = NULL;
    int32_t status = convoy_transfer_host_describe(host, CONVOY_TOPIC_STATS, &text, error);
    if (status == CONVOY_OK) {
        status = convoy_perf_transfer_phases_parse(text, side, phases, error);
        convoy_memory_free(text);
    }
    return status;
}
