/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a request reaches which state on which rank of its shard: a pure function of (seed, request, rank). Most of a
 * request's pace is shared by the shard, some is the rank's own; a few requests fail or are aborted on one rank first.
 */
#ifndef CONVOY_CLI_PLAN_H
#define CONVOY_CLI_PLAN_H

#include <stdint.h>

#define CONVOY_PLAN_NEVER UINT32_MAX

/* Ages in scheduler steps since admission, ascending; at age 0 the request is Bootstrapping. */
struct convoy_plan_times {
    uint32_t waiting;
    uint32_t transferring;
    uint32_t success;
    uint32_t failed; /* from here on Failed, whatever else; NEVER on most ranks */
};

struct convoy_plan_request {
    uint64_t seed;
    uint32_t request;
    uint32_t input_tokens; /* longer prompts transfer longer */
    uint32_t position;     /* of this rank in its shard */
    uint32_t shard_size;
};

/* splitmix64's mixing step: a well spread 64-bit value for each input. */
uint64_t convoy_plan_mix(uint64_t value);

struct convoy_plan_times convoy_plan_times_of(const struct convoy_plan_request *request);

/* CONVOY_STATE_* at an age. */
uint8_t convoy_plan_state(const struct convoy_plan_times *times, uint64_t age);

#endif
