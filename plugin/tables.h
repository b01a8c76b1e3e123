/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The function tables that convoy_query hands out, one per family and major version. Each is defined in
 * plugin/table_<family>.c and lives as long as the mapping. When a family gets a second major, its table is declared
 * here beside the first and gets a row in query.c; both are served at the same time.
 */
#ifndef CONVOY_PLUGIN_TABLES_H
#define CONVOY_PLUGIN_TABLES_H

#include "convoy/convoy.h"

extern const struct convoy_core_table convoy_core_table_1_0;
extern const struct convoy_poll_table convoy_poll_table_1_0;
extern const struct convoy_sync_table convoy_sync_table_1_0;
extern const struct convoy_transfer_table convoy_transfer_table_1_0;
extern const struct convoy_move_table convoy_move_table_1_0;

#endif
