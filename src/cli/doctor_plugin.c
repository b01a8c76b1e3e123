/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor.h"

#include "convoy/loader.h"
#include "core/error.h"
#include "core/memory.h"

#include <string.h>

/* The plugin opens UCX only when it is told to, or has to. */
static const char plugin_settings[] = "{\"ucx_probe\": 1}";

/* One topic of the context as JSON; NULL = it has none to give. */
static json_t *plugin_topic(convoy_host_context *context, uint32_t topic)
{
    struct convoy_text_buffer text = {.struct_size = sizeof text};
    json_t *object = NULL;
    if (convoy_host_context_describe(context, topic, &text, NULL) != CONVOY_BUFFER_TOO_SMALL) {
        return NULL;
    }
    size_t room = text.length + 4096; /* it may have grown between the two calls */
    text.data = convoy_memory_zalloc(room);
    text.capacity = room;
    if (text.data != NULL && convoy_host_context_describe(context, topic, &text, NULL) == CONVOY_OK) {
        object = json_loadb(text.data, text.length, 0, NULL);
    }
    convoy_memory_free(text.data);
    return object;
}

static void set_topic(json_t *object, const char *name, json_t *topic)
{
    (void)json_object_set_new(object, name, topic != NULL ? topic : json_null());
}

/* Fills in the topics; the caller closes the loader. */
static int32_t plugin_look(convoy_loader *loader, json_t *object, struct convoy_error *error)
{
    convoy_host_context *context = NULL;
    const struct convoy_context_config config = {.struct_size = sizeof config,
                                                 .settings = plugin_settings,
                                                 .settings_length = sizeof plugin_settings - 1};
    int32_t status = convoy_host_context_open(loader, &config, &context, error);
    if (status == CONVOY_OK) {
        set_topic(object, "ucx", plugin_topic(context, CONVOY_TOPIC_NET));
        set_topic(object, "settings", plugin_topic(context, CONVOY_TOPIC_CONFIG));
        status = convoy_host_context_close(context, 0, error);
    }
    return status;
}

json_t *convoy_doctor_plugin(const char *path)
{
    convoy_loader *loader = NULL;
    struct convoy_error error = CONVOY_ERROR_INIT;
    const struct convoy_loader_options options = {.path = path, .host_name = "convoy doctor"};
    json_t *object = json_pack("{s:s?, s:n, s:n, s:n, s:n, s:n}", "file", path, "release", "build_id", "error", "ucx",
                               "settings");
    if (object == NULL) {
        return NULL;
    }
    int32_t status = convoy_loader_open(&options, &loader, &error);
    if (status == CONVOY_OK) {
        const struct convoy_file_info *file = &convoy_loader_info(loader)->file;
        (void)json_object_set_new(object, "file", json_string(file->path));
        (void)json_object_set_new(object, "release", json_string(file->release));
        (void)json_object_set_new(object, "build_id", json_string(file->build_id));
        status = plugin_look(loader, object, &error);
        (void)convoy_loader_close(loader, NULL);
    }
    if (status != CONVOY_OK) {
        (void)json_object_set_new(object, "error", json_string(error.text));
    }
    return object;
}
