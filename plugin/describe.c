/* SPDX-License-Identifier: Apache-2.0 */
/* context_describe and group_describe: topics to texts. */
#include "context.h"
#include "group.h"
#include "text.h"

#include "core/memory.h"
#include "net/ucx.h"

#define DESCRIBE_SOURCES_MAX 1024u

/* Brings what only the engine counts up to date. The engine's life is guarded by the group's lock. */
static void describe_refresh(struct convoy_group *group)
{
    convoy_group_settle(group);
    (void)pthread_mutex_lock(&group->lock);
    if (convoy_group_has_engine(group) && group->record.stats != NULL) {
        const struct convoy_engine_counters *counters = convoy_engine_counters(group->engine);
        _Atomic uint64_t *events = group->record.stats->events;
        atomic_store(&events[CONVOY_EVENT_MEMBER_LOST], atomic_load(&counters->members_lost));
        atomic_store(&events[CONVOY_EVENT_SUCCESSION], atomic_load(&counters->successions));
        atomic_store(&events[CONVOY_EVENT_STALE_EPOCH], atomic_load(&counters->stale));
        uint64_t strangers = atomic_load(&group->context->runtime->stranger_count); /* of all its listeners */
        atomic_store(&events[CONVOY_EVENT_STRANGER], atomic_load(&counters->strange) + strangers);
    }
    (void)pthread_mutex_unlock(&group->lock);
}

static struct convoy_stats_source describe_source(const struct convoy_group *group)
{
    return (struct convoy_stats_source){
        .stats = group->record.stats,
        .group = group->options.name,
        .group_length = group->options.name_length,
        .rank = group->options.own_id,
    };
}

/* Counters move while the text is made: what was measured first may not do, hence the margin. */
static int32_t describe_prometheus(const struct convoy_stats_source *sources, size_t count,
                                   struct convoy_text_buffer *text_out, struct convoy_error *error)
{
    size_t room = convoy_stats_prometheus(sources, count, NULL, 0) + 4096;
    char *text = convoy_memory_zalloc(room);
    if (text == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for %zu bytes of text", room);
    }
    size_t length = convoy_stats_prometheus(sources, count, text, room);
    int32_t status = convoy_text_write(text_out, text, length < room ? length : room - 1, error);
    convoy_memory_free(text);
    return status;
}

static int32_t describe_unknown(uint32_t topic, struct convoy_error *error)
{
    return convoy_error_set(error, CONVOY_INVALID_ARGUMENT, "topic: %u is none of this object's topics", topic);
}

/* The groups of a context, newest first. */
static size_t describe_collect(struct convoy_context *context, struct convoy_stats_source *sources)
{
    size_t count = 0;
    (void)pthread_mutex_lock(&context->lock);
    for (struct convoy_group *group = context->groups; group != NULL && count < DESCRIBE_SOURCES_MAX;
         group = group->next) {
        describe_refresh(group);
        sources[count++] = describe_source(group);
    }
    (void)pthread_mutex_unlock(&context->lock);
    return count;
}

static int32_t describe_context_stats(struct convoy_context *context, uint32_t topic,
                                      struct convoy_text_buffer *text_out, struct convoy_error *error)
{
    struct convoy_stats_source *sources = convoy_memory_array(DESCRIBE_SOURCES_MAX, sizeof *sources);
    if (sources == NULL) {
        return convoy_error_set(error, CONVOY_NO_MEMORY, "no memory for a text");
    }
    size_t count = describe_collect(context, sources);
    int32_t status;
    if (topic == CONVOY_TOPIC_PROMETHEUS) {
        status = describe_prometheus(sources, count, text_out, error);
    } else {
        json_t *groups = json_array();
        for (size_t i = 0; i < count; i++) {
            (void)json_array_append_new(groups, convoy_stats_json(&sources[i]));
        }
        const struct convoy_runtime *runtime = context->runtime;
        json_t *out = json_pack("{s:i, s:I, s:I, s:o*}", "threads", (int)atomic_load(&runtime->thread_count), "strangers",
                                (json_int_t)atomic_load(&runtime->stranger_count), "refused",
                                (json_int_t)atomic_load(&runtime->refused_count), "groups", groups);
        status = convoy_text_write_json(text_out, out, error);
    }
    convoy_memory_free(sources);
    return status;
}

int32_t convoy_context_describe(convoy_context *context, uint32_t topic, struct convoy_text_buffer *text_out,
                                struct convoy_error *error)
{
    int32_t status = convoy_context_check_look(context, error);
    if (status != CONVOY_OK) {
        return status;
    }
    switch (topic) {
    case CONVOY_TOPIC_CONFIG:
        status = convoy_text_write_json(text_out, convoy_settings_describe(&context->runtime->settings), error);
        break;
    case CONVOY_TOPIC_NET:
        status = convoy_text_write_json(text_out, convoy_ucx_describe(context->runtime), error);
        break;
    case CONVOY_TOPIC_STATS:
    case CONVOY_TOPIC_PROMETHEUS:
        status = describe_context_stats(context, topic, text_out, error);
        break;
    default:
        status = describe_unknown(topic, error);
        break;
    }
    convoy_log_flush(&context->runtime->log);
    return status;
}

/* A group that has no engine (opening, failed, closed) still says what it is. */
static json_t *describe_dump(struct convoy_group *group)
{
    json_t *out = NULL;
    (void)pthread_mutex_lock(&group->lock);
    if (convoy_group_has_engine(group)) {
        out = convoy_engine_dump(group->engine);
    }
    (void)pthread_mutex_unlock(&group->lock);
    if (out != NULL) {
        return out;
    }
    static const char *const phases[] = {"opening", "open",   "failed", "closing",
                                         "closed",  "halted", "frozen", "moved"};
    return json_pack("{s:s%, s:s}", "group", group->options.name, group->options.name_length, "state",
                     phases[atomic_load(&group->phase)]);
}

/* The log of a closed group is gone: tombstones stay until their context is closed, and it is most of their memory. */
static json_t *describe_call_log(struct convoy_group *group)
{
    (void)pthread_mutex_lock(&group->lock);
    json_t *calls = group->record.log != NULL ? convoy_call_log_json(group->record.log) : json_array();
    (void)pthread_mutex_unlock(&group->lock);
    return calls;
}

int32_t convoy_group_describe(convoy_group *group, uint32_t topic, struct convoy_text_buffer *text_out,
                              struct convoy_error *error)
{
    if (group == NULL || convoy_handle_is_forked(group->alive) ||
        atomic_load(&group->phase) == CONVOY_PHASE_RETIRED) {
        return convoy_group_refuse(group, error);
    }
    if (topic == CONVOY_TOPIC_DUMP) {
        return convoy_text_write_json(text_out, describe_dump(group), error);
    }
    describe_refresh(group);
    const struct convoy_stats_source source = describe_source(group);
    switch (topic) {
    case CONVOY_TOPIC_STATS:
        return convoy_text_write_json(text_out, convoy_stats_json(&source), error);
    case CONVOY_TOPIC_PROMETHEUS:
        return describe_prometheus(&source, 1, text_out, error);
    case CONVOY_TOPIC_CALL_LOG:
        return convoy_text_write_json(text_out, describe_call_log(group), error);
    default:
        return describe_unknown(topic, error);
    }
}
