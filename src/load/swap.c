/* SPDX-License-Identifier: Apache-2.0 */
/* A swap from its first phase to its last, and what is said about it. */
#include "load/swap.h"

#include "core/clock.h"
#include "core/memory.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 768

/* -- phases -------------------------------------------------------------------------------------------------------- */

#define TO(phase) (1u << CONVOY_SWAP_##phase)

/* The only ways from one phase to the next. */
static const uint32_t edges[CONVOY_SWAP_PHASES] = {
    [CONVOY_SWAP_IDLE] = TO(LOADING),
    [CONVOY_SWAP_LOADING] = TO(PREPARING) | TO(UNDOING),
    [CONVOY_SWAP_PREPARING] = TO(QUIESCING) | TO(UNDOING),
    [CONVOY_SWAP_QUIESCING] = TO(EXPORTING) | TO(UNDOING),
    [CONVOY_SWAP_EXPORTING] = TO(IMPORTING) | TO(UNDOING),
    [CONVOY_SWAP_IMPORTING] = TO(RESUMING) | TO(UNDOING),
    [CONVOY_SWAP_RESUMING] = TO(SWITCHING) | TO(UNDOING),
    [CONVOY_SWAP_SWITCHING] = TO(RETIRING),
    [CONVOY_SWAP_RETIRING] = TO(DONE),
    [CONVOY_SWAP_UNDOING] = TO(FAILED),
};

bool convoy_swap_may(uint32_t from, uint32_t to)
{
    return from < CONVOY_SWAP_PHASES && to < CONVOY_SWAP_PHASES && (edges[from] >> to & 1u) != 0;
}

const char *convoy_swap_phase_name(uint32_t phase)
{
    static const char *const names[CONVOY_SWAP_PHASES] = {"idle",      "loading",  "preparing", "quiescing",
                                                          "exporting", "importing", "resuming",  "switching",
                                                          "retiring",  "done",     "undoing",   "failed"};
    return phase < CONVOY_SWAP_PHASES ? names[phase] : "unknown";
}

/* Once one context is the new build's there is no undoing: its peers' values are in the new build's hands. */
static int32_t enter(struct convoy_swap *swap, uint32_t phase)
{
    bool is_committed = phase == CONVOY_SWAP_UNDOING && swap->entry_count != 0 && swap->entries[0].is_resumed;
    if (!convoy_swap_may(swap->phase, phase) || is_committed) {
        return convoy_error_set(&swap->error, CONVOY_INVARIANT, "a swap went from %s to %s",
                                convoy_swap_phase_name(swap->phase), convoy_swap_phase_name(phase));
    }
    swap->phase = phase;
    return CONVOY_OK;
}

typedef int32_t (*phase_fn)(struct convoy_swap *swap);

static const phase_fn phases[] = {
    [CONVOY_SWAP_LOADING] = convoy_swap_load,       [CONVOY_SWAP_PREPARING] = convoy_swap_prepare,
    [CONVOY_SWAP_QUIESCING] = convoy_swap_quiesce,  [CONVOY_SWAP_EXPORTING] = convoy_swap_export,
    [CONVOY_SWAP_IMPORTING] = convoy_swap_import,   [CONVOY_SWAP_RESUMING] = convoy_swap_resume,
    [CONVOY_SWAP_SWITCHING] = convoy_swap_switch,   [CONVOY_SWAP_RETIRING] = convoy_swap_retire,
};

static int32_t run(struct convoy_swap *swap)
{
    int32_t status = CONVOY_OK;
    for (uint32_t phase = CONVOY_SWAP_LOADING; status == CONVOY_OK && phase <= CONVOY_SWAP_RETIRING; phase++) {
        uint64_t begun_ns = convoy_now_ns();
        status = enter(swap, phase);
        if (status == CONVOY_OK) {
            swap->result.phase = phase;
            status = phases[phase](swap);
        }
        swap->took_ns[phase] = convoy_now_ns() - begun_ns;
    }
    if (status == CONVOY_OK) {
        status = enter(swap, CONVOY_SWAP_DONE);
    }
    if (status == CONVOY_OK && swap->half_status == CONVOY_OK) {
        swap->result.phase = CONVOY_SWAP_DONE;
        return CONVOY_OK;
    }
    if (status == CONVOY_OK) {
        swap->result.phase = CONVOY_SWAP_RESUMING;
        return swap->half_status;
    }
    (void)convoy_error_prefix(&swap->error, status, "%s", convoy_swap_phase_name(swap->result.phase));
    if (enter(swap, CONVOY_SWAP_UNDOING) == CONVOY_OK) {
        convoy_swap_undo(swap);
        (void)enter(swap, CONVOY_SWAP_FAILED);
    }
    return status;
}

/* -- what is said -------------------------------------------------------------------------------------------------- */

static void fill_result(struct convoy_swap *swap, uint64_t begun_ns)
{
    struct convoy_swap_result *result = &swap->result;
    for (size_t i = 0; i < swap->entry_count; i++) {
        const struct convoy_swap_entry *entry = &swap->entries[i];
        result->state_bytes += entry->state_bytes;
        result->context_count += entry->is_resumed;
        result->group_count += entry->is_resumed ? entry->group_count : 0;
        result->engine_count += entry->is_resumed ? entry->engine_count : 0;
    }
    result->load_ns = swap->took_ns[CONVOY_SWAP_LOADING];
    result->prepare_ns = swap->took_ns[CONVOY_SWAP_PREPARING];
    result->quiesce_ns = swap->took_ns[CONVOY_SWAP_QUIESCING];
    result->export_ns = swap->took_ns[CONVOY_SWAP_EXPORTING];
    result->import_ns = swap->took_ns[CONVOY_SWAP_IMPORTING];
    result->switch_ns = swap->took_ns[CONVOY_SWAP_RESUMING] + swap->took_ns[CONVOY_SWAP_SWITCHING];
    result->retire_ns = swap->took_ns[CONVOY_SWAP_RETIRING];
    result->total_ns = convoy_now_ns() - begun_ns;
}

static void say(const struct convoy_swap *swap, int32_t status)
{
    const struct convoy_requests *requests = &swap->loader->requests;
    const struct convoy_swap_result *result = &swap->result;
    uint32_t level = status == CONVOY_OK ? CONVOY_LOG_INFO : CONVOY_LOG_WARN;
    char line[LINE_BYTES];
    if (!convoy_requests_is_logged(requests, level)) {
        return;
    }
    int length = snprintf(line, sizeof line,
                          "swap %s phase %s from build %s release %s to build %s release %s contexts %u groups %u "
                          "engines %u late %u state_bytes %llu pause_ns %llu total_ns %llu",
                          status == CONVOY_OK ? "done" : "failed", convoy_swap_phase_name(result->phase),
                          result->from.build_id, result->from.release,
                          result->to.build_id[0] != '\0' ? result->to.build_id : "unknown",
                          result->to.release[0] != '\0' ? result->to.release : "unknown", result->context_count,
                          result->group_count, result->engine_count, result->late_count,
                          (unsigned long long)result->state_bytes, (unsigned long long)result->pause_ns,
                          (unsigned long long)result->total_ns);
    if (status != CONVOY_OK && length > 0 && (size_t)length < sizeof line) {
        (void)snprintf(line + length, sizeof line - (size_t)length, " status %d: %s", status, swap->error.text);
    }
    requests->log(requests->log_user, level, line, strlen(line));
}

/* -- the call ------------------------------------------------------------------------------------------------------ */

static int32_t refuse_early(const struct convoy_loader *loader, const char *path, struct convoy_error *error)
{
    if (loader == NULL || path == NULL) {
        return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "%s is NULL", loader == NULL ? "loader" : "path");
    }
    if (loader->gate.process != getpid()) {
        return convoy_error_set(error, CONVOY_FORKED, "this loader was inherited through fork; open a fresh one in this "
                                                      "process");
    }
    return CONVOY_OK;
}

static void free_swap(struct convoy_swap *swap)
{
    for (size_t i = 0; i < swap->entry_count; i++) {
        convoy_memory_table_free(swap->entries[i].state);
    }
    convoy_memory_free(swap->entries);
    convoy_memory_free(swap);
}

int32_t convoy_loader_swap(convoy_loader *loader, const char *path, uint64_t timeout_ns,
                           struct convoy_swap_result *result_out, struct convoy_error *error)
{
    int32_t status = refuse_early(loader, path, error);
    if (status != CONVOY_OK) {
        return status;
    }
    struct convoy_swap *swap = convoy_memory_zalloc(sizeof *swap);
    if (swap == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a swap");
    }
    *swap = (struct convoy_swap){.loader = loader,
                                 .path = path,
                                 .timeout_ns = timeout_ns != 0 ? timeout_ns : CONVOY_SWAP_TIMEOUT_NS,
                                 .error = CONVOY_ERROR_INIT};
    uint64_t begun_ns = convoy_now_ns();
    uint64_t last_ns = convoy_deadline_after(convoy_deadline_after(begun_ns, swap->timeout_ns), CONVOY_SWAP_OPEN_GRACE_NS);
    status = convoy_gate_swap_begin(&loader->gate, last_ns, error);
    if (status != CONVOY_OK) {
        convoy_memory_free(swap);
        return status;
    }
    status = run(swap);
    fill_result(swap, begun_ns);
    convoy_gate_swap_end(&loader->gate);
    say(swap, status);
    if (result_out != NULL) {
        *result_out = swap->result;
    }
    if (status != CONVOY_OK) {
        (void)convoy_error_copy(error, &swap->error);
    }
    free_swap(swap);
    return status;
}
