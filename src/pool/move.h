/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool moves to another build in the same process: its tables as items (core/bundle.h), its memory by address, its files
 * duplicated. Until it is handed over, both sides know where the memory lies, and only one of them may ever unmap it: the
 * other lets go with convoy_pool_leave.
 */
#ifndef CONVOY_POOL_MOVE_H
#define CONVOY_POOL_MOVE_H

#include "core/bundle.h"
#include "pool/pool.h"

/* Items into the open item of the writer. Nobody uses the pool meanwhile. */
void convoy_pool_save(const struct convoy_pool *pool, struct convoy_bundle_writer *writer);
/* Its memory is not touched. options: ended, let_go and user; the rest is in the item. MALFORMED, TOO_NEW, SYSTEM,
 * NO_MEMORY. pool_out: gives, to convoy_pool_leave or, once the memory is its own, convoy_pool_close */
int32_t convoy_pool_restore(const struct convoy_pool_options *options, const struct convoy_bundle_item *item,
                            struct convoy_pool **pool_out, struct convoy_error *error);
/* The memory of every generation that has some, one by one. cursor: 0 at first. false: there is none left. */
bool convoy_pool_each(const struct convoy_pool *pool, uint32_t *cursor, void **memory_out, uint64_t *bytes_out);

/* -- lease_move.c: of a pool's -- */
void convoy_leases_save(const struct convoy_leases *leases, struct convoy_bundle_writer *writer);
int32_t convoy_leases_restore(const struct convoy_bundle_item *item, struct convoy_leases **leases_out,
                              struct convoy_error *error);

#endif
