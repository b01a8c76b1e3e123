/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of the core table that are about groups and operations. */
#ifndef CONVOY_PLUGIN_GROUP_H
#define CONVOY_PLUGIN_GROUP_H

#include "handle.h"

int32_t convoy_group_open(convoy_context *context, const struct convoy_group_options *options,
                          convoy_group **group_out, struct convoy_error *error);
int32_t convoy_group_open_start(convoy_context *context, const struct convoy_group_options *options,
                                convoy_group **group_out, struct convoy_error *error);
int32_t convoy_group_open_test(convoy_group *group, struct convoy_error *error);
int32_t convoy_group_open_wait(convoy_group *group, uint64_t timeout_ns, struct convoy_error *error);
int32_t convoy_group_close(convoy_group *group, uint64_t timeout_ns, struct convoy_error *error);
int32_t convoy_group_cancel(convoy_group *group, const char *reason, size_t reason_length, struct convoy_error *error);
int32_t convoy_group_reopen(convoy_group *group, uint64_t timeout_ns, struct convoy_reopen_result *result_out,
                            struct convoy_error *error);
int32_t convoy_group_abandon(convoy_group *group, convoy_operation operation, struct convoy_error *error);
int32_t convoy_group_report(convoy_group *group, struct convoy_report *report_out, struct convoy_error *error);
int32_t convoy_group_info(convoy_group *group, struct convoy_group_info *info_out, struct convoy_error *error);
int32_t convoy_group_describe(convoy_group *group, uint32_t topic, struct convoy_text_buffer *text_out,
                              struct convoy_error *error);

#endif
