/* SPDX-License-Identifier: Apache-2.0 */
/* One member that opens its part of a host, as a thread or a process (tests/lib/ranks.h), for the tests of net/local. */
#ifndef CONVOY_TESTS_UNIT_LOCAL_MEMBER_H
#define CONVOY_TESTS_UNIT_LOCAL_MEMBER_H

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "net/local.h"
#include "tests/lib/allgather.h"
#include "tests/lib/expect.h"
#include "tests/lib/ranks.h"

#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define MEMBERS_MAX 8u
#define PAGE 4096u

/* What all members are told; made before they start. */
struct plan {
    uint16_t port;                      /* of the rendezvous; 0 = meet by `gather`, which crosses any namespace */
    struct test_allgather *gather;
    const char *settings[MEMBERS_MAX];  /* JSON, NULL = none */
    uint32_t other_token;               /* bit i: member i goes on with another session token */
    int64_t fail_after;                 /* allocation to fail in local_open, of all members together; -1 = none */
};

struct member {
    const struct rank *rank;
    struct convoy_runtime *runtime;
    struct convoy_group_options options;
    struct convoy_agreement agreement;
    struct convoy_bootstrap *bootstrap;
    struct test_allgather_member gather;
    char rendezvous[64];
    int32_t ids[MEMBERS_MAX];
    struct convoy_local local;
    struct convoy_error error;
    uint32_t warnings;
    char warning[CONVOY_LOG_LINE_BYTES];
};

static inline uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT(fd >= 0 && bind(fd, (struct sockaddr *)&address, bytes) == 0);
    EXPECT_EQUAL(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    (void)close(fd);
    return ntohs(address.sin_port);
}

static inline void member_log(void *user, uint32_t level, const char *text, size_t length)
{
    struct member *member = user;
    member->warnings += level <= CONVOY_LOG_WARN;
    (void)snprintf(member->warning, sizeof member->warning, "%.*s", (int)length, text);
}

static inline size_t member_segment_bytes(const void *user, uint32_t count)
{
    (void)user;
    return (size_t)count * PAGE;
}

static inline void member_options(struct member *member, const struct plan *plan)
{
    uint32_t index = member->rank->index;
    for (uint32_t i = 0; i < member->rank->count; i++) {
        member->ids[i] = (int32_t)(10 + i);
    }
    member->options = (struct convoy_group_options){
        .struct_size = sizeof member->options, .name = "tp", .name_length = 2, .own_index = index,
        .own_id = member->ids[index], .member_count = member->rank->count, .member_ids = member->ids, .epoch = 7,
        .blob_bytes_max = 16384};
    if (plan->port != 0) {
        (void)snprintf(member->rendezvous, sizeof member->rendezvous, "tcp://127.0.0.1:%u", plan->port);
        member->options.rendezvous = member->rendezvous;
        member->options.rendezvous_length = strlen(member->rendezvous);
    } else {
        member->gather = (struct test_allgather_member){.shared = plan->gather, .index = index};
        member->options.allgather = test_allgather_call;
        member->options.allgather_user = &member->gather;
    }
}

/* Meets the others, and is about to open. */
static inline void member_init(struct member *member, const struct rank *rank, const struct plan *plan)
{
    memset(member, 0, sizeof *member);
    member->rank = rank;
    member->error = (struct convoy_error)CONVOY_ERROR_INIT;
    member->local.segment_fd = -1;
    member_options(member, plan);
    const char *settings = plan->settings[rank->index];
    const struct convoy_context_config config = {.struct_size = sizeof config, .log = member_log, .log_user = member,
                                                 .settings = settings,
                                                 .settings_length = settings != NULL ? strlen(settings) : 0};
    EXPECT_OK(convoy_runtime_open(&config, &member->runtime, &member->error), &member->error);
    EXPECT_OK(convoy_bootstrap_open(member->runtime, &member->options, convoy_now_ns() + 20 * CONVOY_NS_PER_S,
                                    &member->bootstrap, &member->agreement, &member->error),
              &member->error);
    member->agreement.session[0] ^= (uint8_t)((plan->other_token >> rank->index) & 1);
}

/* Opens, then exchanges once more, as everybody does who opens a group. */
static inline int32_t member_open(struct member *member)
{
    struct convoy_blob blobs[MEMBERS_MAX];
    const struct convoy_local_request request = {
        .runtime = member->runtime, .options = &member->options, .agreement = &member->agreement,
        .bootstrap = member->bootstrap, .deadline_ns = convoy_now_ns() + 20 * CONVOY_NS_PER_S,
        .segment_bytes = member_segment_bytes};
    int32_t status = convoy_local_open(&request, &member->local, &member->error);
    if (status == CONVOY_OK) {
        status = convoy_bootstrap_exchange(member->bootstrap, "x", 1, blobs, &member->error);
    } else if (member->options.allgather == NULL) {
        convoy_bootstrap_fail(member->bootstrap, &member->error);
    }
    convoy_log_flush(&member->runtime->log);
    return status;
}

static inline void member_fini(struct member *member)
{
    convoy_local_fini(&member->local);
    convoy_bootstrap_close(member->bootstrap);
    convoy_runtime_destroy(member->runtime);
}

static inline bool member_is_neighbour(const struct member *member, uint32_t other)
{
    return member->local.hosts.host_of[other] == member->local.hosts.host_of[member->rank->index];
}

/* Writes its mark into the segment, and finds those of all others on its host and of nobody else. All must call it. */
static inline void member_meet(const struct member *member)
{
    uint32_t own = member->rank->index;
    uint8_t *segment = mmap(NULL, member->local.segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                            member->local.segment_fd, 0);
    EXPECT(segment != MAP_FAILED);
    __atomic_store_n(&segment[own], (uint8_t)(100 + own), __ATOMIC_RELEASE);
    rank_barrier(member->rank);
    for (uint32_t i = 0; i < member->rank->count; i++) {
        bool is_here = member_is_neighbour(member, i);
        EXPECT_EQUAL(__atomic_load_n(&segment[i], __ATOMIC_ACQUIRE), is_here ? 100 + i : 0);
        EXPECT_EQUAL(member->local.pidfds[i] >= 0, is_here && i != own);
    }
    rank_barrier(member->rank);
    (void)munmap(segment, member->local.segment_bytes);
}

/* Open descriptors of this process. */
static inline int count_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = -1; /* the directory's own */
    while (directory != NULL && readdir(directory) != NULL) {
        count++;
    }
    (void)closedir(directory);
    return count;
}

#endif
