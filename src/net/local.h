/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of one host: finding out who shares one (by reaching each other, never by addresses), and handing the shared
 * segment and the process descriptors over a Unix socket. The lowest member index of a host makes the segment.
 *
 * Steps on every member: local_prepare (own socket, own keys) -> exchange the blobs -> local_join (pure choice of the
 * candidate host, then connect to its lowest member, or serve if this is it) -> exchange who joined whom ->
 * local_settle. A member that cannot reach its candidate's socket counts as a host of its own.
 */
#ifndef CONVOY_NET_LOCAL_H
#define CONVOY_NET_LOCAL_H

#include "net/bootstrap.h"

/* The hosts of a group, the same on all members. Hosts are numbered by their lowest member index. */
struct convoy_host_map {
    uint32_t member_count;
    uint32_t host_count;
    uint32_t *host_of; /* [member_count] */
};

/* What this member holds of its host. */
struct convoy_local {
    int segment_fd;          /* sealed memfd (SHRINK, GROW), or -1 when alone on its host */
    size_t segment_bytes;
    int *pidfds;             /* [member_count]; -1 for own index and for members of other hosts */
    struct convoy_host_map hosts;
};

/* segment_bytes_fn: size of the segment for `count` members on one host, called on the member that makes it. */
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

/* Runs all steps with its exchanges (two of them). settings.net = "ucx": every member is its own host; "shm": more
 * than one host is UNREACHABLE with the reason. Where sharing was expected (same boot id) and failed, one warning. */
int32_t convoy_local_open(const struct convoy_local_request *request, struct convoy_local *local_out,
                          struct convoy_error *error);

/* Closes what is still open in it; safe on zeroed storage whose segment_fd is -1. */
void convoy_local_fini(struct convoy_local *local);

#endif
