/* SPDX-License-Identifier: Apache-2.0 */
/* Members of one group move to another build between their rounds: the others see the same members go on. */
#include "tests/lib/crowd.h"
#include "tests/lib/expect.h"
#include "tests/lib/moving.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

#define STATES 6u
#define ROUNDS 40u

/* MIN of what rank r brings in round n: everybody knows it. */
static uint8_t state_of(uint32_t rank, uint32_t round, uint32_t entry)
{
    return (uint8_t)((rank * 7 + round * 3 + entry) % 5);
}

static void expect_round(struct plugin_member *member, uint32_t round)
{
    uint8_t states[STATES];
    uint8_t out[STATES];
    for (uint32_t i = 0; i < STATES; i++) {
        states[i] = state_of(member->options.own_index, round, i);
    }
    plugin_member_reduce(member, states, STATES, out);
    for (uint32_t i = 0; i < STATES; i++) {
        uint8_t least = 4;
        for (uint32_t rank = 0; rank < member->options.member_count; rank++) {
            least = state_of(rank, round, i) < least ? state_of(rank, round, i) : least;
        }
        EXPECT_EQUAL(out[i], least);
    }
}

static uint64_t round_of(struct plugin_member *member)
{
    struct convoy_group_info info = {.struct_size = sizeof info};
    EXPECT_OK(member->plugin.core->group_info(member->group, &info, &member->error), &member->error);
    EXPECT_EQUAL(info.state, CONVOY_GROUP_READY);
    return info.round;
}

static const struct moving_build *build_of(uint32_t number)
{
    return number % 2 == 0 ? moving_first_build() : moving_second_build();
}

static void run_one_moves(const struct rank *rank, void *crowd)
{
    struct plugin_member *member = crowd_open(rank, crowd, "tp");
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        expect_round(member, round);
        EXPECT_EQUAL(round_of(member), round);
        if (rank->index == 1 && round % 10 == 0) {
            moving_member(member, build_of(round / 10 - 1), build_of(round / 10));
            EXPECT_EQUAL(round_of(member), round);
        }
    }
    crowd_close(rank, member);
}

static void test_move_one_member_rounds_go_on(void **state)
{
    (void)state;
    crowd_run(2, run_one_moves, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_move_one_member_rounds_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
