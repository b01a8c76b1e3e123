/* SPDX-License-Identifier: Apache-2.0 */
/* Admission in words, for whoever is refused or has waited in vain. */
#include "core/clock.h"
#include "xfer/admission.h"
#include "xfer/parts.h"

#include <inttypes.h>
#include <stdio.h>

#define SIZE_TEXT_BYTES 32u

static const char *size_text(uint64_t bytes, char *text)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"};
    uint32_t unit = 0;
    while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1024;
        unit++;
    }
    (void)snprintf(text, SIZE_TEXT_BYTES, "%" PRIu64 " %s", bytes, units[unit]);
    return text;
}

void convoy_admission_text(const struct convoy_admission_load *load, struct convoy_admission_limit limit,
                           char text[CONVOY_ADMISSION_TEXT_BYTES])
{
    char sizes[2][SIZE_TEXT_BYTES];
    char counts[16] = "";
    if (limit.count != 0) {
        (void)snprintf(counts, sizeof counts, " of %u", limit.count);
    }
    (void)snprintf(text, CONVOY_ADMISSION_TEXT_BYTES, "%u%s are under way with %s%s%s", load->under_way, counts,
                   size_text(load->under_way_bytes, sizes[0]), limit.bytes != 0 ? " of " : "",
                   limit.bytes != 0 ? size_text(limit.bytes, sizes[1]) : "");
}

/* Those in front of it, at the same peer or at all. */
static uint32_t count_before(const struct convoy_xfer *engine, const struct convoy_xfer_entry *send, bool is_for_peer)
{
    uint32_t count = 0;
    for (uint32_t at = engine->active_first; at != CONVOY_XFER_NOBODY; at = engine->entries[at].next) {
        const struct convoy_xfer_entry *other = &engine->entries[at];
        count += other->place == CONVOY_XFER_PLACE_WAITING && (!is_for_peer || other->peer == send->peer) &&
                 other != send && convoy_waiting_is_before(&other->wait, &send->wait, engine->admission.limits.age_ns);
    }
    return count;
}

void convoy_xfer_admission_why(const struct convoy_xfer *engine, const struct convoy_xfer_entry *send,
                               char text[CONVOY_ADMISSION_WHY_BYTES])
{
    const struct convoy_xfer_admission *own = &engine->admission;
    const struct convoy_xfer_peer *peer = &engine->peers[send->peer];
    const struct convoy_admission_limit limit = convoy_admission_of_peer(own);
    bool is_for_peer = !convoy_admission_fits(&peer->admission.load, limit, send->payload_bytes);
    bool is_for_engine = !convoy_admission_fits(&own->load, convoy_admission_of_engine(own), send->payload_bytes);
    uint64_t waited_ms = (convoy_now_ns() - send->wait.since_ns) / CONVOY_NS_PER_MS;
    char figures[CONVOY_ADMISSION_TEXT_BYTES];
    if (!is_for_peer && !is_for_engine) { /* what it waited behind has ended in the same look */
        (void)snprintf(text, CONVOY_ADMISSION_WHY_BYTES, "it waited %" PRIu64 " ms for room, which came no sooner than this",
                       waited_ms);
        return;
    }
    convoy_admission_text(is_for_peer ? &peer->admission.load : &own->load,
                          is_for_peer ? limit : convoy_admission_of_engine(own), figures);
    (void)snprintf(text, CONVOY_ADMISSION_WHY_BYTES, "it waited %" PRIu64 " ms behind %u for room of its %s; %s%s%s", waited_ms,
                   count_before(engine, send, is_for_peer), is_for_peer ? "peer" : "engine", figures, is_for_peer ? " to " : "",
                   is_for_peer ? peer->session : "");
}
