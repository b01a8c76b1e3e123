/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many processes play each role of the pipeline, and who takes which request. Pure.
 *
 *   encoder 0..E-1  --hop 0-->  denoiser 0..N-1  --hop 1-->  decoder 0..K-1
 *
 * Members are numbered through: encoders first, then denoisers, then decoders. Requests go round in each role, one place
 * further whenever the same pairs would come again: the members of a role get the same share, and with requests enough
 * every encoder meets every denoiser, and every denoiser every decoder.
 */
#ifndef CONVOY_CLI_PIPELINE_SHAPE_H
#define CONVOY_CLI_PIPELINE_SHAPE_H

#include "convoy/base.h"

#define CONVOY_PIPELINE_ROLES 3u
#define CONVOY_PIPELINE_HOPS 2u
#define CONVOY_PIPELINE_MEMBERS_MAX 64u
#define CONVOY_PIPELINE_NAME_BYTES 24u

enum convoy_pipeline_role {
    CONVOY_PIPELINE_ENCODER,
    CONVOY_PIPELINE_DENOISER,
    CONVOY_PIPELINE_DECODER,
};

struct convoy_pipeline_shape {
    uint32_t counts[CONVOY_PIPELINE_ROLES];
};

/* Reads "E:N:K". INVALID_ARGUMENT: the text has the words and what is allowed. */
int32_t convoy_pipeline_shape_parse(struct convoy_pipeline_shape *shape_out, const char *text,
                                    struct convoy_error *error);

uint32_t convoy_pipeline_shape_members(const struct convoy_pipeline_shape *shape);

enum convoy_pipeline_role convoy_pipeline_shape_role(const struct convoy_pipeline_shape *shape, uint32_t member);

/* The member that plays this role for a request. */
uint32_t convoy_pipeline_shape_member(const struct convoy_pipeline_shape *shape, enum convoy_pipeline_role role,
                                      uint32_t request);

/* How many of the first `requests` come to a member. */
uint32_t convoy_pipeline_shape_share(const struct convoy_pipeline_shape *shape, uint32_t member, uint32_t requests);

/* On which of two hosts a member is: encoders on 0, decoders on 1, denoisers on both in turn. */
uint32_t convoy_pipeline_shape_host(const struct convoy_pipeline_shape *shape, uint32_t member);

const char *convoy_pipeline_role_name(enum convoy_pipeline_role role);

/* "denoiser 1". Returns text_out. */
const char *convoy_pipeline_shape_name(const struct convoy_pipeline_shape *shape, uint32_t member,
                                       char text_out[CONVOY_PIPELINE_NAME_BYTES]);

#endif
