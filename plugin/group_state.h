/* SPDX-License-Identifier: Apache-2.0 */
/* What of a group is written down for another build: its items. Numbers are never used again. Used by group_move.c and
 * group_state.c alone. */
#ifndef CONVOY_PLUGIN_GROUP_STATE_H
#define CONVOY_PLUGIN_GROUP_STATE_H

#include "move.h"

#define CONVOY_GROUP_ITEM_NAME 2u
#define CONVOY_GROUP_ITEM_MEMBERS 3u    /* i32 each */
#define CONVOY_GROUP_ITEM_RENDEZVOUS 4u /* for whoever looks */
#define CONVOY_GROUP_ITEM_SCHEMA 5u     /* sync/schema.h */
#define CONVOY_GROUP_ITEM_FAULTS 6u     /* items */
#define CONVOY_GROUP_ITEM_ENGINE 7u     /* round/engine_state.h */
#define CONVOY_GROUP_ITEM_POLL 8u       /* poll/poll_move.c */
#define CONVOY_GROUP_ITEM_SYNC 9u       /* sync/sync_move.c */
#define CONVOY_GROUP_ITEM_RECORD 10u    /* record_move.c */

/* In FAULTS. */
#define CONVOY_GROUP_ITEM_SCRIPT 2u /* struct convoy_poll_fault each */

#endif
