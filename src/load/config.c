/* SPDX-License-Identifier: Apache-2.0 */
/* A context's configuration, kept to open the same context in another build. */
#include "load/loader.h"

#include "core/memory.h"

#include <string.h>

#define SECRET_BYTES_MAX 1024u /* what every build allows; more is refused by the open that follows */

static bool owns_secret(const struct convoy_context_config *config)
{
    return config->secret != NULL && config->secret_bytes <= SECRET_BYTES_MAX;
}

int32_t convoy_config_copy(const struct convoy_context_config *config, struct convoy_context_config *copy_out,
                           struct convoy_error *error)
{
    struct convoy_context_config copy = {0};
    if (config != NULL) {
        memcpy(&copy, config, config->struct_size < sizeof copy ? config->struct_size : sizeof copy);
    }
    copy.struct_size = sizeof copy;
    const char *settings = copy.settings;
    const void *secret = owns_secret(&copy) ? copy.secret : NULL;
    copy.settings = NULL;
    copy.secret = NULL;
    if (settings != NULL) {
        copy.settings = convoy_memory_text(settings, copy.settings_length);
    }
    if (secret != NULL) {
        copy.secret = convoy_memory_text(secret, copy.secret_bytes);
    }
    if ((settings != NULL && copy.settings == NULL) || (secret != NULL && copy.secret == NULL)) {
        convoy_config_wipe(&copy);
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a copy of a context's configuration");
    }
    *copy_out = copy;
    return CONVOY_OK;
}

void convoy_config_wipe(struct convoy_context_config *copy)
{
    void *secret = (void *)(uintptr_t)copy->secret; /* its own memory, whatever the public struct promises */
    if (secret != NULL) {
        explicit_bzero(secret, copy->secret_bytes);
        convoy_memory_free(secret);
    }
    convoy_memory_free((void *)(uintptr_t)copy->settings);
    *copy = (struct convoy_context_config){0};
}
