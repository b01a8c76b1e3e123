/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiny plugins for tests of the loader: the same source built once per kind, by -DTINY_<kind>.
 *   good, good_b      two builds of a plugin whose slots work and do nothing
 *   no_entry          convoy's note, but no convoy_query          no_note     the reverse
 *   too_new           offers core 2.0 only                        bad_json    a manifest that is no JSON
 *   short_table       tables end after their first slot           init_fails  its query fails
 *   extra_slots       tables longer than any header               refuses     offers core, and its query refuses it
 *   no_table          its query agrees and gives no table         needs_gone  linked to a library that does not exist
 */
#define CONVOY_BUILDING 1
#include "convoy/convoy.h"

#include <string.h>

#if defined(TINY_too_new)
#define CORE_VERSION "2.0"
#else
#define CORE_VERSION "1.0"
#endif
#if defined(TINY_good_b)
#define RELEASE "1.0.1"
#else
#define RELEASE "1.0.0"
#endif
#if defined(TINY_bad_json)
#define MANIFEST "{\"schema\":1,"
#else
#define MANIFEST                                                                                                       \
    "{\"schema\":1,\"name\":\"tiny\",\"release\":\"" RELEASE "\",\"families\":[{\"name\":\"core\","                    \
    "\"min\":\"" CORE_VERSION "\",\"max\":\"" CORE_VERSION "\"},"                                                      \
    "{\"name\":\"poll\",\"min\":\"1.0\",\"max\":\"1.0\"}],"                                                            \
    "\"wire\":{\"min\":1,\"max\":1},\"ucx\":\"none\",\"unload\":\"nodelete\"}"
#endif

#define ROUND_UP_4(n) (((n) + 3u) & ~3u)

#if !defined(TINY_no_note)
__attribute__((used, section(".note.convoy"), aligned(4))) static const struct {
    uint32_t owner_bytes;
    uint32_t text_bytes;
    uint32_t type;
    char owner[8];
    char text[ROUND_UP_4(sizeof MANIFEST)];
} manifest_note = {sizeof CONVOY_NOTE_OWNER, sizeof manifest_note.text, CONVOY_NOTE_MANIFEST, CONVOY_NOTE_OWNER,
                   MANIFEST};

__attribute__((used, section(".note.convoy"), aligned(4))) static const struct {
    uint32_t owner_bytes;
    uint32_t digest_bytes;
    uint32_t type;
    char owner[8];
    uint32_t digest[2];
} digest_note = {sizeof CONVOY_NOTE_OWNER, 8, CONVOY_NOTE_DIGEST, CONVOY_NOTE_OWNER, {0, 0}};
#endif

#if defined(TINY_needs_gone)
int tiny_gone(void);
int tiny_use_gone(void);
int tiny_use_gone(void)
{
    return tiny_gone();
}
#endif

#if !defined(TINY_no_entry)

static int tiny_object;

static int32_t context_open(const struct convoy_context_config *config, convoy_context **context_out,
                            struct convoy_error *error)
{
    (void)config;
    (void)error;
    *context_out = (convoy_context *)(void *)&tiny_object;
    return CONVOY_OK;
}

static int32_t context_close(convoy_context *context, uint64_t timeout_ns, struct convoy_error *error)
{
    (void)error;
    if (context != (convoy_context *)(void *)&tiny_object) {
        return CONVOY_INVARIANT;
    }
    return timeout_ns == 1 ? CONVOY_DRAIN_TIMEOUT : CONVOY_OK; /* a test can ask for the failure */
}

static int32_t group_open(convoy_context *context, const struct convoy_group_options *options, convoy_group **group_out,
                          struct convoy_error *error)
{
    (void)error;
    if (context != (convoy_context *)(void *)&tiny_object || options == NULL) {
        return CONVOY_INVALID_ARGUMENT;
    }
    *group_out = (convoy_group *)(void *)&tiny_object;
    return CONVOY_OK;
}

static int32_t group_close(convoy_group *group, uint64_t timeout_ns, struct convoy_error *error)
{
    (void)timeout_ns;
    (void)error;
    return group == (convoy_group *)(void *)&tiny_object ? CONVOY_OK : CONVOY_INVARIANT;
}

static int32_t reduce(convoy_group *group, const struct convoy_poll_call *call, uint64_t timeout_ns,
                      struct convoy_poll_result *result_out, struct convoy_error *error)
{
    (void)call;
    (void)timeout_ns;
    (void)result_out;
    (void)error;
    return group == (convoy_group *)(void *)&tiny_object ? CONVOY_OK : CONVOY_INVARIANT;
}

#if defined(TINY_short_table)
#define TABLE_BYTES(tag, slot) (offsetof(struct tag, slot) + sizeof(void (*)(void)))
#elif defined(TINY_extra_slots)
#define TABLE_BYTES(tag, slot) (sizeof(struct tag) + 64)
#else
#define TABLE_BYTES(tag, slot) sizeof(struct tag)
#endif

/* Some slots stay NULL, which no real plugin does: the loader must not hand that on. */
static const struct {
    struct convoy_core_table table;
    uint64_t extra[8];
} core = {.table = {.header = {(uint32_t)TABLE_BYTES(convoy_core_table, context_open), 1, 0},
                    .context_open = context_open,
                    .context_close = context_close,
                    .group_open = group_open,
                    .group_open_start = group_open,
                    .group_close = group_close}};

static const struct {
    struct convoy_poll_table table;
    uint64_t extra[8];
} poll = {.table = {.header = {(uint32_t)TABLE_BYTES(convoy_poll_table, reduce_start), 1, 0}, .reduce = reduce}};

static void answer(const struct convoy_family_request *request, struct convoy_family_answer *answer_out)
{
    const struct convoy_table_header *table = NULL;
    if (request->name_length == 4 && memcmp(request->name, "core", 4) == 0) {
        table = &core.table.header;
    } else if (request->name_length == 4 && memcmp(request->name, "poll", 4) == 0) {
        table = &poll.table.header;
    }
    memset(answer_out, 0, sizeof *answer_out);
    answer_out->status = table != NULL ? CONVOY_OK : CONVOY_UNSUPPORTED;
    answer_out->table = table;
    answer_out->major = table != NULL;
#if defined(TINY_refuses)
    *answer_out = (struct convoy_family_answer){.status = CONVOY_TOO_OLD, .reason = "changed its mind"};
#elif defined(TINY_no_table)
    answer_out->table = NULL;
#endif
}

int32_t convoy_query(const struct convoy_host_info *host, struct convoy_plugin_info *plugin_out,
                     struct convoy_error *error)
{
    (void)error;
#if defined(TINY_init_fails)
    return CONVOY_INIT_FAILED;
#endif
    for (size_t i = 0; i < host->family_count; i++) {
        answer(&host->families[i], &plugin_out->answers[i]);
    }
    plugin_out->answer_count = host->family_count;
    plugin_out->release = RELEASE;
    plugin_out->release_length = sizeof RELEASE - 1;
    return CONVOY_OK;
}

#endif
