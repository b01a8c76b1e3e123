/* SPDX-License-Identifier: Apache-2.0 */
/* Opening UCX takes hundreds of milliseconds: for a peer that comes in, a thread of its own does it, and the progress thread
 * goes on with all others. */
#include "xfer/far.h"

#include "core/error.h"
#include "net/ucx.h"
#include "xfer/device_jobs.h"

#include <errno.h>

static void *opener_main(void *argument)
{
    struct convoy_xfer *engine = argument;
    struct convoy_error error = CONVOY_ERROR_INIT;
    int32_t status = convoy_far_open(engine, &error);
    convoy_xfer_lock(engine);
    engine->far_opener.error = error;
    engine->far_opener.error.status = status;
    engine->far_opener.is_done = true;
    convoy_xfer_kick(engine);
    convoy_xfer_unlock(engine);
    return NULL;
}

void convoy_far_opener_join(struct convoy_xfer *engine)
{
    if (engine->far_opener.has_thread) {
        convoy_runtime_thread_join(engine->runtime, engine->far_opener.thread);
        engine->far_opener.has_thread = engine->far_opener.is_done = false;
    }
}

static int32_t opener_start(struct convoy_xfer *engine, struct convoy_error *error)
{
    struct convoy_far_opener *opener = &engine->far_opener;
    int32_t status = convoy_runtime_thread_start(engine->runtime, "far", opener_main, engine, &opener->thread);
    opener->has_thread = status == CONVOY_OK;
    return status == CONVOY_OK ? CONVOY_IN_PROGRESS
                               : convoy_error_set_errno(error, status, errno, "start a thread that opens UCX");
}

int32_t convoy_far_open_elsewhere(struct convoy_xfer *engine, struct convoy_error *error)
{
    const struct convoy_error *failure = &engine->far_opener.error;
    convoy_xfer_lock(engine);
    bool is_open = engine->far != NULL;
    bool is_done = engine->far_opener.is_done;
    convoy_xfer_unlock(engine);
    if (is_done) { /* it is at its last instruction: the wait is for that */
        convoy_far_opener_join(engine);
        return is_open ? CONVOY_OK : convoy_error_set(error, failure->status, "%s", failure->text);
    }
    return is_open ? CONVOY_OK : engine->far_opener.has_thread ? CONVOY_IN_PROGRESS : opener_start(engine, error);
}

/* Not by which memory UCX takes: what lands is checked and copied by the processor, on both sides out of host memory. */
void convoy_far_tell_device(struct convoy_xfer *engine)
{
    const struct convoy_ucx *ucx = NULL;
    char text[CONVOY_UCX_MEMORY_TEXT_BYTES];
    bool is_pool = engine->options.pool_kind == CONVOY_MEMORY_DEVICE;
    if (engine->device == NULL || convoy_ucx_open(engine->runtime, &ucx, NULL) != CONVOY_OK) {
        return;
    }
    convoy_ucx_memory_text(ucx->memory_types, text);
    bool takes_cuda = (ucx->memory_types >> UCS_MEMORY_TYPE_CUDA & 1) != 0;
    convoy_log_line(&engine->runtime->log, is_pool ? CONVOY_LOG_WARN : CONVOY_LOG_INFO,
                    "device %s: what goes to other hosts goes from pinned host memory; UCX %s takes memory of kind %s%s",
                    convoy_device_name(engine->device->device), ucx->library.version, text,
                    takes_cuda ? "" : ", and no CUDA memory");
    convoy_xfer_lock(engine);
    engine->device->ucx_memory = ucx->memory_types;
    convoy_xfer_unlock(engine);
}
