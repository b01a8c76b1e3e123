/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What waits for its turn, best first: a pairing heap whose links lie in what waits, so that nothing is ever allocated. Insert
 * and head take constant time, remove of any one O(log n) in the long run. Pure; the caller locks.
 *
 * Who goes first: the higher priority; among equals who came first (since_ns, then order). With age_ns a node gains one step of
 * priority each time that has passed. Both sides of a comparison gain alike as time goes on, so the order is that of
 * priority * age_ns - since_ns, whatever the time is: nothing has to be sorted anew but when age_ns changes (clear, insert).
 */
#ifndef CONVOY_XFER_WAITING_H
#define CONVOY_XFER_WAITING_H

#include <stdbool.h>
#include <stdint.h>

struct convoy_waiting_node {
    int32_t priority;
    uint32_t index;    /* the caller's: whose it is */
    uint64_t since_ns; /* when it came */
    uint64_t order;    /* of coming; no two are equal */
    struct convoy_waiting_node *child;  /* the first of those behind it */
    struct convoy_waiting_node *next;   /* the one beside it, behind the same */
    struct convoy_waiting_node *before; /* the one beside it, or the one that it is the first child of; NULL: the head */
};

/* All zero: empty. */
struct convoy_waiting_queue {
    struct convoy_waiting_node *head; /* NULL = empty */
};

/* Whether a goes before b; of two that differ exactly one does. */
bool convoy_waiting_is_before(const struct convoy_waiting_node *a, const struct convoy_waiting_node *b, uint64_t age_ns);

/* node: in no queue. It stays where it is until it is removed. */
void convoy_waiting_insert(struct convoy_waiting_queue *queue, struct convoy_waiting_node *node, uint64_t age_ns);

/* node: in this queue. */
void convoy_waiting_remove(struct convoy_waiting_queue *queue, struct convoy_waiting_node *node, uint64_t age_ns);

#endif
