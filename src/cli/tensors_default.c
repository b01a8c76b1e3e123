/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tensors_default.h"

#include "cli/options.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SEED UINT64_C(20240717)
#define ELEMENT_BYTES_MAX 8u

/* What an element looks like. Floats are made of their bits: any sign and fraction, exponents around 1, so that no
 * machine's arithmetic is in them and none is infinite or no number. */
enum content {
    BITS, /* all of them by chance: integers, and what is opaque */
    MASK, /* ones, and zeros in the last quarter */
    FLOAT, /* a C64 is two of 32 bits */
};

struct float_layout {
    const char *dtype;
    uint32_t bits;
    uint32_t fraction_bits;
    uint32_t bias;
};

static const struct float_layout float_layouts[] = {
    {"F8_E4M3", 8, 3, 7}, {"F8_E5M2", 8, 2, 15}, {"F16", 16, 10, 15},  {"BF16", 16, 7, 127},
    {"F32", 32, 23, 127}, {"C64", 32, 23, 127},  {"F64", 64, 52, 1023},
};

struct default_tensor {
    const char *name;
    const char *dtype;
    uint32_t dim_count;
    uint64_t shape[4];
    enum content content;
    uint64_t opaque_bytes; /* of a dtype that is in no table */
};

static const struct default_tensor default_tensors[] = {
    {"prompt_embeds", "F16", 3, {1, 77, 768}, FLOAT, 0},
    {"negative_prompt_embeds", "BF16", 3, {1, 77, 768}, FLOAT, 0},
    {"prompt_embeds_2", "BF16", 3, {1, 77, 1280}, FLOAT, 0},
    {"image_embeds", "F16", 3, {1, 257, 1024}, FLOAT, 0},
    {"pooled_prompt_embeds", "F16", 2, {1, 1280}, FLOAT, 0},
    {"negative_pooled_prompt_embeds", "BF16", 2, {1, 1280}, FLOAT, 0},
    {"attention_mask_2", "BOOL", 2, {1, 77}, MASK, 0}, /* what comes after it begins at an odd byte */
    {"attention_mask", "I64", 2, {1, 77}, MASK, 0},
    {"latents", "F32", 4, {1, 4, 64, 64}, FLOAT, 0},
    {"image_latents", "F32", 4, {2, 4, 64, 64}, FLOAT, 0},
    {"timesteps.0", "F32", 1, {50}, FLOAT, 0}, /* a list of four, in which 1 is a hole */
    {"timesteps.2", "F32", 2, {1, 28}, FLOAT, 0},
    {"timesteps.3", "I64", 3, {3, 1, 5}, MASK, 0},
    {"image", "U8", 4, {1, 3, 128, 128}, BITS, 0},
    {"weights_e4m3", "F8_E4M3", 2, {64, 64}, FLOAT, 0},
    {"weights_e5m2", "F8_E5M2", 2, {64, 33}, FLOAT, 0},
    {"seeds", "U64", 1, {4}, BITS, 0}, /* above 2^53, where JSON readers lose the end */
    {"input_ids", "U32", 2, {1, 77}, BITS, 0},
    {"slot_ids", "U16", 2, {3, 7}, BITS, 0},
    {"offsets", "I8", 1, {13}, BITS, 0},
    {"levels", "I16", 1, {5}, BITS, 0},
    {"positions", "I32", 2, {2, 9}, BITS, 0},
    {"sigmas", "F64", 1, {51}, FLOAT, 0},
    {"rotary", "C64", 2, {77, 32}, FLOAT, 0},
    {"guidance_scale", "F32", 0, {0}, FLOAT, 0},
    {"step_count", "I64", 0, {0}, MASK, 0},
    {"control_embeds", "F16", 2, {0, 16}, FLOAT, 0},
    {"adapter_blocks", "Q4_BLOCK32", 2, {32, 32}, BITS, 576},
};

#define DEFAULT_COUNT (sizeof default_tensors / sizeof default_tensors[0])

static struct convoy_safetensors_text default_metadata[] = {{"format", "pt"}, {"made_by", "convoy default-tensors"}};

/* -- values -------------------------------------------------------------------------------------------------------- */

/* SplitMix64: a counter, mixed. */
static uint64_t draw(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Sign and fraction by chance, the exponent one of bias - 6 .. bias + 1: from 1/64 up to below 4. */
static uint64_t draw_float(uint64_t *state, const struct float_layout *layout)
{
    uint64_t x = draw(state);
    uint64_t fraction = x & ((UINT64_C(1) << layout->fraction_bits) - 1);
    uint64_t exponent = layout->bias - 6 + ((x >> 56) & 7);
    uint64_t sign = x >> 63;
    return sign << (layout->bits - 1) | exponent << layout->fraction_bits | fraction;
}

static const struct float_layout *find_layout(const char *dtype)
{
    const struct float_layout *layout = float_layouts;
    while (strcmp(layout->dtype, dtype) != 0) {
        layout++;
    }
    return layout;
}

static void fill_floats(uint8_t *data, uint64_t bytes, const char *dtype, uint64_t *state)
{
    const struct float_layout *layout = find_layout(dtype);
    uint64_t element_bytes = layout->bits / 8;
    for (uint64_t at = 0; at < bytes; at += element_bytes) {
        uint8_t element[ELEMENT_BYTES_MAX];
        convoy_bytes_put_u64(element, draw_float(state, layout));
        memcpy(data + at, element, element_bytes);
    }
}

static void fill_bits(uint8_t *data, uint64_t bytes, uint64_t *state)
{
    for (uint64_t at = 0; at < bytes; at++) {
        data[at] = (uint8_t)(draw(state) >> 56);
    }
}

static void fill_mask(uint8_t *data, uint64_t bytes, uint64_t element_bytes)
{
    uint64_t count = bytes / element_bytes;
    for (uint64_t i = 0; i < count - count / 4; i++) {
        data[i * element_bytes] = 1; /* the lowest byte; the others are zero */
    }
}

static void fill(const struct default_tensor *kind, uint8_t *data, uint64_t bytes, uint64_t *state)
{
    switch (kind->content) {
    case BITS:
        fill_bits(data, bytes, state);
        break;
    case MASK:
        fill_mask(data, bytes, convoy_safetensors_dtype_bits(kind->dtype) / 8);
        break;
    case FLOAT:
        fill_floats(data, bytes, kind->dtype, state);
        break;
    }
}

/* -- the file ------------------------------------------------------------------------------------------------------ */

static uint64_t bytes_of(const struct default_tensor *kind)
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < kind->dim_count; i++) {
        elements *= kind->shape[i];
    }
    return kind->opaque_bytes + elements * (convoy_safetensors_dtype_bits(kind->dtype) / 8);
}

static void describe(struct convoy_safetensor *tensor, const struct default_tensor *kind, const uint8_t *data)
{
    *tensor = (struct convoy_safetensor){
        .name = kind->name, .dim_count = kind->dim_count, .data = data, .bytes = bytes_of(kind)};
    memcpy(tensor->dtype, kind->dtype, strlen(kind->dtype));
    memcpy(tensor->shape, kind->shape, kind->dim_count * sizeof kind->shape[0]);
}

int32_t convoy_tensors_default_make(struct convoy_safetensors *out, struct convoy_error *error)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < DEFAULT_COUNT; i++) {
        bytes += bytes_of(&default_tensors[i]);
    }
    struct convoy_safetensors made = {
        .tensors = convoy_memory_array(DEFAULT_COUNT, sizeof *made.tensors),
        .count = DEFAULT_COUNT,
        .metadata = default_metadata,
        .metadata_count = sizeof default_metadata / sizeof default_metadata[0],
        .file = convoy_memory_zalloc(bytes),
    };
    if (made.tensors == NULL || made.file == NULL) {
        convoy_tensors_default_fini(&made);
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for the %" PRIu64 " bytes of the default tensors",
                                bytes);
    }
    uint64_t at = 0;
    uint64_t state = SEED;
    for (size_t i = 0; i < DEFAULT_COUNT; i++) {
        describe(&made.tensors[i], &default_tensors[i], made.file + at);
        fill(&default_tensors[i], made.file + at, made.tensors[i].bytes, &state);
        at += made.tensors[i].bytes;
    }
    *out = made;
    return CONVOY_OK;
}

void convoy_tensors_default_fini(struct convoy_safetensors *tensors)
{
    convoy_memory_free(tensors->tensors);
    convoy_memory_free(tensors->file);
    *tensors = (struct convoy_safetensors){0};
}

int convoy_cli_default_tensors(int argc, char **argv)
{
    struct convoy_error error = CONVOY_ERROR_INIT;
    struct convoy_safetensors tensors = {0};
    if (argc != 2) {
        (void)fprintf(stderr, "usage: convoy default-tensors FILE\n");
        return CONVOY_EXIT_USAGE;
    }
    int32_t status = convoy_tensors_default_make(&tensors, &error);
    if (status == CONVOY_OK) {
        status = convoy_safetensors_write(argv[1], &tensors, &error);
    }
    convoy_tensors_default_fini(&tensors);
    if (status != CONVOY_OK) {
        (void)fprintf(stderr, "convoy default-tensors: %s\n", error.text);
        return CONVOY_EXIT_FAILURE;
    }
    return CONVOY_EXIT_OK;
}
