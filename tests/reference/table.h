/* SPDX-License-Identifier: Apache-2.0 */
/* What one gather must give: a plain local computation over the rows that all ranks logged before the call. */
#ifndef REFERENCE_TABLE_H
#define REFERENCE_TABLE_H

#include "reference/log.h"

/* inputs: 'G' records of all ranks; result: an OK 'g' record. 0, or -1 with what differs in `text`. */
int reference_table_check(const struct reference_log *shape, const struct reference_record *const *inputs,
                          const struct reference_record *result, char *text, size_t capacity);

#endif
