/* SPDX-License-Identifier: Apache-2.0 */
/* An engine moves to another build (plugin/move.h): its handle here, what is behind it in xfer/move.h. */
#include "move.h"

#include "core/memory.h"
#include "transfer_engine.h"
#include "xfer/move.h"

#define ITEM_XFER 2u

bool convoy_transfer_engine_is_live(const struct convoy_transfer_engine *engine)
{
    return atomic_load(&engine->state) == CONVOY_ENGINE_OPEN && atomic_load(&engine->moving) != CONVOY_ENGINE_RETIRED;
}

/* -- here ---------------------------------------------------------------------------------------------------------- */

/* One that has been thawed, but was not to go on yet, goes on as far as that. */
void convoy_transfer_engine_halt(struct convoy_transfer_engine *engine)
{
    uint32_t before = atomic_exchange(&engine->moving, CONVOY_ENGINE_HALTED);
    if (before == CONVOY_ENGINE_THAWED) {
        convoy_xfer_go(engine->xfer);
    }
    if (before == CONVOY_ENGINE_FROZEN) { /* stays as it is */
        atomic_store(&engine->moving, before);
        return;
    }
    convoy_xfer_halt(engine->xfer);
}

bool convoy_transfer_engine_is_still(struct convoy_transfer_engine *engine, char *why_out)
{
    if (atomic_load(&engine->moving) == CONVOY_ENGINE_FROZEN) {
        return true;
    }
    bool is_still = convoy_xfer_is_still(engine->xfer, why_out);
    uint32_t inside = atomic_load(&engine->inside);
    if (inside != 0) {
        (void)snprintf(why_out, CONVOY_STILL_TEXT_BYTES, "engine %.60s: %u calls are inside", engine->session, inside);
    }
    return is_still && inside == 0;
}

int32_t convoy_transfer_engine_freeze(struct convoy_transfer_engine *engine, struct convoy_error *error)
{
    int32_t status = convoy_xfer_freeze(engine->xfer, error);
    if (status == CONVOY_OK) {
        atomic_store(&engine->moving, CONVOY_ENGINE_FROZEN);
    }
    return status;
}

int32_t convoy_transfer_engine_thaw(struct convoy_transfer_engine *engine, struct convoy_error *error)
{
    int32_t status = convoy_xfer_thaw(engine->xfer, error);
    if (status == CONVOY_OK) {
        atomic_store(&engine->moving, CONVOY_ENGINE_THAWED);
    }
    return status;
}

void convoy_transfer_engine_go(struct convoy_transfer_engine *engine)
{
    convoy_xfer_go(engine->xfer);
    atomic_store(&engine->moving, CONVOY_ENGINE_STAYS);
}

int32_t convoy_transfer_engine_save(struct convoy_transfer_engine *engine, struct convoy_bundle_writer *writer,
                                    struct convoy_error *error)
{
    convoy_bundle_put_u64(writer, CONVOY_STATE_HANDLE, (uint64_t)(uintptr_t)engine);
    size_t opened = convoy_bundle_open(writer, ITEM_XFER, CONVOY_BUNDLE_CRITICAL);
    int32_t status = convoy_xfer_save(engine->xfer, writer, error);
    convoy_bundle_shut(writer, opened);
    return status;
}

bool convoy_transfer_engine_retire(struct convoy_transfer_engine *engine)
{
    atomic_store(&engine->moving, CONVOY_ENGINE_RETIRED);
    if (atomic_load(&engine->inside) != 0) {
        atomic_store(&engine->moving, CONVOY_ENGINE_FROZEN); /* it is looked at: this is asked again */
        return false;
    }
    convoy_xfer_retire(engine->xfer);
    engine->xfer = NULL;
    engine->last = (struct convoy_engine_info){.struct_size = engine->last.struct_size, .completion_fd = -1};
    return true;
}

/* -- there --------------------------------------------------------------------------------------------------------- */

static int32_t restore_xfer(struct convoy_context *context, const struct convoy_bundle_item *item, struct convoy_xfer **xfer_out,
                            struct convoy_error *error)
{
    struct convoy_bundle_reader reader = convoy_bundle_inside(item);
    struct convoy_bundle_item inner;
    struct convoy_xfer *xfer = NULL;
    int32_t status = CONVOY_OK;
    while (status == CONVOY_OK && convoy_bundle_next(&reader, &inner)) {
        if (inner.tag == ITEM_XFER && xfer == NULL) {
            status = convoy_xfer_restore(context->runtime, &inner, &xfer, error);
        } else if (inner.tag != CONVOY_STATE_HANDLE) {
            status = convoy_bundle_unknown(&inner, "an engine", error);
        }
    }
    status = status == CONVOY_OK ? convoy_bundle_done(&reader, "an engine", error) : status;
    if (status == CONVOY_OK && xfer == NULL) {
        status = convoy_error_set(error, CONVOY_TOO_OLD, "an engine of which only the handle was written");
    }
    if (status != CONVOY_OK && xfer != NULL) {
        convoy_xfer_discard(xfer);
    }
    *xfer_out = xfer;
    return status;
}

int32_t convoy_transfer_engine_restore(struct convoy_context *context, const struct convoy_bundle_item *item,
                                       struct convoy_transfer_engine **engine_out, struct convoy_error *error)
{
    struct convoy_transfer_engine *engine = convoy_memory_zalloc(sizeof *engine);
    if (engine == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for an engine");
    }
    int32_t status = restore_xfer(context, item, &engine->xfer, error);
    if (status != CONVOY_OK) {
        convoy_memory_free(engine);
        return status;
    }
    convoy_transfer_engine_begin(engine, context);
    atomic_store(&engine->moving, CONVOY_ENGINE_FROZEN);
    *engine_out = engine;
    return CONVOY_OK;
}

void convoy_transfer_engine_discard(struct convoy_transfer_engine *engine)
{
    convoy_xfer_discard(engine->xfer);
    convoy_memory_free(engine);
}

void convoy_transfer_engine_count(const struct convoy_transfer_engine *engine, struct convoy_holdings *holdings)
{
    struct convoy_xfer_holdings held;
    bool is_retired = atomic_load(&engine->moving) == CONVOY_ENGINE_RETIRED;
    holdings->engine_count += convoy_transfer_engine_is_live(engine) || is_retired;
    holdings->call_count += atomic_load(&engine->inside);
    if (is_retired || engine->xfer == NULL) {
        return;
    }
    convoy_xfer_count(engine->xfer, &held);
    holdings->transfer_count += held.transfers;
    holdings->copy_count += held.copies;
    holdings->descriptor_count += held.descriptors;
    holdings->mapping_count += held.mappings;
    holdings->registration_count += held.registrations;
}
