/* SPDX-License-Identifier: Apache-2.0 */
/* A swap to another release and back, while two members in threads have two groups and an engine. */
#include "tests/abi/matrix.h"

#include <pthread.h>

#define STEPS 3u /* rounds before, after the swap, after the way back */

/* One thread's part. Barriers stand between rounds and swaps, which rank 0 makes. */
struct swap_member {
    convoy_loader *loader;
    const char *builds[STEPS]; /* to swap to before each step; NULL = none */
    pthread_barrier_t *barrier;
    struct matrix_place places[2];
};

static void swap_to(convoy_loader *loader, const char *build)
{
    struct convoy_swap_result result;
    int32_t status = convoy_loader_swap(loader, build, MATRIX_WAIT_NS, &result, &matrix_error);
    if (status != CONVOY_OK) { /* the old build goes on */
        matrix_seen("swap_refused", "%d %s", status, matrix_error.text);
        return;
    }
    matrix_same("swap", "contexts %u groups %u engines %u phase %u", result.context_count, result.group_count,
                result.engine_count, result.phase);
    matrix_seen("swapped", "%s to %s", result.from.release, result.to.release);
}

/* What was staged before the first swap goes to the second engine after each. */
static void step_transfer(struct matrix_engine *engines, convoy_transfer staged, uint32_t step)
{
    static const char *const names[STEPS] = {"before", "after", "back"};
    static char text[16384];
    struct convoy_text_buffer buffer = {.struct_size = sizeof buffer, .data = text, .capacity = sizeof text};
    int32_t status = convoy_host_transfer_descriptor(engines[0].engine, staged, CONVOY_DESCRIPTOR_JSON, &buffer,
                                                     &matrix_error);
    matrix_need(status, "descriptor");
    matrix_load(&engines[1], text, buffer.length, names[step]);
}

static void *member_run(void *argument)
{
    static const char *const prefixes[2][STEPS] = {{"one.before", "one.after", "one.back"},
                                                   {"two.before", "two.after", "two.back"}};
    static struct matrix_engine engines[2];
    const struct swap_member *own = argument;
    bool is_first = own->places[0].own == 0;
    convoy_host_context *context = matrix_context(own->loader);
    convoy_host_group *groups[2];
    convoy_transfer staged = 0;
    convoy_transfer held[MATRIX_HELD];
    convoy_peer peer = 0;
    for (uint32_t i = 0; i < 2; i++) {
        matrix_need(matrix_group_open(context, &own->places[i], &groups[i]), "group_open");
    }
    for (uint32_t i = 0; i < 2 && is_first; i++) {
        matrix_engine_open(context, false, &engines[i]);
    }
    if (is_first) {
        const char *session = engines[0].info.session;
        staged = matrix_stage(&engines[0], "kept");
        matrix_need(convoy_host_peer_connect(engines[1].engine, session, strlen(session), MATRIX_WAIT_NS, &peer,
                                             &matrix_error),
                    "peer_connect");
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        (void)pthread_barrier_wait(own->barrier);
        if (is_first && own->builds[step] != NULL) {
            matrix_held_begin(&engines[1], peer, held);
            swap_to(own->loader, own->builds[step]);
            matrix_held_end(&engines[1], &engines[0], held);
        }
        (void)pthread_barrier_wait(own->barrier);
        for (uint32_t i = 0; i < 2; i++) {
            matrix_rounds(groups[i], &own->places[i], step * 100, is_first ? prefixes[i][step] : NULL);
        }
        if (is_first) {
            matrix_group_look(groups[0], prefixes[0][step]);
            step_transfer(engines, staged, step);
        }
    }
    matrix_need(convoy_host_context_close(context, MATRIX_WAIT_NS, &matrix_error), "context_close");
    return NULL;
}

void matrix_swap(convoy_loader *loader, const char *own, const char *other, uint16_t port)
{
    pthread_barrier_t barrier;
    pthread_t thread;
    struct swap_member members[2];
    (void)pthread_barrier_init(&barrier, NULL, 2);
    for (uint32_t i = 0; i < 2; i++) {
        members[i] = (struct swap_member){.loader = loader,
                                          .builds = {NULL, other, own},
                                          .barrier = &barrier,
                                          .places = {{i, 2, port, "one"}, {i, 2, port, "two"}}};
    }
    if (pthread_create(&thread, NULL, member_run, &members[1]) != 0) {
        matrix_fail("swap", "pthread_create failed");
        return;
    }
    (void)member_run(&members[0]);
    (void)pthread_join(thread, NULL);
    (void)pthread_barrier_destroy(&barrier);
}
