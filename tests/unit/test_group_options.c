/* SPDX-License-Identifier: Apache-2.0 */
/* A group's options: what is refused, in which words, what is filled in, and that nothing of the caller's stays. */
#include "plugin/handle.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What a caller gives: options of two members, and room for what they may point at. */
struct given {
    struct convoy_group_options options;
    int32_t ids[4];
    struct convoy_poll_fault script[2];
    struct convoy_poll_faults faults;
    struct convoy_sync_column columns[2];
    struct convoy_sync_schema schema;
};

struct scene {
    struct convoy_context context;
    struct convoy_group group;
};

static int scene_setup(void **state)
{
    struct scene *scene = aligned_alloc(CONVOY_LINE_BYTES, (sizeof *scene + 63) / 64 * 64);
    static const char settings[] = "{\"timeout_ms\": 1234}";
    const struct convoy_context_config config = {
        .struct_size = sizeof config, .settings = settings, .settings_length = sizeof settings - 1};
    *state = scene;
    memset(scene, 0, sizeof *scene);
    return convoy_runtime_open(&config, &scene->context.runtime, NULL);
}

static int scene_teardown(void **state)
{
    struct scene *scene = *state;
    convoy_runtime_destroy(scene->context.runtime);
    free(scene);
    return 0;
}

static int32_t no_allgather(void *user, const void *mine, size_t bytes, void *all_out)
{
    (void)user;
    (void)mine;
    (void)bytes;
    (void)all_out;
    return -1;
}

static void given_init(struct given *given)
{
    *given = (struct given){.ids = {7, 3, 9, 1}};
    given->options = (struct convoy_group_options){.struct_size = sizeof given->options, .name = "tp", .name_length = 2,
        .member_ids = given->ids, .member_count = 2, .own_index = 1, .own_id = 3,
        .rendezvous = "tcp://127.0.0.1:29471", .rendezvous_length = 21};
    given->script[0] = (struct convoy_poll_fault){.round = 1};
    given->script[1] = (struct convoy_poll_fault){.round = 2, .list = 1, .entry = 5};
    given->faults = (struct convoy_poll_faults){.struct_size = sizeof given->faults, .seed = 11,
        .script = given->script, .script_stride = sizeof given->script[0], .script_count = 2};
    given->columns[0] = (struct convoy_sync_column){.name = "tokens", .name_length = 6, .fallback = -1};
    given->columns[1] = (struct convoy_sync_column){.name = "mode", .name_length = 4};
    given->schema = (struct convoy_sync_schema){.struct_size = sizeof given->schema, .columns = given->columns,
        .column_stride = sizeof given->columns[0], .column_count = 2};
}

/* As a group is created: the rest of it is zero. */
static int32_t load(struct scene *scene, const struct convoy_group_options *options, struct convoy_error *error)
{
    memset(&scene->group, 0, sizeof scene->group);
    scene->group.context = &scene->context;
    return convoy_group_options_load(&scene->group, options, error);
}

/* -- refusals ------------------------------------------------------------------------------------------------------ */

struct refusal {
    void (*spoil)(struct given *given);
    int32_t status;
    const char *words;
};

#define SPOIL(name, change)                                                                                            \
    static void spoil_##name(struct given *given)                                                                      \
    {                                                                                                                  \
        change;                                                                                                        \
    }

SPOIL(old, given->options.struct_size = 8)
SPOIL(name_null, given->options.name = NULL)
SPOIL(name_empty, given->options.name_length = 0)
SPOIL(name_long, given->options.name_length = 128)
SPOIL(name_control, given->options.name = "t\n")
SPOIL(flags, given->options.critical_flags = 6)
SPOIL(blob, given->options.blob_bytes_max = 1048577)
SPOIL(log, given->options.call_log_entries = 65537)
SPOIL(ids_null, given->options.member_ids = NULL)
SPOIL(no_members, given->options.member_count = 0)
SPOIL(many_members, given->options.member_count = 1025)
SPOIL(index, given->options.own_index = 2)
SPOIL(listener, given->options.listener_index = 2)
SPOIL(id_negative, given->ids[0] = -5)
SPOIL(id_twice, given->ids[0] = 3)
SPOIL(own_id, given->options.own_id = 4)
SPOIL(meet_twice, given->options.allgather = no_allgather)
SPOIL(meet_never, given->options.rendezvous = NULL)
SPOIL(meet_empty, given->options.rendezvous_length = 0)
SPOIL(meet_scheme, given->options.rendezvous = "udp://127.0.0.1:29471")
SPOIL(faults_old, given->options.poll_faults = &given->faults; given->faults.struct_size = 4)
SPOIL(faults_ppm, given->options.poll_faults = &given->faults; given->faults.probability_ppm = 1000001)
SPOIL(faults_many, given->options.poll_faults = &given->faults; given->faults.script_count = 4097)
SPOIL(faults_null, given->options.poll_faults = &given->faults; given->faults.script = NULL)
SPOIL(faults_list, given->options.poll_faults = &given->faults; given->script[1].list = 8)
SPOIL(faults_round, given->options.poll_faults = &given->faults; given->script[0].round = 0)
SPOIL(schema_old, given->options.schema = &given->schema; given->schema.struct_size = 4)
SPOIL(schema_flags, given->options.schema = &given->schema; given->schema.critical_flags = 1)
SPOIL(schema_none, given->options.schema = &given->schema; given->schema.column_count = 0)
SPOIL(schema_many, given->options.schema = &given->schema; given->schema.column_count = 65)
SPOIL(schema_stride, given->options.schema = &given->schema; given->schema.column_stride = 8)
SPOIL(schema_twins, given->options.schema = &given->schema; given->columns[1] = given->columns[0])
SPOIL(schema_both, given->options.schema = &given->schema; given->schema.builtin = "sglang-7")
SPOIL(inner, given->options.sync_inner = 3)
SPOIL(slots, given->options.sync_slots = 1)
SPOIL(row, given->options.schema = &given->schema; given->options.blob_bytes_max = 16)

static const struct refusal refusals[] = {
    {spoil_old, CONVOY_TOO_OLD, "group_options"},
    {spoil_name_null, CONVOY_INVALID_ARGUMENT, "options.name is NULL, allowed are 1..127 bytes"},
    {spoil_name_empty, CONVOY_INVALID_ARGUMENT, "options.name_length: 0 is not in 1..127"},
    {spoil_name_long, CONVOY_INVALID_ARGUMENT, "options.name_length: 128 is not in 1..127"},
    {spoil_name_control, CONVOY_INVALID_ARGUMENT, "options.name: allowed is UTF-8 without control characters"},
    {spoil_flags, CONVOY_UNSUPPORTED, "group tp: critical_flags 0x6 has unknown bits"},
    {spoil_blob, CONVOY_INVALID_ARGUMENT, "group tp: blob_bytes_max 1048577 is not in 0..1048576"},
    {spoil_log, CONVOY_INVALID_ARGUMENT, "group tp: call_log_entries 65537 is not in 0..65536"},
    {spoil_ids_null, CONVOY_INVALID_ARGUMENT, "group tp: member_ids is NULL"},
    {spoil_no_members, CONVOY_INVALID_ARGUMENT, "group tp: member_count 0 is not in 1..1024"},
    {spoil_many_members, CONVOY_INVALID_ARGUMENT, "group tp: member_count 1025 is not in 1..1024"},
    {spoil_index, CONVOY_INVALID_ARGUMENT, "group tp: own_index 2 and listener_index 0 must be below member_count 2"},
    {spoil_listener, CONVOY_INVALID_ARGUMENT, "own_index 1 and listener_index 2 must be below member_count 2"},
    {spoil_id_negative, CONVOY_INVALID_ARGUMENT, "group tp: member_ids[0] is -5, below 0"},
    {spoil_id_twice, CONVOY_INVALID_ARGUMENT, "group tp: member id 3 is at positions 0 and 1 of member_ids"},
    {spoil_own_id, CONVOY_INVALID_ARGUMENT, "group tp: member_ids[own_index 1] is 3, but own_id is 4"},
    {spoil_meet_twice, CONVOY_INVALID_ARGUMENT, "rendezvous and allgather are both given; one of them is needed"},
    {spoil_meet_never, CONVOY_INVALID_ARGUMENT, "rendezvous and allgather are not given; one of them is needed"},
    {spoil_meet_empty, CONVOY_INVALID_ARGUMENT, "rendezvous and allgather are not given; one of them is needed"},
    {spoil_meet_scheme, CONVOY_INVALID_ARGUMENT, "group tp: rendezvous \"udp://127.0.0.1:29471\""},
    {spoil_faults_old, CONVOY_TOO_OLD, "group tp: poll_faults: struct_size is 4"},
    {spoil_faults_ppm, CONVOY_INVALID_ARGUMENT,
     "group tp: poll_faults.probability_ppm is 1000001, allowed are 0 to 1000000"},
    {spoil_faults_many, CONVOY_INVALID_ARGUMENT, "group tp: poll_faults.script_count is 4097, allowed are 0 to 4096"},
    {spoil_faults_null, CONVOY_INVALID_ARGUMENT, "group tp: "},
    {spoil_faults_list, CONVOY_INVALID_ARGUMENT, "group tp: poll_faults.script[1].list is 8, allowed are 0 to 7"},
    {spoil_faults_round, CONVOY_INVALID_ARGUMENT, "group tp: poll_faults.script[0].round is 0"},
    {spoil_schema_old, CONVOY_TOO_OLD, "group tp: sync_schema: struct_size is 4"},
    {spoil_schema_flags, CONVOY_UNSUPPORTED, "group tp: schema.critical_flags: 0x1 is unknown, none is defined"},
    {spoil_schema_none, CONVOY_INVALID_ARGUMENT, "group tp: schema.column_count is 0, allowed are 1 to 64"},
    {spoil_schema_many, CONVOY_INVALID_ARGUMENT, "group tp: schema.column_count is 65, allowed are 1 to 64"},
    {spoil_schema_stride, CONVOY_TOO_OLD, "group tp: array of sync_column: stride is 8"},
    {spoil_schema_twins, CONVOY_INVALID_ARGUMENT, "group tp: schema.columns[0] and [1] are both named \"tokens\""},
    {spoil_schema_both, CONVOY_INVALID_ARGUMENT, "group tp: schema: builtin and 2 own columns are given"},
    {spoil_inner, CONVOY_INVALID_ARGUMENT, "group tp: sync_inner is 3 and does not divide 2 members"},
    {spoil_slots, CONVOY_INVALID_ARGUMENT, "group tp: sync_slots is 1, allowed are 2 to"},
    {spoil_row, CONVOY_LIMIT, "group tp: a row of 2 columns and a mask of 2 members takes up to"},
};

/* Each with its status and a text that names the parameter, its value and what is allowed. */
static void test_group_options_refusals_name_parameter_value_and_range(void **state)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        struct given given;
        given_init(&given);
        refusals[i].spoil(&given);
        int32_t status = load(*state, &given.options, &error);
        if (status != refusals[i].status || strstr(error.text, refusals[i].words) == NULL) {
            fail_msg("row %zu: status %d, text \"%s\", wanted %d and \"%s\"", i, status, error.text,
                     refusals[i].status, refusals[i].words);
        }
        assert_int_equal(error.status, status);
        convoy_group_options_fini(&((struct scene *)*state)->group.options);
    }
}

struct name_row {
    const char *name;
    bool is_text;
};

/* Names go into JSON and Prometheus text: whole characters of UTF-8, none of them a control. */
static void test_group_options_name_is_utf8_without_controls(void **state)
{
    static const struct name_row rows[] = {
        {"tp 0/~", true},          {"\xc3\xa9", true},        {"\xe0\xa0\x80", true},    {"\xed\x9f\xbf", true},
        {"\xf0\x90\x80\x80", true}, {"\xf4\x8f\xbf\xbf", true}, {"\x1f", false},           {"a\x7f", false},
        {"\x80", false},           {"\xc1\xbf", false},       {"\xc3", false},           {"\xc3(", false},
        {"\xe0\x9f\xbf", false},   {"\xed\xa0\x80", false},   {"\xe2\x82", false},       {"\xe2\x82(", false},
        {"\xf0\x8f\xbf\xbf", false}, {"\xf4\x90\x80\x80", false}, {"\xf5\x80\x80\x80", false}, {"\xf0\x9f\x98", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct given given;
        given_init(&given);
        given.options.name = rows[i].name;
        given.options.name_length = strlen(rows[i].name);
        int32_t status = load(*state, &given.options, NULL);
        convoy_group_options_fini(&((struct scene *)*state)->group.options);
        if (status != (rows[i].is_text ? CONVOY_OK : CONVOY_INVALID_ARGUMENT)) {
            fail_msg("row %zu: status %d", i, status);
        }
    }
}

/* Whom there is nobody to meet needs no way to meet, and what it gives for one is not read. */
static void test_group_options_of_one_member_need_no_rendezvous(void **state)
{
    const char *const where[] = {NULL, "udp://nowhere", "tcp://127.0.0.1:1"};
    for (size_t i = 0; i < 3; i++) {
        struct given given;
        given_init(&given);
        given.options.member_count = 1;
        given.options.own_index = 0;
        given.options.own_id = 7;
        given.options.rendezvous = where[i];
        given.options.rendezvous_length = where[i] != NULL ? strlen(where[i]) : 99;
        assert_int_equal(load(*state, &given.options, NULL), CONVOY_OK);
        const struct convoy_group_options *options = &((struct scene *)*state)->group.options;
        assert_int_equal(options->rendezvous_length, where[i] != NULL ? strlen(where[i]) : 0);
        convoy_group_options_fini(&((struct scene *)*state)->group.options);
    }
}

/* -- what is taken ------------------------------------------------------------------------------------------------- */

static void test_group_options_zeros_become_the_defaults(void **state)
{
    struct scene *scene = *state;
    struct given given;
    given_init(&given);
    assert_int_equal(load(scene, &given.options, NULL), CONVOY_OK);
    assert_int_equal(scene->group.options.timeout_ns, 1234 * CONVOY_NS_PER_MS); /* the context's setting */
    assert_int_equal(scene->group.options.open_timeout_ns, 1234 * CONVOY_NS_PER_MS);
    assert_int_equal(scene->group.options.blob_bytes_max, 16384);
    assert_int_equal(scene->group.options.call_log_entries, 64);
    assert_int_equal(scene->group.options.sync_inner, 1);
    assert_int_equal(scene->group.options.sync_slots, 2);
    assert_false(scene->group.has_schema);
    convoy_group_options_fini(&scene->group.options);
}

static void test_group_options_given_values_stay_and_the_log_is_a_power_of_two(void **state)
{
    struct scene *scene = *state;
    const uint32_t entries[][2] = {{1, 1}, {2, 2}, {3, 4}, {65, 128}, {40000, 65536}, {65536, 65536}};
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        struct given given;
        given_init(&given);
        given.options.timeout_ns = 5;
        given.options.open_timeout_ns = 6;
        given.options.blob_bytes_max = 1048576;
        given.options.sync_inner = 2;
        given.options.sync_slots = 4;
        given.options.call_log_entries = entries[i][0];
        assert_int_equal(load(scene, &given.options, NULL), CONVOY_OK);
        assert_int_equal(scene->group.options.timeout_ns, 5);
        assert_int_equal(scene->group.options.open_timeout_ns, 6);
        assert_int_equal(scene->group.options.blob_bytes_max, 1048576);
        assert_int_equal(scene->group.options.sync_inner, 2);
        assert_int_equal(scene->group.options.sync_slots, 4);
        assert_int_equal(scene->group.options.call_log_entries, entries[i][1]);
        convoy_group_options_fini(&scene->group.options);
    }
}

/* Everything that was pointed at is copied: the caller's memory may be gone. */
static void test_group_options_nothing_of_the_callers_stays(void **state)
{
    struct scene *scene = *state;
    struct given *given = malloc(sizeof *given);
    char *name = strdup("tp");
    assert_true(given != NULL && name != NULL);
    given_init(given);
    given->options.name = name;
    given->options.poll_faults = &given->faults;
    given->options.schema = &given->schema;
    assert_int_equal(load(scene, &given->options, NULL), CONVOY_OK);
    memset(given, 0xff, sizeof *given);
    free(given);
    free(name);
    const struct convoy_group_options *options = &scene->group.options;
    assert_string_equal(options->name, "tp");
    assert_string_equal(options->rendezvous, "tcp://127.0.0.1:29471");
    assert_int_equal(options->member_ids[0], 7);
    assert_int_equal(options->member_ids[1], 3);
    assert_int_equal(options->poll_faults->seed, 11);
    assert_int_equal(options->poll_faults->script_count, 2);
    assert_int_equal(options->poll_faults->script[1].entry, 5);
    assert_true(scene->group.has_schema);
    assert_null(options->schema);
    assert_int_equal(scene->group.schema.count, 2);
    convoy_group_options_fini(&scene->group.options);
}

/* Elements of an older and of a newer host: other strides, and faults without a script. */
static void test_group_options_arrays_of_other_strides_are_read(void **state)
{
    struct scene *scene = *state;
    struct given given;
    struct {
        struct convoy_poll_fault fault;
        uint64_t newer;
    } script[2] = {{.fault = {.round = 3}}, {.fault = {.round = 4, .entry = 8}}};
    given_init(&given);
    given.options.poll_faults = &given.faults;
    given.faults.script = &script[0].fault;
    given.faults.script_stride = sizeof script[0];
    assert_int_equal(load(scene, &given.options, NULL), CONVOY_OK);
    assert_int_equal(scene->group.options.poll_faults->script[1].round, 4);
    assert_int_equal(scene->group.options.poll_faults->script[1].entry, 8);
    assert_int_equal(scene->group.options.poll_faults->script_stride, sizeof script[0].fault);
    convoy_group_options_fini(&scene->group.options);
    given.faults.script = NULL;
    given.faults.script_count = 0;
    given.options.schema = &given.schema;
    given.schema = (struct convoy_sync_schema){
        .struct_size = sizeof given.schema, .builtin = "sglang-8", .builtin_length = 8};
    assert_int_equal(load(scene, &given.options, NULL), CONVOY_OK);
    assert_null(scene->group.options.poll_faults->script);
    assert_int_equal(scene->group.schema.count, 8);
    convoy_group_options_fini(&scene->group.options);
}

#ifdef CONVOY_FAULTS
static void test_group_options_without_memory_leave_what_fini_can_free(void **state)
{
    struct scene *scene = *state;
    int32_t status = CONVOY_NO_MEMORY;
    int64_t skip = 0;
    for (; status != CONVOY_OK; skip++) {
        struct convoy_error error = CONVOY_ERROR_INIT;
        struct given given;
        given_init(&given);
        given.options.poll_faults = &given.faults;
        given.options.schema = &given.schema;
        (void)convoy_memory_fail_after(skip);
        status = load(scene, &given.options, &error);
        (void)convoy_memory_fail_after(-1);
        assert_true(skip < 50);
        if (status != CONVOY_OK) {
            assert_int_equal(status, CONVOY_NO_MEMORY);
            assert_non_null(strstr(error.text, "no memory for"));
        }
        convoy_group_options_fini(&scene->group.options);
    }
    assert_true(skip > 5); /* name, rendezvous, ids, faults, script */
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group_options_refusals_name_parameter_value_and_range),
        cmocka_unit_test(test_group_options_name_is_utf8_without_controls),
        cmocka_unit_test(test_group_options_of_one_member_need_no_rendezvous),
        cmocka_unit_test(test_group_options_zeros_become_the_defaults),
        cmocka_unit_test(test_group_options_given_values_stay_and_the_log_is_a_power_of_two),
        cmocka_unit_test(test_group_options_nothing_of_the_callers_stays),
        cmocka_unit_test(test_group_options_arrays_of_other_strides_are_read),
#ifdef CONVOY_FAULTS
        cmocka_unit_test(test_group_options_without_memory_leave_what_fini_can_free),
#endif
    };
    return cmocka_run_group_tests_name("group_options", tests, scene_setup, scene_teardown);
}
