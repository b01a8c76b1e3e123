/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pipeline_shape.h"

#include "core/error.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static bool shape_number(const char **text, uint32_t *number_out)
{
    char *end = NULL;
    if (!isdigit((unsigned char)**text)) { /* strtoul takes signs and blanks */
        return false;
    }
    unsigned long number = strtoul(*text, &end, 10);
    *text = end;
    *number_out = number <= CONVOY_PIPELINE_MEMBERS_MAX ? (uint32_t)number : 0;
    return *number_out != 0;
}

int32_t convoy_pipeline_shape_parse(struct convoy_pipeline_shape *shape_out, const char *text,
                                    struct convoy_error *error)
{
    struct convoy_pipeline_shape shape = {{0}};
    const char *at = text;
    bool is_good = true;
    for (uint32_t i = 0; i < CONVOY_PIPELINE_ROLES && is_good; i++) {
        is_good = shape_number(&at, &shape.counts[i]) && *at == (i + 1 < CONVOY_PIPELINE_ROLES ? ':' : '\0');
        at++;
    }
    if (!is_good || convoy_pipeline_shape_members(&shape) > CONVOY_PIPELINE_MEMBERS_MAX) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT,
                                "--roles is \"%.40s\": must be ENCODERS:DENOISERS:DECODERS, each at least 1, together at "
                                "most %u",
                                text, CONVOY_PIPELINE_MEMBERS_MAX);
    }
    *shape_out = shape;
    return CONVOY_OK;
}

uint32_t convoy_pipeline_shape_members(const struct convoy_pipeline_shape *shape)
{
    return shape->counts[0] + shape->counts[1] + shape->counts[2];
}

static uint32_t shape_first(const struct convoy_pipeline_shape *shape, enum convoy_pipeline_role role)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < (uint32_t)role; i++) {
        first += shape->counts[i];
    }
    return first;
}

enum convoy_pipeline_role convoy_pipeline_shape_role(const struct convoy_pipeline_shape *shape, uint32_t member)
{
    if (member < shape->counts[CONVOY_PIPELINE_ENCODER]) {
        return CONVOY_PIPELINE_ENCODER;
    }
    return member < shape_first(shape, CONVOY_PIPELINE_DECODER) ? CONVOY_PIPELINE_DENOISER : CONVOY_PIPELINE_DECODER;
}

static uint32_t shape_common_multiple(uint32_t left, uint32_t right)
{
    uint32_t multiple = left;
    while (multiple % right != 0) {
        multiple += left;
    }
    return multiple;
}

uint32_t convoy_pipeline_shape_member(const struct convoy_pipeline_shape *shape, enum convoy_pipeline_role role,
                                      uint32_t request)
{
    uint32_t turn = request;
    uint32_t pairs = shape_common_multiple(shape->counts[0], shape->counts[1]);
    if (role == CONVOY_PIPELINE_DENOISER) {
        turn += request / pairs;
    } else if (role == CONVOY_PIPELINE_DECODER) {
        turn += request / (pairs * shape->counts[2]);
    }
    return shape_first(shape, role) + turn % shape->counts[role];
}

uint32_t convoy_pipeline_shape_share(const struct convoy_pipeline_shape *shape, uint32_t member, uint32_t requests)
{
    enum convoy_pipeline_role role = convoy_pipeline_shape_role(shape, member);
    uint32_t share = 0;
    for (uint32_t i = 0; i < requests; i++) {
        share += convoy_pipeline_shape_member(shape, role, i) == member;
    }
    return share;
}

uint32_t convoy_pipeline_shape_host(const struct convoy_pipeline_shape *shape, uint32_t member)
{
    enum convoy_pipeline_role role = convoy_pipeline_shape_role(shape, member);
    return role == CONVOY_PIPELINE_DENOISER ? (member - shape_first(shape, role)) % 2 : role == CONVOY_PIPELINE_DECODER;
}

const char *convoy_pipeline_role_name(enum convoy_pipeline_role role)
{
    static const char *const names[CONVOY_PIPELINE_ROLES] = {"encoder", "denoiser", "decoder"};
    return names[role];
}

const char *convoy_pipeline_shape_name(const struct convoy_pipeline_shape *shape, uint32_t member,
                                       char text_out[CONVOY_PIPELINE_NAME_BYTES])
{
    enum convoy_pipeline_role role = convoy_pipeline_shape_role(shape, member);
    (void)snprintf(text_out, CONVOY_PIPELINE_NAME_BYTES, "%s %u", convoy_pipeline_role_name(role),
                   member - shape_first(shape, role));
    return text_out;
}
