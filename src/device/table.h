/* SPDX-License-Identifier: Apache-2.0 */
/* A device that the host brings along as a table of functions, checked (convoy/device.h). */
#ifndef CONVOY_DEVICE_TABLE_H
#define CONVOY_DEVICE_TABLE_H

#include "device/device.h"

#define CONVOY_TABLE_NAME_BYTES 31u

/* table: of the current size (plugin/sized.h); copies. tickets: 0 = CONVOY_DEVICE_TICKETS. INVALID_ARGUMENT: a function is
 * NULL, by name, or the name is none. device_out: gives (convoy_device_close) */
int32_t convoy_table_open(const struct convoy_device_table *table, uint32_t tickets, struct convoy_device **device_out,
                          struct convoy_error *error);

#endif
