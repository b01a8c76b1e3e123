/* SPDX-License-Identifier: Apache-2.0 */
/* A peer's pool and notes, mapped to read. */
#include "core/error.h"
#include "core/memory.h"
#include "net/shared_file.h"
#include "xfer/parts.h"

#include <sodium.h>
#include <sys/mman.h>

int32_t convoy_view_open(int pool_fd, int notes_fd, struct convoy_view **view_out, struct convoy_error *error)
{
    struct convoy_view *view = convoy_memory_zalloc(sizeof *view);
    if (view == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a view");
    }
    const void *notes = NULL;
    const void *pool = NULL;
    view->references = 1;
    int32_t status = convoy_shared_file_view(notes_fd, CONVOY_INTRODUCE_TOKEN_BYTES, &notes, &view->notes_bytes, error);
    view->notes = notes;
    if (status == CONVOY_OK && pool_fd >= 0) {
        status = convoy_shared_file_view(pool_fd, 1, &pool, &view->pool_bytes, error);
        view->pool = pool;
    }
    if (status != CONVOY_OK) {
        convoy_view_put(view);
        return status;
    }
    *view_out = view;
    return CONVOY_OK;
}

bool convoy_view_has_token(const struct convoy_view *view, const uint8_t token[CONVOY_INTRODUCE_TOKEN_BYTES])
{
    return sodium_memcmp(view->notes, token, CONVOY_INTRODUCE_TOKEN_BYTES) == 0;
}

void convoy_view_put(struct convoy_view *view)
{
    if (view == NULL || --view->references != 0) {
        return;
    }
    if (view->pool != NULL) {
        (void)munmap((void *)(uintptr_t)view->pool, view->pool_bytes);
    }
    if (view->notes != NULL) {
        (void)munmap((void *)(uintptr_t)view->notes, view->notes_bytes);
    }
    convoy_memory_free(view);
}
