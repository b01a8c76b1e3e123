/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What transfer 1.1 added, as a host sees it that knows it: with a plugin that has it, and with one of 1.0. A host of 1.0
 * has nothing to ask here, and says nothing.
 */
#include "tests/abi/matrix.h"

#if CONVOY_TRANSFER_MINOR >= 1

#define PRIORITY (-7)

static int32_t matrix_priority;

/* Whether the last error names the offset of one of the bytes of a field. */
static bool names_field(size_t offset, size_t bytes)
{
    char words[32];
    for (size_t at = offset; at < offset + bytes; at++) {
        (void)snprintf(words, sizeof words, "offset %zu ", at);
        if (strstr(matrix_error.text, words) != NULL) {
            return true;
        }
    }
    return false;
}

static const char *verdict(int32_t status, int32_t usual, size_t offset)
{
    return status == usual                                                           ? "taken"
           : status == CONVOY_TOO_NEW && names_field(offset, sizeof matrix_priority) ? "too new at its offset"
                                                                                     : "wrong";
}

static int32_t stage_with(struct matrix_engine *engine, int32_t priority)
{
    const struct convoy_stage stage = {
        .struct_size = sizeof stage, .request = "since", .request_length = 5, .priority = priority};
    convoy_transfer staged = 0;
    int32_t status = convoy_host_stage_start(engine->engine, &stage, &staged, &matrix_error);
    if (status == CONVOY_OK) {
        matrix_need(convoy_host_transfer_release(engine->engine, staged, &matrix_error), "release");
    }
    return status;
}

/* A peer that is not there: what a send says once its own struct was read. */
static int32_t send_with(struct matrix_engine *engine, int32_t priority)
{
    const struct convoy_send send = {.struct_size = sizeof send, .peer = 77, .staged = 99, .priority = priority};
    convoy_transfer transfer = 0;
    return convoy_host_send_start(engine->engine, NULL, &send, &transfer, &matrix_error);
}

static void try_priorities(struct matrix_engine *engine)
{
    int32_t usual = stage_with(engine, 0);
    matrix_need(usual, "stage_start with a tail of zeros");
    matrix_seen("since.stage.priority", "%s",
                verdict(stage_with(engine, PRIORITY), usual, offsetof(struct convoy_stage, priority)));
    usual = send_with(engine, 0);
    if (usual != CONVOY_CLOSED) {
        matrix_fail("since.send", "a send to a peer that is not there, with a tail of zeros, is not CLOSED");
    }
    matrix_seen("since.send.priority", "%s",
                verdict(send_with(engine, PRIORITY), usual, offsetof(struct convoy_send, priority)));
}

static void try_admission(struct matrix_engine *engine)
{
    const struct convoy_admission admission = {.struct_size = sizeof admission, .under_way_max = 4};
    int32_t status = convoy_host_transfer_admission_set(engine->engine, &admission, &matrix_error);
    bool is_told = status == CONVOY_UNSUPPORTED && strstr(matrix_error.text, "transfer 1.1") != NULL;
    matrix_seen("since.admission_set", "%d%s", status, is_told ? " names transfer 1.1" : "");
}

/* Zeros all of them with either plugin, as nothing waits; what differs is how much was written. */
static void try_info(struct matrix_engine *engine)
{
    const size_t before = offsetof(struct convoy_engine_info, admitted_count);
    struct convoy_engine_info info = {.struct_size = sizeof info};
    matrix_need(convoy_host_engine_info(engine->engine, &info, &matrix_error), "engine_info");
    if ((info.admitted_count | info.waiting_count) != 0 ||
        (info.admitted_bytes | info.waiting_bytes | info.overloaded_count) != 0) {
        matrix_fail("since.info", "nothing waits, and what engine_info says of it is not zero");
    }
    matrix_seen("since.info.written", "%s",
                info.written_bytes == before ? "as in 1.0" : info.written_bytes > before ? "more" : "less");
}

void matrix_since(convoy_loader *loader)
{
    static struct matrix_engine engine;
    convoy_host_context *context = matrix_context(loader);
    matrix_engine_open(context, false, &engine);
    try_info(&engine);
    try_priorities(&engine);
    try_admission(&engine);
    matrix_need(convoy_host_context_close(context, MATRIX_WAIT_NS, &matrix_error), "context_close");
}

void matrix_priority_begin(convoy_loader *loader)
{
    const struct convoy_loader_info *info = convoy_loader_info(loader);
    for (size_t i = 0; i < info->family_count; i++) {
        if (strcmp(info->family_names[i], "transfer") == 0 && info->answers[i].minor >= 1) {
            matrix_priority = PRIORITY;
        }
    }
}

void matrix_priority_put(struct convoy_stage *stage)
{
    stage->priority = matrix_priority;
}

void matrix_priority_say(const struct convoy_payload *payload)
{
    matrix_seen("priority", "%d", payload->priority);
}

void matrix_limit(struct matrix_engine *engine)
{
    const struct convoy_admission admission = {.struct_size = sizeof admission, .under_way_max = 1};
    int32_t status = convoy_host_transfer_admission_set(engine->engine, &admission, &matrix_error);
    matrix_need(status == CONVOY_UNSUPPORTED ? CONVOY_OK : status, "admission_set");
}

#else

void matrix_since(convoy_loader *loader)
{
    (void)loader;
}

void matrix_priority_begin(convoy_loader *loader)
{
    (void)loader;
}

void matrix_priority_put(struct convoy_stage *stage)
{
    (void)stage;
}

void matrix_priority_say(const struct convoy_payload *payload)
{
    (void)payload;
}

void matrix_limit(struct matrix_engine *engine)
{
    (void)engine;
}

#endif
