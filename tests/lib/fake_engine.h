/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The round engine's interface (round/engine.h) for all members of a group inside one thread, for unit tests of what
 * lies on top of it: no memory is shared, nothing waits. A round is complete when its last member has published. Link
 * it instead of the round layer. Members may be spread over pretended hosts: merged blobs then pass between them.
 */
#ifndef CONVOY_TESTS_FAKE_ENGINE_H
#define CONVOY_TESTS_FAKE_ENGINE_H

#include "round/engine.h"

struct fake_group;

/* gives (fake_group_destroy); blob_bytes as blob_bytes_max. */
struct fake_group *fake_group_create(uint32_t member_count, size_t blob_bytes);
void fake_group_destroy(struct fake_group *group);

struct convoy_engine *fake_group_engine(struct fake_group *group, uint32_t index);

/* Puts a member on a pretended host; all are on host 0 at first. */
void fake_group_place(struct fake_group *group, uint32_t index, uint32_t host);

/* Ends the open round as if a member had died: PEER_LOST for all who have published; the group is broken. */
void fake_group_lose(struct fake_group *group, uint32_t index);

/* As a reopen: epoch + 1, ready again. */
void fake_group_reopen(struct fake_group *group);

/* Makes this member see PEER_LOST for its last finished round, as if only the others had completed it; and hands the
 * result over, as a reopen does. */
void fake_group_hide(struct fake_group *group, uint32_t index);
void fake_group_hand_over(struct fake_group *group, uint32_t index);

/* Largest blob that encode made so far. */
size_t fake_group_partial_bytes(const struct fake_group *group);

/* What a member published last. */
const struct convoy_contribution *fake_group_contribution(const struct fake_group *group, uint32_t index);

#endif
