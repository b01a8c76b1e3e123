/* SPDX-License-Identifier: Apache-2.0 */
/* The caller's struct convoy_report on its way in. */
#ifndef CONVOY_PLUGIN_REPORT_IN_H
#define CONVOY_PLUGIN_REPORT_IN_H

#include "convoy/base.h"

/* Full-size copy of a caller's report whose rows can be written: struct and stride are long enough, and rows that it has
 * room for are there. Statuses as convoy_sized_out_begin and convoy_sized_array_check_out (sized.h). */
int32_t convoy_report_in(struct convoy_report *full, const struct convoy_report *caller, struct convoy_error *error);

#endif
