/* SPDX-License-Identifier: Apache-2.0 */
#include "poll/inject.h"

#include "core/error.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

static int fault_compare(const void *left, const void *right)
{
    const struct convoy_poll_fault *a = left;
    const struct convoy_poll_fault *b = right;
    if (a->round != b->round) {
        return a->round < b->round ? -1 : 1;
    }
    if (a->list != b->list) {
        return a->list < b->list ? -1 : 1;
    }
    return a->entry == b->entry ? 0 : a->entry < b->entry ? -1 : 1;
}

int32_t convoy_inject_check_limits(const struct convoy_poll_faults *faults, struct convoy_error *error)
{
    if (faults->probability_ppm > CONVOY_INJECT_PPM_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "poll_faults.probability_ppm is %u, allowed are 0 to %u", faults->probability_ppm,
                                CONVOY_INJECT_PPM_MAX);
    }
    if (faults->script_count > CONVOY_INJECT_SCRIPT_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "poll_faults.script_count is %zu, allowed are 0 to %u",
                                faults->script_count, CONVOY_INJECT_SCRIPT_MAX);
    }
    return CONVOY_OK;
}

static int32_t script_check(const struct convoy_poll_faults *faults, struct convoy_error *error)
{
    if (faults->script_count != 0 && faults->script == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "poll_faults.script is NULL, but script_count is %zu", faults->script_count);
    }
    if (faults->script_stride != 0 && faults->script_stride < sizeof *faults->script) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "poll_faults.script_stride is %zu, allowed are 0 and %zu or more",
                                faults->script_stride, sizeof *faults->script);
    }
    return CONVOY_OK;
}

static int32_t fault_check(const struct convoy_poll_fault *fault, size_t at, struct convoy_error *error)
{
    if (fault->list >= CONVOY_POLL_LISTS_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "poll_faults.script[%zu].list is %u, allowed are 0 to %d", at, fault->list,
                                CONVOY_POLL_LISTS_MAX - 1);
    }
    if (fault->round == 0) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "poll_faults.script[%zu].round is 0, rounds are numbered from 1", at);
    }
    return CONVOY_OK;
}

/* Element `at` of the script, whatever lies between the elements. */
static struct convoy_poll_fault script_read(const struct convoy_poll_faults *faults, size_t at)
{
    struct convoy_poll_fault fault;
    size_t stride = faults->script_stride != 0 ? faults->script_stride : sizeof fault;
    memcpy(&fault, (const char *)faults->script + at * stride, sizeof fault);
    return fault;
}

int32_t convoy_inject_check(const struct convoy_poll_faults *faults, struct convoy_error *error)
{
    int32_t status = convoy_inject_check_limits(faults, error);
    if (status == CONVOY_OK) {
        status = script_check(faults, error);
    }
    for (size_t i = 0; i < faults->script_count && status == CONVOY_OK; i++) {
        struct convoy_poll_fault fault = script_read(faults, i);
        status = fault_check(&fault, i, error);
    }
    return status;
}

int32_t convoy_inject_init(struct convoy_inject *inject, const struct convoy_poll_faults *faults,
                           struct convoy_error *error)
{
    memset(inject, 0, sizeof *inject);
    if (faults == NULL) {
        return CONVOY_OK;
    }
    int32_t status = convoy_inject_check(faults, error);
    if (status != CONVOY_OK) {
        return status;
    }
    inject->script = convoy_memory_array(faults->script_count, sizeof *inject->script);
    if (inject->script == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %zu scripted faults", faults->script_count);
    }
    for (size_t i = 0; i < faults->script_count; i++) {
        inject->script[i] = script_read(faults, i);
    }
    qsort(inject->script, faults->script_count, sizeof *inject->script, fault_compare);
    inject->script_count = (uint32_t)faults->script_count;
    inject->probability_ppm = faults->probability_ppm;
    inject->seed = faults->seed;
    return CONVOY_OK;
}

void convoy_inject_fini(struct convoy_inject *inject)
{
    convoy_memory_free(inject->script);
    memset(inject, 0, sizeof *inject);
}

/* Position of the first scripted fault that is not before this one. */
static uint32_t script_lower_bound(const struct convoy_inject *inject, const struct convoy_poll_fault *fault)
{
    uint32_t low = 0;
    uint32_t high = inject->script_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (fault_compare(&inject->script[middle], fault) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool convoy_inject_is_active(const struct convoy_inject *inject, uint64_t round)
{
    if (inject->probability_ppm != 0 || inject->script_count == 0) {
        return inject->probability_ppm != 0;
    }
    struct convoy_poll_fault first = {.round = round};
    uint32_t at = script_lower_bound(inject, &first);
    return at < inject->script_count && inject->script[at].round == round;
}

/* A finaliser that spreads every input bit over the whole word (constants of the splitmix64 generator). */
static uint64_t mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15ull;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
    return value ^ (value >> 31);
}

bool convoy_inject_hits(const struct convoy_inject *inject, uint64_t round, uint32_t list, uint32_t entry)
{
    uint64_t draw = mix(mix(mix(inject->seed) ^ round) ^ ((uint64_t)list << 32 | entry));
    if (((draw >> 32) * CONVOY_INJECT_PPM_MAX) >> 32 < inject->probability_ppm) {
        return true;
    }
    struct convoy_poll_fault fault = {.round = round, .list = list, .entry = entry};
    uint32_t at = script_lower_bound(inject, &fault);
    return at < inject->script_count && fault_compare(&inject->script[at], &fault) == 0;
}
