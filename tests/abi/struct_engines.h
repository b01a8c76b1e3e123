/* SPDX-License-Identifier: Apache-2.0 */
/* Every struct of the transfer table with a call that takes it: two engines of one context, connected, one transfer staged. */
#ifndef TESTS_ABI_STRUCT_ENGINES_H
#define TESTS_ABI_STRUCT_ENGINES_H

#include "convoy/convoy.h"

struct struct_host;

struct struct_engines {
    const struct convoy_transfer_table *table;
    convoy_transfer_engine *own;
    convoy_transfer_engine *other;
    convoy_transfer staged; /* by other */
    struct convoy_transfer_options options;
    struct convoy_engine_info info;
    struct convoy_engine_figures figures;
    struct convoy_peer_info peer_info;
    struct convoy_tensor_source tensor;
    struct convoy_tensor_list_entry list;
    struct convoy_stage stage;
    struct convoy_send send;
    struct convoy_load load;
    struct convoy_transfer_result result;
    struct convoy_tensor_view view;
    struct convoy_tensor_list_entry list_view;
    struct convoy_payload payload;
    uint64_t bytes;
    struct convoy_reserve reserve;
    struct convoy_reserved_slot slot;
    struct convoy_reservation reservation;
    struct convoy_transfer_query query;
    struct convoy_transfer_answer answer;
    struct convoy_completion completion;
    struct convoy_raw_piece piece;
    struct convoy_raw raw;
    struct convoy_admission admission;
    struct convoy_text_buffer text;
    uint8_t data[64];
    uint8_t target[64];
    char descriptor[1024];
    size_t descriptor_length;
};

void struct_engines_open(struct struct_host *host);
void struct_engines_close(struct struct_host *host);

/* X(tag, field of struct_engines, is OUT, function, is an array) */
#define STRUCT_ENGINE_CASES(X)                                                                                         \
    X(transfer_options, options, false, run_engine_options, false)                                                     \
    X(engine_info, info, true, run_engine_info, false)                                                                 \
    X(engine_figures, figures, true, run_engine_figures, false)                                                        \
    X(peer_info, peer_info, true, run_peer_info, false)                                                                \
    X(stage, stage, false, run_stage, false)                                                                           \
    X(tensor_source, tensor, false, run_tensor, true)                                                                  \
    X(tensor_list_entry, list, false, run_list, true)                                                                  \
    X(send, send, false, run_send, false)                                                                              \
    X(load, load, false, run_load, false)                                                                              \
    X(load, load, false, run_accept, false)                                                                            \
    X(transfer_result, result, true, run_result, false)                                                                \
    X(payload, payload, true, run_payload, false)                                                                      \
    X(tensor_view, view, true, run_view, true)                                                                         \
    X(tensor_list_entry, list_view, true, run_list_view, true)                                                         \
    X(reserve, reserve, false, run_reserve, false)                                                                     \
    X(reservation, reservation, true, run_reservation, false)                                                          \
    X(reserved_slot, slot, true, run_slot, true)                                                                       \
    X(transfer_query, query, false, run_query_request, false)                                                          \
    X(transfer_answer, answer, true, run_answer_request, false)                                                        \
    X(completion, completion, true, run_completion, true)                                                              \
    X(raw, raw, false, run_raw, false)                                                                                 \
    X(raw_piece, piece, false, run_piece, true)                                                                        \
    X(admission, admission, false, run_admission, false)                                                               \
    X(text_buffer, text, true, run_descriptor, false)

#define STRUCT_ENGINE_DECLARE(tag, field, is_out, function, is_array)                                                  \
    int32_t function(struct struct_host *host, void *given, size_t stride);
STRUCT_ENGINE_CASES(STRUCT_ENGINE_DECLARE)
#undef STRUCT_ENGINE_DECLARE

#endif
