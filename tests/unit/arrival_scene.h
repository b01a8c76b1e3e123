/* SPDX-License-Identifier: Apache-2.0 */
/* The default tensors as a parcel, and the payload that a library without faults would make of it. */
#ifndef TESTS_UNIT_ARRIVAL_SCENE_H
#define TESTS_UNIT_ARRIVAL_SCENE_H

#include "cli/arrival.h"
#include "cli/tensors_default.h"
#include "core/error.h"
#include "core/memory.h"

#include <string.h>

struct arrival_scene {
    struct convoy_safetensors made; /* owns the data */
    struct convoy_safetensors file;
    struct convoy_parcel parcel;
    struct convoy_tensor_view views[64];
    struct convoy_payload payload;
    uint8_t *bytes; /* the file's text */
};

/* Views of the parcel's own tensors, in its order. */
static inline void arrival_scene_echo(struct arrival_scene *scene)
{
    const struct convoy_parcel *parcel = &scene->parcel;
    for (size_t i = 0; i < parcel->count; i++) {
        const struct convoy_tensor_source *source = &parcel->tensors[i];
        scene->views[i] = (struct convoy_tensor_view){
            .name = source->name,
            .name_length = source->name_length,
            .dtype = source->dtype,
            .dtype_length = source->dtype_length,
            .data = source->data,
            .shape = source->shape,
            .bytes = source->bytes,
            .rank = source->rank,
            .flags = source->flags,
            .list_index = source->list_index,
        };
    }
    scene->payload = (struct convoy_payload){
        .struct_size = sizeof scene->payload,
        .tensors = scene->views,
        .tensor_count = parcel->count,
        .lists = parcel->lists,
        .list_count = parcel->list_count,
        .request = parcel->name,
        .request_length = strlen(parcel->name),
        .scalars = parcel->scalars,
        .scalars_length = strlen(parcel->scalars),
    };
}

/* By way of the file's text, because a parcel wants one that was read. */
static inline bool arrival_scene_open(struct arrival_scene *scene, uint32_t request)
{
    static const struct convoy_trace_request sizes = {.input_tokens = 30, .output_tokens = 4};
    struct convoy_error error = CONVOY_ERROR_INIT;
    size_t head = 0;
    uint8_t *text = NULL;
    *scene = (struct arrival_scene){0};
    if (convoy_tensors_default_make(&scene->made, &error) != CONVOY_OK ||
        convoy_safetensors_encode(&scene->made, "made", &text, &head, &error) != CONVOY_OK) {
        return false;
    }
    uint64_t data = 0;
    for (size_t i = 0; i < scene->made.count; i++) {
        data += scene->made.tensors[i].bytes;
    }
    scene->bytes = convoy_memory_zalloc(head + data);
    if (scene->bytes == NULL) {
        return false;
    }
    memcpy(scene->bytes, text, head);
    memcpy(scene->bytes + head, scene->made.file, data);
    convoy_memory_free(text);
    if (convoy_safetensors_parse(&scene->file, "made", scene->bytes, head + data, &error) != CONVOY_OK ||
        convoy_parcel_init(&scene->parcel, &scene->file, &error) != CONVOY_OK) {
        return false;
    }
    convoy_parcel_set(&scene->parcel, request, &sizes);
    arrival_scene_echo(scene);
    return true;
}

static inline void arrival_scene_close(struct arrival_scene *scene)
{
    convoy_parcel_fini(&scene->parcel);
    convoy_safetensors_fini(&scene->file);
    convoy_memory_free(scene->bytes);
    convoy_tensors_default_fini(&scene->made);
}

#endif
