/* SPDX-License-Identifier: Apache-2.0 */
/* A verdict as text and as JSON. */
#include "cli/compat.h"

#include "core/status.h"

#include <jansson.h>
#include <string.h>

#define RANGE_BYTES 32

static const char *range_text(const struct convoy_version_range *range, char text[RANGE_BYTES])
{
    if (range->max.major == 0 && range->max.minor == 0) {
        return "none";
    }
    (void)snprintf(text, RANGE_BYTES, "%u.%u to %u.%u", range->min.major, range->min.minor, range->max.major,
                   range->max.minor);
    return text;
}

static void print_side(FILE *out, const char *which, const struct convoy_compat_side *side)
{
    (void)fprintf(out, "%s  %s", which, side->text);
    if (!side->is_host) {
        (void)fprintf(out, ": release %s, ", side->file.release);
        if (side->file.build_id[0] != '\0') {
            (void)fprintf(out, "build %.12s, ", side->file.build_id);
        }
        (void)fprintf(out, "wire %u to %u, state ", side->file.wire_min, side->file.wire_max);
        if (side->file.state_max != 0) {
            (void)fprintf(out, "%u to %u", side->file.state_min, side->file.state_max);
        } else {
            (void)fprintf(out, "none");
        }
    }
    (void)fprintf(out, "\n");
}

/* What is gone when an older minor is used than A could. */
static void print_lost(FILE *out, const struct convoy_compat_family *family)
{
    if (!family->is_lost_known) {
        (void)fprintf(out, "; what %u.%u has beyond it is not known here, and answers UNSUPPORTED",
                      family->wanted.max.major, family->wanted.max.minor);
        return;
    }
    if (family->lost.count == 0) {
        (void)fprintf(out, "; no function is lost");
        return;
    }
    (void)fprintf(out, "; UNSUPPORTED:");
    for (uint32_t i = 0; i < family->lost.count; i++) {
        (void)fprintf(out, "%s %s", i == 0 ? "" : ",", family->lost.names[i]);
    }
}

static void print_family(FILE *out, const struct convoy_compat_family *family)
{
    char wanted[RANGE_BYTES];
    char offered[RANGE_BYTES];
    (void)fprintf(out, "%-10s %-13s %-13s ", family->name, range_text(&family->wanted, wanted),
                  range_text(&family->result.offered, offered));
    if (family->result.status != CONVOY_OK) {
        (void)fprintf(out, "refused, %s", convoy_status_name(family->result.status));
    } else {
        (void)fprintf(out, "%u.%u", family->result.agreed.major, family->result.agreed.minor);
    }
    if (family->is_lower) {
        print_lost(out, family);
    }
    (void)fprintf(out, "\n");
}

static uint32_t count_refused(const struct convoy_compat_verdict *verdict, bool *core_out)
{
    uint32_t count = 0;
    *core_out = false;
    for (uint32_t i = 0; i < verdict->family_count; i++) {
        if (verdict->families[i].result.status != CONVOY_OK) {
            count++;
            *core_out = *core_out || strcmp(verdict->families[i].name, "core") == 0;
        }
    }
    return count;
}

static void print_host_end(FILE *out, const struct convoy_compat_verdict *verdict)
{
    bool is_core = false;
    uint32_t refused = count_refused(verdict, &is_core);
    if (refused == 0) {
        (void)fprintf(out, "works: the host gets every family that it asks for\n");
        return;
    }
    for (uint32_t i = 0; i < verdict->family_count; i++) {
        if (verdict->families[i].result.status != CONVOY_OK) {
            (void)fprintf(out, "refused: %s\n", verdict->families[i].result.reason);
        }
    }
    (void)fprintf(out, is_core ? "does not work: without core the plugin is not loaded\n"
                               : "works in part: a host that does not insist on it loads the plugin, and every function "
                                 "of a refused family answers UNSUPPORTED\n");
}

static void print_swap_end(FILE *out, const struct convoy_file_info *a, const struct convoy_file_info *b,
                           const struct convoy_compat_verdict *verdict)
{
    bool is_core = false;
    uint32_t refused = count_refused(verdict, &is_core);
    if (verdict->has_wire) {
        (void)fprintf(out, "wire: peers that run A and B talk at version %u\n", verdict->wire);
    } else {
        (void)fprintf(out, "wire: refused, A has %u to %u and B has %u to %u: they cannot be in one group\n",
                      a->wire_min, a->wire_max, b->wire_min, b->wire_max);
    }
    if (refused != 0) {
        (void)fprintf(out, "swap: refused, B lacks %u of the families that A serves\n", refused);
    }
    if (!verdict->has_move) {
        (void)fprintf(out, "swap: refused, A and B share no version of family move\n");
    }
    if (!verdict->has_state) {
        (void)fprintf(out, "swap: refused, A writes state format %u and B reads %u to %u\n", a->state_max, b->state_min,
                      b->state_max);
    }
    if (refused == 0 && verdict->has_move && verdict->has_state) {
        (void)fprintf(out, "swap: B takes over from A in a running host%s\n",
                      verdict->is_same_build ? "; it is the same build" : "");
        (void)fprintf(out, "back: %s\n", verdict->has_way_back ? "A takes over from B again"
                                                              : "no, A does not read what B writes");
    }
}

void convoy_compat_print(FILE *out, const struct convoy_compat_side *a, const struct convoy_compat_side *b,
                         const struct convoy_compat_verdict *verdict)
{
    print_side(out, "A", a);
    print_side(out, "B", b);
    (void)fprintf(out, "\n%-10s %-13s %-13s %s\n", "family", verdict->is_swap ? "A serves" : "host asks",
                  verdict->is_swap ? "B serves" : "plugin has", "agreed");
    for (uint32_t i = 0; i < verdict->family_count; i++) {
        print_family(out, &verdict->families[i]);
    }
    (void)fprintf(out, "\n");
    if (verdict->is_swap) {
        print_swap_end(out, &a->file, &b->file, verdict);
    } else {
        print_host_end(out, verdict);
    }
}

/* -- JSON ----------------------------------------------------------------------------------------------------------- */

static json_t *side_json(const struct convoy_compat_side *side)
{
    const char *kind = side->is_host ? "host" : side->is_release ? "release" : "plugin";
    json_t *object = json_pack("{s:s, s:s}", "given", side->text, "kind", kind);
    json_t *more = side->is_host
                       ? json_object()
                       : json_pack("{s:s, s:s, s:[ii], s:[ii]}", "release", side->file.release, "build_id",
                                   side->file.build_id, "wire", (int)side->file.wire_min, (int)side->file.wire_max,
                                   "state", (int)side->file.state_min, (int)side->file.state_max);
    if (more == NULL || json_object_update(object, more) != 0) {
        json_decref(object);
        object = NULL;
    }
    json_decref(more);
    return object;
}

static json_t *version_json(struct convoy_version version)
{
    return json_pack("[ii]", (int)version.major, (int)version.minor);
}

static json_t *family_json(const struct convoy_compat_family *family)
{
    bool is_agreed = family->result.status == CONVOY_OK;
    json_t *lost = family->is_lost_known ? json_array() : json_null();
    for (uint32_t i = 0; family->is_lost_known && i < family->lost.count; i++) {
        (void)json_array_append_new(lost, json_string(family->lost.names[i]));
    }
    return json_pack("{s:s, s:s, s:[oo], s:[oo], s:o, s:b, s:o, s:s}", "name", family->name, "status",
                     convoy_status_name(family->result.status), "asked", version_json(family->wanted.min),
                     version_json(family->wanted.max), "offered", version_json(family->result.offered.min),
                     version_json(family->result.offered.max), "agreed",
                     is_agreed ? version_json(family->result.agreed) : json_null(), "is_lower", (int)family->is_lower,
                     "lost", lost, "reason", family->result.reason);
}

bool convoy_compat_print_json(FILE *out, const struct convoy_compat_side *a, const struct convoy_compat_side *b,
                              const struct convoy_compat_verdict *verdict)
{
    json_t *families = json_array();
    for (uint32_t i = 0; i < verdict->family_count; i++) {
        (void)json_array_append_new(families, family_json(&verdict->families[i]));
    }
    json_t *wire = verdict->has_wire ? json_integer((json_int_t)verdict->wire) : json_null();
    json_t *swap = !verdict->is_swap ? json_null()
                                     : json_pack("{s:o, s:b, s:b, s:b, s:b}", "wire", wire, "move",
                                                 (int)verdict->has_move, "state", (int)verdict->has_state, "back",
                                                 (int)verdict->has_way_back, "same_build", (int)verdict->is_same_build);
    if (!verdict->is_swap) {
        json_decref(wire);
    }
    json_t *all = json_pack("{s:b, s:o, s:o, s:o, s:o}", "works", (int)verdict->works, "a", side_json(a), "b",
                            side_json(b), "families", families, "peers", swap);
    bool is_written = all != NULL && json_dumpf(all, out, JSON_INDENT(2)) == 0 && fputc('\n', out) != EOF;
    json_decref(all);
    return is_written;
}
