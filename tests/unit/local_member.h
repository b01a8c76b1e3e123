/* SPDX-License-Identifier: Apache-2.0 */
/* One member that opens its part of a host, for the tests of net/local; and a bootstrap over a plain all-gather. */
#ifndef CONVOY_TESTS_UNIT_LOCAL_MEMBER_H
#define CONVOY_TESTS_UNIT_LOCAL_MEMBER_H

#include "core/clock.h"
#include "core/error.h"
#include "net/local.h"
#include "tests/lib/allgather.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MEMBERS_MAX 8u

struct fake_blob {
    uint32_t bytes;
    int32_t status;
    uint8_t data[TEST_ALLGATHER_BYTES_MAX - 8];
};

struct convoy_bootstrap {
    struct test_allgather_member member;
    uint32_t count;
    int32_t failed;
    struct fake_blob all[MEMBERS_MAX];
};

int32_t convoy_bootstrap_exchange(struct convoy_bootstrap *bootstrap, const void *mine, size_t bytes,
                                  struct convoy_blob *blobs_out, struct convoy_error *error)
{
    struct fake_blob own = {.bytes = (uint32_t)bytes};
    memcpy(own.data, mine, bytes);
    if (test_allgather_call(&bootstrap->member, &own, sizeof own, bootstrap->all) != 0) {
        return convoy_error_set(error, CONVOY_TIMED_OUT, "a member did not come");
    }
    for (uint32_t i = 0; i < bootstrap->count; i++) {
        if (bootstrap->all[i].status != CONVOY_OK) {
            return bootstrap->failed = convoy_error_set(error, bootstrap->all[i].status, "member %u failed", i);
        }
        blobs_out[i] = (struct convoy_blob){.data = bootstrap->all[i].data, .bytes = bootstrap->all[i].bytes};
    }
    return CONVOY_OK;
}

void convoy_bootstrap_fail(struct convoy_bootstrap *bootstrap, const struct convoy_error *cause)
{
    struct fake_blob own = {.status = cause->status};
    if (bootstrap->failed == CONVOY_OK) { /* else the others know already */
        (void)test_allgather_call(&bootstrap->member, &own, sizeof own, bootstrap->all);
    }
}

struct member {
    uint32_t index;
    uint32_t count;
    uint64_t timeout_ns;
    struct convoy_runtime runtime;
    struct convoy_group_options options;
    struct convoy_agreement agreement;
    struct convoy_bootstrap bootstrap;
    int32_t ids[MEMBERS_MAX];
    struct convoy_local local;
    struct convoy_error error;
    int32_t status;
    uint32_t warnings;
    char warning[CONVOY_LOG_LINE_BYTES];
};

static void member_log(void *user, uint32_t level, const char *text, size_t length)
{
    struct member *member = user;
    member->warnings += level <= CONVOY_LOG_WARN;
    (void)snprintf(member->warning, sizeof member->warning, "%.*s", (int)length, text);
}

static size_t member_segment_bytes(const void *user, uint32_t count)
{
    (void)user;
    return (size_t)count * 4096;
}

static void member_init(struct member *member, struct test_allgather *shared, uint32_t index, uint32_t count)
{
    memset(member, 0, sizeof *member);
    member->index = index;
    member->count = count;
    member->timeout_ns = 20 * CONVOY_NS_PER_S;
    convoy_log_init(&member->runtime.log, member_log, member, CONVOY_LOG_WARN);
    strcpy(member->runtime.settings.net, "auto");
    member->runtime.settings.hello_timeout_ms = 2000;
    member->options.name = "tp";
    member->options.name_length = 2;
    member->options.own_index = index;
    member->options.own_id = (int32_t)(10 + index);
    member->options.member_count = count;
    member->options.member_ids = member->ids;
    for (uint32_t i = 0; i < count; i++) {
        member->ids[i] = (int32_t)(10 + i);
    }
    member->bootstrap.member = (struct test_allgather_member){.shared = shared, .index = index};
    member->bootstrap.count = count;
    member->agreement.epoch = 7;
    const uint64_t identity = test_allgather_identity(shared);
    memcpy(member->agreement.session, &identity, sizeof identity);
    member->error = (struct convoy_error)CONVOY_ERROR_INIT;
    member->local.segment_fd = -1;
}

static void member_open(struct member *member)
{
    const struct convoy_local_request request = {
        .runtime = &member->runtime,
        .options = &member->options,
        .agreement = &member->agreement,
        .bootstrap = &member->bootstrap,
        .deadline_ns = convoy_deadline_after(convoy_now_ns(), member->timeout_ns),
        .segment_bytes = member_segment_bytes,
    };
    member->status = convoy_local_open(&request, &member->local, &member->error);
    if (member->status == CONVOY_OK) { /* whoever opens a group has exchanges after this one */
        struct convoy_blob blobs[MEMBERS_MAX];
        member->status = convoy_bootstrap_exchange(&member->bootstrap, "x", 1, blobs, &member->error);
    }
    if (member->status != CONVOY_OK) {
        convoy_bootstrap_fail(&member->bootstrap, &member->error);
    }
    convoy_log_flush(&member->runtime.log);
}

static void member_close(struct member *member)
{
    convoy_local_fini(&member->local);
    convoy_log_fini(&member->runtime.log);
}

/* Waits for all members. */
static void member_barrier(struct member *member)
{
    uint8_t all[MEMBERS_MAX];
    (void)test_allgather_call(&member->bootstrap.member, "x", 1, all);
}

/* Writes its mark into the segment and sees those of all others on the host. All members must call it. */
static int member_sees_all(struct member *member)
{
    uint8_t *segment = NULL;
    int good = member->local.segment_fd >= 0;
    if (good) {
        segment = mmap(NULL, member->local.segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, member->local.segment_fd,
                       0);
        good = segment != MAP_FAILED;
    }
    if (good) {
        __atomic_store_n(&segment[member->index], (uint8_t)(100 + member->index), __ATOMIC_RELEASE);
    }
    member_barrier(member);
    for (uint32_t i = 0; i < member->count && good; i++) {
        int is_here = member->local.hosts.host_of[i] == member->local.hosts.host_of[member->index];
        good = __atomic_load_n(&segment[i], __ATOMIC_ACQUIRE) == (is_here ? 100 + i : 0) &&
               (member->local.pidfds[i] >= 0) == (is_here && i != member->index);
    }
    member_barrier(member);
    if (segment != NULL && segment != MAP_FAILED) {
        (void)munmap(segment, member->local.segment_bytes);
    }
    return good;
}

/* Open descriptors of this process. */
static inline int count_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = -1; /* the directory itself */
    while (directory != NULL && readdir(directory) != NULL) {
        count++;
    }
    (void)closedir(directory);
    return count;
}

#endif
