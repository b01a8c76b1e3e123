/* SPDX-License-Identifier: Apache-2.0 */
/* What a group remembers of its rounds goes to another build: counters, histograms, the stall notice, the call log. All of
 * it may be dropped by a reader: rounds do not depend on it. */
#ifndef CONVOY_PLUGIN_RECORD_MOVE_H
#define CONVOY_PLUGIN_RECORD_MOVE_H

#include "record.h"

#include "core/bundle.h"

/* Items into the open item. Settled before. */
void convoy_record_save(const struct convoy_record *record, struct convoy_bundle_writer *writer);

/* Into one that was just opened. What does not fit (another release's counters, entries of a longer log) is left out.
 * MALFORMED. */
int32_t convoy_record_restore(struct convoy_record *record, const struct convoy_bundle_item *item,
                              struct convoy_error *error);

#endif
