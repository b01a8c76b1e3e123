/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hosts' control messages of staged transfer: what a server and its instances tell each other as JSON while tensors
 * move between pools. Field names, types, order and defaults are the hosts' own, so that a message of today's hosts is
 * read here, and one that is written here is read there, byte for byte as their Python would have written it:
 *
 *     frame 0   __transfer__                                                     12 bytes
 *     frame 1   {"msg_type":"transfer_pushed","request_id":"r1"}                 at most 16 MiB
 *     further frames are ignored
 *
 * Everything that is known of fields and messages stands in one table: the fields in CONVOY_CONTROL_FIELDS below, the
 * messages in control_schema.c. Struct, encode, decode, checks, defaults and documentation come from there.
 *
 * - A field that is missing has its default: 0, false, "", null (error), {} or []. Fields of no meaning here are ignored.
 * - manifest, scalar_fields and preallocated_slots travel as the text they came as: checked as JSON, never written anew.
 * - The fields convoy_* are this library's own, on every message. They are written only when they are not the default,
 *   ignored by hosts that do not know them, and default (0 = not said) in what such hosts send. convoy_exact_bytes is
 *   what lies in a slot, where data_size is what the slot holds.
 * - transfer_done has two forms. The hosts' class gives request_id and error (null = it went well). What announces a
 *   staged output for the next hop is made by hand there: it has staged_for_decoder true, where the output lies, and no
 *   error. Written is: the second form if staged_for_decoder is set (with an error only if there is one), else the first.
 *
 * Pure but for memory.
 */
#ifndef CONVOY_WIRE_CONTROL_H
#define CONVOY_WIRE_CONTROL_H

#include "convoy/base.h"
#include "wire/json_string.h"

#define CONVOY_CONTROL_MAGIC "__transfer__"
#define CONVOY_CONTROL_MAGIC_BYTES 12u
#define CONVOY_CONTROL_BYTES_MAX (16u << 20)      /* of the JSON */
#define CONVOY_CONTROL_VALUE_BYTES_MAX (1u << 20) /* of one value: text, list or object */
#define CONVOY_CONTROL_ID_BYTES_MAX 255u               /* of a request id, an edge, a key */
#define CONVOY_CONTROL_KEYS_MAX 64u                    /* of the outermost object, unknown ones included */
#define CONVOY_CONTROL_INTEGER_MAX (INT64_C(1) << 53) /* beyond it many readers of JSON round */

/* The kinds, and what holds them in struct convoy_control. */
#define CONVOY_CONTROL_HOLDS_ID struct convoy_span     /* a text that must not be empty */
#define CONVOY_CONTROL_HOLDS_TEXT struct convoy_span   /* UTF-8; null is refused */
#define CONVOY_CONTROL_HOLDS_MAYBE struct convoy_span  /* text, or null: text == NULL */
#define CONVOY_CONTROL_HOLDS_INTEGER int64_t           /* 0 to the bound */
#define CONVOY_CONTROL_HOLDS_SIGNED int64_t            /* of 32 bits with sign */
#define CONVOY_CONTROL_HOLDS_LARGE uint64_t            /* a text of decimal digits on the wire */
#define CONVOY_CONTROL_HOLDS_BOOL bool
#define CONVOY_CONTROL_HOLDS_OBJECT struct convoy_span /* JSON as it came; bytes 0 = {} */
#define CONVOY_CONTROL_HOLDS_LIST struct convoy_span   /* JSON as it came; bytes 0 = [] */

/* FIELD(name here, name on the wire, kind, bound of the value or its bytes, what it is) */
#define CONVOY_CONTROL_FIELDS(FIELD)                                                                                    \
    FIELD(request_id, "request_id", ID, CONVOY_CONTROL_ID_BYTES_MAX, "the request, in the host's words")                \
    FIELD(role, "role", TEXT, CONVOY_CONTROL_VALUE_BYTES_MAX, "encoder, denoiser or decoder")                           \
    FIELD(session_id, "session_id", TEXT, CONVOY_CONTROL_VALUE_BYTES_MAX, "the sender's transfer engine")               \
    FIELD(pool_ptr, "pool_ptr", INTEGER, CONVOY_CONTROL_INTEGER_MAX, "address of the sender's pool")                    \
    FIELD(pool_size, "pool_size", INTEGER, CONVOY_CONTROL_INTEGER_MAX, "bytes of that pool, rounded")                   \
    FIELD(work_endpoint, "work_endpoint", TEXT, CONVOY_CONTROL_VALUE_BYTES_MAX, "where the instance takes work")        \
    FIELD(preallocated_slots, "preallocated_slots", LIST, CONVOY_CONTROL_VALUE_BYTES_MAX,                               \
          "receive slots to use without asking: offset, size, slot_id, addr")                                           \
    FIELD(data_size, "data_size", INTEGER, CONVOY_CONTROL_INTEGER_MAX, "bytes of the slot, 0 = nothing staged")         \
    FIELD(manifest, "manifest", OBJECT, CONVOY_CONTROL_VALUE_BYTES_MAX, "which tensor lies where in the slot")          \
    FIELD(slot_offset, "slot_offset", INTEGER, CONVOY_CONTROL_INTEGER_MAX, "where in its pool the slot starts")         \
    FIELD(slot_size, "slot_size", INTEGER, CONVOY_CONTROL_INTEGER_MAX, "bytes of the slot, rounded")                    \
    FIELD(scalar_fields, "scalar_fields", OBJECT, CONVOY_CONTROL_VALUE_BYTES_MAX,                                       \
          "the request's values that are no tensors; transfer_ready may add _prealloc_slot_id")                         \
    FIELD(source_role, "source_role", TEXT, CONVOY_CONTROL_VALUE_BYTES_MAX, "encoder or denoiser")                      \
    FIELD(dest_session_id, "dest_session_id", TEXT, CONVOY_CONTROL_VALUE_BYTES_MAX, "the receiver's engine")            \
    FIELD(dest_addr, "dest_addr", INTEGER, CONVOY_CONTROL_INTEGER_MAX, "where the bytes go, as an address")             \
    FIELD(transfer_size, "transfer_size", INTEGER, CONVOY_CONTROL_INTEGER_MAX, "bytes to push")                         \
    FIELD(error, "error", MAYBE, CONVOY_CONTROL_VALUE_BYTES_MAX, "what went wrong, null = nothing")                     \
    FIELD(staged_for_decoder, "staged_for_decoder", BOOL, 1, "the output is staged for the next hop")                   \
    FIELD(retryable, "retryable", BOOL, 1, "asking again may help")                                                     \
    FIELD(status, "status", SIGNED, INT32_MAX, "CONVOY_* status of the failure")                                        \
    FIELD(reason, "reason", TEXT, CONVOY_CONTROL_VALUE_BYTES_MAX, "why, for people")                                    \
    FIELD(retry_after_ms, "retry_after_ms", INTEGER, CONVOY_CONTROL_INTEGER_MAX, "ask again not before, 0 = at will")   \
    FIELD(wire_version, "convoy_wire_version", INTEGER, UINT16_MAX, "of convoy; 0 = the sender is none")                \
    FIELD(attempt, "convoy_attempt", INTEGER, UINT32_MAX, "which attempt of the request, from 1")                       \
    FIELD(epoch, "convoy_epoch", LARGE, UINT64_MAX, "epoch of the sender's engine")                                     \
    FIELD(edge, "convoy_edge", TEXT, CONVOY_CONTROL_ID_BYTES_MAX, "which of several outputs of a request")              \
    FIELD(exact_bytes, "convoy_exact_bytes", INTEGER, CONVOY_CONTROL_INTEGER_MAX, "bytes in the slot, 0 = data_size")   \
    FIELD(manifest_extra, "convoy_manifest", OBJECT, CONVOY_CONTROL_VALUE_BYTES_MAX,                                    \
          "list_lengths: of lists that end in holes, or hold nothing else, which manifest cannot say")                  \
    FIELD(priority, "convoy_priority", SIGNED, INT32_MAX, "of the request, higher goes first; 0 = usual")

enum convoy_control_type {
    CONVOY_CONTROL_NONE = 0,
    CONVOY_CONTROL_REGISTER,
    CONVOY_CONTROL_REGISTER_ACK,
    CONVOY_CONTROL_STAGED,
    CONVOY_CONTROL_ALLOC,
    CONVOY_CONTROL_ALLOCATED,
    CONVOY_CONTROL_PUSH,
    CONVOY_CONTROL_PUSHED,
    CONVOY_CONTROL_READY,
    CONVOY_CONTROL_DONE,
    CONVOY_CONTROL_ALLOC_REJECT,
    CONVOY_CONTROL_FAILED,
    CONVOY_CONTROL_ABORT,
    CONVOY_CONTROL_DRAINED,
    CONVOY_CONTROL_QUERY,
    CONVOY_CONTROL_TYPES,
};

/* One message of any type. Fields that its type does not have are at their defaults, and are not written. Zeroed, with
 * type and request_id set, it is a message of defaults. */
struct convoy_control {
    enum convoy_control_type type;
    char *storage; /* of a decoded message: what all its spans point into */
#define CONVOY_CONTROL_MEMBER(member, key, kind, max, meaning) CONVOY_CONTROL_HOLDS_##kind member;
    CONVOY_CONTROL_FIELDS(CONVOY_CONTROL_MEMBER)
#undef CONVOY_CONTROL_MEMBER
};

/* The type's name on the wire, "" for none. */
const char *convoy_control_name(enum convoy_control_type type);

/*
 * Reads a message; borrows the frames for the call only. message_out is written on OK and then owns memory:
 * convoy_control_free. UNKNOWN_MESSAGE: the type has no meaning here; log and drop it. LIMIT: the message, a value, its
 * depth or the number of keys is above its bound. MALFORMED: anything else. NO_MEMORY. The text names the field, as in
 * transfer_staged.data_size.
 */
int32_t convoy_control_decode(const struct convoy_span *frames, size_t frame_count, struct convoy_control *message_out,
                              struct convoy_error *error);

/* Takes back what decode gave; also a zeroed message, and once more. */
void convoy_control_free(struct convoy_control *message);

/* Gives the text of frame 1, to be freed with convoy_memory_free. Nothing that decode would refuse is written:
 * INVALID_ARGUMENT or LIMIT, with the field. NO_MEMORY. */
int32_t convoy_control_encode(const struct convoy_control *message, char **text_out, size_t *bytes_out,
                              struct convoy_error *error);

/* Writes the table of all messages as Markdown. out NULL: writes nothing. Returns its bytes; there is no zero behind. */
size_t convoy_control_table_text(char *out);

#endif
