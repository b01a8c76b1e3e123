/* SPDX-License-Identifier: Apache-2.0 */
/* The verdicts. All are made by core/negotiate.h, as the loader, the plugin's query and two peers' hellos make theirs. */
#include "cli/compat.h"

#include <string.h>

/* One family that is asked for, against all majors of it that the plugin offers. */
static void judge_family(struct convoy_compat_family *family, const struct convoy_file_info *plugin, const char *folder)
{
    struct convoy_version_range offers[CONVOY_LOADER_FAMILIES_MAX];
    size_t count = 0;
    for (uint32_t i = 0; i < plugin->family_count; i++) {
        const struct convoy_file_family *row = &plugin->families[i];
        if (strcmp(row->name, family->name) == 0) {
            offers[count++] =
                (struct convoy_version_range){{row->major_min, row->minor_min}, {row->major_max, row->minor_max}};
        }
    }
    convoy_negotiate(family->name, strlen(family->name), &family->wanted, offers, count, &family->result);
    struct convoy_version agreed = family->result.agreed;
    family->is_lower = family->result.status == CONVOY_OK && (agreed.major != family->wanted.max.major ||
                                                              agreed.minor != family->wanted.max.minor);
    family->is_lost_known = family->is_lower && convoy_compat_slots_lost(folder, family->name, family->wanted.max,
                                                                         agreed, &family->lost);
}

/* Each family of `asks` once, from its lowest to its highest version. */
static void judge_families(const struct convoy_file_info *asks, const struct convoy_file_info *plugin,
                           const char *folder, struct convoy_compat_verdict *verdict)
{
    for (uint32_t i = 0; i < asks->family_count; i++) {
        const struct convoy_file_family *row = &asks->families[i];
        struct convoy_compat_family *last =
            verdict->family_count != 0 ? &verdict->families[verdict->family_count - 1] : NULL;
        if (last != NULL && strcmp(last->name, row->name) == 0) {
            last->wanted.max = (struct convoy_version){row->major_max, row->minor_max};
            continue;
        }
        struct convoy_compat_family *family = &verdict->families[verdict->family_count++];
        memcpy(family->name, row->name, sizeof family->name);
        family->wanted.min = (struct convoy_version){row->major_min, row->minor_min};
        family->wanted.max = (struct convoy_version){row->major_max, row->minor_max};
    }
    for (uint32_t i = 0; i < verdict->family_count; i++) {
        judge_family(&verdict->families[i], plugin, folder);
        verdict->works = verdict->works && verdict->families[i].result.status == CONVOY_OK;
    }
}

/* The writer writes its highest format. 0 is no format. */
static bool judge_state(const struct convoy_file_info *writer, const struct convoy_file_info *reader)
{
    const struct convoy_number_range written = {writer->state_max, writer->state_max};
    const struct convoy_number_range read = {reader->state_min, reader->state_max};
    uint32_t agreed = 0;
    return convoy_negotiate_number(&written, &read, &agreed) && agreed != 0;
}

static void judge_swap(const struct convoy_file_info *a, const struct convoy_file_info *b,
                       struct convoy_compat_verdict *verdict)
{
    const struct convoy_number_range one = {a->wire_min, a->wire_max};
    const struct convoy_number_range other = {b->wire_min, b->wire_max};
    verdict->has_wire = convoy_negotiate_number(&one, &other, &verdict->wire);
    verdict->is_same_build = a->build_id[0] != '\0' && strcmp(a->build_id, b->build_id) == 0;
    for (uint32_t i = 0; i < verdict->family_count; i++) {
        const struct convoy_compat_family *family = &verdict->families[i];
        verdict->has_move =
            verdict->has_move || (strcmp(family->name, "move") == 0 && family->result.status == CONVOY_OK);
    }
    verdict->has_state = judge_state(a, b);
    verdict->has_way_back = judge_state(b, a);
    verdict->works = verdict->works && verdict->has_wire && verdict->has_move && verdict->has_state;
}

void convoy_compat_judge(const struct convoy_compat_side *a, const struct convoy_compat_side *b, const char *folder,
                         struct convoy_compat_verdict *verdict_out)
{
    memset(verdict_out, 0, sizeof *verdict_out);
    verdict_out->works = true;
    verdict_out->is_swap = !a->is_host && !b->is_host;
    const struct convoy_compat_side *asks = b->is_host ? b : a;
    const struct convoy_compat_side *plugin = b->is_host ? a : b;
    judge_families(&asks->file, &plugin->file, folder, verdict_out);
    if (verdict_out->is_swap) {
        judge_swap(&a->file, &b->file, verdict_out);
    }
}
