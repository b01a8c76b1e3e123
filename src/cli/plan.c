/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan.h"

#include "convoy/poll.h"

#define PLAN_TOKENS_PER_STEP 8192u
#define PLAN_FAILED_PER_MILLE 20u  /* requests that one rank sees fail */
#define PLAN_ABORTED_PER_MILLE 10u /* requests that one rank aborts, perhaps after its own Success */

uint64_t convoy_plan_mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15ull;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
    return value ^ (value >> 31);
}

/* Takes one draw below `bound` out of the running value. */
static uint32_t plan_draw(uint64_t *value, uint32_t bound)
{
    *value = convoy_plan_mix(*value);
    return (uint32_t)(*value % bound);
}

struct convoy_plan_times convoy_plan_times_of(const struct convoy_plan_request *request)
{
    uint64_t shared = convoy_plan_mix(request->seed) ^ convoy_plan_mix(request->request + 1ull);
    uint64_t own = shared ^ convoy_plan_mix(0x10000ull + request->position);
    struct convoy_plan_times times = {.failed = CONVOY_PLAN_NEVER};
    times.waiting = plan_draw(&shared, 3) + plan_draw(&own, 3);
    times.transferring = times.waiting + plan_draw(&shared, 4) + plan_draw(&own, 3);
    times.success = times.transferring + 1 + request->input_tokens / PLAN_TOKENS_PER_STEP + plan_draw(&shared, 6) +
                    plan_draw(&own, 6);
    uint32_t fate = plan_draw(&shared, 1000);
    uint32_t unlucky = plan_draw(&shared, request->shard_size);
    if (unlucky == request->position && fate < PLAN_FAILED_PER_MILLE) {
        times.failed = plan_draw(&own, times.success + 1);
    } else if (unlucky == request->position && fate < PLAN_FAILED_PER_MILLE + PLAN_ABORTED_PER_MILLE) {
        times.failed = plan_draw(&own, times.success + 4); /* an abort may follow this rank's Success */
    }
    return times;
}

uint8_t convoy_plan_state(const struct convoy_plan_times *times, uint64_t age)
{
    if (age >= times->failed) {
        return CONVOY_STATE_FAILED;
    }
    if (age >= times->success) {
        return CONVOY_STATE_SUCCESS;
    }
    if (age >= times->transferring) {
        return CONVOY_STATE_TRANSFERRING;
    }
    return age >= times->waiting ? CONVOY_STATE_WAITING_FOR_INPUT : CONVOY_STATE_BOOTSTRAPPING;
}
