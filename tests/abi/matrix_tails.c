/* SPDX-License-Identifier: Apache-2.0 */
/* What a plugin makes of structs, flags and fields that are of another release than its own. */
#include "tests/abi/matrix.h"

/* A call with a struct that may be longer than its type. */
typedef int32_t (*tail_call)(void *object, const void *in);

struct tail_case {
    const char *name;
    tail_call call;
    void *object;
    const void *in; /* one that is accepted, of this release's size */
    uint32_t bytes;
};

static int32_t call_reduce(void *object, const void *in)
{
    struct convoy_poll_result result = {.struct_size = sizeof result};
    return convoy_host_reduce(object, in, MATRIX_WAIT_NS, &result, &matrix_error);
}

static int32_t call_gather(void *object, const void *in)
{
    struct convoy_sync_result result = {.struct_size = sizeof result};
    return convoy_host_gather(object, in, MATRIX_WAIT_NS, &result, &matrix_error);
}

static int32_t call_open(void *object, const void *in)
{
    convoy_host_group *group = NULL;
    int32_t status = convoy_host_group_open(object, in, &group, &matrix_error);
    if (status == CONVOY_OK) {
        matrix_need(convoy_host_group_close(group, MATRIX_WAIT_NS, &matrix_error), "group_close");
    }
    return status;
}

static int32_t call_stage(void *object, const void *in)
{
    convoy_transfer staged = 0;
    int32_t status = convoy_host_stage_start(object, in, &staged, &matrix_error);
    if (status == CONVOY_OK) {
        matrix_need(convoy_host_transfer_release(object, staged, &matrix_error), "release");
    }
    return status;
}

/* A peer that is not there: what a send says once its own struct was read. */
static int32_t call_send(void *object, const void *in)
{
    convoy_transfer transfer = 0;
    return convoy_host_send_start(object, NULL, in, &transfer, &matrix_error);
}

static int32_t call_load(void *object, const void *in)
{
    convoy_transfer transfer = 0;
    int32_t status = convoy_host_accept_start(object, in, &transfer, &matrix_error);
    if (status == CONVOY_OK) {
        matrix_need(convoy_host_transfer_release(object, transfer, &matrix_error), "release");
    }
    return status;
}

/* Whether the last error names an offset. */
static bool names(uint32_t offset)
{
    char words[32];
    (void)snprintf(words, sizeof words, "offset %u ", offset);
    return strstr(matrix_error.text, words) != NULL;
}

static void try_tail(const struct tail_case *test)
{
    _Alignas(16) uint8_t longer[1024] = {0};
    char name[64];
    const uint32_t whole = test->bytes + MATRIX_TAIL_BYTES;
    memcpy(longer, test->in, test->bytes);
    memcpy(longer, &whole, sizeof whole);
    (void)snprintf(name, sizeof name, "tail.%s", test->name);
    int32_t as_usual = test->call(test->object, test->in);
    int32_t with_zeros = test->call(test->object, longer);
    longer[test->bytes + MATRIX_TAIL_AT] = 1;
    int32_t with_more = test->call(test->object, longer);
    bool is_named = with_more == CONVOY_TOO_NEW && names(test->bytes + MATRIX_TAIL_AT);
    matrix_same(name, "as usual %d, zeros %d, more %d %s", as_usual, with_zeros, with_more,
                is_named ? "at its offset" : "without its offset");
}

/* The field that the next release has at the end: what a plugin that has it does, and one that has not. */
static void try_field(const struct tail_case *test)
{
#ifdef CONVOY_TRIAL_SEEN
    _Alignas(16) uint8_t given[1024] = {0};
    char name[64];
    const uint32_t at = test->bytes - (uint32_t)sizeof(uint64_t);
    const uint64_t count = 5;
    const uint64_t refuse = CONVOY_TRIAL_REFUSE;
    memcpy(given, test->in, test->bytes);
    int32_t zero = test->call(test->object, given);
    memcpy(given + at, &count, sizeof count);
    int32_t set = test->call(test->object, given);
    bool is_named = set != CONVOY_TOO_NEW || names(at);
    memcpy(given + at, &refuse, sizeof refuse);
    int32_t refused = test->call(test->object, given);
    (void)snprintf(name, sizeof name, "field.%s", test->name);
    matrix_seen(name, "%s %s", set == zero ? "taken" : set == CONVOY_TOO_NEW && is_named ? "too new" : "wrong",
                refused == CONVOY_TRIAL_REFUSED ? "refused" : refused == CONVOY_TOO_NEW ? "too new" : "wrong");
#else
    (void)test;
#endif
}

static void try_flags(convoy_host_context *context, const struct convoy_group_options *usual)
{
    struct convoy_group_options options = *usual;
    options.hint_flags = 0x80000000u;
    matrix_same("flag.hint", "%d", call_open(context, &options));
    options = *usual;
    options.critical_flags = 0x80000000u;
    matrix_same("flag.critical", "%d", call_open(context, &options));
#ifdef CONVOY_TRIAL_SEEN
    options = *usual;
    options.critical_flags = CONVOY_GROUP_TRIAL;
    matrix_seen("flag.new_critical", "%d", call_open(context, &options));
    options = *usual;
    options.hint_flags = CONVOY_GROUP_TRIAL_HINT;
    matrix_seen("flag.new_hint", "%d", call_open(context, &options));
#endif
}

#ifdef CONVOY_TRIAL_SEEN
#define TRY_SLOT(family)                                                                                               \
    do {                                                                                                               \
        uint32_t answer = 0;                                                                                           \
        int32_t status = convoy_host_##family##_trial(loader, 21, &answer, &matrix_error);                             \
        matrix_seen("slot." #family, "%d %u", status, answer);                                                         \
    } while (0)

static void try_new(convoy_loader *loader)
{
    const void *table = convoy_loader_table(loader, "x-trial");
    const struct convoy_trial_table *trial = table;
    TRY_SLOT(core);
    TRY_SLOT(poll);
    TRY_SLOT(sync);
    TRY_SLOT(transfer);
    TRY_SLOT(move);
    for (uint32_t kind = 0; kind < CONVOY_TRIAL_KINDS && trial != NULL; kind++) {
        uint64_t sum = 0;
        char name[32];
        (void)snprintf(name, sizeof name, "counted.%u", kind);
        matrix_need(trial->counted(kind, &sum, &matrix_error), "counted");
        matrix_seen(name, "%llu", (unsigned long long)sum);
    }
}
#else
static void try_new(convoy_loader *loader)
{
    (void)loader;
}
#endif

void matrix_tails(convoy_loader *loader)
{
    static struct matrix_engine engine;
    static const int32_t ids[1] = {4};
    convoy_host_context *context = matrix_context(loader);
    convoy_host_group *group = NULL;
    const struct convoy_sync_schema schema = {.struct_size = sizeof schema, .builtin = "sglang-7", .builtin_length = 8};
    const struct convoy_group_options options = {.struct_size = sizeof options, .name = "tails", .name_length = 5,
                                                 .member_ids = ids, .member_count = 1, .own_id = 4, .schema = &schema};
    const struct convoy_poll_call reduce = {.struct_size = sizeof reduce, .votes = 1};
    const struct convoy_sync_call gather = {.struct_size = sizeof gather};
    const struct convoy_stage stage = {.struct_size = sizeof stage, .request = "tails", .request_length = 5};
    const struct convoy_send send = {.struct_size = sizeof send, .peer = 77, .staged = 99};
    const struct convoy_load load = {.struct_size = sizeof load, .request = "nobody", .request_length = 6};
    matrix_need(convoy_host_group_open(context, &options, &group, &matrix_error), "group_open");
    matrix_engine_open(context, false, &engine);
    const struct tail_case cases[] = {
        {"group_options", call_open, context, &options, sizeof options},
        {"poll_call", call_reduce, group, &reduce, sizeof reduce},
        {"sync_call", call_gather, group, &gather, sizeof gather},
        {"stage", call_stage, engine.engine, &stage, sizeof stage},
        {"send", call_send, engine.engine, &send, sizeof send},
        {"load", call_load, engine.engine, &load, sizeof load},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        try_tail(&cases[i]);
        try_field(&cases[i]);
    }
    try_flags(context, &options);
    try_new(loader);
    matrix_need(convoy_host_context_close(context, MATRIX_WAIT_NS, &matrix_error), "context_close");
}
