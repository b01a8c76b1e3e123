/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a group as threads of the test program, for the tests of net/bootstrap. */
#ifndef CONVOY_TESTS_UNIT_BOOTSTRAP_CAST_H
#define CONVOY_TESTS_UNIT_BOOTSTRAP_CAST_H

#include "core/clock.h"
#include "core/error.h"
#include "net/bootstrap.h"

#include <dirent.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define CAST_MAX 8u
#define CAST_TIMEOUT_NS (20 * CONVOY_NS_PER_S) /* only a failing test gets there */

/* One member: how it opens, and what came of it. */
struct cast_member {
    struct convoy_context_config config;
    struct convoy_group_options options;
    uint64_t timeout_ns;
    uint32_t exchange_count; /* after opening */
    size_t blob_bytes;       /* of each; byte k of exchange e of member i is i + e + k */
    uint16_t wire_min;       /* 0 = as built */
    uint16_t wire_max;
    struct convoy_runtime *runtime; /* NULL = opens its own */
    int32_t status;
    uint32_t exchanged; /* exchanges that were right */
    struct convoy_error error;
    struct convoy_agreement agreement;
    pthread_t thread;
};

struct cast {
    uint32_t count;
    uint16_t port;
    char name[16];
    char rendezvous[64];
    int32_t ids[CAST_MAX];
    struct cast_member members[CAST_MAX];
};

/* A loopback port that nobody uses now. */
static inline uint16_t cast_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) != 0) {
        fail_msg("no free port");
    }
    (void)close(fd);
    return ntohs(address.sin_port);
}

/* Member i has id 10 * i + 3; member 0 listens; epoch 7; member blobs of 5 + i bytes, two exchanges. */
static inline void cast_init(struct cast *cast, uint32_t count, uint16_t port)
{
    memset(cast, 0, sizeof *cast);
    cast->count = count;
    cast->port = port;
    (void)snprintf(cast->name, sizeof cast->name, "tp");
    (void)snprintf(cast->rendezvous, sizeof cast->rendezvous, "tcp://127.0.0.1:%u", port);
    for (uint32_t i = 0; i < count; i++) {
        cast->ids[i] = (int32_t)(10 * i + 3);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct cast_member *member = &cast->members[i];
        member->config = (struct convoy_context_config){
            .struct_size = sizeof member->config, .secret = "key", .secret_bytes = 3};
        member->options = (struct convoy_group_options){
            .struct_size = sizeof member->options,
            .own_index = i,
            .own_id = cast->ids[i],
            .name = cast->name,
            .name_length = strlen(cast->name),
            .member_ids = cast->ids,
            .member_count = count,
            .rendezvous = cast->rendezvous,
            .rendezvous_length = strlen(cast->rendezvous),
            .epoch = 7,
            .blob_bytes_max = 16384,
        };
        member->timeout_ns = CAST_TIMEOUT_NS;
        member->exchange_count = 2;
        member->blob_bytes = 5 + i;
    }
}

/* Settings text for all members. */
static inline void cast_configure(struct cast *cast, const char *settings)
{
    for (uint32_t i = 0; i < cast->count; i++) {
        cast->members[i].config.settings = settings;
        cast->members[i].config.settings_length = strlen(settings);
    }
}

static inline uint8_t cast_byte(uint32_t index, uint32_t exchange, size_t k)
{
    return (uint8_t)(index + exchange + k);
}

/* true: every blob is that of its member. Sizes follow from the first member's, as cast_init sets them. */
static inline bool cast_blobs_are_right(const struct cast_member *member, const struct convoy_blob *blobs,
                                        uint32_t exchange)
{
    size_t first = member->blob_bytes - member->options.own_index;
    for (uint32_t i = 0; i < member->options.member_count; i++) {
        if (blobs[i].bytes != first + i) {
            return false;
        }
        for (size_t k = 0; k < blobs[i].bytes; k++) {
            if (blobs[i].data[k] != cast_byte(i, exchange, k)) {
                return false;
            }
        }
    }
    return true;
}

static inline int32_t cast_exchange(struct cast_member *member, struct convoy_bootstrap *bootstrap)
{
    static _Thread_local uint8_t bytes[CONVOY_BOOTSTRAP_BLOB_MAX];
    struct convoy_blob blobs[CAST_MAX];
    for (size_t k = 0; k < member->blob_bytes; k++) {
        bytes[k] = cast_byte(member->options.own_index, member->exchanged, k);
    }
    int32_t status = convoy_bootstrap_exchange(bootstrap, bytes, member->blob_bytes, blobs, &member->error);
    if (status == CONVOY_OK && cast_blobs_are_right(member, blobs, member->exchanged)) {
        member->exchanged++;
    }
    return status;
}

/* Opens, exchanges, closes; what came of it is in the member. Also a thread's main function. */
static inline void *cast_play(void *argument)
{
    struct cast_member *member = argument;
    struct convoy_runtime *runtime = member->runtime;
    struct convoy_bootstrap *bootstrap = NULL;
    member->exchanged = 0;
    member->error = (struct convoy_error)CONVOY_ERROR_INIT;
    member->status = CONVOY_OK;
    if (runtime == NULL) {
        member->status = convoy_runtime_open(&member->config, &runtime, &member->error);
        if (member->status != CONVOY_OK) {
            return NULL;
        }
        runtime->wire_min = member->wire_min != 0 ? member->wire_min : runtime->wire_min;
        runtime->wire_max = member->wire_max != 0 ? member->wire_max : runtime->wire_max;
    }
    uint64_t deadline_ns = convoy_now_ns() + member->timeout_ns;
    member->status = convoy_bootstrap_open(runtime, &member->options, deadline_ns, &bootstrap, &member->agreement,
                                           &member->error);
    for (uint32_t i = 0; i < member->exchange_count && member->status == CONVOY_OK; i++) {
        member->status = cast_exchange(member, bootstrap);
    }
    convoy_bootstrap_close(bootstrap);
    if (member->runtime == NULL) {
        convoy_runtime_destroy(runtime);
    }
    return NULL;
}

static inline void cast_start(struct cast_member *member)
{
    assert_int_equal(pthread_create(&member->thread, NULL, cast_play, member), 0);
}

static inline void cast_join(struct cast_member *member)
{
    assert_int_equal(pthread_join(member->thread, NULL), 0);
}

/* Plays all members at once. */
static inline void cast_run(struct cast *cast)
{
    for (uint32_t i = 0; i < cast->count; i++) {
        cast_start(&cast->members[i]);
    }
    for (uint32_t i = 0; i < cast->count; i++) {
        cast_join(&cast->members[i]);
    }
}

static inline void cast_assert_ok(const struct cast *cast)
{
    for (uint32_t i = 0; i < cast->count; i++) {
        const struct cast_member *member = &cast->members[i];
        if (member->status != CONVOY_OK || member->exchanged != member->exchange_count) {
            fail_msg("member %u: status %d, %u exchanges: %s", i, member->status, member->exchanged,
                     member->error.text);
        }
        assert_memory_equal(member->agreement.session, cast->members[0].agreement.session, 32);
        assert_int_equal(member->agreement.epoch, cast->members[0].agreement.epoch);
    }
}

/* The member failed with this status, and its text contains each of the parts. */
static inline void cast_assert_failed(const struct cast_member *member, int32_t status, const char *first,
                                      const char *second)
{
    if (member->status != status || strstr(member->error.text, first) == NULL ||
        strstr(member->error.text, second) == NULL) {
        fail_msg("member %u: status %d where %d is wanted, with \"%s\" and \"%s\": %s", member->options.own_index,
                 member->status, status, first, second, member->error.text);
    }
}

static inline uint32_t cast_count_entries(const char *folder)
{
    uint32_t count = 0;
    DIR *entries = opendir(folder);
    while (entries != NULL && readdir(entries) != NULL) {
        count++;
    }
    (void)closedir(entries);
    return count;
}

/* Open descriptors and threads of this process. */
static inline uint32_t cast_count_resources(void)
{
    return cast_count_entries("/proc/self/fd") * 1000 + cast_count_entries("/proc/self/task");
}

static inline void *cast_do_nothing(void *argument)
{
    return argument;
}

/* Group setup: what a sanitizer starts with the first thread of a program must not count as left behind. */
static inline int cast_warm_up(void **state)
{
    (void)state;
    pthread_t thread;
    return pthread_create(&thread, NULL, cast_do_nothing, NULL) | pthread_join(thread, NULL);
}

/* No more than before. A joined thread may be listed for another moment, now or when `before` was counted: the kernel
 * wakes who joins it first. */
static inline bool cast_resources_are(uint32_t before)
{
    uint64_t end_ns = convoy_now_ns() + CAST_TIMEOUT_NS;
    while (cast_count_resources() > before) {
        if (convoy_now_ns() > end_ns) {
            return false;
        }
        (void)sched_yield();
    }
    return true;
}

#endif
