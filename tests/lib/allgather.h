/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An all-gather among threads of one process or processes forked after it was made: what a host would supply as
 * convoy_allgather_fn. Lives in shared memory; a member that never comes makes the others fail after 20 s.
 */
#ifndef CONVOY_TESTS_LIB_ALLGATHER_H
#define CONVOY_TESTS_LIB_ALLGATHER_H

#include <stddef.h>
#include <stdint.h>

#define TEST_ALLGATHER_BYTES_MAX 65536u

struct test_allgather;

/* `user` of test_allgather_call, one for each member. */
struct test_allgather_member {
    struct test_allgather *shared;
    uint32_t index;
};

/* NULL when memory is short. */
struct test_allgather *test_allgather_create(uint32_t count);
void test_allgather_destroy(struct test_allgather *shared);

/* A random number, the same for all members, other for every all-gather that is made. */
uint64_t test_allgather_identity(const struct test_allgather *shared);

/* Is a convoy_allgather_fn. Fails for more than TEST_ALLGATHER_BYTES_MAX bytes. */
int32_t test_allgather_call(void *user, const void *mine, size_t bytes, void *all_out);

#endif
