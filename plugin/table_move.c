/* SPDX-License-Identifier: Apache-2.0 */
/* The move table. */
#include "move.h"
#include "tables.h"

const struct convoy_move_table convoy_move_table_1_0 = {
    .header = {.table_size = (uint32_t)sizeof(struct convoy_move_table),
               .major = CONVOY_MOVE_MAJOR,
               .minor = CONVOY_MOVE_MINOR},
    .holdings = convoy_context_holdings,
    .quiesce = convoy_context_quiesce,
    .resume = convoy_context_resume,
    .export_state = convoy_context_export,
    .import_state = convoy_context_import,
    .retire = convoy_context_retire,
};
