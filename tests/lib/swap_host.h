/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host that uses the loader: a context, one group, one transfer engine, of either of the two builds, and swaps between
 * them. Failures are expectations. Every round's states follow from the member and the round, so that a result of another
 * round or of another set of members cannot pass.
 *
 *     struct swap_host host;
 *     swap_host_open(&host, 0, NULL);                   loader and context, build 0
 *     swap_host_join(&host, "name", port, index, count);
 *     swap_host_engine(&host);
 *     EXPECT_OK(swap_host_round(&host, 0), &host.error);
 *     EXPECT_OK(swap_host_swap(&host, 1, 0), &host.error);
 *     swap_host_close(&host);
 */
#ifndef TESTS_LIB_SWAP_HOST_H
#define TESTS_LIB_SWAP_HOST_H

#include "convoy/loader.h"

#include <stdbool.h>

#define SWAP_HOST_MEMBERS 8u
#define SWAP_HOST_STATES 8u
#define SWAP_HOST_NS 20000000000ull /* not meant to pass */

struct swap_host {
    convoy_loader *loader;
    convoy_host_context *context;
    convoy_host_group *group;
    convoy_host_engine *engine;
    struct convoy_error error;
    struct convoy_swap_result result; /* of the last swap */
    char session[256];
    char name[32];
    char rendezvous[64];
    int32_t ids[SWAP_HOST_MEMBERS];
    uint32_t index;
    uint32_t count;
    uint32_t lost; /* bit per member that is out of the group */
    bool is_keyed; /* rounds are */
    uint64_t round; /* that ended well last, or what comes next less one */
    uint8_t states[SWAP_HOST_STATES];
    uint8_t states_out[SWAP_HOST_STATES];
};

/* The file of build 0 or 1. */
const char *swap_host_build(uint32_t build);

/* Loader and context. settings: JSON or NULL. */
void swap_host_open(struct swap_host *host, uint32_t build, const char *settings);
/* The group of `count` members; in one call, or the two steps of it. */
void swap_host_join(struct swap_host *host, const char *name, uint16_t port, uint32_t index, uint32_t count);
void swap_host_join_start(struct swap_host *host, const char *name, uint16_t port, uint32_t index, uint32_t count);
void swap_host_join_wait(struct swap_host *host);
/* Options of that group, for opens of a test's own. They borrow from host. */
struct convoy_group_options swap_host_options(struct swap_host *host, const char *name, uint16_t port, uint32_t index,
                                              uint32_t count);
void swap_host_engine(struct swap_host *host);

/* One round; on OK its result was compared. The split form: start, then wait. */
int32_t swap_host_round(struct swap_host *host, uint64_t timeout_ns);
int32_t swap_host_start(struct swap_host *host, convoy_operation *operation_out);
int32_t swap_host_wait(struct swap_host *host, convoy_operation operation, uint64_t timeout_ns);
void swap_host_reopen(struct swap_host *host, uint32_t lost);

/* To a build; result and error are the host's. */
int32_t swap_host_swap(struct swap_host *host, uint32_t build, uint64_t timeout_ns);
/* Expects that it works, and nothing was late. */
void swap_host_must_swap(struct swap_host *host, uint32_t build);

/* A request of `bytes` from one engine to another: the sender's half. gives the transfer (release) */
convoy_transfer swap_host_send(struct swap_host *host, convoy_peer peer, const char *request, const uint8_t *data,
                               uint64_t bytes);
convoy_peer swap_host_connect(struct swap_host *host, const char *session);
/* Takes the next request and expects this data in it. */
void swap_host_take(struct swap_host *host, const uint8_t *data, uint64_t bytes);
/* The end of a transfer, and its release. */
int32_t swap_host_end(struct swap_host *host, convoy_transfer transfer, uint64_t timeout_ns);

/* All of it that is open, in order. */
void swap_host_close(struct swap_host *host);

/* Two hosts of one process and thread, of build 0 and build 1, that are the members of one group. */
void swap_couple_open(struct swap_host hosts[2], const char *settings, const char *name, uint16_t port);
void swap_couple_round(struct swap_host hosts[2]);
void swap_couple_close(struct swap_host hosts[2]);

#endif
