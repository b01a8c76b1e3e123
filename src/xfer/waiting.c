/* SPDX-License-Identifier: Apache-2.0 */
#include "xfer/waiting.h"

#include <stddef.h>

static bool came_before(const struct convoy_waiting_node *a, const struct convoy_waiting_node *b)
{
    return a->since_ns != b->since_ns ? a->since_ns < b->since_ns : a->order < b->order;
}

/* a has the higher priority, by steps: does it still go first? Never multiplied, since that may need 96 bits. */
static bool leads(const struct convoy_waiting_node *a, const struct convoy_waiting_node *b, uint64_t steps, uint64_t age_ns)
{
    if (age_ns == 0 || a->since_ns <= b->since_ns) {
        return true;
    }
    uint64_t later_ns = a->since_ns - b->since_ns;
    uint64_t age_that_ties = later_ns / steps;
    if (age_ns != age_that_ties) {
        return age_ns > age_that_ties;
    }
    return later_ns % steps == 0 && came_before(a, b); /* with a rest, b has waited for more than those steps */
}

bool convoy_waiting_is_before(const struct convoy_waiting_node *a, const struct convoy_waiting_node *b, uint64_t age_ns)
{
    if (a->priority == b->priority) {
        return came_before(a, b);
    }
    if (a->priority > b->priority) {
        return leads(a, b, (uint64_t)((int64_t)a->priority - b->priority), age_ns);
    }
    return !leads(b, a, (uint64_t)((int64_t)b->priority - a->priority), age_ns);
}

/* Two trees become one; either may be NULL. Neither root has anything beside it. */
static struct convoy_waiting_node *meld(struct convoy_waiting_node *a, struct convoy_waiting_node *b, uint64_t age_ns)
{
    if (a == NULL || b == NULL) {
        return a != NULL ? a : b;
    }
    struct convoy_waiting_node *first = convoy_waiting_is_before(a, b, age_ns) ? a : b;
    struct convoy_waiting_node *second = first == a ? b : a;
    second->next = first->child;
    if (second->next != NULL) {
        second->next->before = second;
    }
    second->before = first;
    first->child = second;
    return first;
}

static struct convoy_waiting_node *detach(struct convoy_waiting_node *tree)
{
    if (tree != NULL) {
        tree->next = tree->before = NULL;
    }
    return tree;
}

/* The children of what leaves: neighbours in pairs from the left, the pairs from the right. The pairs hang on each other by
 * `next` meanwhile, the last one first. */
static struct convoy_waiting_node *meld_children(struct convoy_waiting_node *child, uint64_t age_ns)
{
    struct convoy_waiting_node *pairs = NULL;
    struct convoy_waiting_node *root = NULL;
    while (child != NULL) {
        struct convoy_waiting_node *second = child->next;
        struct convoy_waiting_node *rest = second != NULL ? second->next : NULL;
        struct convoy_waiting_node *pair = meld(detach(child), detach(second), age_ns);
        pair->next = pairs;
        pairs = pair;
        child = rest;
    }
    while (pairs != NULL) {
        struct convoy_waiting_node *next = pairs->next;
        root = meld(root, detach(pairs), age_ns);
        pairs = next;
    }
    return root;
}

void convoy_waiting_insert(struct convoy_waiting_queue *queue, struct convoy_waiting_node *node, uint64_t age_ns)
{
    node->child = node->next = node->before = NULL;
    queue->head = meld(queue->head, node, age_ns);
}

/* Out of the place where it hangs, with all that is behind it. */
static void cut(struct convoy_waiting_node *tree)
{
    if (tree->before->child == tree) {
        tree->before->child = tree->next;
    } else {
        tree->before->next = tree->next;
    }
    if (tree->next != NULL) {
        tree->next->before = tree->before;
    }
}

void convoy_waiting_remove(struct convoy_waiting_queue *queue, struct convoy_waiting_node *node, uint64_t age_ns)
{
    struct convoy_waiting_node *behind = meld_children(node->child, age_ns);
    if (queue->head == node) {
        queue->head = behind;
    } else {
        cut(node);
        queue->head = meld(queue->head, behind, age_ns);
    }
    node->child = node->next = node->before = NULL;
}
