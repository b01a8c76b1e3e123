/* SPDX-License-Identifier: Apache-2.0 */
/* The core table. */
#include "context.h"
#include "group.h"
#include "tables.h"

const struct convoy_core_table convoy_core_table_1_0 = {
    .header = {.table_size = (uint32_t)sizeof(struct convoy_core_table),
               .major = CONVOY_CORE_MAJOR,
               .minor = CONVOY_CORE_MINOR},
    .context_open = convoy_context_open,
    .context_close = convoy_context_close,
    .context_describe = convoy_context_describe,
    .group_open = convoy_group_open,
    .group_open_start = convoy_group_open_start,
    .group_open_test = convoy_group_open_test,
    .group_open_wait = convoy_group_open_wait,
    .group_close = convoy_group_close,
    .group_cancel = convoy_group_cancel,
    .group_reopen = convoy_group_reopen,
    .operation_abandon = convoy_group_abandon,
    .operation_report = convoy_group_report,
    .group_info = convoy_group_info,
    .group_describe = convoy_group_describe,
};
