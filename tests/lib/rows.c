/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/rows.h"

#include "tests/lib/expect.h"

#include <string.h>

struct plugin_member *rows_create(const struct rank *rank, const struct crowd *crowd, const char *name, uint32_t inner)
{
    static const struct convoy_sync_schema schema = {
        .struct_size = sizeof schema, .builtin = "sglang-8", .builtin_length = 8};
    struct plugin_member *member = plugin_member_create(rank->index, rank->count, name, crowd->ports[0]);
    member->options.schema = &schema;
    member->options.sync_inner = inner;
    return member;
}

struct plugin_member *rows_open(const struct rank *rank, const struct crowd *crowd, const char *name, uint32_t inner)
{
    struct plugin_member *member = rows_create(rank, crowd, name, inner);
    plugin_member_open(member);
    return member;
}

void rows_reset(struct rows *rows)
{
    memset(rows, 0xa5, sizeof *rows);
    memset(rows->row, 0, sizeof rows->row);
    rows->row[ROWS_MODE] = ROWS_MODE_EXTEND;
    rows->call = (struct convoy_sync_call){.struct_size = sizeof rows->call, .row = rows->row};
    rows->report = (struct convoy_report){.struct_size = sizeof rows->report,
                                          .members = rows->rows,
                                          .member_stride = sizeof rows->rows[0],
                                          .member_capacity = ROWS_MEMBERS_MAX};
    rows->result = (struct convoy_sync_result){.struct_size = sizeof rows->result,
                                               .table = &rows->table[0][0],
                                               .table_capacity = ROWS_MEMBERS_MAX * ROWS_WIDTH,
                                               .first = &rows->first[0][0],
                                               .first_capacity = ROWS_MEMBERS_MAX * ROWS_WIDTH,
                                               .reduced = rows->reduced,
                                               .reduced_capacity = ROWS_WIDTH,
                                               .presence = rows->presence,
                                               .presence_capacity = ROWS_MEMBERS_MAX,
                                               .report = &rows->report};
}

int32_t rows_gather(struct rows *rows, struct plugin_member *member, uint64_t timeout_ns)
{
    return member->plugin.sync->gather(member->group, &rows->call, timeout_ns, &rows->result, &member->error);
}

const struct convoy_member_report *rows_report(const struct rows *rows, int32_t rank)
{
    for (size_t i = 0; i < rows->report.member_count && i < ROWS_MEMBERS_MAX; i++) {
        if (rows->rows[i].rank == rank) {
            return &rows->rows[i];
        }
    }
    expect_fail(EXPECT_SITE("rows_report"), "has no row of rank %d", rank);
}
