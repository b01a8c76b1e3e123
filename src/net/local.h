/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of one host: finding out who shares one (by reaching each other, never by addresses), and handing the shared
 * segment and the process descriptors over a Unix socket. The lowest member index of a host makes the segment.
 *
 * Steps on every member: listen on an own socket, exchange keys -> choose the candidate host (pure), connect to its
 * lowest member and send it JOIN, exchange who did -> the lowest serves exactly those (nobody ever waits for a member
 * that could not connect), exchange who joined whom -> settle. A member that cannot reach its candidate counts as a
 * host of its own. When no two members share a key, the first exchange is the only one.
 */
#ifndef CONVOY_NET_LOCAL_H
#define CONVOY_NET_LOCAL_H

#include "net/bootstrap.h"
#include "net/host_map.h"

/* What this member holds of its host. */
struct convoy_local {
    int segment_fd;          /* sealed memfd (SHRINK, GROW), or -1 when alone on its host */
    size_t segment_bytes;
    int *pidfds;             /* [member_count]; -1 for own index and for members of other hosts */
    struct convoy_host_map hosts;
};

/* Size of the segment for `count` members on one host: called on the member that makes it, and on the others to check
 * what they got (it may be larger). Must not shrink when count grows. */
typedef size_t (*convoy_segment_bytes_fn)(const void *user, uint32_t count);

struct convoy_local_request {
    struct convoy_runtime *runtime;
    const struct convoy_group_options *options;
    const struct convoy_agreement *agreement;
    struct convoy_bootstrap *bootstrap;
    uint64_t deadline_ns;
    convoy_segment_bytes_fn segment_bytes;
    const void *user;
};

/*
 * Runs all steps with its exchanges (one or three). settings.net = "ucx": this member is its own host; "shm" on any
 * member: more than one host is UNREACHABLE on all, with the reason. Where sharing was expected (same boot id) and
 * failed, one warning. On failure nothing is held; the caller tells the others (bootstrap_fail).
 */
int32_t convoy_local_open(const struct convoy_local_request *request, struct convoy_local *local_out,
                          struct convoy_error *error);

/* Closes what is still open in it; safe on zeroed storage whose segment_fd is -1. */
void convoy_local_fini(struct convoy_local *local);

#endif
