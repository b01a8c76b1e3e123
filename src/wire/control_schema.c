/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/control_schema.h"

#include <string.h>

enum {
#define FIELD_NUMBER(member, key, kind, max, meaning) FIELD_##member,
    CONVOY_CONTROL_FIELDS(FIELD_NUMBER)
#undef FIELD_NUMBER
};

static const struct convoy_control_field schema_fields[] = {
#define FIELD_ROW(member, key, kind, max, meaning)                                                                      \
    [FIELD_##member] = {(key), (meaning), offsetof(struct convoy_control, member), CONVOY_CONTROL_KIND_##kind,          \
                        (uint64_t)(max)},
    CONVOY_CONTROL_FIELDS(FIELD_ROW)
#undef FIELD_ROW
};

#define ALWAYS(member) {&schema_fields[FIELD_##member], CONVOY_CONTROL_ALWAYS}
#define CHANGED(member) {&schema_fields[FIELD_##member], CONVOY_CONTROL_NEVER}
#define STAGED(member) {&schema_fields[FIELD_##member], CONVOY_CONTROL_STAGED_ONLY}
#define PLAIN(member) {&schema_fields[FIELD_##member], CONVOY_CONTROL_PLAIN_ONLY}
#define OWN                                                                                                            \
    CHANGED(wire_version), CHANGED(attempt), CHANGED(epoch), CHANGED(edge), CHANGED(exact_bytes),                      \
        CHANGED(manifest_extra), CHANGED(priority)

static const struct convoy_control_row schema_rows[CONVOY_CONTROL_TYPES] = {
    [CONVOY_CONTROL_REGISTER] =
        {"transfer_register",
         "instance to server, once at its start",
         {ALWAYS(role), ALWAYS(session_id), ALWAYS(pool_ptr), ALWAYS(pool_size), ALWAYS(work_endpoint),
          ALWAYS(preallocated_slots), OWN}},
    [CONVOY_CONTROL_REGISTER_ACK] = {"transfer_register_ack", "server to instance; hosts do not send it yet", {OWN}},
    [CONVOY_CONTROL_STAGED] = {"transfer_staged",
                               "sender to server: the output waits in a slot",
                               {ALWAYS(request_id), ALWAYS(data_size), ALWAYS(manifest), ALWAYS(session_id),
                                ALWAYS(pool_ptr), ALWAYS(slot_offset), ALWAYS(scalar_fields), OWN}},
    [CONVOY_CONTROL_ALLOC] = {"transfer_alloc",
                              "server to receiver: have a slot ready",
                              {ALWAYS(request_id), ALWAYS(data_size), ALWAYS(source_role), OWN}},
    [CONVOY_CONTROL_ALLOCATED] =
        {"transfer_allocated",
         "receiver to server: here is the slot",
         {ALWAYS(request_id), ALWAYS(session_id), ALWAYS(pool_ptr), ALWAYS(slot_offset), ALWAYS(slot_size), OWN}},
    [CONVOY_CONTROL_PUSH] =
        {"transfer_push",
         "server to sender: move the bytes",
         {ALWAYS(request_id), ALWAYS(dest_session_id), ALWAYS(dest_addr), ALWAYS(transfer_size), OWN}},
    [CONVOY_CONTROL_PUSHED] = {"transfer_pushed", "sender to server: they are there", {ALWAYS(request_id), OWN}},
    [CONVOY_CONTROL_READY] =
        {"transfer_ready",
         "server to receiver: load them",
         {ALWAYS(request_id), ALWAYS(manifest), ALWAYS(slot_offset), ALWAYS(scalar_fields), OWN}},
    [CONVOY_CONTROL_DONE] = {"transfer_done",
                             "denoiser to server: it went well, or not, or its output is staged",
                             {ALWAYS(request_id), PLAIN(error), STAGED(staged_for_decoder), STAGED(session_id),
                              STAGED(pool_ptr), STAGED(slot_offset), STAGED(data_size), STAGED(manifest),
                              STAGED(scalar_fields), OWN}},
    [CONVOY_CONTROL_ALLOC_REJECT] =
        {"transfer_alloc_reject",
         "receiver to server: no slot",
         {ALWAYS(request_id), ALWAYS(retryable), ALWAYS(reason), ALWAYS(retry_after_ms), OWN}},
    [CONVOY_CONTROL_FAILED] = {"transfer_failed",
                               "sender or receiver to server: this attempt is over",
                               {ALWAYS(request_id), ALWAYS(status), ALWAYS(reason), OWN}},
    [CONVOY_CONTROL_ABORT] = {"transfer_abort",
                              "anybody to anybody: let go of this attempt",
                              {ALWAYS(request_id), ALWAYS(reason), OWN}},
    [CONVOY_CONTROL_DRAINED] = {"transfer_drained",
                                "answer to an abort: nothing touches the memory any more",
                                {ALWAYS(request_id), OWN}},
    [CONVOY_CONTROL_QUERY] = {"transfer_query", "anybody to anybody: how does it stand", {ALWAYS(request_id), OWN}},
};

const struct convoy_control_field *convoy_control_field(size_t index)
{
    return index < sizeof schema_fields / sizeof schema_fields[0] ? &schema_fields[index] : NULL;
}

const struct convoy_control_row *convoy_control_row(enum convoy_control_type type)
{
    return type > CONVOY_CONTROL_NONE && type < CONVOY_CONTROL_TYPES ? &schema_rows[type] : NULL;
}

enum convoy_control_type convoy_control_type_of(struct convoy_span name)
{
    for (int type = CONVOY_CONTROL_NONE + 1; type < CONVOY_CONTROL_TYPES; type++) {
        struct convoy_span known = {schema_rows[type].name, strlen(schema_rows[type].name)};
        if (convoy_json_is_same(name, known)) {
            return (enum convoy_control_type)type;
        }
    }
    return CONVOY_CONTROL_NONE;
}

const char *convoy_control_name(enum convoy_control_type type)
{
    const struct convoy_control_row *row = convoy_control_row(type);
    return row != NULL ? row->name : "";
}
