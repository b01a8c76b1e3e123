/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader's own copies of the plugin's tables, of this release's length. A slot that the plugin's table is too short
 * for, or whose family was refused, answers UNSUPPORTED: a newer host never reads past an older table.
 */
#ifndef CONVOY_LOAD_TABLES_H
#define CONVOY_LOAD_TABLES_H

#include "convoy/convoy.h"

struct convoy_host_tables {
    struct convoy_core_table core;
    struct convoy_poll_table poll;
    struct convoy_sync_table sync;
    struct convoy_transfer_table transfer;
    struct convoy_move_table move;
};

/* Every slot answers UNSUPPORTED, and says which it is. */
void convoy_host_tables_init(struct convoy_host_tables *tables);

/*
 * Takes over what the plugin's table of one family has. Families other than core, poll, sync, transfer, move: no
 * effect.
 * table: NULL = refused, no effect. A slot that is NULL keeps answering UNSUPPORTED.
 */
void convoy_host_tables_take(struct convoy_host_tables *tables, const char *family,
                             const struct convoy_table_header *table);

#endif
