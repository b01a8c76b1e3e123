/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this plugin offers: one list from which both the manifest and convoy_query are made.
 * One row per family and major, ascending inside a family.
 */
#ifndef CONVOY_PLUGIN_FAMILIES_H
#define CONVOY_PLUGIN_FAMILIES_H

#include "plugin/tables.h"

/* FIRST and X both take (family, major, highest minor, table); they differ only where a list needs separators. The
 * lowest minor of a major is always 0, since tables are append-only. */
#define CONVOY_PLUGIN_FAMILIES(FIRST, X)                                                                               \
    FIRST(core, CONVOY_CORE_MAJOR, CONVOY_CORE_MINOR, convoy_core_table_1_0)                                           \
    X(poll, CONVOY_POLL_MAJOR, CONVOY_POLL_MINOR, convoy_poll_table_1_0)                                               \
    X(sync, CONVOY_SYNC_MAJOR, CONVOY_SYNC_MINOR, convoy_sync_table_1_0)                                               \
    X(transfer, CONVOY_TRANSFER_MAJOR, CONVOY_TRANSFER_MINOR, convoy_transfer_table_1_0)                               \
    X(move, CONVOY_MOVE_MAJOR, CONVOY_MOVE_MINOR, convoy_move_table_1_0)

/* The manifest's JSON text: the very bytes of the ELF note. Lives as long as the mapping. */
const char *convoy_manifest_text(size_t *length_out);

/* Hexadecimal text of the GNU build id in this object's own mapping; empty when it was linked without one. */
const char *convoy_build_id_text(size_t *length_out);

#endif
