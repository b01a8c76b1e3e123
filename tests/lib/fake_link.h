/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links (net/link.h) among the members of one thread, for unit tests of what lies on them: what is sent waits in a
 * queue for each pair, in order, until its receiver makes progress, and the test may hold a queue. Nothing is lost, but
 * what is sent to the dead and what of theirs was held, and what comes to a link that was closed. Link it instead of the net
 * layer's links.
 */
#ifndef CONVOY_TESTS_FAKE_LINK_H
#define CONVOY_TESTS_FAKE_LINK_H

#include "net/link.h"

#define FAKE_LINKS_MAX 32u

/* Before the first and after the last link: forgets all. Links are numbered in the order in which they are opened, and
 * the number, as 4 bytes, is the address. */
void fake_links_reset(void);
uint32_t fake_links_number(const struct convoy_link *link);

/* From now on what `from` sends to `to` waits, or does not. */
void fake_links_hold(uint32_t from, uint32_t to, bool is_held);

/* Delivers the first message that waits between the two, held or not. False: there is none. */
bool fake_links_pass(uint32_t from, uint32_t to);
/* Loses it instead. False: there is none. */
bool fake_links_lose(uint32_t from, uint32_t to);
uint32_t fake_links_waiting(uint32_t from, uint32_t to);

/* How often a link has made an endpoint. */
uint32_t fake_links_connects(uint32_t from);

/* From now on nobody can open a link, or can. */
void fake_links_refuse_open(bool is_refused);

/* From now on nobody can connect to `to`, or can. */
void fake_links_refuse(uint32_t to, bool is_refused);

/* The next sends of a link find all its buffers in use. */
void fake_links_fill(uint32_t from, uint32_t sends);

/* Messages that arrive when their receivers, if they are alive, make progress. */
uint32_t fake_links_under_way(void);

/* Its process is gone, and what was held with it. Else what it has sent still arrives; then the others that were
 * connected to it see its link down. */
void fake_links_kill(uint32_t index);

#endif
