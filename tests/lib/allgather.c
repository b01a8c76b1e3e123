/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/allgather.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#define WAIT_S 20

struct test_allgather {
    pthread_mutex_t lock;
    pthread_cond_t arrived_all;
    uint32_t count;
    uint32_t arrived;
    uint64_t generation;
    uint64_t identity;
    size_t mapped_bytes;
    uint8_t slots[]; /* [2][count][TEST_ALLGATHER_BYTES_MAX]: a fast member fills the next one while a slow one reads */
};

struct test_allgather *test_allgather_create(uint32_t count)
{
    size_t bytes = sizeof(struct test_allgather) + (size_t)2 * count * TEST_ALLGATHER_BYTES_MAX;
    struct test_allgather *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return NULL;
    }
    pthread_mutexattr_t lock_kind;
    (void)pthread_mutexattr_init(&lock_kind);
    (void)pthread_mutexattr_setpshared(&lock_kind, PTHREAD_PROCESS_SHARED);
    (void)pthread_mutex_init(&shared->lock, &lock_kind);
    pthread_condattr_t wait_kind;
    (void)pthread_condattr_init(&wait_kind);
    (void)pthread_condattr_setpshared(&wait_kind, PTHREAD_PROCESS_SHARED);
    (void)pthread_condattr_setclock(&wait_kind, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&shared->arrived_all, &wait_kind);
    shared->count = count;
    (void)getrandom(&shared->identity, sizeof shared->identity, 0);
    shared->mapped_bytes = bytes;
    return shared;
}

void test_allgather_destroy(struct test_allgather *shared)
{
    (void)munmap(shared, shared->mapped_bytes); /* a condition that a killed member waited on must not be destroyed */
}

uint64_t test_allgather_identity(const struct test_allgather *shared)
{
    return shared->identity;
}

static uint8_t *slot_of(struct test_allgather *shared, uint64_t generation, uint32_t index)
{
    return shared->slots + ((generation % 2) * shared->count + index) * TEST_ALLGATHER_BYTES_MAX;
}

/* Waits with the lock held until this generation is over. */
static int wait_all(struct test_allgather *shared, uint64_t generation)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += WAIT_S;
    int result = 0;
    while (shared->generation == generation && result == 0) {
        result = pthread_cond_timedwait(&shared->arrived_all, &shared->lock, &until);
    }
    return shared->generation == generation ? -1 : 0;
}

int32_t test_allgather_call(void *user, const void *mine, size_t bytes, void *all_out)
{
    const struct test_allgather_member *member = user;
    struct test_allgather *shared = member->shared;
    if (bytes > TEST_ALLGATHER_BYTES_MAX) {
        return -1;
    }
    (void)pthread_mutex_lock(&shared->lock);
    uint64_t generation = shared->generation;
    memcpy(slot_of(shared, generation, member->index), mine, bytes);
    if (++shared->arrived == shared->count) {
        shared->arrived = 0;
        shared->generation++;
        (void)pthread_cond_broadcast(&shared->arrived_all);
    }
    int result = wait_all(shared, generation);
    for (uint32_t i = 0; i < shared->count && result == 0; i++) {
        memcpy((uint8_t *)all_out + i * bytes, slot_of(shared, generation, i), bytes);
    }
    (void)pthread_mutex_unlock(&shared->lock);
    return result;
}
