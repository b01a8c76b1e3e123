/* SPDX-License-Identifier: Apache-2.0 */
#include "round/partial.h"

#define PARTIAL_NOBODY UINT32_MAX

void convoy_partial_from_pass(struct convoy_partial_head *head, const struct convoy_engine *engine,
                              const struct convoy_round_pass *pass)
{
    bool has_error = pass->error_member < engine->member_count;
    *head = (struct convoy_partial_head){
        .fingerprint = engine->reference, /* 0: nothing but error rows */
        .tag_min = pass->tag_min,
        .tag_max = pass->tag_max,
        .votes_and = pass->votes_and,
        .votes_or = pass->votes_or,
        .flags = pass->diverged_member < engine->member_count ? CONVOY_PARTIAL_MIXED : 0,
        .status = pass->merge_status,
        .culprit = pass->merge_status != CONVOY_OK ? pass->bad_member : PARTIAL_NOBODY,
        .error_member = has_error ? pass->error_member : PARTIAL_NOBODY,
        .error_reason = pass->error_reason,
        .lost_count = pass->lost_count,
    };
}

static void partial_combine_failure(struct convoy_partial_head *into, const struct convoy_partial_head *other)
{
    bool into_failed = (into->flags & CONVOY_PARTIAL_FAILED) != 0;
    bool other_failed = (other->flags & CONVOY_PARTIAL_FAILED) != 0;
    bool takes_other;
    if (into_failed != other_failed) {
        takes_other = other_failed;
    } else if (into->status == CONVOY_OK || other->status == CONVOY_OK) {
        takes_other = into->status == CONVOY_OK;
    } else { /* both went wrong: a loss before an abandon, then the lower member, so that all hosts say the same */
        bool same_kind = into->status == other->status;
        takes_other = same_kind ? other->culprit < into->culprit : other->status == CONVOY_PEER_LOST;
    }
    if (takes_other) {
        into->status = other->status;
        into->culprit = other->culprit;
    }
}

void convoy_partial_combine(struct convoy_partial_head *into, const struct convoy_partial_head *other)
{
    bool is_failure = ((into->flags | other->flags) & CONVOY_PARTIAL_FAILED) != 0;
    if (into->fingerprint == 0) {
        into->fingerprint = other->fingerprint;
    } else if (other->fingerprint != 0 && into->fingerprint != other->fingerprint && !is_failure) {
        into->flags |= CONVOY_PARTIAL_MIXED;
    }
    if (other->tag_max != 0) {
        into->tag_min = into->tag_min == 0 || other->tag_min < into->tag_min ? other->tag_min : into->tag_min;
        into->tag_max = other->tag_max > into->tag_max ? other->tag_max : into->tag_max;
    }
    into->votes_and &= other->votes_and;
    into->votes_or |= other->votes_or;
    into->lost_count += other->lost_count;
    partial_combine_failure(into, other);
    into->flags |= other->flags;
    if (other->error_member < into->error_member) {
        into->error_member = other->error_member;
        into->error_reason = other->error_reason;
    }
}

bool convoy_partial_is_diverged(const struct convoy_partial_head *head)
{
    return (head->flags & CONVOY_PARTIAL_MIXED) != 0 || head->tag_min != head->tag_max;
}

bool convoy_partial_read(struct convoy_partial_head *head, const uint8_t *bytes, size_t length, uint32_t member_count)
{
    if (length < sizeof *head) {
        return false;
    }
    memcpy(head, bytes, sizeof *head);
    size_t rest = length - sizeof *head;
    bool is_culprit_known = head->culprit == PARTIAL_NOBODY || head->culprit < member_count;
    bool is_error_known = head->error_member == PARTIAL_NOBODY || head->error_member < member_count;
    size_t rows = (size_t)head->row_count * sizeof(struct convoy_partial_row);
    return is_culprit_known && is_error_known && head->row_count <= member_count &&
           (head->row_count != 0 ? rows == rest && head->payload_bytes == 0 : head->payload_bytes == rest);
}
