/* SPDX-License-Identifier: Apache-2.0 */
/* A swap, its phases, and every way in which one of them fails: the old build goes on then, and no call is lost. */
#include "swap_scene.h"

#include "core/memory.h"

#include <stddef.h>
#include <sys/wait.h>

/* -- phases -------------------------------------------------------------------------------------------------------- */

static void test_swap_phase_follows_only_the_drawn_edges(void **state)
{
    static const uint32_t way[] = {CONVOY_SWAP_IDLE,      CONVOY_SWAP_LOADING,   CONVOY_SWAP_PREPARING,
                                   CONVOY_SWAP_QUIESCING, CONVOY_SWAP_EXPORTING, CONVOY_SWAP_IMPORTING,
                                   CONVOY_SWAP_RESUMING,  CONVOY_SWAP_SWITCHING, CONVOY_SWAP_RETIRING,
                                   CONVOY_SWAP_DONE};
    (void)state;
    for (uint32_t from = 0; from < CONVOY_SWAP_PHASES + 2; from++) {
        for (uint32_t to = 0; to < CONVOY_SWAP_PHASES + 2; to++) {
            bool is_edge = from == CONVOY_SWAP_UNDOING && to == CONVOY_SWAP_FAILED;
            for (size_t i = 0; i + 1 < sizeof way / sizeof way[0]; i++) {
                is_edge = is_edge || (from == way[i] && to == way[i + 1]);
            }
            is_edge = is_edge || (to == CONVOY_SWAP_UNDOING && from >= CONVOY_SWAP_LOADING && from <= CONVOY_SWAP_RESUMING);
            if (convoy_swap_may(from, to) != is_edge) {
                fail_msg("from %s to %s", convoy_swap_phase_name(from), convoy_swap_phase_name(to));
            }
        }
    }
    assert_string_equal(convoy_swap_phase_name(CONVOY_SWAP_RETIRING), "retiring");
    assert_string_equal(convoy_swap_phase_name(CONVOY_SWAP_PHASES), "unknown");
}

/* -- a swap that works --------------------------------------------------------------------------------------------- */

static void test_swap_there_and_back_keeps_every_handle_and_count(void **state)
{
    struct scene scene;
    (void)state;
    scene_open(&scene);
    scene_expect_calls(&scene);
    scene_expect_release(&scene, "1.0.0");
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_OK);
        scene_expect_release(&scene, "1.0.1");
        scene_expect_calls(&scene);
        assert_int_equal(scene_swap(&scene, "mover_a"), CONVOY_OK);
        scene_expect_release(&scene, "1.0.0");
        scene_expect_calls(&scene);
    }
    assert_int_equal(atomic_load(&scene.a->contexts_retired), 3);
    assert_int_equal(atomic_load(&scene.b->contexts_retired), 3);
    assert_int_equal(atomic_load(&scene.a->contexts_closed), 0); /* their tombstones live as long as the context */
    scene_close(&scene);
}

static void test_swap_says_what_it_did(void **state)
{
    struct scene scene;
    (void)state;
    scene_open(&scene);
    const struct convoy_loader_info *before = convoy_loader_info(scene.loader);
    unsigned lines = scene.line_count;
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_OK);
    const struct convoy_swap_result *result = &scene.result;
    assert_string_equal(result->from.release, "1.0.0");
    assert_string_equal(result->from.build_id, before->file.build_id); /* the old one's info is still there */
    assert_string_equal(result->to.release, "1.0.1");
    assert_string_equal(result->to.build_id, convoy_loader_info(scene.loader)->file.build_id);
    assert_int_equal(result->phase, CONVOY_SWAP_DONE);
    assert_int_equal(result->was_mapped, 1);
    assert_int_equal(result->context_count, 1);
    assert_int_equal(result->group_count, 1);
    assert_int_equal(result->engine_count, 1);
    assert_int_equal(result->late_count, 0);
    assert_int_equal(result->state_bytes, 48);
    uint64_t parts_ns = result->load_ns + result->prepare_ns + result->quiesce_ns + result->export_ns +
                        result->import_ns + result->switch_ns + result->retire_ns;
    assert_true(parts_ns > 0 && parts_ns <= result->total_ns);
    assert_true(result->pause_ns >= result->export_ns && result->pause_ns <= result->total_ns);
    assert_int_equal(scene.line_count, lines + 1);
    assert_int_equal(scene.line_level, CONVOY_LOG_INFO);
    assert_non_null(strstr(scene.line, "swap done phase done from build "));
    assert_non_null(strstr(scene.line, "release 1.0.1 contexts 1 groups 1 engines 1 late 0 state_bytes 48 pause_ns "));
    assert_ptr_equal(convoy_loader_table(scene.loader, "core"),
                     convoy_build_table(atomic_load(&scene.loader->current), "core"));
    scene_close(&scene);
}

static void test_swap_opens_the_new_context_with_a_copy_of_the_configuration(void **state)
{
    struct scene scene;
    char secret[] = "se\0ret";
    char settings[] = "{\"a\":1}";
    (void)state;
    scene_load(&scene, "mover_a");
    struct convoy_context_config config = {.struct_size = sizeof config,
                                           .log_level = 2,
                                           .secret = secret,
                                           .secret_bytes = 6,
                                           .settings = settings,
                                           .settings_length = 7};
    assert_int_equal(convoy_host_context_open(scene.loader, &config, &scene.context, &scene.error), CONVOY_OK);
    memset(secret, 'x', sizeof secret);
    memset(settings, 'x', sizeof settings);
    config = (struct convoy_context_config){0};
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_OK);
    assert_memory_equal(scene.b->seen_secret, "se\0ret", 6);
    assert_string_equal(scene.b->seen_settings, "{\"a\":1}");
    assert_int_equal(scene.b->seen_log_level, 2);
    scene_close(&scene);
}

/* A configuration of an older host is shorter; one that the open refuses is not followed into nowhere. */
static void test_swap_copy_of_a_configuration_reads_only_what_is_there(void **state)
{
    struct convoy_context_config config = {.struct_size = offsetof(struct convoy_context_config, secret),
                                           .log_level = 3,
                                           .secret = (const void *)8,
                                           .secret_bytes = 4,
                                           .settings = (const void *)8};
    struct convoy_context_config copy;
    (void)state;
    assert_int_equal(convoy_config_copy(&config, &copy, NULL), CONVOY_OK);
    assert_int_equal(copy.struct_size, sizeof copy);
    assert_int_equal(copy.log_level, 3);
    assert_null(copy.secret);
    assert_null(copy.settings);
    config = (struct convoy_context_config){
        .struct_size = sizeof config, .secret = (const void *)8, .secret_bytes = 1025, .settings_length = 9};
    assert_int_equal(convoy_config_copy(&config, &copy, NULL), CONVOY_OK);
    assert_null(copy.secret);
    assert_null(copy.settings);
    convoy_config_wipe(&copy);
}

static void test_swap_without_a_context_changes_the_build_for_the_next(void **state)
{
    struct scene scene;
    (void)state;
    scene_load(&scene, "mover_a");
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_OK);
    assert_int_equal(scene.result.context_count, 0);
    assert_int_equal(convoy_host_context_open(scene.loader, NULL, &scene.context, NULL), CONVOY_OK);
    assert_int_equal(atomic_load(&scene.a->contexts_opened), 0);
    assert_int_equal(atomic_load(&scene.b->contexts_opened), 1);
    scene_close(&scene);
}

static void test_swap_of_a_state_larger_than_the_first_buffer_asks_again(void **state)
{
    struct scene scene;
    (void)state;
    scene_open(&scene);
    atomic_store(&scene.a->padding_bytes, 3000000);
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_OK);
    assert_int_equal(scene.result.state_bytes, 3000048);
    assert_int_equal(atomic_load(&scene.a->format_max), 3); /* what the file of build b says that it reads */
    scene_expect_calls(&scene);
    scene_close(&scene);
}

/* What the build in between could do beside that is nothing that the host has counted on. */
static void test_swap_back_to_a_first_build_that_offers_less_is_fine(void **state)
{
    struct scene scene;
    (void)state;
    scene_load(&scene, "mover_lean");
    assert_int_equal(convoy_host_context_open(scene.loader, NULL, &scene.context, NULL), CONVOY_OK);
    assert_int_equal(scene_swap(&scene, "mover_a"), CONVOY_OK);
    assert_non_null(convoy_loader_table(scene.loader, "transfer"));
    assert_int_equal(scene_swap(&scene, "mover_lean"), CONVOY_OK);
    assert_null(convoy_loader_table(scene.loader, "transfer"));
    assert_int_equal(scene_swap(&scene, "mover_still"), CONVOY_UNSUPPORTED); /* what it began with still counts */
    scene_close(&scene);
}

/* -- a swap that fails --------------------------------------------------------------------------------------------- */

static void test_swap_of_a_file_that_will_not_do_is_refused(void **state)
{
    static const struct {
        const char *kind;
        int32_t status;
        const char *words;
    } rows[] = {
        {"not_there", CONVOY_NOT_FOUND, "loading: "},
        {"no_note", CONVOY_NO_ENTRY, "no note"},
        {"too_new", CONVOY_TOO_NEW, "plugin has 2.0"},
        {"refuses", CONVOY_TOO_OLD, "changed its mind"},
        {"mover_lean", CONVOY_UNSUPPORTED, "refuses family transfer, which runs: the tiny one has it not"},
        {"mover_still", CONVOY_UNSUPPORTED, "refuses family move"},
        {"mover_a", CONVOY_INVALID_ARGUMENT, "this very build"},
    };
    struct scene scene;
    (void)state;
    scene_open(&scene);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int32_t status = scene_swap(&scene, rows[i].kind);
        if (status != rows[i].status || strstr(scene.error.text, rows[i].words) == NULL ||
            scene.result.phase != CONVOY_SWAP_LOADING || scene.result.pause_ns != 0) {
            fail_msg("%s: status %d, text \"%s\"", rows[i].kind, status, scene.error.text);
        }
        assert_int_equal(scene.line_level, CONVOY_LOG_WARN);
        assert_non_null(strstr(scene.line, "swap failed phase loading from build "));
        scene_expect_calls(&scene);
    }
    assert_int_equal(convoy_loader_swap(NULL, "x", 0, NULL, &scene.error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(convoy_loader_swap(scene.loader, NULL, 0, NULL, &scene.error), CONVOY_INVALID_ARGUMENT);
    assert_int_equal(atomic_load(&scene.a->resumed), 0); /* the old one was never told */
    scene_close(&scene);
}

static void test_swap_from_a_build_without_move_is_unsupported(void **state)
{
    struct scene scene;
    (void)state;
    scene_load(&scene, "mover_still");
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_UNSUPPORTED);
    assert_non_null(strstr(scene.error.text, "has no family move"));
    scene_close(&scene);
}

#define FAULT(step) offsetof(struct tiny_knobs, step)

static struct tiny_fault *fault_at(struct tiny_knobs *knobs, size_t offset)
{
    return (struct tiny_fault *)(void *)((char *)knobs + offset);
}

struct failure_row {
    bool is_new; /* which build fails */
    size_t fault;
    int32_t status;
    uint32_t phase;
};

static void expect_failure(struct scene *scene, const struct failure_row *row)
{
    struct tiny_fault *fault = fault_at(row->is_new ? scene->b : scene->a, row->fault);
    atomic_store(&fault->status, row->status);
    int32_t status = scene_swap(scene, "mover_b");
    atomic_store(&fault->status, CONVOY_OK);
    const char *name = convoy_swap_phase_name(row->phase);
    if (status != row->status || scene->result.phase != row->phase || scene->error.status != row->status ||
        strncmp(scene->error.text, name, strlen(name)) != 0) {
        fail_msg("%s: status %d, phase %u, text \"%s\"", name, status, scene->result.phase, scene->error.text);
    }
    assert_non_null(strstr(scene->error.text, ": the tiny one was asked to"));
    assert_int_equal(scene->result.context_count, 0);
    assert_int_equal(scene->line_level, CONVOY_LOG_WARN);
    assert_int_equal(atomic_load(&scene->b->contexts_opened), atomic_load(&scene->b->contexts_closed));
    scene_expect_release(scene, "1.0.0");
    scene_expect_calls(scene);
}

static void test_swap_that_fails_before_the_commit_leaves_the_old_build_running(void **state)
{
    static const struct failure_row rows[] = {
        {true, FAULT(context_open), CONVOY_INVALID_ARGUMENT, CONVOY_SWAP_PREPARING},
        {true, FAULT(context_open), CONVOY_NO_MEMORY, CONVOY_SWAP_PREPARING},
        {false, FAULT(quiesce), CONVOY_DRAIN_TIMEOUT, CONVOY_SWAP_QUIESCING},
        {false, FAULT(quiesce), CONVOY_NO_MEMORY, CONVOY_SWAP_QUIESCING},
        {false, FAULT(export_state), CONVOY_UNSUPPORTED, CONVOY_SWAP_EXPORTING},
        {false, FAULT(export_state), CONVOY_NO_MEMORY, CONVOY_SWAP_EXPORTING},
        {false, FAULT(export_state), CONVOY_BUFFER_TOO_SMALL, CONVOY_SWAP_EXPORTING},
        {true, FAULT(import_state), CONVOY_TOO_NEW, CONVOY_SWAP_IMPORTING},
        {true, FAULT(import_state), CONVOY_TOO_OLD, CONVOY_SWAP_IMPORTING},
        {true, FAULT(import_state), CONVOY_VERSION_MISMATCH, CONVOY_SWAP_IMPORTING},
        {true, FAULT(import_state), CONVOY_MALFORMED, CONVOY_SWAP_IMPORTING},
        {true, FAULT(import_state), CONVOY_INVALID_ARGUMENT, CONVOY_SWAP_IMPORTING},
        {true, FAULT(import_state), CONVOY_BUFFER_TOO_SMALL, CONVOY_SWAP_IMPORTING},
        {true, FAULT(import_state), CONVOY_NO_MEMORY, CONVOY_SWAP_IMPORTING},
        {true, FAULT(import_state), CONVOY_SYSTEM, CONVOY_SWAP_IMPORTING},
        {true, FAULT(resume), CONVOY_SYSTEM, CONVOY_SWAP_RESUMING},
        {true, FAULT(resume), CONVOY_INIT_FAILED, CONVOY_SWAP_RESUMING},
    };
    struct scene scene;
    (void)state;
    scene_open(&scene);
    scene_expect_calls(&scene);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        expect_failure(&scene, &rows[i]);
    }
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_OK);
    scene_expect_calls(&scene);
    scene_close(&scene);
}

/* A build that contradicts itself must not make the loader bind a handle to another's object. */
static void test_swap_import_of_strange_objects_is_an_invariant(void **state)
{
    struct scene scene;
    (void)state;
    scene_open(&scene);
    for (uint32_t stray = TINY_STRAY_UNKNOWN; stray <= TINY_STRAY_TWICE; stray++) {
        atomic_store(&scene.b->stray, stray);
        assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_INVARIANT);
        assert_non_null(strstr(scene.error.text, "importing: the new build names an object of kind "));
        scene_expect_calls(&scene);
    }
    scene_close(&scene);
}

static void test_swap_whose_undoing_fails_says_both(void **state)
{
    struct scene scene;
    (void)state;
    scene_open(&scene);
    atomic_store(&scene.b->import_state.status, CONVOY_MALFORMED);
    atomic_store(&scene.a->resume.status, CONVOY_SYSTEM);
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_MALFORMED);
    assert_non_null(strstr(scene.error.text, "importing: the tiny one was asked to; and the old build does not resume (-205)"));
    assert_int_equal(convoy_host_reduce(scene.group, NULL, 0, NULL, NULL), CONVOY_MOVED); /* and no endless loop */
    atomic_store(&scene.b->import_state.status, CONVOY_OK);
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_OK); /* from where it got stuck */
    scene_expect_calls(&scene);
    scene_close(&scene);
}

static void test_swap_new_context_that_does_not_close_is_closed_with_the_old_one(void **state)
{
    struct scene scene;
    (void)state;
    scene_open(&scene);
    atomic_store(&scene.b->import_state.status, CONVOY_MALFORMED);
    atomic_store(&scene.b->context_close.status, CONVOY_DRAIN_TIMEOUT);
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_MALFORMED);
    assert_int_equal(convoy_host_context_close(scene.context, 0, NULL), CONVOY_DRAIN_TIMEOUT);
    atomic_store(&scene.b->context_close.status, CONVOY_OK);
    assert_int_equal(atomic_load(&scene.a->contexts_closed), 1);
    scene_close(&scene); /* and not the first one a second time */
}

/* -- retiring ------------------------------------------------------------------------------------------------------ */

static void test_swap_whose_old_build_is_late_is_done_and_retires_it_at_close(void **state)
{
    struct scene scene;
    (void)state;
    scene_open(&scene);
    atomic_store(&scene.a->retire.status, CONVOY_DRAIN_TIMEOUT);
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_OK);
    assert_int_equal(scene.result.late_count, 1);
    scene_expect_calls(&scene);
    assert_int_equal(convoy_host_context_close(scene.context, 0, NULL), CONVOY_DRAIN_TIMEOUT);
    assert_int_equal(atomic_load(&scene.a->contexts_retired), 0);
    atomic_store(&scene.a->retire.status, CONVOY_OK);
    scene_close(&scene);
    assert_int_equal(atomic_load(&scene.a->contexts_retired), 1);
}

static void test_swap_tries_to_retire_more_than_once(void **state)
{
    struct scene scene;
    (void)state;
    scene_open(&scene);
    atomic_store(&scene.a->retire.skip, -1);
    atomic_store(&scene.a->retire.status, CONVOY_INVARIANT); /* is not tried again */
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_OK);
    assert_int_equal(scene.result.late_count, 1);
    assert_int_equal(atomic_load(&scene.a->retire.skip), -2);
    atomic_store(&scene.b->retire.skip, -1);
    atomic_store(&scene.b->retire.status, CONVOY_DRAIN_TIMEOUT);
    assert_int_equal(scene_swap(&scene, "mover_a"), CONVOY_OK);
    assert_int_equal(atomic_load(&scene.b->retire.skip), -5);
    atomic_store(&scene.a->retire.status, CONVOY_OK);
    atomic_store(&scene.b->retire.status, CONVOY_OK);
    scene_close(&scene);
}

/* -- several contexts ---------------------------------------------------------------------------------------------- */

static void test_swap_whose_second_context_cannot_resume_is_half_and_can_be_finished(void **state)
{
    struct scene scene;
    convoy_host_context *other = NULL;
    convoy_host_group *group = NULL;
    convoy_operation operation = 0;
    (void)state;
    scene_open(&scene);
    assert_int_equal(convoy_host_context_open(scene.loader, NULL, &other, NULL), CONVOY_OK);
    assert_int_equal(convoy_host_group_open(other, NULL, &group, NULL), CONVOY_OK);
    assert_int_equal(convoy_host_reduce2_start(scene.group, group, NULL, &operation, NULL), CONVOY_OK);
    scene.reduces++;
    atomic_store(&scene.b->resume.skip, 1);
    atomic_store(&scene.b->resume.status, CONVOY_SYSTEM);
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_SYSTEM);
    assert_string_equal(scene.error.text, "resuming: 1 of 2 contexts are handed over: the tiny one was asked to");
    assert_int_equal(scene.result.context_count, 1);
    scene_expect_release(&scene, "1.0.0");
    scene_expect_calls(&scene);
    assert_int_equal(convoy_host_reduce(group, NULL, 0, NULL, NULL), CONVOY_OK);
    assert_int_equal(convoy_host_reduce2_start(scene.group, group, NULL, &operation, &scene.error), CONVOY_CLOSED);
    assert_non_null(strstr(scene.error.text, "behind different builds"));
    atomic_store(&scene.b->resume.status, CONVOY_OK);
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_OK);
    assert_int_equal(scene.result.context_count, 1); /* the rest */
    scene_expect_release(&scene, "1.0.1");
    assert_int_equal(convoy_host_reduce2_start(scene.group, group, NULL, &operation, NULL), CONVOY_OK);
    scene.reduces++;
    scene_expect_calls(&scene);
    assert_int_equal(convoy_host_context_close(other, 0, NULL), CONVOY_OK);
    scene_close(&scene);
}

static void test_swap_half_done_can_be_taken_back(void **state)
{
    struct scene scene;
    convoy_host_context *other = NULL;
    (void)state;
    scene_open(&scene);
    assert_int_equal(convoy_host_context_open(scene.loader, NULL, &other, NULL), CONVOY_OK);
    atomic_store(&scene.b->resume.skip, 1);
    atomic_store(&scene.b->resume.status, CONVOY_SYSTEM);
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_SYSTEM);
    assert_int_equal(scene_swap(&scene, "mover_a"), CONVOY_OK);
    assert_int_equal(scene.result.context_count, 1);
    assert_int_equal(scene_swap(&scene, "mover_a"), CONVOY_INVALID_ARGUMENT);
    scene_expect_calls(&scene);
    assert_int_equal(convoy_host_context_close(other, 0, NULL), CONVOY_OK);
    scene_close(&scene);
}

/* A context that is closing is its old build's to the end, and holds nobody up. */
static void test_swap_leaves_a_closing_context_where_it_is(void **state)
{
    struct scene scene;
    convoy_host_context *other = NULL;
    (void)state;
    scene_open(&scene);
    assert_int_equal(convoy_host_context_open(scene.loader, NULL, &other, NULL), CONVOY_OK);
    atomic_store(&scene.a->context_close.status, CONVOY_DRAIN_TIMEOUT);
    assert_int_equal(convoy_host_context_close(other, 0, NULL), CONVOY_DRAIN_TIMEOUT);
    assert_int_equal(scene_swap(&scene, "mover_b"), CONVOY_OK);
    assert_int_equal(scene.result.context_count, 1);
    atomic_store(&scene.a->context_close.status, CONVOY_OK);
    assert_int_equal(convoy_host_context_close(other, 0, NULL), CONVOY_OK);
    scene_expect_calls(&scene);
    scene_close(&scene);
}

/* -- forked, and out of memory ------------------------------------------------------------------------------------- */

static void test_swap_in_a_forked_child_is_refused(void **state)
{
    struct scene scene;
    int child_status = -1;
    (void)state;
    scene_open(&scene);
    pid_t child = fork();
    if (child == 0) {
        _exit(scene_swap(&scene, "mover_b") == CONVOY_FORKED ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &child_status, 0), child);
    assert_int_equal(child_status, 0);
    scene_close(&scene);
}

#ifdef CONVOY_FAULTS
static void test_swap_with_any_allocation_failing_leaves_the_old_build_running(void **state)
{
    struct scene scene;
    int64_t skip = 0;
    (void)state;
    for (;; skip++) {
        scene_open(&scene);
        (void)convoy_memory_fail_after(skip);
        int32_t status = scene_swap(&scene, "mover_b");
        (void)convoy_memory_fail_after(-1);
        scene_expect_calls(&scene);
        scene_close(&scene);
        if (status == CONVOY_OK) {
            break;
        }
        assert_int_equal(status, CONVOY_NO_MEMORY);
    }
    assert_true(skip >= 8); /* swap, file, entries, build, context, state, list of objects, two bindings */
}

static void test_swap_context_open_with_any_allocation_failing_is_no_memory(void **state)
{
    const struct convoy_context_config config = {
        .struct_size = sizeof config, .secret = "s", .secret_bytes = 1, .settings = "{}", .settings_length = 2};
    struct scene scene;
    int64_t skip = 0;
    (void)state;
    scene_load(&scene, "mover_a");
    for (;; skip++) {
        (void)convoy_memory_fail_after(skip);
        int32_t status = convoy_host_context_open(scene.loader, &config, &scene.context, &scene.error);
        (void)convoy_memory_fail_after(-1);
        if (status == CONVOY_OK) {
            break;
        }
        assert_int_equal(status, CONVOY_NO_MEMORY);
    }
    assert_int_equal(skip, 3);
    scene_close(&scene);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swap_phase_follows_only_the_drawn_edges),
        cmocka_unit_test(test_swap_there_and_back_keeps_every_handle_and_count),
        cmocka_unit_test(test_swap_says_what_it_did),
        cmocka_unit_test(test_swap_opens_the_new_context_with_a_copy_of_the_configuration),
        cmocka_unit_test(test_swap_copy_of_a_configuration_reads_only_what_is_there),
        cmocka_unit_test(test_swap_without_a_context_changes_the_build_for_the_next),
        cmocka_unit_test(test_swap_back_to_a_first_build_that_offers_less_is_fine),
        cmocka_unit_test(test_swap_of_a_state_larger_than_the_first_buffer_asks_again),
        cmocka_unit_test(test_swap_of_a_file_that_will_not_do_is_refused),
        cmocka_unit_test(test_swap_from_a_build_without_move_is_unsupported),
        cmocka_unit_test(test_swap_that_fails_before_the_commit_leaves_the_old_build_running),
        cmocka_unit_test(test_swap_import_of_strange_objects_is_an_invariant),
        cmocka_unit_test(test_swap_whose_undoing_fails_says_both),
        cmocka_unit_test(test_swap_new_context_that_does_not_close_is_closed_with_the_old_one),
        cmocka_unit_test(test_swap_whose_old_build_is_late_is_done_and_retires_it_at_close),
        cmocka_unit_test(test_swap_tries_to_retire_more_than_once),
        cmocka_unit_test(test_swap_whose_second_context_cannot_resume_is_half_and_can_be_finished),
        cmocka_unit_test(test_swap_half_done_can_be_taken_back),
        cmocka_unit_test(test_swap_leaves_a_closing_context_where_it_is),
        cmocka_unit_test(test_swap_in_a_forked_child_is_refused),
#ifdef CONVOY_FAULTS
        cmocka_unit_test(test_swap_with_any_allocation_failing_leaves_the_old_build_running),
        cmocka_unit_test(test_swap_context_open_with_any_allocation_failing_is_no_memory),
#endif
    };
    return cmocka_run_group_tests_name("swap", tests, NULL, NULL);
}
