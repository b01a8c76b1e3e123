/* SPDX-License-Identifier: Apache-2.0 */
/* Golden control messages: each type with defaults alone, with all of its fields, and what must not be read. */
#include "golden.h"

#include "core/error.h"
#include "core/memory.h"
#include "wire/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A full message has the fields of 1.0 and stays as it is; what a later release adds has a frame of its own. */
enum { CONTROL_DEFAULTS = 0, CONTROL_FULL = 256, CONTROL_STAGED = 512, CONTROL_PRIORITY = 768 };

/* What a field of each kind is in a full message. */
#define FULL_ID(key) ((struct convoy_span){"request 1", 9})
#define FULL_TEXT(key) ((struct convoy_span){"of " key, 3 + sizeof key - 1})
#define FULL_MAYBE(key) ((struct convoy_span){"went wrong", 10})
#define FULL_INTEGER(key) 42
#define FULL_SIGNED(key) (-204)
#define FULL_LARGE(key) UINT64_MAX
#define FULL_BOOL(key) true
#define FULL_OBJECT(key) ((struct convoy_span){"{\"a\":1}", 7})
#define FULL_LIST(key) ((struct convoy_span){"[1]", 3})
#define FULL(member, key, kind, max, meaning) message.member = FULL_##kind(key);

static size_t encode_control(uint32_t which, uint8_t *out)
{
    struct convoy_control message;
    char *text = NULL;
    size_t bytes = 0;
    struct convoy_error error = CONVOY_ERROR_INIT;
    memset(&message, 0, sizeof message);
    if (which >= CONTROL_FULL) {
        CONVOY_CONTROL_FIELDS(FULL)
        message.staged_for_decoder = which / CONTROL_FULL == CONTROL_STAGED / CONTROL_FULL;
        message.priority = which >= CONTROL_PRIORITY ? INT32_MIN : 0;
    }
    message.type = (enum convoy_control_type)(which % CONTROL_FULL);
    message.request_id = (struct convoy_span){"request 1", 9};
    if (convoy_control_encode(&message, &text, &bytes, &error) != CONVOY_OK || bytes > GOLDEN_BYTES_MAX) {
        (void)fprintf(stderr, "control message %u: %s\n", which, error.text);
        abort();
    }
    memcpy(out, text, bytes);
    convoy_memory_free(text);
    return bytes;
}

/* Read and written again it is the same text, so that every field came through. */
static int32_t decode_control(uint32_t which, const uint8_t *data, size_t length)
{
    const struct convoy_span parts[] = {{CONVOY_CONTROL_MAGIC, CONVOY_CONTROL_MAGIC_BYTES},
                                        {(const char *)data, length}};
    struct convoy_control message;
    char *text = NULL;
    size_t bytes = 0;
    int32_t status = convoy_control_decode(parts, 2, &message, NULL);
    if (status != CONVOY_OK) {
        return status;
    }
    status = convoy_control_encode(&message, &text, &bytes, NULL);
    bool is_same = status == CONVOY_OK && (uint32_t)message.type == which % CONTROL_FULL && bytes == length &&
                   memcmp(text, data, bytes) == 0;
    convoy_control_free(&message);
    convoy_memory_free(text);
    return is_same ? CONVOY_OK : GOLDEN_OTHER;
}

#define CONTROL(name, type)                                                                                            \
    {"control." name ".defaults", CONVOY_CONTROL_##type, encode_control, decode_control},                              \
    {                                                                                                                  \
        "control." name ".full", CONVOY_CONTROL_##type + CONTROL_FULL, encode_control, decode_control                  \
    }

static const struct golden_frame frames[] = {
    CONTROL("register", REGISTER),
    CONTROL("register_ack", REGISTER_ACK),
    CONTROL("staged", STAGED),
    CONTROL("alloc", ALLOC),
    CONTROL("allocated", ALLOCATED),
    CONTROL("push", PUSH),
    CONTROL("pushed", PUSHED),
    CONTROL("ready", READY),
    CONTROL("done", DONE),
    {"control.done.staged", CONVOY_CONTROL_DONE + CONTROL_STAGED, encode_control, decode_control},
    CONTROL("alloc_reject", ALLOC_REJECT),
    CONTROL("failed", FAILED),
    CONTROL("abort", ABORT),
    CONTROL("drained", DRAINED),
    CONTROL("query", QUERY),
    {"control.staged.priority", CONVOY_CONTROL_STAGED + CONTROL_PRIORITY, encode_control, decode_control},
    {"control.ready.priority", CONVOY_CONTROL_READY + CONTROL_PRIORITY, encode_control, decode_control},
};

static const struct golden_bad bads[] = {
    {"control.bad-cut", "control.staged.full", GOLDEN_CUT, 40, 0, CONVOY_MALFORMED},
    {"control.bad-text", "control.staged.full", GOLDEN_POKE, 0, '[', CONVOY_MALFORMED},
    {"control.bad-type", "control.abort.defaults", GOLDEN_POKE, 23, 'X', CONVOY_UNKNOWN_MESSAGE},
    {"control.bad-behind", "control.abort.defaults", GOLDEN_GROW, 1, 0, CONVOY_MALFORMED},
};

const struct golden_set golden_control = GOLDEN_SET(frames, bads);
