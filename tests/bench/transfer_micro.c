/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of staged transfer that are pure work of one thread, measured inside the library: blocks of a pool, a staged
 * message as JSON beside bare jansson, a manifest as bytes.
 *
 *   buddy      one block given back and one taken, on 64 GiB of 1 MiB blocks with 10,000 live ones
 *   pool       the same through the pool: its lock, its leases
 *   message    manifest -> staged message with 20 tensors -> manifest (peer convoy); the spans of that message only,
 *              manifest unread (convoy-spans); loads and dumps of the same text (jansson)
 *   manifest   encode and decode of those 20 tensors as bytes
 *
 * Usage: transfer_micro CASE...
 */
#include "tests/bench/handover.h"

#include "core/memory.h"
#include "pool/buddy.h"
#include "pool/pool.h"
#include "wire/control.h"
#include "wire/dtype.h"
#include "wire/manifest_binary.h"
#include "wire/manifest_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define POOL_BYTES (UINT64_C(64) << 30)
#define LIVE 10000u
#define BLOCKS_MAX 4u /* of one slot: 10,000 then fill the pool to 43 % on average */
#define SAMPLES 2000u
#define STEPS 50u /* per sample: reading the clock takes as long as one step */
#define MESSAGE_STEPS 10u
#define TENSORS 20u
#define TEXT_BYTES 65536u

static void check(int32_t status, const struct convoy_error *error, const char *what)
{
    if (status != CONVOY_OK) {
        bench_die("%s: %d: %s", what, status, error->text);
    }
}

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static uint64_t draw_bytes(uint64_t *seed)
{
    return (1 + draw(seed) % BLOCKS_MAX) * CONVOY_BUDDY_BLOCK_BYTES - draw(seed) % 4096;
}

/* -- blocks -------------------------------------------------------------------------------------------------------- */

static void take_block(struct convoy_buddy *buddy, uint64_t *seed, uint64_t *offset_out)
{
    struct convoy_buddy_block block;
    if (convoy_buddy_take(buddy, draw_bytes(seed), &block) != CONVOY_BUDDY_OK) {
        bench_die("the pool is full");
    }
    *offset_out = block.offset;
}

static void measure_buddy(void)
{
    static uint64_t offsets[LIVE];
    static uint64_t samples_ns[SAMPLES];
    struct convoy_buddy *buddy = convoy_buddy_create(POOL_BYTES, CONVOY_BUDDY_BLOCK_BYTES);
    uint64_t seed = 1;
    if (buddy == NULL) {
        bench_die("out of memory");
    }
    for (uint32_t i = 0; i < LIVE; i++) {
        take_block(buddy, &seed, &offsets[i]);
    }
    for (uint32_t sample = 0; sample < SAMPLES; sample++) {
        uint64_t start_ns = bench_now_ns();
        for (uint32_t step = 0; step < STEPS; step++) {
            uint64_t *offset = &offsets[draw(&seed) % LIVE];
            (void)convoy_buddy_give(buddy, *offset);
            take_block(buddy, &seed, offset);
        }
        samples_ns[sample] = (bench_now_ns() - start_ns) / STEPS;
    }
    const char *fault = convoy_buddy_check(buddy);
    if (fault != NULL) {
        bench_die("buddy: %s", fault);
    }
    handover_print("convoy", "buddy", samples_ns, SAMPLES, "");
    convoy_buddy_destroy(buddy);
}

static void take_lease(struct convoy_pool *pool, uint64_t *seed, convoy_lease *lease_out)
{
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_slot slot;
    const struct convoy_pool_request request = {.owner = {.request = "request-0123456789", .request_length = 18},
                                                .bytes = draw_bytes(seed),
                                                .deadline_ns = UINT64_MAX};
    check(convoy_pool_take(pool, &request, &slot, &error), &error, "pool_take");
    *lease_out = slot.lease;
}

/* Address space only: a pool of the host's memory touches no byte of it. */
static void measure_pool(void)
{
    static convoy_lease leases[LIVE];
    static uint64_t samples_ns[SAMPLES];
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_pool *pool = NULL;
    void *memory = mmap(NULL, POOL_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const struct convoy_pool_options options = {.kind = CONVOY_POOL_HOST,
                                                .memory = memory,
                                                .bytes = POOL_BYTES,
                                                .lease_max = LIVE,
                                                .reference_max = LIVE};
    uint64_t seed = 1;
    if (memory == MAP_FAILED) {
        bench_die("no address space of 64 GiB");
    }
    check(convoy_pool_open(&options, &pool, &error), &error, "pool_open");
    for (uint32_t i = 0; i < LIVE; i++) {
        take_lease(pool, &seed, &leases[i]);
    }
    for (uint32_t sample = 0; sample < SAMPLES; sample++) {
        uint64_t start_ns = bench_now_ns();
        for (uint32_t step = 0; step < STEPS; step++) {
            convoy_lease *lease = &leases[draw(&seed) % LIVE];
            check(convoy_pool_retire(pool, *lease, CONVOY_LEASE_END_RELEASED, &error), &error, "pool_retire");
            take_lease(pool, &seed, lease);
        }
        samples_ns[sample] = (bench_now_ns() - start_ns) / STEPS;
    }
    handover_print("convoy", "pool", samples_ns, SAMPLES, "");
    convoy_pool_close(pool);
    (void)munmap(memory, POOL_BYTES);
}

/* -- a staged message ---------------------------------------------------------------------------------------------- */

static const char scalars[] = "{\"seed\":9007199254740993,\"guidance_scale\":7.5,\"num_inference_steps\":28,"
                              "\"prompt\":\"a lighthouse at dusk\",\"height\":1024,\"width\":1024}";

/* What a denoiser is sent: 12 fields of their own and a list of 8. */
static struct convoy_manifest *make_manifest(void)
{
    struct convoy_error error = {.struct_size = sizeof error};
    char *text = NULL;
    struct convoy_manifest *manifest = convoy_manifest_create(TENSORS, 1, 1024, &text);
    if (manifest == NULL) {
        bench_die("out of memory");
    }
    manifest->lists[0] = (struct convoy_tensor_list){.name = "prompt_embeds", .name_length = 13, .length = 8};
    for (uint32_t i = 0; i < TENSORS; i++) {
        struct convoy_tensor *tensor = &manifest->tensors[i];
        bool is_listed = i >= 12;
        *tensor = (struct convoy_tensor){.name = is_listed ? "prompt_embeds" : text,
                                         .list_index = is_listed ? (int32_t)i - 12 : -1,
                                         .dtype = i % 3 == 0 ? CONVOY_DTYPE_FLOAT32 : CONVOY_DTYPE_BFLOAT16,
                                         .rank = 4,
                                         .shape = {1, 16, 64 + i, 64}};
        tensor->name_length = is_listed ? 13 : (uint32_t)sprintf(text, "latent_model_input_%u", i);
        text += is_listed ? 0 : tensor->name_length;
    }
    check(convoy_manifest_layout(manifest, &error), &error, "manifest_layout");
    return manifest;
}

/* gives (convoy_memory_free) */
static char *write_message(const struct convoy_manifest *manifest, size_t *bytes_out)
{
    struct convoy_error error = {.struct_size = sizeof error};
    json_t *fields = NULL;
    json_t *extra = NULL;
    char *text = NULL;
    check(convoy_manifest_json_encode(manifest, &fields, &extra, &error), &error, "manifest_json_encode");
    char *fields_text = json_dumps(fields, JSON_COMPACT);
    const struct convoy_control message = {.type = CONVOY_CONTROL_STAGED,
                                           .request_id = {"request-0123456789", 18},
                                           .session_id = {"host-a:17000", 12},
                                           .data_size = (int64_t)manifest->payload_bytes,
                                           .pool_ptr = 139637976727552,
                                           .manifest = {fields_text, strlen(fields_text)},
                                           .scalar_fields = {scalars, sizeof scalars - 1}};
    check(convoy_control_encode(&message, &text, bytes_out, &error), &error, "control_encode");
    free(fields_text);
    json_decref(fields);
    json_decref(extra);
    return text;
}

static void read_message(const char *text, size_t bytes)
{
    struct convoy_error error = {.struct_size = sizeof error};
    const struct convoy_span frames[] = {{CONVOY_CONTROL_MAGIC, CONVOY_CONTROL_MAGIC_BYTES}, {text, bytes}};
    struct convoy_control message;
    struct convoy_manifest *manifest = NULL;
    check(convoy_control_decode(frames, 2, &message, &error), &error, "control_decode");
    json_t *fields = json_loadb(message.manifest.text, message.manifest.bytes, CONVOY_MANIFEST_JSON_FLAGS, NULL);
    check(convoy_manifest_json_decode(fields, NULL, &manifest, &error), &error, "manifest_json_decode");
    if (manifest->count != TENSORS) {
        bench_die("%u tensors came back", manifest->count);
    }
    convoy_manifest_destroy(manifest);
    json_decref(fields);
    convoy_control_free(&message);
}

static void pass_message(const struct convoy_manifest *manifest)
{
    size_t bytes = 0;
    char *text = write_message(manifest, &bytes);
    read_message(text, bytes);
    convoy_memory_free(text);
}

/* As a broker does that passes a message on and looks at no tensor. */
static void pass_spans(const struct convoy_span *span)
{
    struct convoy_error error = {.struct_size = sizeof error};
    const struct convoy_span frames[] = {{CONVOY_CONTROL_MAGIC, CONVOY_CONTROL_MAGIC_BYTES}, *span};
    struct convoy_control message;
    char *text = NULL;
    size_t bytes = 0;
    check(convoy_control_decode(frames, 2, &message, &error), &error, "control_decode");
    check(convoy_control_encode(&message, &text, &bytes, &error), &error, "control_encode");
    convoy_memory_free(text);
    convoy_control_free(&message);
}

static void pass_jansson(const struct convoy_span *span)
{
    json_t *value = json_loadb(span->text, span->bytes, 0, NULL);
    char *text = json_dumps(value, JSON_COMPACT);
    if (text == NULL) {
        bench_die("jansson wrote nothing");
    }
    free(text);
    json_decref(value);
}

/* Turn by turn, so that drift of the machine meets all three. */
static void measure_message(void)
{
    static uint64_t samples_ns[3][SAMPLES];
    static const char *const peers[] = {"convoy", "convoy-spans", "jansson"};
    struct convoy_manifest *manifest = make_manifest();
    struct convoy_span span = {0};
    char *text = write_message(manifest, &span.bytes);
    char more[64];
    span.text = text;
    for (uint32_t i = 0; i < 3 * SAMPLES; i++) {
        uint64_t start_ns = bench_now_ns();
        for (uint32_t step = 0; step < MESSAGE_STEPS; step++) {
            switch (i % 3) {
            case 0: pass_message(manifest); break;
            case 1: pass_spans(&span); break;
            default: pass_jansson(&span); break;
            }
        }
        samples_ns[i % 3][i / 3] = (bench_now_ns() - start_ns) / MESSAGE_STEPS;
    }
    (void)snprintf(more, sizeof more, ", \"text_bytes\": %zu", span.bytes);
    for (uint32_t i = 0; i < 3; i++) {
        handover_print(peers[i], "message", samples_ns[i], SAMPLES, more);
    }
    convoy_memory_free(text);
    convoy_manifest_destroy(manifest);
}

static void measure_manifest(void)
{
    static uint64_t samples_ns[SAMPLES];
    static uint8_t bytes[TEXT_BYTES];
    struct convoy_error error = {.struct_size = sizeof error};
    struct convoy_manifest *manifest = make_manifest();
    size_t length = 0;
    char more[64];
    for (uint32_t sample = 0; sample < SAMPLES; sample++) {
        uint64_t start_ns = bench_now_ns();
        for (uint32_t step = 0; step < MESSAGE_STEPS; step++) {
            struct convoy_manifest *copy = NULL;
            check(convoy_manifest_binary_encode(manifest, bytes, sizeof bytes, &length, &error), &error, "encode");
            check(convoy_manifest_binary_decode(bytes, length, &copy, &error), &error, "decode");
            convoy_manifest_destroy(copy);
        }
        samples_ns[sample] = (bench_now_ns() - start_ns) / MESSAGE_STEPS;
    }
    (void)snprintf(more, sizeof more, ", \"manifest_bytes\": %zu", length);
    handover_print("convoy", "manifest", samples_ns, SAMPLES, more);
    convoy_manifest_destroy(manifest);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*measure)(void);
    } cases[] = {{"buddy", measure_buddy},
                 {"pool", measure_pool},
                 {"message", measure_message},
                 {"manifest", measure_manifest}};
    handover_deadline();
    bench_pin(0);
    for (int i = 1; i < argc; i++) {
        size_t at = 0;
        while (at < sizeof cases / sizeof cases[0] && strcmp(argv[i], cases[at].name) != 0) {
            at++;
        }
        if (at == sizeof cases / sizeof cases[0]) {
            bench_die("\"%s\": must be buddy, pool, message or manifest", argv[i]);
        }
        cases[at].measure();
    }
    return 0;
}
